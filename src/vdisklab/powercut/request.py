"""The options of `vdisklab powercut`, one row each, and the questions that they ask."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.operations.operation import DiskOperation
from vdisklab.operations.registry import judged_names
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, FailureModel
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.needs import Need, needs_help, parse_need
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting
from vdisklab.path.rules import Impossible, not_failable, not_fillable, not_judgeable
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.campaign import Dropped
from vdisklab.plan.matrix import Matrix, expand_matrix, expand_paths, narrow_to_needs
from vdisklab.plan.option_rows import OptionRows, database_setting, option
from vdisklab.plan.settings import like
from vdisklab.plan.value_kinds import SWITCH, TEXT, WHOLE, Limits, one_of, several
from vdisklab.powercut import crash_states, mid_run, postgresql, recordings
from vdisklab.powercut.client import DEFAULT_WRITES
from vdisklab.powercut.client_guests import bus_refusal
from vdisklab.powercut.failing_clients import FAILING_CLIENTS
from vdisklab.powercut.failing_verdicts import RUNS
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.storage_failures import STORAGE_FAILURES
from vdisklab.value import Value, replace

DEFAULT_STATES = 1000
EXHAUSTIVE_CHANGES = 16
GUEST_RESETS = 8
_LONGEST_FAILURE = 600  # seconds
_MOST_FAILING_REQUESTS = 1_000_000
_MOST_WRITES = 10_000
"""More prove nothing: the client has about two thousand places to write to."""


@dataclass(frozen=True, slots=True)
class PowercutRequest(OptionRows):
    """A request to `vdisklab powercut`: paths, what writes to them, what dies, how to judge."""

    paths: tuple[str, ...] = like("paths")
    target: tuple[NamedTarget, ...] = like("target")
    clients: tuple[ClientKind, ...] = option(
        several(ClientKind, ClientKind),
        "When the client expects a write to be durable; can be repeated.",
        flag="--client",
        shown="flushes, fua and never",
    )
    access: AccessKind | None = option(
        one_of(AccessKind),
        "How the client reaches the disk: through QEMU's block layer alone, in a real Linux guest "
        "on the path's bus, or through the BIOS of a guest that never flushes (buses ide and "
        "virtio).",
        shown=f"{AccessKind.NBD}; failing storage {AccessKind.GUEST}",
    )
    drivers: tuple[DriverSetting, ...] = option(
        several(DriverSetting, DriverSetting),
        "How a guest first changes its disk's write cache: not at all, by `write through` in "
        "queue/write_cache or cache_type, or by hdparm -W0; may be given again.",
        flag="--driver",
        shown=DriverSetting.AS_FOUND.value,
    )
    states: int | None = option(
        WHOLE,
        "Judge at most N states of each run; of failing storage make N runs.",
        metavar="N",
        shown=f"{DEFAULT_STATES}; postgresql {postgresql.STATES}; failing storage {RUNS}",
        limits=Limits(1),
    )
    exhaustive: bool = option(
        SWITCH, f"Judge every state if at most {EXHAUSTIVE_CHANGES} writes are between two flushes."
    )
    writes: int | None = option(
        WHOLE,
        "Number of writes in each run.",
        shown=str(DEFAULT_WRITES),
        limits=Limits(1, _MOST_WRITES),
    )
    depth: int | None = option(
        WHOLE, "Number of requests in flight.", shown="1", limits=Limits(1, 64)
    )
    loop_direct_io: bool = option(
        SWITCH,
        "Whether the loop device below the file system bypasses the page cache.",
        True,
        flag="--loop-direct-io/--no-loop-direct-io",
        shown="loop-direct-io",
    )
    tear: int | None = option(
        WHOLE,
        "The unit that a disk writes as a whole: 4096, or 512 with fsck as part of recovery; 0: "
        "no tearing.",
        metavar="BYTES",
        shown=str(crash_states.TEAR_BYTES),
    )
    seed: int = option(WHOLE, "Seed for the places to write to and the sampled states.", 1)
    models: tuple[FailureModel, ...] = option(
        several(FailureModel, FailureModel),
        "What dies: the power of a disk with a volatile cache (power) or with power-loss "
        "protection (plp), the host's kernel (host-crash), QEMU (qemu-killed), the guest alone "
        "(guest-reset); or nothing dies, and for a while the storage below the image answers with "
        "errors (storage-error), has no space (storage-full), has reached its quota "
        "(storage-quota) or is silent (storage-silent), below a real guest that syncs files; can "
        "be repeated.",
        flag="--model",
        shown=FailureModel.POWER.value,
    )
    failing_seconds: int | None = option(
        WHOLE,
        "How long the storage fails.",
        metavar="SECONDS",
        shown=", ".join(
            f"{failure.seconds:g} of {model}" for model, failure in STORAGE_FAILURES.items()
        ),
        limits=Limits(1, _LONGEST_FAILURE),
    )
    failing_requests: int | None = option(
        WHOLE,
        "After N failed requests the storage is good again, even before its time is over; of "
        f"{FailureModel.STORAGE_SILENT} only N requests get no answer.",
        metavar="N",
        shown="all in that time",
        limits=Limits(1, _MOST_FAILING_REQUESTS),
    )
    during: tuple[DiskOperation, ...] = option(
        several(mid_run.parse_judged, str),
        f"Do this to the disk in the middle of each run: {judged_names()} are possible; can be "
        "repeated.",
        shown="no operation",
    )
    need: tuple[Need, ...] = option(
        several(parse_need, str),
        needs_help("Judge only paths that meet this need by the rules"),
        metavar="NEED",
    )
    replay: str | None = option(TEXT, "Rebuild one state and mount it.", metavar="CASE")
    accelerator: AcceleratorChoice | None = like("accelerator")
    guest_arch: str | None = like("guest_arch")
    directory: Path | None = like("directory")
    new: bool = option(SWITCH, "Judge again, even if this host has a verdict already.")
    db: str | None = database_setting()

    @property
    def sampling(self) -> crash_states.Sampling:
        """Which states to judge. Raises PlanError for options that contradict each other."""
        if self.states is not None and self.exhaustive:
            raise PlanError("--states and --exhaustive exclude each other", hint="give one of them")
        tear = crash_states.TEAR_BYTES if self.tear is None else self.tear
        if tear % 512 or tear < 0:
            raise PlanError(f"--tear {tear} is not a multiple of 512", hint="write 4096, 512 or 0")
        if self.exhaustive:
            return crash_states.Sampling(None, EXHAUSTIVE_CHANGES, tear, self.seed)
        return crash_states.Sampling(self.states or DEFAULT_STATES, tear=tear, seed=self.seed)

    @property
    def way(self) -> AccessKind:
        """How the client of a power cut reaches the disk."""
        return self.access or AccessKind.NBD

    @property
    def without_effect(self) -> Sequence[str]:
        """The options given that mean nothing to storage that fails: its guest writes what it
        does, and nothing of it is logged."""
        given = {
            f"--access {self.access}": self.access not in (None, AccessKind.GUEST),
            f"--driver {', '.join(self.drivers)}": bool(self.drivers),
            f"--writes {self.writes}": self.writes is not None,
            f"--depth {self.depth}": self.depth is not None,
            f"--tear {self.tear}": self.tear is not None,
            "--exhaustive": self.exhaustive,
            "--no-loop-direct-io": not self.loop_direct_io,
        }
        return [option for option, is_given in given.items() if is_given]


class PlannedQuestions(Value):
    """The questions to judge, and the paths that cannot be judged."""

    questions: tuple[Question, ...]
    dropped: tuple[Dropped, ...]

    @property
    def left_out(self) -> tuple[Dropped, ...]:
        """The dropped paths that were asked for."""
        return tuple(dict.fromkeys(dropped for dropped in self.dropped if dropped.asked))


def plan_questions(request: PowercutRequest) -> PlannedQuestions:
    """One question for each path, driver setting, client and model.

    Raises PlanError if none is left or the request contradicts itself.
    """
    settings = QuestionSettings(
        writes=request.writes or DEFAULT_WRITES,
        depth=request.depth or 1,
        seed=request.seed,
        direct_io=request.loop_direct_io,
        sampling=request.sampling,
    )
    matrix = _matrix(request)
    all_models = _models(request)
    failing = [model for model in all_models if model.fails_storage]
    models = [model for model in all_models if not model.fails_storage]
    clients = _clients(request) if models else ()
    drivers = _drivers(request)
    operations = tuple(dict.fromkeys(request.during)) or (None,)
    dropped = list(matrix.dropped)
    questions: list[Question] = []
    for path in dict.fromkeys(cell.path for cell in matrix.cells):
        if failing:
            more, refused_here = _with_failing_storage(path, failing, settings, request)
            questions += more
            dropped += refused_here
        if not models:
            continue
        judged_clients = [k for k in clients if k.uses_directories or not path.shares_directory]
        if not judged_clients:
            able = "SQLite" if ClientKind.POSTGRESQL in clients else "a database"
            dropped.append(
                Dropped(
                    path.canonical,
                    f"cannot be judged: only {able} in a guest writes to a directory",
                    f"choose --access {AccessKind.GUEST} --client {ClientKind.SQLITE_EXTRA}",
                )
            )
            continue
        refusals = {model: _refusal(model, path) for model in models}
        judgeable = [model for model, refused in refusals.items() if refused is None]
        dropped += [
            Dropped(path.canonical, refused.reason, refused.instead)
            for refused in refusals.values()
            if refused is not None
        ]
        for driver, operation in itertools.product(drivers, operations):
            bus = path.attachment.bus
            boots = request.way is AccessKind.BOOT_SECTOR
            refusal = (bus_refusal(bus) if boots else None) or driver.refusal(bus)
            if refusal is not None:
                dropped.append(Dropped(path.canonical, refusal.message, refusal.hint or ""))
                continue
            impossible = None if operation is None else operation.unjudged(path)
            if impossible is not None:
                dropped.append(Dropped(path.canonical, impossible.reason, impossible.instead))
                continue
            with_driver = replace(settings, driver=driver, during=operation)
            questions += [
                Question(path, kind, _under(with_driver, kind, model, request), request.way, model)
                for kind in judged_clients
                for model in judgeable
            ]
    if not questions:
        raise PlanError(f"{dropped[0].path}: {dropped[0].reason}", hint=dropped[0].instead)
    return PlannedQuestions(tuple(questions), tuple(dropped))


def _with_failing_storage(
    path: DiskPath,
    models: Sequence[FailureModel],
    settings: QuestionSettings,
    request: PowercutRequest,
) -> tuple[list[Question], list[Dropped]]:
    """The questions about a path whose storage fails, and why it is not judged under a model."""
    refused = not_failable(path) or _unused_filesystem(path, request.clients)
    if refused is not None:
        return [], [Dropped(path.canonical, refused.reason, refused.instead)]
    own_way = not_fillable(path)
    if own_way is None:
        return list(_storage_questions(path, models, settings, request)), []
    others = [model for model in models if not model.fills_storage]
    dropped = [Dropped(path.canonical, own_way.reason, own_way.instead)] * (others != [*models])
    return list(_storage_questions(path, others, settings, request)), dropped


def _refusal(model: FailureModel, path: DiskPath) -> Impossible | None:
    """Why a path cannot be judged under a model, which the reason names: with another model it may
    be."""
    refused = not_judgeable(path)
    if refused is None:
        return recordings.not_judgeable_under(model, path)
    reason = f"cannot be judged under {model}: it {refused.reason}"
    return Impossible(reason.replace(": it cannot be judged:", ":"), refused.instead)


def _unused_filesystem(path: DiskPath, clients: Sequence[ClientKind]) -> Impossible | None:
    """Why a path with a file system of the guest's is not for a client that uses none."""
    alone = [client for client in clients if not FAILING_CLIENTS[client].has_filesystem]
    if not alone or path.attachment.guest_fs is None:
        return None
    return Impossible(
        f"has guest_fs={path.attachment.guest_fs}, but the client {alone[0]} writes to the disk "
        "itself",
        f"leave out guest_fs, or choose --client {ClientKind.FILES}",
    )


