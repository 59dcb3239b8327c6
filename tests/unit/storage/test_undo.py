"""What is removed after a crash, and what must have ended before."""

import threading
import time
from pathlib import Path

from vdisklab.storage.undo import await_starting


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
