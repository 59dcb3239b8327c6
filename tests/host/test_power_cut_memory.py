"""The memory that disks are built in fills up in mid-campaign: an error, and never a loss."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CELLS_FAILED, MemoryFullError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry, Kind, leftovers, open_ledger
from vdisklab.host.mounts import free_bytes, mounts_below
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut import action
from vdisklab.powercut import session as session_module
from vdisklab.powercut.client import Load
from vdisklab.powercut.controls import CONTROLS
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.recordings import Recording, RunSpec, make_recording
from vdisklab.powercut.session import PowerCutSession, open_session, select_states
from vdisklab.powercut.workers import JudgingJob
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.logged_disk import LoggedDisk, logged_disk
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import UNDO
from vdisklab.storage.write_log import read_log
from vdisklab.units import MIB
from vdisklab.value import replace

pytestmark = pytest.mark.host


def fill(directory: Path, left: int) -> Path:
    """Takes all room in a directory in memory, but for so many bytes."""
    file = directory / "filling"
    with file.open("wb") as filling:
        os.posix_fallocate(filling.fileno(), 0, free_bytes(directory) - left)
    return file


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filling 8 GiB takes seconds."""
    for name in ("_MEMORY_BYTES", "_LEAST_MEMORY"):
        monkeypatch.setattr(session_module, name, 768 * MIB)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[PowerCutSession]:
    work = tmp_path / "work"
    work.mkdir()
    with open_ledger() as ledger:
        with open_session(LocalHost(), ledger, work, workers=1) as opened:
            yield opened
        assert mounts_below(work) == ()
    assert list(work.iterdir()) == []


def asked(filesystem: str, client: ClientKind = ClientKind.FLUSHES, writes: int = 400) -> RunSpec:
    path = parse_path(f"{filesystem}/raw:preallocation=off/writeback")
    return RunSpec(path, Load(client, writes=writes))


def test_a_logged_disk_without_room_fails_and_goes_on(tmp_path: Path) -> None:
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as outer,
        tmpfs(outer, "memory", 16 * MIB) as memory,
        open_site(LocalHost(), ledger, memory.path) as site,
    ):
        with (
            pytest.raises(MemoryFullError, match="for the data written to the logged disk"),
            logged_disk(site, "disk", 64 * MIB) as disk,
        ):
            write_until_full(disk)
        assert list(site.directory.iterdir()) == []


def overfill(device: int) -> None:
    for number in range(64):
        os.pwrite(device, bytes([number + 1]) * MIB, number * MIB)
        os.fdatasync(device)


def write_until_full(disk: LoggedDisk) -> None:
    """What it answered without an error is in a log that can be read."""
    device = os.open(disk.path, os.O_RDWR)
    with pytest.raises(OSError, match=r"No space left|Input/output"):
        overfill(device)
    os.close(device)
    logged = disk.log.read_bytes()
    for each in read_log(disk.log).entries:
        data = logged[each.data_at : each.data_at + each.length]
        assert set(data) <= {each.offset // MIB + 1}


# 3 s each; what is full is the memory below.
@pytest.mark.parametrize(
    ("filesystem", "left"),
    [
        ("ext4", 1),
        *(pytest.param(name, 24, marks=pytest.mark.nightly) for name in ("xfs", "btrfs")),
    ],
)
def test_a_recording_without_room_says_so_and_leaves_nothing(
    filesystem: str, left: int, session: PowerCutSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_ROOM_PER_RECORDING", 0)
    filling = fill(session.site.directory, left * MIB)
    with pytest.raises(MemoryFullError, match="there is no room in memory for"):
        session.record(asked(filesystem, writes=2000))
    assert mounts_below(session.site.directory) == ()
    filling.unlink()
    recording = session.record(asked(filesystem, writes=16))
    assert (
        session.examine(recording, Sampling(states=20), post_recovery_states=1).verdict.survives
        is True
    )
    recording.remove()


def test_a_state_without_room_is_an_error_and_no_loss(session: PowerCutSession) -> None:
    recording = session.record(asked("ext4", writes=16))
    jobs = [JudgingJob(cut) for cut in select_states(recording, Sampling(states=60)).cuts]
    results = session.pool.judge(recording, jobs)
    found = [next(results)]
    filling = fill(session.site.directory, MIB)
    with pytest.raises(MemoryFullError, match="no room in memory for another state"):
        found.extend(results)
    assert not any(each.outcome.is_loss for each in found)
    filling.unlink()
    assert (
        session.examine(recording, Sampling(states=20), post_recovery_states=1).verdict.survives
        is True
    )


def test_the_command_keeps_what_was_judged_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = ["powercut", "{ext4,xfs}/raw/none", "--client", "flushes", "--states", "20",
               "--writes", "16", "--dir", str(work), "--db", str(tmp_path / "db"),
               "--format", "json"]  # fmt: skip
    recordings: list[Path] = []
    controls = [replace(CONTROLS[4], states=10)]
    monkeypatch.setattr(action, "controls_of", lambda *_, **__: controls)

    def filling(site: Site, told: RunSpec, access: Any, directory: Path, daemon: Any) -> Recording:  # noqa: ANN401
        recordings.append(directory)
        if len(recordings) == len(controls) + 2:
            fill(site.directory, 8 * MIB)
        return make_recording(site, told, access, directory, daemon)

    with monkeypatch.context() as patched:
        patched.setattr(session_module, "make_recording", filling)
        assert main(command) == EXIT_CELLS_FAILED
    first, second = json.loads(capsys.readouterr().out)["verdicts"]
    assert first["survives"] is True
    assert second["failure"].startswith("there is no room in memory for")
    assert "\n" not in second["failure"]
    assert list(work.iterdir()) == []
    assert mounts_below(work) == ()
    with leftovers() as left:
        assert left == []

    assert main(command) == 0
    again, now = json.loads(capsys.readouterr().out)["verdicts"]
    assert again == first, "answered from the database"
    assert now["survives"] is True


@pytest.mark.parametrize("ours", [True, False])
def test_a_file_on_a_file_system_that_went_read_only_goes_with_it_if_it_is_ours(
    ours: bool, tmp_path: Path
) -> None:
    directory = tmp_path / ("vdisklab-0123abcd" if ours else "somebody") / "mnt"
    directory.mkdir(parents=True)
    LocalHost().run("mount", "-t", "tmpfs", "-o", f"size={MIB}", "tmpfs", directory)
    try:
        file = directory / "disk.raw"
        file.touch()
        LocalHost().run("mount", "-o", "remount,ro", directory)
        entry = Entry(0, Kind.FILE, str(file))
        with nullcontext() if ours else pytest.raises(OSError, match="Read-only"):
            UNDO[Kind.FILE](LocalHost(), entry)
    finally:
        LocalHost().run("umount", directory)