def _storage_questions(
    path: DiskPath,
    models: Sequence[FailureModel],
    settings: QuestionSettings,
    request: PowercutRequest,
) -> Iterator[Question]:
    """A question for each model; they have a client and a number of runs of their own."""
    sampling = crash_states.Sampling(request.states or RUNS, seed=request.seed)
    seconds = None if request.failing_seconds is None else float(request.failing_seconds)
    failing = replace(
        settings,
        sampling=sampling,
        failing_seconds=seconds,
        failing_requests=request.failing_requests,
    )
    clients = tuple(dict.fromkeys(request.clients)) or (ClientKind.FILES,)
    for model, client in itertools.product(models, clients):
        yield Question(path, client, failing, AccessKind.GUEST, model)


def _under(
    settings: QuestionSettings, kind: ClientKind, model: FailureModel, request: PowercutRequest
) -> QuestionSettings:
    """The settings for a client under a model.

    Each reset of a guest is a boot and each state of PostgreSQL a recovery, so by default there are
    few.
    """
    if kind is ClientKind.POSTGRESQL:
        asked = request.states is not None or request.exhaustive
        states = settings.sampling.states if asked else postgresql.STATES
        return replace(
            settings, size=postgresql.disk_size(settings.writes),
            sampling=replace(settings.sampling, states=states),
        )  # fmt: skip
    boots = model.spares_qemu and request.way is AccessKind.GUEST
    if not boots or request.states is not None or request.exhaustive:
        return settings
    return replace(settings, sampling=replace(settings.sampling, states=GUEST_RESETS))


