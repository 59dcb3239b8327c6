"""A campaign of power cuts: every path with every kind of client, one verdict after the other."""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from vdisklab.errors import DirtyHostError, PlanError, PowercutError, VdisklabError
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import ImageFormat
from vdisklab.powercut.clients.bootsector import boot_sector_disk
from vdisklab.powercut.clients.driver import DriverSetting
from vdisklab.powercut.controls import ControlError
from vdisklab.powercut.cutting.cuts import Wanted
from vdisklab.powercut.judging.judge import FutureVersionError
from vdisklab.powercut.judging.verdict import Judged
from vdisklab.powercut.judging.workers import HangError
from vdisklab.powercut.recording.flushes import count_flushes, unasked_flushes
from vdisklab.powercut.recording.log import read_log
from vdisklab.powercut.recording.logdisk import LoggedBy
from vdisklab.powercut.recording.record import Load, PromisingDisk
from vdisklab.powercut.recording.recording import IMAGE_BYTES, Access, Asked, Recording
from vdisklab.powercut.recording.trace import ClientKind
from vdisklab.powercut.session import AFTERLIVES, Examined, Lab
from vdisklab.progress import Progress, Step
from vdisklab.results.model import HostFacts
from vdisklab.results.powercut import Counterexample, PowerCut


class AccessKind(StrEnum):
    """Through what the client writes."""

    NBD = "nbd"
    BOOT_SECTOR = "boot-sector"
    GUEST = "guest"


_RECORDINGS = 3
"""So often at most is a run recorded until nobody else flushes the disk meanwhile."""

