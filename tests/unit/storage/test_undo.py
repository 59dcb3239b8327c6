"""What is removed after a crash, and what must have ended before."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from vdisklab.host.ledger import Entry, Kind
from vdisklab.storage.undo import await_programs, await_starting


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
