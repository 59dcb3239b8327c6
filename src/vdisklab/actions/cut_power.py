"""Judges requested power cuts and stores the verdicts; replays cases."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.guest.accelerator import device_refused, kvm_error
from vdisklab.guest.factory import GuestContext
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.host.mounts import require_work_directory
from vdisklab.path.durability import FailureModel, Verdicts
from vdisklab.path.needs import Need
from vdisklab.path.segments import LayerKind
from vdisklab.plan.campaign import Dropped
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.plan.matrix import Matrix, expand_matrix, narrow_to_needs
from vdisklab.powercut.clients.block_operations import MidRunOperation
from vdisklab.powercut.clients.boot_sector import bus_refusal
from vdisklab.powercut.clients.client_guests import accelerator_seen, open_guests
from vdisklab.powercut.controls import controls_of, run_controls
from vdisklab.powercut.cutting.cuts import TEAR_BYTES, Sampling
from vdisklab.powercut.questions import Question, QuestionSettings, judge_questions
from vdisklab.powercut.recording.logged_disk import LoggedBy, require_log_writes
from vdisklab.powercut.recording.promises import DEFAULT_WRITES
from vdisklab.powercut.recording.recordings import (
    not_judgeable,
    not_judgeable_under,
    require_judgeable,
)
from vdisklab.powercut.session import PowerCutSession, open_session, replayed
from vdisklab.powercut.vocabulary import AccessKind, ClientKind, DriverSetting
from vdisklab.progress import Note, Progress
from vdisklab.results.model import HostFacts
from vdisklab.results.power_cut import ControlResult, PowerCut, ReplayedState
from vdisklab.results.store import Store, open_store
from vdisklab.storage.zfs import require_zfs
from vdisklab.units import counted

DEFAULT_STATES = 1000
EXHAUSTIVE_CHANGES = 16
GUEST_RESETS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCutRequest:
    """The requested power cuts. Empty `clients`, `drivers` and `models` mean the defaults."""

    paths: Sequence[str]
    clients: Sequence[ClientKind] = ()
    access: AccessKind = AccessKind.NBD
    drivers: Sequence[DriverSetting] = ()
    needs: Sequence[Need] = ()
    states: int | None = None
    exhaustive: bool = False
    tear: int = TEAR_BYTES
    writes: int = DEFAULT_WRITES
    depth: int = 1
    seed: int = 1
    direct_io: bool = True
    logged_by: LoggedBy = LoggedBy.FUSE
    models: Sequence[FailureModel] = ()
    during: Sequence[MidRunOperation] = ()


@dataclass(frozen=True, slots=True)
class PlannedQuestions:
    """The questions to judge, and the paths that cannot be judged."""

    questions: tuple[Question, ...]
    dropped: tuple[Dropped, ...]


def plan_questions(request: PowerCutRequest) -> PlannedQuestions:
    """One question for each path, driver setting, client and model.

    Raises PlanError if none is left or the request contradicts itself.
    """
    settings = QuestionSettings(
        writes=request.writes,
        depth=request.depth,
        seed=request.seed,
        direct_io=request.direct_io,
        sampling=_sampling(request),
        logged_by=request.logged_by,
    )
    matrix = _matrix(request)
    clients, drivers = _clients(request), _drivers(request)
    models = _models(request)
    dropped = list(matrix.dropped)
    questions: list[Question] = []
    for path in dict.fromkeys(cell.path for cell in matrix.cells):
        judged_clients = [kind for kind in clients if kind.is_database or not path.shares_directory]
        if not judged_clients:
            dropped.append(
                Dropped(
                    path.canonical,
                    "cannot be judged: only a database in a guest writes to a directory",
                    f"choose --access {AccessKind.GUEST} --client {ClientKind.SQLITE_EXTRA}",
                )
            )
            continue
        refusals = {model: not_judgeable_under(model, path) for model in models}
        judgeable = [model for model, refused in refusals.items() if refused is None]
        dropped += [
            Dropped(path.canonical, refused.reason, refused.instead)
            for refused in refusals.values()
            if refused is not None
        ]
        for driver, operation in itertools.product(drivers, request.during or (None,)):
            bus = path.attachment.bus
            boots = request.access is AccessKind.BOOT_SECTOR
            refusal = (bus_refusal(bus) if boots else None) or driver.refusal(bus)
            if refusal is not None:
                dropped.append(Dropped(path.canonical, refusal.message, refusal.hint or ""))
                continue
            impossible = None if operation is None else operation.refusal(path)
            if impossible is not None:
                dropped.append(Dropped(path.canonical, impossible.reason, impossible.instead))
                continue
            with_driver = replace(settings, driver=driver, during=operation)
            questions += [
                Question(path, kind, _under(with_driver, model, request), request.access, model)
                for kind in judged_clients
                for model in judgeable
            ]
    if not questions:
        raise PlanError(f"{dropped[0].path}: {dropped[0].reason}", hint=dropped[0].instead)
    return PlannedQuestions(tuple(questions), tuple(dropped))


def _under(
    settings: QuestionSettings, model: FailureModel, request: PowerCutRequest
) -> QuestionSettings:
    """The settings under a model: each reset of a guest is a boot, so by default there are few."""
    boots = model.spares_qemu and request.access is AccessKind.GUEST
    if not boots or request.states is not None or request.exhaustive:
        return settings
    return replace(settings, sampling=replace(settings.sampling, states=GUEST_RESETS))


def _sampling(request: PowerCutRequest) -> Sampling:
    if request.states is not None and request.exhaustive:
        raise PlanError("--states and --exhaustive exclude each other", hint="give one of them")
    if request.tear % 512 or request.tear < 0:
        raise PlanError(
            f"--tear {request.tear} is not a multiple of 512", hint="write 4096, 512 or 0"
        )
    if request.exhaustive:
        return Sampling(None, EXHAUSTIVE_CHANGES, request.tear, request.seed)
    return Sampling(request.states or DEFAULT_STATES, tear=request.tear, seed=request.seed)


def _matrix(request: PowerCutRequest) -> Matrix:
    if not request.paths:
        raise PlanError("no path is named", hint="`vdisklab powercut ext4/{raw,qcow2}/none`")
    # Needs use rules, not stored power cuts, because the verdicts are what is requested.
    matrix = expand_matrix(tuple(request.paths))
    matrix = narrow_to_needs(matrix, request.needs, Verdicts(), not_judgeable)
    for cell in matrix.cells:
        require_judgeable(cell.path)
    return matrix


def _clients(request: PowerCutRequest) -> Sequence[ClientKind]:
    if request.access is AccessKind.BOOT_SECTOR:
        if set(request.clients) - {ClientKind.NEVER}:
            raise PlanError("a boot sector never flushes", hint="choose --client never")
        return [ClientKind.NEVER]
    databases = [kind for kind in request.clients if kind.is_database]
    if databases and request.access is not AccessKind.GUEST:
        raise PlanError(
            f"the client {databases[0]} needs a guest to run in", hint="choose --access guest"
        )
    return request.clients or [kind for kind in ClientKind if not kind.is_database]


def _models(request: PowerCutRequest) -> Sequence[FailureModel]:
    _require_logged_operation(request)
    if FailureModel.GUEST_RESET in request.models:
        _require_resettable_client(request)
    return [model for model in FailureModel if model in request.models] or [FailureModel.POWER]


def _require_resettable_client(request: PowerCutRequest) -> None:
    """Raises PlanError if the client cannot go on after a reset of its guest."""
    databases = [kind for kind in request.clients if kind.is_database]
    model = FailureModel.GUEST_RESET
    if request.access is AccessKind.BOOT_SECTOR:
        raise PlanError(
            f"--model {model} needs a client that goes on after it, and a boot sector begins anew",
            hint=f"choose --access {AccessKind.GUEST} or {AccessKind.NBD}",
        )
    if databases:
        raise PlanError(
            f"--model {model} needs a client that goes on after it, and {databases[0]} does not",
            hint=f"leave out --client {databases[0]}",
        )


def _require_logged_operation(request: PowerCutRequest) -> None:
    """Raises PlanError if what is done in the middle of a run could not be logged."""
    if not request.during:
        return
    if request.access is not AccessKind.NBD:
        raise PlanError(
            f"--during {request.during[0]} is done by the storage daemon, without a guest",
            hint=f"leave out --access {request.access}",
        )
    alone = [model for model in request.models if model.spares_the_host]
    if alone:
        raise PlanError(
            f"--during {request.during[0]} cannot be judged under {alone[0]}: only one file is "
            "logged",
            hint=f"leave out --model {alone[0]}",
        )
    if request.logged_by is not LoggedBy.FUSE:
        raise PlanError(
            f"--during needs the positions of --logged-by {LoggedBy.FUSE}",
            hint=f"leave out --logged-by {request.logged_by}",
        )


def _drivers(request: PowerCutRequest) -> Sequence[DriverSetting]:
    drivers = request.drivers or [DriverSetting.AS_FOUND]
    in_guest = request.access is AccessKind.GUEST
    if not in_guest and set(drivers) != {DriverSetting.AS_FOUND}:
        raise PlanError(
            f"--driver {drivers[0]} is a setting of a guest, but no guest runs",
            hint="choose --access guest",
        )
    return drivers


@dataclass(frozen=True, slots=True)
class PowerCutAnswer:
    """Verdicts in the order of the questions, and the controls that ran; partial if interrupted."""

    verdicts: tuple[PowerCut, ...]
    controls: tuple[ControlResult, ...]
    interrupted: bool

    @property
    def any_failed(self) -> bool:
        """True when a path could not be judged."""
        return any(verdict.failure for verdict in self.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCutPlace:
    """The environment for judging: the work directory, guests and their cache, the database."""

    work: Path
    database: str
    guest: GuestPlan
    guest_cache: Path


def judge_power_cuts(
    questions: Sequence[Question], place: PowerCutPlace, progress: Progress, *, new: bool
) -> PowerCutAnswer:
    """Judges the questions and stores each verdict at once.

    Questions with a stored verdict for this machine, kernel and QEMU are not judged again unless
    `new` is set, or another accelerator than the verdict's was requested. Raises HostError when
    this host lacks something, and the errors of `judge_questions`.
    """
    host = collect_facts(LocalHost())
    controls: list[ControlResult] = []
    interrupted = False
    with open_store(place.database) as store:
        verdicts = {} if new else _stored(store, host, place.guest.accelerator)
        open_questions = [
            question for question in questions if question.fingerprint not in verdicts
        ]
        try:
            if open_questions:
                judging = _judge(open_questions, place, host, progress, controls)
                with closing(judging):
                    for verdict in judging:
                        store.add_power_cut(verdict)
                        verdicts[verdict.fingerprint] = verdict
        except KeyboardInterrupt:
            interrupted = True
    answered = [question.fingerprint for question in questions if question.fingerprint in verdicts]
    return PowerCutAnswer(
        tuple(verdicts[fingerprint] for fingerprint in answered), tuple(controls), interrupted
    )


def _stored(store: Store, host: HostFacts, requested: Accelerator | None) -> dict[str, PowerCut]:
    """The stored verdicts of this machine, kernel and QEMU, by fingerprint."""
    fitting = None if requested is None else accelerator_seen(requested)
    return {
        verdict.fingerprint: verdict
        for verdict in store.power_cuts(host.machine_id)
        if verdict.failure is None
        and verdict.applies_to(host)
        and (
            fitting is None
            or verdict.access == AccessKind.NBD
            or fitting.items() <= verdict.seen.items()
        )
    }


def _judge(
    questions: Sequence[Question],
    place: PowerCutPlace,
    facts: HostFacts,
    progress: Progress,
    controls: list[ControlResult],
) -> Generator[PowerCut, None, None]:
    """Runs the controls, adds their results to `controls`, then yields the verdicts."""
    require_work_directory(place.work)
    host = LocalHost()
    if any(question.settings.logged_by is LoggedBy.DM for question in questions):
        require_log_writes(host)  # before the controls, which take a minute
    recovered = (item.path for item in questions if not item.model.spares_the_host)
    if any(layer.kind is LayerKind.ZFS for path in recovered for layer in path.layers):
        require_zfs(host)
    with (
        open_ledger() as ledger,
        open_session(host, ledger, place.work) as session,
        _guests_for(session, questions, place, progress),
    ):
        models = {question.model for question in questions}
        during = {question.settings.during for question in questions}
        operations = [operation for operation in during if operation is not None]
        in_guest = any(question.access is AccessKind.GUEST for question in questions)
        controlling = controls_of(models, operations, in_guest=in_guest)
        for result in run_controls(session, progress, controlling):
            controls.append(result)
            losses = f"{result.losses} of {counted(result.states, 'state')} lost data"
            progress(Note(f"control passed: {result.name}: {losses}"))
        yield from judge_questions(session, questions, facts, kept_recordings(), progress)


@contextmanager
def _guests_for(
    session: PowerCutSession,
    questions: Sequence[Question],
    place: PowerCutPlace,
    progress: Progress,
) -> Iterator[None]:
    """Opens guests for the session while the context is open, if a question needs them."""
    session.boot_sectors_under = place.guest.accelerator or Accelerator.TCG
    boot_sectors = any(question.access is AccessKind.BOOT_SECTOR for question in questions)
    if boot_sectors and session.boot_sectors_under is Accelerator.KVM:
        refused = device_refused()
        if refused is not None:
            raise kvm_error(refused)
    paths = [question.path for question in questions if question.access is AccessKind.GUEST]
    if not paths:
        yield
        return
    context = GuestContext(session.site.host, session.site.ledger, place.guest_cache, progress)
    buses = frozenset(path.attachment.bus for path in paths)
    with open_guests(context, place.guest, buses, session.site) as session.guests:
        yield


def kept_recordings() -> Path:
    """The directory in which recordings of losses are kept for `--replay`."""
    return state_directory() / "powercut"


@contextmanager
def replay_case(work: Path, case: str) -> Iterator[ReplayedState]:
    """Rebuilds the state of a case, and mounts it while the context is open.

    Raises PowercutError for an unknown case.
    """
    with (
        open_ledger() as ledger,
        replayed(LocalHost(), ledger, work, kept_recordings(), case) as state,
    ):
        yield state
