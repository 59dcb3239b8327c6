"""The questions of a campaign of power cuts, one for each path and client, and their verdicts."""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from vdisklab.errors import DirtyHostError, PlanError, PowercutError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.operations.operation import DiskOperation
from vdisklab.path import disk_path, durability, segments
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting
from vdisklab.powercut import controls, crash_states
from vdisklab.powercut.client import (
    DEFAULT_WRITES,
    ClientDisk,
    Load,
    count_flushes,
    unrequested_flushes,
)
from vdisklab.powercut.client_guests import boot_sector_disk
from vdisklab.powercut.recordings import IMAGE_BYTES, Access, Recording, RunSpec
from vdisklab.powercut.session import Examination, PowerCutSession, repeated_while_held
from vdisklab.progress import Progress, Step
from vdisklab.results.model import HostFacts
from vdisklab.results.power_cut import (
    DURING,
    FAILING_REQUESTS,
    FAILING_SECONDS,
    MODEL,
    Counterexample,
    PowerCut,
)
from vdisklab.storage import write_log
from vdisklab.value import Value, field, replace

_MOST_RECORDINGS = 3
"""Maximum number of recordings of a run, until no other program flushes the disk during one."""

_FATAL = (DirtyHostError, crash_states.FutureVersionError, controls.ControlError)


class QuestionSettings(Value):
    """How each path is judged."""

    size: int = IMAGE_BYTES
    """Bytes of the image."""
    writes: int = DEFAULT_WRITES
    """How often the client writes."""
    flush_every: int = 4
    """The client flushes after so many writes."""
    depth: int = 1
    """Writes in flight at once."""
    seed: int = 1
    direct_io: bool = True
    post_recovery_states: int = 20
    sampling: crash_states.Sampling = field(default_factory=crash_states.Sampling)
    driver: DriverSetting = DriverSetting.AS_FOUND
    """How a guest changes its disk's write cache beforehand."""
    during: DiskOperation | None = None
    """The operation on the image in mid-run; None without one."""
    failing_seconds: float | None = None
    """How long storage fails; None: as long as the failure's row says."""
    failing_requests: int | None = None
    """How many requests fail at most; None: all in that time."""

    def as_stored(self) -> dict[str, Any]:
        """The settings under the keys that databases hold; fingerprints depend on them."""
        return {
            "size": self.size,
            "writes": self.writes,
            "flush_every": self.flush_every,
            "depth": self.depth,
            "seed": self.seed,
            "direct_io": self.direct_io,
            "afterlives": self.post_recovery_states,
            "wanted": to_builtins(self.sampling),
            "logged_by": "fuse",  # as earlier verdicts were stored
            "driver": self.driver.value,
            **({} if self.during is None else {DURING: str(self.during)}),
            **({} if self.failing_seconds is None else {FAILING_SECONDS: self.failing_seconds}),
            **({} if self.failing_requests is None else {FAILING_REQUESTS: self.failing_requests}),
        }


