"""A campaign of power cuts: every path with every kind of client, one verdict after the other."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.guest.blockdev import Disk
from vdisklab.plan.path import DiskPath
from vdisklab.powercut.bootsector import boot_sector_disk
from vdisklab.powercut.controls import ControlError
from vdisklab.powercut.cuts import Wanted
from vdisklab.powercut.judge import FutureVersionError
from vdisklab.powercut.lab import AFTERLIVES, Examined, Lab
from vdisklab.powercut.record import Load, PromisingDisk
from vdisklab.powercut.recording import IMAGE_BYTES, Access, Asked
from vdisklab.powercut.trace import ClientKind
from vdisklab.progress import Progress, Step
from vdisklab.result.model import HostFacts
from vdisklab.result.powercut import Counterexample, PowerCut


class AccessKind(StrEnum):
    """Through what the client writes."""

    NBD = "nbd"
    BOOT_SECTOR = "boot-sector"


_FATAL = (DirtyHostError, FutureVersionError, ControlError)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of every path. Equal settings ask the same question."""

    size: int = IMAGE_BYTES
    writes: int = 80
    flush_every: int = 4
    depth: int = 1
    seed: int = 1
    direct_io: bool = True
    afterlives: int = AFTERLIVES
    wanted: Wanted = field(default_factory=Wanted)


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
    Raises DirtyHostError, FutureVersionError and ControlError: no verdict is to be had then.
    """
    for number, question in enumerate(questions, start=1):
        progress(Step(f"{number} of {len(questions)}: {question.path}, client {question.client}"))
        yield answer(lab, question, host, kept)


def answer(lab: Lab, question: Question, host: HostFacts, kept: Path) -> PowerCut:
    """The verdict on one question; see `answers`."""
    started, begun, name = datetime.now(UTC), time.monotonic(), secrets.token_hex(4)
    examined: Examined | None = None
    failure: str | None = None
    try:
        examined = _examine(lab, question, kept / name)
    except _FATAL:
        raise
    except VdisklabError as error:
        failure = str(error)
    seconds = time.monotonic() - begun
    return _power_cut(
        question, host, examined, name=name, started=started, seconds=seconds, failure=failure
    )


def _examine(lab: Lab, question: Question, keep_in: Path) -> Examined:
    settings = question.settings
    load = Load(
        question.client, settings.writes, settings.flush_every, settings.depth, settings.seed
    )
    if question.access is AccessKind.BOOT_SECTOR:
        load = replace(load, depth=1, max_sectors=1)
    asked = Asked(
        question.path, load, question.access.value, settings.size, direct_io=settings.direct_io
    )
    recording = lab.record_through(asked, _access(lab, question.access))
    try:
        examined = lab.examine(recording, settings.wanted, afterlives=settings.afterlives)
        if examined.verdict.witness is not None:
            recording.keep(keep_in)
        return examined
    finally:
        recording.forget()


def _access(lab: Lab, kind: AccessKind) -> Access:
    def boot(disk: Disk) -> AbstractContextManager[PromisingDisk]:
        return boot_sector_disk(lab.site, disk)

    return boot if kind is AccessKind.BOOT_SECTOR else lab.over_nbd


def _power_cut(
    question: Question,
    host: HostFacts,
    examined: Examined | None,
    *,
    name: str,
    started: datetime,
    seconds: float,
    failure: str | None,
) -> PowerCut:
    verdict = examined.verdict if examined else None
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
        claim=verdict.claim if verdict else "",
        states=verdict.states if verdict else 0,
        possible=float(verdict.possible) if verdict else 0.0,
        exhaustive=verdict.exhaustive if verdict else False,
        promises=verdict.promises if verdict else 0,
        flushes=examined.flushes if examined else 0,
        leaked_states=verdict.leaked_states if verdict else 0,
        repaired_states=verdict.repaired_states if verdict else 0,
        afterlives=verdict.afterlives if verdict else 0,
        outcomes={key.value: count for key, count in verdict.outcomes.items()} if verdict else {},
        settings=asdict(question.settings),
        seen=dict(examined.recording.trace.seen) if examined else {},
        counterexample=(
            Counterexample(f"{name}/{witness.cut}", witness.outcome.value, witness.detail)
            if witness
            else None
        ),
        failure=failure,
    )
