"""`plan --find best` knows of the place of the disks, and of the disk, what `run` knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.results.test_power_cut import LOST
from vdisklab.answers import begun
from vdisklab.campaign import named_here
from vdisklab.cli.shell.main import main
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.mounts import Mount
from vdisklab.results.store import open_store
from vdisklab.value import replace

BEST = ("plan", "raw/none", "qcow2/none", "qcow2/writethrough", "--find", "best")
NO_BARRIER = "ext4 is mounted with nobarrier, so no flush reaches the disk"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    return "--dir", str(tmp_path), "--db", str(tmp_path / "db.sqlite")


def mounted(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    mount = Mount(Path("/"), "ext4", "/dev/sda1", frozenset(options))
    monkeypatch.setattr(named_here, "mount_of", lambda _directory: mount)
    monkeypatch.setattr(begun, "mount_of", lambda _directory: mount)


@pytest.mark.parametrize("with_results", [False, True])
def test_a_place_without_flushes_is_refused(
    place: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    with_results: bool,
) -> None:
    mounted(monkeypatch, "rw", "nobarrier")
    if with_results:
        with open_store(place[-1]):
            pass
    assert main([*BEST, *place]) == 2
    assert NO_BARRIER in capsys.readouterr().err


def test_a_loss_on_the_file_system_below_leaves_out_its_images(
    place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mounted(monkeypatch, "rw")
    with open_store(place[-1]) as store:
        here = collect_facts(LocalHost())
        store.add_power_cut(replace(LOST, path="ext4/raw/none", host=here))
    assert main([*BEST, *place]) == 0
    said = capsys.readouterr().out
    assert "dropped raw/none: it does not meet --need durable" in said


def test_the_disk_counts_without_results(
    place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that keeps its cache keeps what a path without flushes has written to the disk."""
    mounted(monkeypatch, "rw", "nobarrier")
    assert main([*BEST, *place, "--disk", "plp"]) == 0
    assert NO_BARRIER not in capsys.readouterr().err
