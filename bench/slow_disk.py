"""A directory on a disk that takes a stated time for each read, write and flush.

Under emulation the processor decides what a guest's program feels, and the order of paths is noise.
On a disk that takes milliseconds the disk decides again, on a busy machine, too. The disk is an
nbdkit of ours (slow_disk_plugin.py), shown as a file by nbdfuse, with a loop device on it.

    apt install nbdkit nbdkit-plugin-python libnbd-bin
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PLUGIN = Path(__file__).with_name("slow_disk_plugin.py")
ONE_ARM = Path(__file__).with_name("one_arm.py")
_SECONDS = 20.0


@dataclass(frozen=True)
class DiskTimes:
    """Milliseconds that each request takes at least."""

    read: float
    write: float
    flush: float


def output_of(*command: str | Path) -> str:
    """What a program prints; CalledProcessError if it fails."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout.strip()


def _await(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come within {_SECONDS:.0f} s")
        time.sleep(0.05)


@contextmanager
def _running(*command: str | Path) -> Iterator[None]:
    # Ctrl-C ends the measurement, which then still needs the disk to clean up. A disk does not wait
    # for a processor.
    process = subprocess.Popen(["chrt", "--rr", "3", *command], start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait(_SECONDS)


@contextmanager
def slow_disk(work: Path, size: int, times: DiskTimes, *, options: str = "") -> Iterator[Path]:
    """An ext4 file system on such a disk, mounted below `work` with these options; as root.

    Afterwards nothing is mounted, attached or running, and the disk's file is gone.
    """
    back, socket, disk, place = (work / name for name in ("back", "socket", "disk", "slow"))
    with ExitStack() as undo:
        with back.open("wb") as file:
            file.truncate(size)
        undo.callback(back.unlink)
        each = (f"{kind}={getattr(times, kind)}" for kind in ("read", "write", "flush"))
        undo.enter_context(
            _running("nbdkit", "-f", "-U", socket, "python", PLUGIN, f"disk={back}", *each)
        )
        undo.callback(socket.unlink, missing_ok=True)
        _await(socket.exists, "nbdkit's socket")
        disk.touch()
        undo.callback(disk.unlink)
        undo.enter_context(_running("nbdfuse", disk, "--unix", socket))
        _await(lambda: disk.stat().st_size == size, "nbdfuse's file")
        loop = output_of("losetup", "--find", "--show", "--direct-io=on", disk)
        undo.callback(output_of, "losetup", "--detach", loop)
        output_of("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", loop)
        place.mkdir(exist_ok=True)
        undo.callback(place.rmdir)
        output_of("mount", *(("-o", options) if options else ()), loop, place)
        undo.callback(output_of, "umount", place)
        yield place


@contextmanager
def _prompt_workers() -> Iterator[None]:
    """While it is open, the kernel's unbound workers go before all but disks: a loop device does
    its requests by them, and a guest in real time that computes would keep them waiting.

    New workers follow within a second.
    """
    changed: set[int] = set()
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(1 if changed else 0):
            for comm in Path("/proc").glob("[0-9]*/comm"):
                with suppress(OSError):  # it ended meanwhile
                    number = int(comm.parent.name)
                    if comm.read_text().startswith("kworker/u") and (
                        os.sched_getscheduler(number) == os.SCHED_OTHER
                    ):
                        os.sched_setscheduler(number, os.SCHED_RR, os.sched_param(3))
                        changed.add(number)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()
        for number in changed:
            with suppress(OSError):
                os.sched_setscheduler(number, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def disk_of_one_arm(work: Path, size: int, times: DiskTimes, rate: int) -> Iterator[Path]:
    """A block device that does one request after another (one_arm.py): each takes its stated time,
    and a millisecond more for each `rate` bytes; as root.

    Afterwards nothing is mounted, attached or running.
    """
    file = work / "arm"
    numbers = (times.read, times.write, times.flush, rate)
    with ExitStack() as undo:
        file.touch()
        undo.callback(file.unlink)
        undo.enter_context(_running(sys.executable, ONE_ARM, file, str(size), *map(str, numbers)))
        _await(lambda: file.stat().st_size == size, "the disk's file")
        undo.callback(output_of, "umount", file)
        loop = output_of("losetup", "--find", "--show", "--direct-io=on", file)
        undo.callback(output_of, "losetup", "--detach", loop)
        undo.enter_context(_prompt_workers())
        yield Path(loop)
