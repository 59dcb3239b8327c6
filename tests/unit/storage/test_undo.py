"""What is removed after a crash, and what must have ended before."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vdisklab.errors import CommandTimeoutError, DirtyHostError, HostError
from vdisklab.host import answering, blockdevice
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry, Kind
from vdisklab.host.loops import Loop
from vdisklab.host.mounts import Mount
from vdisklab.storage import undo, zfs
from vdisklab.storage.undo import (
    SIMPLE_UNDO,
    await_programs,
    await_starting,
    openers_of,
    remove_directory,
)
from vdisklab.value import replace


def process(proc: Path, pid: int, *, program: str | None, arguments: bytes = b"") -> Path:
    """A process as the kernel shows it; a kernel thread or a zombie has no program."""
    directory = proc / str(pid)
    directory.mkdir()
    (directory / "cmdline").write_bytes(arguments)
    (directory / "environ").write_bytes(b"")
    if program is not None:
        (directory / "exe").symlink_to(program)
    return directory / "cmdline"


def test_a_process_that_is_being_started_is_waited_for(tmp_path: Path) -> None:
    """Between two programs a process has no arguments, and no file of the old program."""
    process(tmp_path, 2, program=None)  # a thread of the kernel, without arguments for ever
    process(tmp_path, 30, program="/bin/sleep", arguments=b"sleep\x001\x00")
    starting = process(tmp_path, 40, program="/sbin/zpool")
    shown: list[float] = []

    def show() -> None:
        shown.append(time.monotonic())
        starting.write_bytes(b"zpool\x00create\x00")

    timer = threading.Timer(0.3, show)
    timer.start()
    await_starting(tmp_path)
    ended = time.monotonic()
    timer.join()
    assert shown
    assert shown[0] <= ended
    before = time.monotonic()
    await_starting(tmp_path)
    assert time.monotonic() - before < 5  # nothing to wait for: not until the deadline of 10 s


def test_a_program_that_builds_is_waited_for_and_those_that_are_killed_are_not() -> None:
    entries = [Entry(1, Kind.PROCESS, "guest=vdisklab-85986a38-1,")]
    wait = "import time; time.sleep(float({}))".format
    with (
        subprocess.Popen([sys.executable, "-Sc", wait(60), "guest=vdisklab-85986a38-1,x"]) as guest,
        subprocess.Popen([sys.executable, "-Sc", wait(1), "vdl_85986a38_a"]) as builder,
    ):
        try:
            await_programs("85986a38", entries)
            assert builder.poll() is not None or status_of(builder.pid) == "Z"
            assert guest.poll() is None
        finally:
            guest.kill()
            builder.kill()


def status_of(pid: int) -> str:
    """The state of a process: Z when it has ended and was not reaped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_directory_with_the_file_of_a_loop_device_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool in another mount namespace stands on it, and nothing here is mounted."""
    directory = tmp_path / "vdisklab-85986a38"
    (directory / "stack0").mkdir(parents=True)
    entry = Entry(1, Kind.DIRECTORY, str(directory))
    loops = [
        Loop("/dev/loop7", directory / "stack0" / "disk.slice", None),
        Loop("/dev/loop8", tmp_path / "other", None),
    ]
    monkeypatch.setattr(undo, "attached_loops", lambda: tuple(loops))
    with pytest.raises(DirtyHostError, match=r"it holds the file of /dev/loop7$"):
        remove_directory(LocalHost(), entry)
    assert directory.exists()
    del loops[0]
    remove_directory(LocalHost(), entry)
    assert not directory.exists()


def test_who_has_a_device_open(tmp_path: Path) -> None:
    for pid, name, target in ((30, "zfs-fuse", "/dev/loop7"), (31, "cat", "/dev/loop70")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "3").symlink_to(target)
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "32").mkdir()  # a process that has ended
    assert openers_of([Path("/dev/loop7")], tmp_path) == ["zfs-fuse (30)"]
    assert openers_of([Path("/dev/loop9")], tmp_path) == []


def test_a_pool_that_zfs_fuse_holds_elsewhere_is_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`zpool` lists no pool there, so its labels would be wiped below it."""
    monkeypatch.setattr(zfs, "pools", lambda _host: [""])
    monkeypatch.setattr(zfs, "_RELEASE_SECONDS", 0.1)
    monkeypatch.setattr(zfs, "_remove_labels", lambda *_: pytest.fail("the labels are removed"))
    monkeypatch.setattr(blockdevice, "recorded_devices", lambda _text: (Path("/dev/loop7"),))
    monkeypatch.setattr(zfs, "openers_of", lambda _nodes: ["cat (8)", "zfs-fuse (30)"])
    entry = Entry(1, "pool", "vdl-85986a38", {"devices": "[]"})
    with pytest.raises(DirtyHostError, match=r"in use by zfs-fuse \(30\), which `zpool`") as caught:
        zfs.destroy_pool(LocalHost(), entry)
    assert "nsenter --mount --target 30 vdisklab clean" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", [Kind.FILE, Kind.DIRECTORY])
def test_a_removal_on_a_mount_whose_server_is_gone_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """A hard NFS mount answers no call on its files, not even the look whether one is there."""
    back = threading.Event()

    def hang() -> tuple[Loop, ...]:
        back.wait()
        return ()

    def no_answer(*_words: object, **_options: object) -> None:
        raise CommandTimeoutError("`stat` gave no answer within 15 s")

    (tmp_path / "image").mkdir()
    monkeypatch.setattr(undo, "attached_loops", hang)
    monkeypatch.setattr(answering, "_PATIENT_SECONDS", 0.02)
    monkeypatch.setattr(LocalHost, "run", no_answer)
    with pytest.raises(HostError, match="does not answer within 15 s"):
        SIMPLE_UNDO[kind](LocalHost(), Entry(1, kind, str(tmp_path / "image"), {}))
    back.set()


def test_devices_in_a_hidden_sysfs_are_not_gone(tmp_path: Path) -> None:
    undo.require_sysfs()
    with pytest.raises(DirtyHostError, match="is hidden, so the devices of this host cannot be"):
        undo.require_sysfs(tmp_path)


def test_a_new_mount_with_an_old_number_and_device_is_another() -> None:
    """The kernel gives both again: seen between a tmpfs that was gone and a FUSE mount."""
    mine = Mount(Path("/w/memory"), "tmpfs", "vdisklab-1", frozenset(), 42, "0:39")
    assert mine.is_noted(mine.identity)
    assert replace(mine, mountpoint=Path("/moved")).is_noted(mine.identity)
    assert not replace(mine, filesystem="fuse", source="nbdfuse").is_noted(mine.identity)
    assert not replace(mine, source="vdisklab-2").is_noted(mine.identity)
    assert not replace(mine, number=43).is_noted(mine.identity)
    assert not mine.is_noted({})