def _matrix(request: PowercutRequest) -> Matrix:
    if not request.paths:
        raise PlanError("no path is named", hint="`vdisklab powercut ext4/{raw,qcow2}/none`")
    failing = [model for model in request.models if model.fails_storage]
    only_storage = bool(failing) and len(failing) == len(request.models)
    refusal = not_failable if only_storage else not_judgeable
    for path in expand_paths(request.paths, targets=request.target):
        verdict = refusal(path) if path.target is not None else None
        if verdict is not None:
            raise PlanError(f"{path} {verdict.reason}", hint=verdict.instead)
    # Needs use rules, not stored power cuts, because the verdicts are what is requested.
    matrix = expand_matrix(request.paths)
    matrix = narrow_to_needs(matrix, request.need, CrashVerdicts(), refusal)
    for cell in matrix.cells if not failing else ():
        recordings.require_judgeable(cell.path)
    return matrix


def _clients(request: PowercutRequest) -> Sequence[ClientKind]:
    if request.way is AccessKind.BOOT_SECTOR:
        if set(request.clients) - {ClientKind.NEVER}:
            raise PlanError("a boot sector never flushes", hint="choose --client never")
        return [ClientKind.NEVER]
    databases = [kind for kind in request.clients if kind.is_database]
    if databases and request.way is not AccessKind.GUEST:
        raise PlanError(
            f"the client {databases[0]} needs a guest to run in", hint="choose --access guest"
        )
    return request.clients or [kind for kind in ClientKind if not kind.is_database]


