"""A disk of this machine is recorded by blktrace: fake programs on PATH, blkparse's real text."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vdisklab.actions.record import RecordWish, record_here
from vdisklab.errors import HostError, PlanError, WorkloadError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.loads.load import RecordedBy, RecordedLoad
from vdisklab.recording.block_device import TracedDevice, record_device, traced_device
from vdisklab.recording.recorder import Wait

TEXT = Path(__file__).parents[2] / "data" / "blkparse-1.2.0.txt"
DISK = TracedDevice(Path("/dev/sdz"), "8,0", 1 << 30, 512)
WAITS = """trap "exit 0" INT
echo "Total: 9 events (dropped 3), 1 KiB data"
while :; do sleep 0.05; done"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    (tmp_path / "bin").mkdir()
    fake(tmp_path, "blktrace", WAITS)
    fake(tmp_path, "blkparse", f'while [ "$1" != -o ]; do shift; done; cp {tmp_path}/text "$2"')
    shutil.copy(TEXT, tmp_path / "text")
    return tmp_path


def fake(directory: Path, name: str, script: str) -> None:
    (directory / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / "bin" / name).chmod(0o755)


def recorded(disk: TracedDevice = DISK, limit: int = 1 << 30) -> RecordedLoad:
    with open_ledger() as ledger:
        return record_device(LocalHost(), ledger, disk, Wait(1, limit, lambda: False))


def test_a_disk_of_this_machine_is_recorded(programs: Path) -> None:
    made = recorded()
    assert len(made) == 9
    assert made.source.recorded_by is RecordedBy.BLKTRACE
    assert (made.source.lost, made.source.disk_bytes) == (3, 1 << 30)
    assert made.source.span_us >= 1_000_000
    assert list((programs / "state" / "recordings").iterdir()) == []
    assert list((programs / "state" / "ledger").iterdir()) == []


def test_an_idle_disk_is_a_sentence(programs: Path) -> None:
    (programs / "text").write_text("")
    with pytest.raises(WorkloadError, match="/dev/sdz was asked for nothing while"):
        recorded()


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("failed open /sys/kernel/debug/block/sdz/trace0: 1/Operation not permitted", "lockdown"),
        ("Invalid path /dev/sdz specified: 1/Operation not permitted", "record on the host"),
        ("BLKTRACESETUP(2) /dev/sdz failed: 16/Device or resource busy", "another program traces"),
        ("Invalid debug path /sys/kernel/debug: 0/Success", "mount -t debugfs"),
    ],
)
def test_a_kernel_that_forbids_it_is_a_sentence(programs: Path, said: str, hint: str) -> None:
    fake(programs, "blktrace", f"echo '{said}'; exit 1")
    with pytest.raises(HostError, match="blktrace cannot trace /dev/sdz") as refused:
        recorded()
    assert hint in str(refused.value.hint)
    assert list((programs / "state" / "recordings").iterdir()) == []


def test_a_recording_that_fails_leaves_files_as_they_were(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(programs, "blktrace", "echo failed; exit 1")
    monkeypatch.setattr("vdisklab.actions.record.traced_device", lambda _name: DISK)
    for file in (programs / "new.load", programs / "old.load"):
        if file.name == "old.load":
            file.write_bytes(b"an hour's work")
        wish = RecordWish("", None, 1, file, None, 1 << 30)
        with pytest.raises(HostError, match="blktrace cannot trace"):
            record_here(LocalHost(), "sdz", wish, print)
    assert not (programs / "new.load").exists()
    assert (programs / "old.load").read_bytes() == b"an hour's work"


def test_without_blktrace_its_package_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalHost, "which", lambda _self, _name: None)
    with pytest.raises(HostError) as refused:
        recorded()
    assert "blktrace" in refused.value.message


def sysfs(directory: Path, name: str, **files: str) -> None:
    for file, text in files.items():
        place = directory / name / file.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")


def test_a_disk_is_known_by_sysfs(tmp_path: Path) -> None:
    sysfs(tmp_path, "sdz", dev="8:0", size="2048", queue__logical_block_size="4096")
    sysfs(tmp_path, "sdz1", dev="8:1", size="1024", partition="1")
    assert traced_device("sdz", tmp_path) == TracedDevice(Path("/dev/sdz"), "8,0", 1 << 20, 4096)
    assert traced_device("/dev/sdz", tmp_path).number == "8,0"
    with pytest.raises(PlanError, match="/dev/sdz1 is a partition"):
        traced_device("sdz1", tmp_path)
    for name in ("nothing", "/etc/passwd", os.devnull):
        with pytest.raises(PlanError, match="is not a block device"):
            traced_device(name, tmp_path)
