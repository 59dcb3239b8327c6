"""The verdicts on paths whose storage fails, each from several runs, and the controls before."""

from __future__ import annotations

import itertools
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.power_cut_words import ClientKind, RunOutcome
from vdisklab.path.segments import GuestFsKind, ImageFormat
from vdisklab.powercut.controls import ControlError
from vdisklab.powercut.failing_clients import FAILING_CLIENTS
from vdisklab.powercut.failing_runs import (
    FailingImage,
    FailingRun,
    Keeper,
    failing_image,
    run_failure,
)
from vdisklab.powercut.kept_runs import KeptRun, case_of, keep_run
from vdisklab.powercut.questions import Question
from vdisklab.powercut.session import PowerCutSession, repeated_while_held
from vdisklab.powercut.storage_failures import STORAGE_FAILURES, FailingPart, StorageFailure
from vdisklab.progress import Progress, Step
from vdisklab.results.model import HostFacts
from vdisklab.results.power_cut import (
    ControlResult,
    Counterexample,
    PowerCut,
    StorageFacts,
    failure_words,
)
from vdisklab.storage.failing_disk import Behaviour
from vdisklab.storage.site import Site
from vdisklab.value import Value, replace

RUNS = 5
"""Runs of each question, unless the user wants another number."""

_THIN = "raw:preallocation=off/none/virtio"
_ERRORS = StorageFailure(Behaviour.ERROR, seconds=1.0)


class StorageControl(Value):
    """A failure with a known result; `problem` says what a run lacks that should have been so.

    `policy` is QEMU's, as options of the bus.
    """

    name: str
    policy: Mapping[str, str]
    failure: StorageFailure
    problem: Callable[[FailingRun], str | None]
    must_lose: bool = False


def _nothing(run: FailingRun) -> str | None:
    if run.failed or run.told or run.kernel or run.outcome is not RunOutcome.GOES_ON:
        return f"something changed: {run.outcome}, {run.failed} failed requests, {run.kernel}"
    return None


def _untold(run: FailingRun) -> str | None:
    return f"the program was told: {run.error}" if run.told else None


def _paused(run: FailingRun) -> str | None:
    if run.outcome is not RunOutcome.PAUSED or run.told:
        return f"the guest was not paused: {run.outcome}"
    return None


def _told(run: FailingRun) -> str | None:
    return None if run.told else "the program was told of no failure"


def _aborted(run: FailingRun) -> str | None:
    if run.outcome is not RunOutcome.READ_ONLY or "journal aborted" not in run.kernel:
        return f"ext4 did not abort its journal: {run.outcome}, {run.kernel}"
    return None


def _stayed_writable(run: FailingRun) -> str | None:
    if run.outcome is not RunOutcome.GOES_ON or not run.told:
        return f"ext4 did not stay writable: {run.outcome}, {run.kernel}"
    return None


_TOLD_CONTROL = StorageControl(
    "errors that the guest is told (werror=report)", {"werror": "report"}, _ERRORS, _told
)

STORAGE_CONTROLS: Sequence[StorageControl] = (
    StorageControl("storage that does not fail", {}, StorageFailure(Behaviour.GOOD, 0.3), _nothing),
    StorageControl(
        "storage that says yes and forgets", {}, StorageFailure(Behaviour.FORGETFUL, 0.5), _untold,
        must_lose=True,
    ),
    StorageControl(
        "errors that QEMU ignores (werror=ignore)", {"werror": "ignore", "rerror": "ignore"},
        _ERRORS, _untold, must_lose=True,
    ),
    StorageControl(
        "errors that stop the guest (werror=stop)", {"werror": "stop", "rerror": "stop"}, _ERRORS,
        _paused,
    ),
    _TOLD_CONTROL,
)  # fmt: skip
"""They are run for each client and file system that is judged."""

JOURNAL_CONTROL = StorageControl(
    "errors in the journal of the guest's ext4 alone", {"werror": "report"},
    replace(_ERRORS, part=FailingPart.JOURNAL), _aborted,
)  # fmt: skip
DATA_CONTROL = StorageControl(
    "errors in the data of the guest's ext4 alone", {"werror": "report"},
    replace(_ERRORS, part=FailingPart.NEW_DATA), _stayed_writable,
)  # fmt: skip
"""What becomes of an ext4 that is told of errors depends on which of its blocks are hit."""


