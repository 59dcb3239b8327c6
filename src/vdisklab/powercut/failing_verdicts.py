"""The verdicts on paths whose storage fails, each from several runs, and the controls before."""

from __future__ import annotations

import itertools
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind, RunOutcome
from vdisklab.powercut.controls import ControlError
from vdisklab.powercut.failing_runs import FailingImage, FailingRun, failing_image, run_failure
from vdisklab.powercut.questions import Question
from vdisklab.powercut.session import PowerCutSession, repeated_while_held
from vdisklab.powercut.storage_failures import STORAGE_FAILURES, StorageFailure
from vdisklab.progress import Progress, Step
from vdisklab.results.model import HostFacts
from vdisklab.results.power_cut import ControlResult, PowerCut, StorageFacts
from vdisklab.storage.failing_disk import Behaviour

RUNS = 5
"""Runs of each question, unless the user wants another number."""

_THIN = "raw:preallocation=off/none/virtio"
_ERRORS = StorageFailure(Behaviour.ERROR, seconds=1.0)


@dataclass(frozen=True, slots=True)
class StorageControl:
    """A failure with a known result; `problem` says what a run lacks that should have been so."""

    name: str
    path: str
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


STORAGE_CONTROLS: Sequence[StorageControl] = (
    StorageControl(
        "storage that does not fail", _THIN, StorageFailure(Behaviour.GOOD, 0.3), _nothing
    ),
    StorageControl(
        "storage that says yes and forgets", _THIN, StorageFailure(Behaviour.FORGETFUL, 0.5),
        _untold, must_lose=True,
    ),
    StorageControl(
        "errors that QEMU ignores (werror=ignore)", f"{_THIN}:werror=ignore:rerror=ignore", _ERRORS,
        _untold, must_lose=True,
    ),
    StorageControl(
        "errors that stop the guest (werror=stop)", f"{_THIN}:werror=stop:rerror=stop", _ERRORS,
        _paused,
    ),
    StorageControl(
        "errors that the guest is told (werror=report)", f"{_THIN}:werror=report", _ERRORS, _told
    ),
    StorageControl(
        "errors in the journal of the guest's ext4 alone", f"{_THIN}:werror=report",
        replace(_ERRORS, journal_only=True), _aborted,
    ),
)  # fmt: skip


def run_storage_controls(session: PowerCutSession, progress: Progress) -> Iterator[ControlResult]:
    """Yields each control's result. Raises ControlError at the first failure."""
    for number, control in enumerate(STORAGE_CONTROLS, 1):
        progress(Step(f"control: {control.name}"))
        with failing_image(session.site, parse_path(control.path), f"control{number}") as image:
            run = _run(session, image, control.failure, f"control{number}-run", number)
        yield ControlResult(control.name, control.must_lose, 1, int(run.lost > 0))
        wrong = control.problem(run)
        if (run.lost > 0) != control.must_lose:
            wrong = f"{run.lost} of {run.acknowledged} acknowledged files were lost"
        if wrong is not None:
            raise ControlError(
                f"the control `{control.name}` failed: {wrong}",
                hint="no path can be judged on this machine; please report this",
            )


def judge_storage_failures(
    session: PowerCutSession, questions: Collection[Question], host: HostFacts, progress: Progress
) -> Iterator[PowerCut]:
    """Yields one verdict for each question; that of a failed one holds the reason.

    Raises DirtyHostError, after which no verdict is possible.
    """
    numbers = itertools.count(1)
    for question in questions:
        number = next(numbers)
        what = f"{number} of {len(questions)}: {question.path}, {question.model}"
        progress(Step(what))
        yield _judge(session, question, host, f"failing{number}", progress)


def _judge(
    session: PowerCutSession, question: Question, host: HostFacts, name: str, progress: Progress
) -> PowerCut:
    started, begun = datetime.now(UTC), time.monotonic()
    runs: list[FailingRun] = []
    failure: str | None = None
    settings = question.settings
    wanted = settings.sampling.states or RUNS
    kind = STORAGE_FAILURES[question.model].lasting(settings.failing_seconds)
    try:
        with failing_image(session.site, question.path, name) as image:
            for number in range(1, wanted + 1):
                progress(Step(f"{question.path}, {question.model}: run {number} of {wanted}"))
                seed = settings.seed + number
                attempt = partial(
                    _run, session, image, kind, f"{name}-{number}", seed, client=question.client
                )
                run, _ = repeated_while_held(attempt)
                runs.append(run)
    except DirtyHostError:
        raise
    except VdisklabError as error:
        failure = "; ".join(filter(None, (error.message, error.hint)))
    seconds = time.monotonic() - begun
    blank = question.unanswered(secrets.token_hex(4), host, started, seconds, failure)
    return blank if failure is not None or not runs else _filled(blank, runs)


def _run(
    session: PowerCutSession,
    image: FailingImage,
    failure: StorageFailure,
    name: str,
    seed: int,
    *,
    client: ClientKind = ClientKind.FILES,
) -> FailingRun:
    guests = session.guests
    assert guests is not None  # noqa: S101 - opened for questions that need a guest
    return run_failure(
        session.site, guests.with_disk, image, failure, name=name, seed=seed, client=client
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
