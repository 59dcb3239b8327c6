"""A disk that tears blocks at 512 bytes: fsck is part of recovery, and really repairs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.syscalls import attach_loop, detach_loop
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.powercut.client import Load
from vdisklab.powercut.crash_states import CrashState, JudgedState
from vdisklab.powercut.examiner import Examiner, open_examiner
from vdisklab.powercut.recordings import Recording, RunSpec
from vdisklab.powercut.session import PowerCutSession, open_session
from vdisklab.storage.write_log import LogEntry, read_log
from vdisklab.value import replace

pytestmark = pytest.mark.host


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerCutSession]:
    work = tmp_path_factory.mktemp("torn")
    with open_ledger() as ledger, open_session(LocalHost(), ledger, work, workers=1) as opened:
        yield opened


@pytest.fixture
def recorded(session: PowerCutSession, request: pytest.FixtureRequest) -> Iterator[Recording]:
    path = parse_path(f"{request.param}/raw:preallocation=off/none")
    recording = session.record(RunSpec(path, Load(ClientKind.FLUSHES, writes=16)))
    yield recording
    recording.remove()


@pytest.mark.parametrize("recorded", ["ext4"], indirect=True)
def test_e2fsck_cures_a_torn_superblock(session: PowerCutSession, recorded: Recording) -> None:
    """The superblock was last written when the file system came to rest, before the client."""
    trace = recorded.trace
    entries = read_log(recorded.log).entries[: trace.begin]
    last = max(index for index, each in enumerate(entries) if _holds_superblock(each))
    before = replace(recorded, trace=replace(trace, begin=last))
    with open_examiner(session.site, before, None) as examiner:
        judged = list(_with_a_torn(examiner, last))
    assert {each.outcome for each in judged} == {StateOutcome.KEPT}
    assert any(each.repaired for each in judged)


def _holds_superblock(entry: LogEntry) -> bool:
    """ext4's superblock lies at byte 1024."""
    return entry.changes_disk and entry.offset <= 1024 < entry.offset + entry.length


def _with_a_torn(examiner: Examiner, index: int) -> Iterator[JudgedState]:
    (epoch,) = [each for each in examiner.epochs if index in each.changes][:1]
    torn = 1 << epoch.changes.index(index)
    for seed in range(8):
        yield examiner.judge(CrashState(epoch.number, epoch.all & ~torn, torn, 512, seed))


@pytest.mark.parametrize("recorded", ["xfs"], indirect=True)
def test_xfs_repair_cures_what_the_kernel_refuses(
    session: PowerCutSession, recorded: Recording
) -> None:
    """No torn state of XFS was seen that its log does not cure, so one is made: a torn superblock
    of an allocation group's neighbour, half of which is from another time."""
    with open_examiner(session.site, recorded, None) as examiner:
        epoch = examiner.epochs[-1]
        state = examiner.rebuilder.build(epoch, CrashState(epoch.number, epoch.all))
        with state.open("r+b") as disk:
            disk.seek(256)
            disk.write(os.urandom(128))
        device = attach_loop(state)
        try:
            refused = examiner.recovery.recover(device)
            assert refused is not None
            assert "Structure needs cleaning" in refused
            assert examiner.recovery.repair(device)
            assert examiner.recovery.recover(device) is None
            assert (examiner.recovery.files() / recorded.trace.image).exists()
            examiner.recovery.release()
        finally:
            detach_loop(device)


@pytest.mark.parametrize("recorded", ["ext4"], indirect=True)
def test_what_cannot_be_repaired_is_said(
    session: PowerCutSession, recorded: Recording, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    os.truncate(empty, 1 << 20)
    device = attach_loop(empty)
    try:
        with open_examiner(session.site, recorded, None) as examiner:
            assert examiner.recovery.recover(device) is not None
            assert not examiner.recovery.repair(device)
    finally:
        detach_loop(device)
