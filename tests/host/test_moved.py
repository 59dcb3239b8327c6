"""What is not seen is not gone: a work directory that was renamed or removed, and hidden tables."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from vdisklab.actions.clean import list_leftovers, remove_leftovers
from vdisklab.errors import DirtyHostError
from vdisklab.host import whereabouts
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.loops import attached_loops
from vdisklab.host.mounts import read_mounts
from vdisklab.path.backing import WORK_DIRECTORY
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host


def standing(place: Path) -> tuple[list[str], list[str]]:
    """The mounts below a place, and the loop devices on files that are or were there."""
    mounts = [str(each.mountpoint) for each in read_mounts() if place in each.mountpoint.parents]
    loops = [each.device for each in attached_loops() if each.file and place in each.file.parents]
    return mounts, loops


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Path]:
    """A work directory with a mounted stack, whose vdisklab was killed."""
    work, state = tmp_path / "bench" / "work", tmp_path / "state"
    work.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        try:
            with ExitStack() as stack:
                ledger = stack.enter_context(open_ledger(state))
                site = stack.enter_context(open_site(LocalHost(), ledger, work))
                layers = parse_path("ext4/raw/none").layers
                target = stack.enter_context(
                    build_stack(site, layers, 16 * MIB, "a", backing=WORK_DIRECTORY, allocate=False)
                )
                (target.on_host / "file").write_bytes(b"x")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert standing(tmp_path) != ([], [])
    yield work
    assert standing(tmp_path) == ([], [])
    assert list_leftovers(state) == []


def clean(work: Path) -> list[str]:
    state = work.parents[1] / "state"
    return [entry.kind for entry in remove_leftovers(LocalHost(), directory=state)]


ALL = ["process", "mount", "directory", "loop", "file", "directory"]


def renamed_itself(work: Path) -> Path:
    (private,) = work.iterdir()
    return private.rename(work / "kept")


def renamed_above(work: Path) -> Path:
    return work.parent.rename(work.parents[1] / "elsewhere") / "work"


def renamed_and_replaced(work: Path) -> Path:
    (private,) = work.iterdir()
    moved = private.rename(work.parents[1] / "kept")
    private.mkdir()
    (private / "a").mkdir()
    (private / "a.slice").touch()
    return moved


@pytest.mark.parametrize("move", [renamed_itself, renamed_above, renamed_and_replaced])
def test_a_directory_that_was_renamed_is_found(killed: Path, move: Callable[[Path], Path]) -> None:
    place = move(killed)
    assert clean(killed) == ALL
    assert not place.exists() or not list(place.iterdir())


def test_a_file_that_was_removed_leaves_no_loop_device(killed: Path) -> None:
    (slice,) = killed.rglob("*.slice")
    slice.unlink()
    assert clean(killed) == ALL


def test_without_handles_a_mount_is_known_by_its_number(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on overlayfs. The directory itself cannot be seen, so its entry stays."""
    monkeypatch.setattr(whereabouts, "_by_handle", lambda *_: _unknown())
    moved = killed.parent.rename(killed.parents[1] / "elsewhere")
    with pytest.raises(DirtyHostError, match="whether it was moved or removed cannot be seen"):
        clean(killed)
    assert standing(killed.parents[1]) == ([], [])
    left = {entry.kind for entry in list_leftovers(killed.parents[1] / "state")}
    assert left == {"directory", "file"}
    moved.rename(killed.parent)
    clean(killed)


def _unknown() -> None:
    raise whereabouts._UnknownError


def test_a_directory_that_was_removed_is_gone(killed: Path) -> None:
    (mountpoint,) = [Path(each) for each in standing(killed)[0]]
    subprocess.run(["umount", mountpoint], check=True)
    shutil.rmtree(killed.parent)
    assert clean(killed) == ALL


def test_a_hidden_sysfs_is_not_taken_for_no_loop_devices(killed: Path, tmp_path: Path) -> None:
    """Neither of the kernel's lists is there, and the ledger keeps all."""
    state, empty = tmp_path / "state", tmp_path / "empty"
    empty.mkdir()
    hide = f"mount --bind {empty} /sys/block && exec {sys.executable} -m vdisklab clean"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide],
        env={**os.environ, "VDISKLAB_STATE": str(state), "NO_COLOR": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "there is nothing to remove" not in done.stdout
    assert standing(killed)[1] == [] or done.returncode == DirtyHostError.exit_code
    clean(killed)


def test_a_work_directory_that_moves_in_mid_run(tmp_path: Path) -> None:
    """Its cells say so, nothing stays at the end, and other cells' files are not looked for."""
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    environment = {**os.environ, "VDISKLAB_STATE": str(state), "NO_COLOR": "1"}
    command = (
        sys.executable, "-m", "vdisklab", "run", "xfs/host", "host", "--size", "320M",
        "--rounds", "3", "--runtime", "200ms", "--ramp", "0",
        "--dir", work, "--db", tmp_path / "a.sqlite",
    )  # fmt: skip
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("✓"):
                break
        (private,) = work.glob("vdisklab-*")
        private.rename(tmp_path / "moved")
        said = process.stdout.read()
        status = process.wait(120)
    assert f"the work directory was moved: {private} is {tmp_path / 'moved'} now" in said
    assert status == 8, said
    assert standing(tmp_path) == ([], [])
    assert not (tmp_path / "moved").exists()
    cleaned = subprocess.run(
        [sys.executable, "-m", "vdisklab", "clean"], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert cleaned.stdout == "there is nothing to remove\n"