def _models(request: PowercutRequest) -> Sequence[FailureModel]:
    _require_logged_operation(request)
    _require_synced_files(request)
    if FailureModel.GUEST_RESET in request.models:
        _require_resettable_client(request)
    return [model for model in FailureModel if model in request.models] or [FailureModel.POWER]


def _require_synced_files(request: PowercutRequest) -> None:
    """Raises PlanError for options that a guest whose storage fails does not have."""
    failing = next((model for model in request.models if model.fails_storage), None)
    if failing is None:
        limits = {
            "--failing-seconds": request.failing_seconds,
            "--failing-requests": request.failing_requests,
        }
        for option, limit in limits.items():
            if limit is not None:
                raise PlanError(
                    f"{option} is for storage that fails, and no such --model is given",
                    hint=f"add --model {FailureModel.STORAGE_ERROR}",
                )
        return
    alone = all(model.fails_storage for model in request.models)
    if alone and request.without_effect:
        options = ", ".join(request.without_effect)
        has = "have" if len(request.without_effect) > 1 else "has"
        raise PlanError(
            f"{options} {has} no effect on --model {failing}: a real guest writes, and nothing is "
            "logged",
            hint=f"leave out {options}",
        )


def _require_resettable_client(request: PowercutRequest) -> None:
    """Raises PlanError if the client cannot go on after a reset of its guest."""
    databases = [kind for kind in request.clients if kind.is_database]
    model = FailureModel.GUEST_RESET
    if request.way is AccessKind.BOOT_SECTOR:
        raise PlanError(
            f"--model {model} needs a client that goes on after it, and a boot sector begins anew",
            hint=f"choose --access {AccessKind.GUEST} or {AccessKind.NBD}",
        )
    if databases:
        raise PlanError(
            f"--model {model} needs a client that goes on after it, and {databases[0]} does not",
            hint=f"leave out --client {databases[0]}",
        )


def _require_logged_operation(request: PowercutRequest) -> None:
    """Raises PlanError if the operation in the middle of a run could not be logged."""
    if not request.during:
        return
    if request.way is not AccessKind.NBD:
        raise PlanError(
            f"--during {request.during[0]} is done by the storage daemon, without a guest",
            hint=f"leave out --access {request.way}",
        )
    alone = [model for model in request.models if model.spares_the_host]
    if alone:
        raise PlanError(
            f"--during {request.during[0]} cannot be judged under {alone[0]}: only one file is "
            + ("served" if alone[0].fails_storage else "logged"),
            hint=f"leave out --model {alone[0]}",
        )


def _drivers(request: PowercutRequest) -> Sequence[DriverSetting]:
    drivers = request.drivers or [DriverSetting.AS_FOUND]
    in_guest = request.way is AccessKind.GUEST
    if not in_guest and set(drivers) != {DriverSetting.AS_FOUND}:
        raise PlanError(
            f"--driver {drivers[0]} is a setting of a guest, but no guest runs",
            hint="choose --access guest",
        )
    return drivers