class ControlledGuest(Value):
    """What writes in a guest, and on what: a client, and a file system of the guest's."""

    client: ClientKind = ClientKind.FILES
    filesystem: GuestFsKind | None = GuestFsKind.EXT4

    @classmethod
    def of(cls, question: Question) -> ControlledGuest:
        """That of a question."""
        if not FAILING_CLIENTS[question.client].has_filesystem:
            return cls(question.client, None)
        return cls(
            question.client, GuestFsKind(question.path.attachment.guest_fs or GuestFsKind.EXT4)
        )

    @property
    def controls(self) -> Sequence[StorageControl]:
        """The controls that mean something here."""
        if self.client is ClientKind.SQLITE_DELETE:
            # It does not sync the directory after a COMMIT, so an abort of the journal may undo it.
            return [control for control in STORAGE_CONTROLS if control is not _TOLD_CONTROL]
        if self == ControlledGuest():
            return (*STORAGE_CONTROLS, JOURNAL_CONTROL, DATA_CONTROL)
        return STORAGE_CONTROLS

    @property
    def title(self) -> str:
        """What distinguishes its controls from those of files on ext4, for people."""
        if self == ControlledGuest():
            return ""
        where = "" if self.filesystem is None else f" on {self.filesystem}"
        return f", {self.client}{where}"

    def path(self, policy: Mapping[str, str]) -> DiskPath:
        """A thin image with such a file system, and with QEMU's policy."""
        options = dict(policy)
        if self.filesystem not in (None, GuestFsKind.EXT4):
            options["guest_fs"] = str(self.filesystem)
        written = "".join(f":{name}={value}" for name, value in sorted(options.items()))
        return parse_path(f"{_THIN}{written}")


def run_storage_controls(
    session: PowerCutSession, guests: Collection[ControlledGuest], progress: Progress
) -> Iterator[ControlResult]:
    """Yields each control's result. Raises ControlError at the first failure."""
    numbers = itertools.count(1)
    for guest in dict.fromkeys(guests):
        for control in guest.controls:
            number, name = next(numbers), f"{control.name}{guest.title}"
            progress(Step(f"control: {name}"))
            path = guest.path(control.policy)
            with failing_image(session.site, path, f"control{number}", guest.client) as image:
                run = _run(session, image, control.failure, f"control{number}-run", number)
            lost = run.outcome.is_loss
            wrong = control.problem(run)
            if lost != control.must_lose:
                wrong = f"{run.lost} of {run.acknowledged} acknowledged were lost: {run.outcome}"
            if wrong is not None:
                detail = f" ({run.detail})" if run.detail else ""
                raise ControlError(
                    f"the control `{name}` failed: {wrong}{detail}",
                    hint="no path can be judged on this machine; please report this",
                )
            yield ControlResult(name, control.must_lose, 1, int(lost))


def judge_storage_failures(
    session: PowerCutSession,
    questions: Collection[Question],
    host: HostFacts,
    kept: Path,
    progress: Progress,
) -> Iterator[PowerCut]:
    """Yields one verdict for each question; that of a failed one holds the reason.

    The guest's disk of the first run with a loss is kept below `kept`, in a directory named by the
    verdict's id. Raises DirtyHostError, after which no verdict is possible.
    """
    numbers = itertools.count(1)
    for question in questions:
        number = next(numbers)
        what = f"{number} of {len(questions)}: {question.path}, {question.model}"
        progress(Step(what))
        yield _judge(session, question, host, progress, name=f"failing{number}", kept=kept)


