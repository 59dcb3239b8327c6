"""Programs of the host, watched while they run."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from vdisklab.errors import CommandError, CommandTimeoutError, HostError
from vdisklab.host import command
from vdisklab.host.command import LocalHost


def test_a_watched_program_gets_its_input_and_says_all() -> None:
    seen: list[int] = []
    text = "x" * 300_000
    done = LocalHost().run("sh", "-c", "echo $$ >&2; sleep 0.5; cat", stdin=text, watch=seen.append)
    assert done.stdout == text
    assert set(seen) == {int(done.stderr)}
    assert len(seen) >= 3


def test_a_program_that_does_not_wait_for_its_reader_is_read_whole() -> None:
    """As QEMU's monitor on `quit`: what a full pipe does not take is lost."""
    says = "import os; os.set_blocking(1, False); os.write(1, b'x' * 900_000)"
    assert len(LocalHost().run(sys.executable, "-c", says).stdout) == 900_000


def test_a_program_is_not_waited_for_by_what_it_left_running() -> None:
    """A server that goes into the background keeps its standard output."""
    begin = time.monotonic()
    pid = LocalHost().run("sh", "-c", "sleep 20 & echo $!").stdout
    assert time.monotonic() - begin < 10
    os.kill(int(pid), signal.SIGKILL)


def test_a_program_that_ends_at_once_was_looked_at() -> None:
    seen: list[int] = []
    assert LocalHost().run("echo", "yes", watch=seen.append).stdout == "yes\n"
    assert len(seen) == 1


def test_a_program_is_not_told_the_password_of_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hidden")
    monkeypatch.setenv("VDISKLAB_DB", "postgresql://v:hidden@db1/v")
    assert "hidden" not in LocalHost().run("env").stdout


def test_looks_that_take_long_are_few() -> None:
    seen: list[int] = []

    def look(pid: int) -> None:
        seen.append(pid)
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    LocalHost().run("sleep", "1", watch=look)
    assert len(seen) <= 2


def test_a_watched_program_has_its_deadline() -> None:
    begin = time.monotonic()
    with pytest.raises(HostError, match=r"`sleep 30` gave no answer within 0 s"):
        LocalHost().run("sleep", "30", timeout=0.3, watch=lambda _pid: None)
    assert time.monotonic() - begin < 20


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_program_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As fio on a kernel NFS mount whose server has stopped: it held its cell for 17 minutes."""
    asked: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _number: asked.append(pid))
    monkeypatch.setattr(command, "_END_SECONDS", 0.1)
    begin = time.monotonic()
    with pytest.raises(CommandTimeoutError):
        LocalHost().run("sleep", "60", timeout=0.1)
    assert time.monotonic() - begin < 30
    assert len(asked) == 2
    os.kill(asked[0], signal.SIGKILL)


def test_a_program_is_ended_when_its_watcher_fails() -> None:
    seen: list[int] = []

    def fail(pid: int) -> None:
        seen.append(pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalHost().run("sleep", "30", watch=fail)
    assert not _lives(seen[0])


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return " Z " not in file.read()
    except OSError:
        return False


def test_a_programs_message_is_found_before_its_json() -> None:
    """fio 3.39 on a kernel that refuses io_getevents prints both on its standard output."""
    output = (
        'fio: pid=7, err=-1/file:ioengines.c:321, error=Unknown error -1\n{\n "jobs" : [\n ]\n}\n'
    )
    assert str(CommandError(("fio", "--name=a"), 1, output)).endswith("error=Unknown error -1")