_FATAL = (DirtyHostError, FutureVersionError, ControlError)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of every path. Equal settings ask the same question.

    `driver` is what a guest does to its disk's write cache first.
    """

    size: int = IMAGE_BYTES
    writes: int = 80
    flush_every: int = 4
    depth: int = 1
    seed: int = 1
    direct_io: bool = True
    afterlives: int = AFTERLIVES
    wanted: Wanted = field(default_factory=Wanted)
    logged_by: LoggedBy = LoggedBy.FUSE
    driver: DriverSetting = DriverSetting.AS_FOUND


@dataclass(frozen=True, slots=True)
class Question:
    """Does this path keep what this kind of client was promised?"""

    path: DiskPath
    client: ClientKind
    settings: Settings
    access: AccessKind = AccessKind.NBD

    @property
    def fingerprint(self) -> str:
        """Equal for equal questions, whoever asks them."""
        asked = [self.path.canonical, self.client.value, self.access.value, asdict(self.settings)]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def answers(
    lab: Lab,
    questions: Collection[Question],
    host: HostFacts,
    kept: Path,
    progress: Progress,
) -> Iterator[PowerCut]:
    """One verdict per question, as it is found; a failed one says why and the next is asked.

    The recording of a loss is kept below `kept`, in a directory named by the verdict's id.
    Raises DirtyHostError, FutureVersionError and ControlError: no verdict is to be had then. When
    the kernel hangs on a state, that verdict is the last before the DirtyHostError.
    """
    for number, question in enumerate(questions, start=1):
        progress(Step(f"{number} of {len(questions)}: {question.path}, client {question.client}"))
        found, hang = _answer(lab, question, host, kept)
        yield found
        if hang is not None:
            raise hang


def answer(lab: Lab, question: Question, host: HostFacts, kept: Path) -> PowerCut:
    """The verdict on one question; see `answers`."""
    return _answer(lab, question, host, kept)[0]


def _answer(
    lab: Lab, question: Question, host: HostFacts, kept: Path
) -> tuple[PowerCut, HangError | None]:
    started, begun, name = datetime.now(UTC), time.monotonic(), secrets.token_hex(4)
    found: _Answer | None = None
    failure: str | None = None
    try:
        found = _examine(lab, question, kept / name)
    except _FATAL:
        raise
    except VdisklabError as error:
        failure = str(error)
    seconds = time.monotonic() - begun
    cut = _power_cut(
        question, host, found, name=name, started=started, seconds=seconds, failure=failure
    )
    return cut, found.examined.hang if found else None


@dataclass(frozen=True, slots=True)
class _Answer:
    """An examination, the flushes of its run, and how often it was recorded until it was quiet.

    `unkept` says why the recording of a loss could not be kept.
    """

    examined: Examined
    flushes: int
    unasked: int
    recordings: int
    unkept: str | None = None


def _examine(lab: Lab, question: Question, keep_in: Path) -> _Answer:
    """Records and judges; a raw image is recorded again while somebody else flushes its disk.

    Nobody but the client has a reason to flush below a raw image in so short a time: a promise
    that is kept after such a flush may be kept by luck. Of other formats QEMU itself orders the
    metadata by flushes, so there they are counted only.
    """
    number = 0
    while True:
        number += 1
        found = _examine_once(lab, question, keep_in, number)
        raw = found.examined.recording.trace.image_format == ImageFormat.RAW
        disturbed = raw and found.unasked > 0 and found.examined.verdict.survives is True
        if not disturbed or number == _RECORDINGS:
            return found


def _examine_once(lab: Lab, question: Question, keep_in: Path, number: int) -> _Answer:
    settings = question.settings
    load = Load(
        question.client, settings.writes, settings.flush_every, settings.depth, settings.seed
    )
    if question.access is AccessKind.BOOT_SECTOR:
        load = replace(load, depth=1, max_sectors=1)
    asked = Asked(
        question.path, load, question.access.value, settings.size,
        direct_io=settings.direct_io, by=settings.logged_by,
    )  # fmt: skip
    recording = lab.record_through(asked, _access(lab, question, load))
    try:
        entries = read_log(recording.log).entries
        flushes = count_flushes(recording.trace, entries)
        unasked = unasked_flushes(recording.trace, entries, writes_flush=_writes_flush(question))
        examined = lab.examine(recording, settings.wanted, afterlives=settings.afterlives)
        unkept = None if examined.verdict.witness is None else _keep(recording, keep_in)
        return _Answer(examined, flushes, unasked, number, unkept)
    finally:
        recording.forget()


def _keep(recording: Recording, directory: Path) -> str | None:
    """Why a recording could not be kept: its verdict is found all the same. None when it was."""
    try:
        recording.keep(directory)
    except PowercutError as error:
        return str(error)
    return None


def _writes_flush(question: Question) -> bool:
    """Whether a write alone may flush: without a write cache; through the BIOS nobody knows."""
    return question.access is not AccessKind.NBD or not question.path.offers_write_cache


def _access(lab: Lab, question: Question, load: Load) -> Access:
    def boot(disk: Disk) -> AbstractContextManager[PromisingDisk]:
        return boot_sector_disk(lab.site, disk)

    def guest(disk: Disk) -> AbstractContextManager[PromisingDisk]:
        assert lab.guests is not None  # noqa: S101 - whoever asks for a guest brings one
        return lab.guests.open(disk, load, question.settings.driver)

    if question.client.is_database and question.access is not AccessKind.GUEST:
        raise PlanError("a database needs a guest to run in", hint="ask with --access guest")
    match question.access:
        case AccessKind.BOOT_SECTOR:
            return boot
        case AccessKind.GUEST:
            return guest
        case AccessKind.NBD:
            return lab.over_nbd


def _power_cut(
    question: Question,
    host: HostFacts,
    found: _Answer | None,
    *,
    name: str,
    started: datetime,
    seconds: float,
    failure: str | None,
) -> PowerCut:
    verdict = found.examined.verdict if found else None
    witness = verdict.witness if verdict else None
    return PowerCut(
        id=name,
        fingerprint=question.fingerprint,
        path=question.path.canonical,
        client=question.client.value,
        access=question.access.value,
        host=host,
        started=started,
        wall_seconds=seconds,
        survives=verdict.survives if verdict else None,
        claim=_claim(found) if found else "",
        states=verdict.states if verdict else 0,
        possible=_as_float(verdict.possible) if verdict else 0.0,
        exhaustive=verdict.exhaustive if verdict else False,
        promises=verdict.promises if verdict else 0,
        flushes=found.flushes if found else 0,
        leaked_states=verdict.leaked_states if verdict else 0,
        repaired_states=verdict.repaired_states if verdict else 0,
        afterlives=verdict.afterlives if verdict else 0,
        outcomes={key.value: count for key, count in verdict.outcomes.items()} if verdict else {},
        settings=asdict(question.settings),
        seen=_seen(found) if found else {},
        counterexample=(
            Counterexample(f"{name}/{witness.cut}", witness.outcome.value, _detail(witness, found))
            if witness and found
            else None
        ),
        failure=failure,
    )


def _detail(witness: Judged, found: _Answer) -> str:
    """What was found, and that it cannot be replayed where it cannot."""
    return "; ".join(filter(None, (witness.detail, found.unkept)))


def _claim(found: _Answer) -> str:
    """The verdict's own, and what may have helped it."""
    verdict = found.examined.verdict
    if not (verdict.survives and found.unasked):
        return verdict.claim
    return (
        f"{verdict.claim}; {found.unasked} of {found.flushes} flushes were not asked for by the "
        "client and may have helped"
    )


def _as_float(count: int) -> float:
    """Subsets of many writes can be more than a float counts to: the largest there is, then."""
    return float(count) if count.bit_length() < sys.float_info.max_exp else sys.float_info.max


def _seen(found: _Answer) -> dict[str, str]:
    return {
        **found.examined.recording.trace.seen,
        "flushes.unasked": str(found.unasked),
        "recordings": str(found.recordings),
    }