def _judge(
    session: PowerCutSession,
    question: Question,
    host: HostFacts,
    progress: Progress,
    *,
    name: str,
    kept: Path,
) -> PowerCut:
    verdict = secrets.token_hex(4)
    keepers = _KeptCase(session.site, question, kept / verdict)
    started, begun = datetime.now(UTC), time.monotonic()
    runs: list[FailingRun] = []
    failure: str | None = None
    settings = question.settings
    wanted = settings.sampling.states or RUNS
    kind = STORAGE_FAILURES[question.model].lasting(
        settings.failing_seconds, settings.failing_requests
    )
    try:
        with failing_image(session.site, question.path, name, question.client) as image:
            for number in range(1, wanted + 1):
                progress(Step(f"{question.path}, {question.model}: run {number} of {wanted}"))
                seed = settings.seed + number
                attempt = partial(
                    _run,
                    session,
                    image,
                    kind,
                    f"{name}-{number}",
                    seed,
                    keep_as=keepers.of(number),
                )
                run, _ = repeated_while_held(attempt)
                runs.append(run)
    except DirtyHostError:
        raise
    except VdisklabError as error:
        failure = "; ".join(filter(None, (error.message, error.hint)))
    seconds = time.monotonic() - begun
    blank = question.unanswered(verdict, host, started, seconds, failure)
    if failure is not None or not runs:
        return blank
    return replace(_filled(blank, runs), counterexample=keepers.case)


@dataclass(slots=True)
class _KeptCase:
    """Keeps the guest's disk of the first run of a question that lost or damaged something."""

    site: Site
    question: Question
    directory: Path
    case: Counterexample | None = None

    def of(self, number: int) -> Keeper:
        """What keeps the run with this number, unless one is kept."""

        def keep(file: Path, image: FailingImage, run: FailingRun) -> None:
            if self.case is not None:
                return
            asked = self.question
            failed = failure_words(asked.model, asked.stored_settings)
            facts = KeptRun(
                str(asked.path), asked.client, image.filesystem, run.outcome, run.detail, number,
                failed,
            )  # fmt: skip
            refused = keep_run(
                self.site, file, ImageFormat(image.image.format), facts, self.directory
            )
            detail = "; ".join(filter(None, (run.detail, refused)))
            self.case = Counterexample(case_of(self.directory.name, number), run.outcome, detail)

        return keep


def _run(
    session: PowerCutSession,
    image: FailingImage,
    failure: StorageFailure,
    name: str,
    seed: int,
    *,
    keep_as: Keeper | None = None,
) -> FailingRun:
    guests = session.guests
    assert guests is not None  # noqa: S101 - opened for questions that need a guest
    return run_failure(
        session.site, guests.with_disk, image, failure, name=name, seed=seed, keep_as=keep_as
    )


def _filled(blank: PowerCut, runs: Sequence[FailingRun]) -> PowerCut:
    facts = facts_of(runs)
    losing = any(run.outcome.is_loss for run in runs)
    return replace(
        blank,
        survives=not losing if facts.acknowledged else None,
        states=len(runs),
        acknowledged=facts.acknowledged,
        outcomes=dict(Counter(run.outcome.value for run in runs)),
        observed={**runs[0].observed, **facts.as_stored()},
    )


def facts_of(runs: Sequence[FailingRun]) -> StorageFacts:
    """What several runs of one question showed together; seconds are medians."""
    kernel: Counter[str] = Counter()
    for run in runs:
        kernel.update(set(run.kernel))
    errors = Counter(run.error for run in runs if run.error).most_common(1)
    worst = max(runs, key=lambda run: tuple(RunOutcome).index(run.outcome))
    return StorageFacts(
        worst=worst.outcome.value,
        acknowledged=sum(run.acknowledged for run in runs),
        lost=sum(run.lost for run in runs),
        told=sum(run.told for run in runs),
        failed=sum(run.failed for run in runs),
        failed_flushes=sum(run.failed_flushes for run in runs),
        paused_runs=sum(run.paused_after is not None for run in runs),
        paused_after=_median([run.paused_after for run in runs]),
        told_runs=sum(run.told > 0 for run in runs),
        told_after=_median([run.told_after for run in runs]),
        again=sum(run.again for run in runs),
        again_lost=sum(run.again_lost for run in runs),
        error=errors[0][0] if errors else "",
        kernel=dict(kernel),
        detail=worst.detail,
    )


def _median(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None