class Question(Value):
    """The question whether a path keeps what this client takes for durable, under a model."""

    path: disk_path.DiskPath
    client: ClientKind
    settings: QuestionSettings
    access: AccessKind = AccessKind.NBD
    model: durability.FailureModel = durability.FailureModel.POWER

    @property
    def stored_settings(self) -> dict[str, Any]:
        """The settings as stored; verdicts from before there were models are of `power`."""
        model = {} if self.model is durability.FailureModel.POWER else {MODEL: self.model.value}
        return {**self.settings.as_stored(), **model}

    def unanswered(
        self, name: str, host: HostFacts, started: datetime, seconds: float, failure: str | None
    ) -> PowerCut:
        """A verdict without an answer yet, or with the reason why there is none."""
        return PowerCut(
            id=name,
            fingerprint=self.fingerprint,
            path=self.path.canonical,
            client=self.client.value,
            access=self.access.value,
            host=host,
            started=started,
            wall_seconds=seconds,
            settings=self.stored_settings,
            failure=failure,
        )

    @property
    def recorded_run(self) -> tuple[object, ...]:
        """Equal for questions that the same recording answers."""
        survivors = self.model.spares_the_host, self.model.spares_qemu
        fails = self.model if self.model.fails_storage else None
        return self.path, self.client, self.settings, self.access, *survivors, fails

    @property
    def fingerprint(self) -> str:
        """Equal for equal questions, on every machine."""
        parts = [
            self.path.canonical, self.client.value, self.access.value, self.stored_settings,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def load(self) -> Load:
        """The client's load; a boot sector writes one sector after another."""
        settings = self.settings
        load = Load(
            self.client, settings.writes, settings.flush_every, settings.depth, settings.seed
        )
        if self.access is AccessKind.BOOT_SECTOR:
            return replace(load, depth=1, max_sectors=1)
        return load

    @property
    def writes_may_flush(self) -> bool:
        """True if a write may itself cause a flush: without a write cache, and possibly in a guest.

        The guest's driver decides that.
        """
        return self.access is not AccessKind.NBD or not self.path.offers_write_cache


def judge_questions(
    session: PowerCutSession,
    questions: Collection[Question],
    host: HostFacts,
    recordings: Path,
    progress: Progress,
) -> Iterator[PowerCut]:
    """Yields one verdict for each question; the verdict of a failed one holds the reason.

    The recording of a loss is kept below `recordings`, in a directory named by the verdict's id.
    Raises DirtyHostError, FutureVersionError and ControlError, after which no verdict is possible.
    """
    number = 1
    for _, group in itertools.groupby(questions, key=lambda question: question.recorded_run):
        same_run = tuple(group)
        first = same_run[0]
        progress(Step(f"{number} of {len(questions)}: {first.path}, client {first.client}"))
        yield from _judge(session, same_run, host, recordings)
        number += len(same_run)


class _Answer(Value):
    """The examination of a run, its flushes, and how often it was recorded.

    `not_kept` is the reason why the recording of a loss could not be stored. `held` counts earlier
    attempts that failed because another mount namespace held one of our mounts.
    """

    examination: Examination
    flushes: int
    unrequested: int
    recordings: int
    not_kept: str | None = None
    held: int = 0

    @property
    def disturbed(self) -> bool:
        """True when other programs' flushes may have hidden a loss.

        During a short run only the client has a reason to flush below a raw image. With other
        formats QEMU itself flushes to order metadata.
        """
        trace, verdict = self.examination.recording.trace, self.examination.verdict
        changes = trace.switch is not None and trace.switch.after.format is not None
        raw = trace.image_format == segments.ImageFormat.RAW and not changes
        return (
            raw
            and verdict.model.disk_reorders
            and self.unrequested > 0
            and verdict.survives is True
        )

    @property
    def claim(self) -> str:
        """The verdict's claim, with the flushes that may have helped."""
        verdict = self.examination.verdict
        if not (verdict.survives and verdict.model.disk_reorders and self.unrequested):
            return verdict.claim
        return (
            f"{verdict.claim}; {self.unrequested} of {self.flushes} flushes were not requested by "
            "the client and may have hidden a loss"
        )

    def counterexample(self, name: str) -> Counterexample | None:
        """The first state with a loss, with a note if it cannot be replayed."""
        state = self.examination.verdict.counterexample
        if state is None:
            return None
        detail = "; ".join(filter(None, (state.detail, self.not_kept)))
        return Counterexample(f"{name}/{state.cut}", state.outcome.value, detail)


def _judge(
    session: PowerCutSession, questions: Sequence[Question], host: HostFacts, recordings: Path
) -> Iterator[PowerCut]:
    """The verdicts on questions that the same recorded run answers, in their order."""
    names = [secrets.token_hex(4) for _ in questions]
    started, begun = datetime.now(UTC), time.monotonic()
    answers: Sequence[_Answer] = ()
    failure: str | None = None
    try:
        answers, held = repeated_while_held(
            lambda: _record_and_examine(session, questions, [recordings / name for name in names])
        )
        answers = [replace(answer, held=held) for answer in answers]
    except _FATAL:
        raise
    except VdisklabError as error:
        failure = "; ".join(filter(None, (error.message, error.hint)))
        for name in names:  # a loss of the same run may have been kept before
            shutil.rmtree(recordings / name, ignore_errors=True)
    seconds = (time.monotonic() - begun) / len(questions)
    for question, name, answer in itertools.zip_longest(questions, names, answers):
        blank = question.unanswered(name, host, started, seconds, failure)
        yield blank if answer is None else _filled(blank, answer)


def _filled(blank: PowerCut, answer: _Answer) -> PowerCut:
    verdict, judged = answer.examination.verdict, answer.examination.verdict.judged
    return replace(
        blank,
        survives=verdict.survives,
        claim=answer.claim,
        states=verdict.states,
        possible=_as_float(verdict.possible),
        exhaustive=verdict.exhaustive,
        acknowledged=verdict.acknowledged,
        flushes=answer.flushes,
        leaked_states=sum(state.leaked > 0 for state in judged),
        repaired_states=sum(state.repaired for state in judged),
        post_recovery_states=sum(state.written_after for state in judged),
        outcomes=dict(Counter(state.outcome.value for state in judged)),
        observed={
            **answer.examination.recording.trace.observed,
            "flushes.unasked": str(answer.unrequested),
            "recordings": str(answer.recordings),
            **({"recordings.held": str(answer.held)} if answer.held else {}),
        },
        counterexample=answer.counterexample(blank.id),
    )


def _as_float(count: int) -> float:
    """The count, or the largest float if the number of subsets exceeds it."""
    return float(count) if count.bit_length() < sys.float_info.max_exp else sys.float_info.max


def _record_and_examine(
    session: PowerCutSession, questions: Sequence[Question], keep_in: Sequence[Path]
) -> Sequence[_Answer]:
    """Records a run and judges it under each question's model.

    Repeats both while other programs' flushes disturb it.
    """
    number = 0
    while True:
        number += 1
        answers = _examine_once(session, questions, keep_in, number)
        if number == _MOST_RECORDINGS or not any(answer.disturbed for answer in answers):
            return answers


def _examine_once(
    session: PowerCutSession, questions: Sequence[Question], keep_in: Sequence[Path], number: int
) -> Sequence[_Answer]:
    """The answers in the order of the questions."""
    question = questions[0]
    settings = question.settings
    spec = RunSpec(
        question.path, question.load, question.access.value, settings.size,
        direct_io=settings.direct_io,
        host_survives=question.model.spares_the_host, during=settings.during,
    )  # fmt: skip
    if question.model.spares_qemu:
        return [_examine_resets(session, question, spec, keep_in[0])]
    recording = session.record(spec, _access(session, question))
    answers: list[_Answer] = []
    try:
        entries = write_log.read_log(recording.log).entries
        flushes = count_flushes(recording.trace, entries)
        unrequested = unrequested_flushes(
            recording.trace, entries, writes_flush=question.writes_may_flush
        )
        for each, directory in zip(questions, keep_in, strict=True):
            examination = session.examine(
                recording,
                settings.sampling,
                each.model,
                post_recovery_states=settings.post_recovery_states,
            )
            lost = examination.verdict.counterexample is not None
            not_kept = _keep(recording, directory) if lost else None
            answers.append(_Answer(examination, flushes, unrequested, number, not_kept))
        return answers
    finally:
        recording.remove()


def _examine_resets(
    session: PowerCutSession, question: Question, spec: RunSpec, keep_in: Path
) -> _Answer:
    states = question.settings.sampling.states
    in_guest = question.access is AccessKind.GUEST
    driver = question.settings.driver
    resettable = session.resettable_guest(question.load, driver) if in_guest else None
    examination = session.examine_resets(spec, states, resettable)
    recording = examination.recording
    try:
        flushes = count_flushes(recording.trace, write_log.read_log(recording.log).entries)
        lost = examination.verdict.counterexample is not None
        not_kept = _keep(recording, keep_in) if lost else None
        return _Answer(examination, flushes, 0, 1, not_kept)
    finally:
        recording.remove()


def _keep(recording: Recording, directory: Path) -> str | None:
    """Stores a recording; returns the reason if that fails, because the verdict remains valid."""
    shutil.rmtree(directory, ignore_errors=True)  # of an attempt before
    try:
        recording.copy_to(directory)
    except PowercutError as error:
        return str(error)
    return None


def _access(session: PowerCutSession, question: Question) -> Access:
    def guest(disk: Disk) -> AbstractContextManager[ClientDisk]:
        assert session.guests is not None  # noqa: S101 - opened for questions that need a guest
        return session.guests.open(disk, question.load, question.settings.driver)

    if question.client.is_database and question.access is not AccessKind.GUEST:
        raise PlanError("a database needs a guest to run in", hint="choose --access guest")
    match question.access:
        case AccessKind.BOOT_SECTOR:
            return lambda disk: boot_sector_disk(session.site, disk, session.boot_sectors_under)
        case AccessKind.GUEST:
            return guest
        case AccessKind.NBD:
            return session.over_nbd
