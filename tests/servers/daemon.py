"""A server of a test: started, paused, killed, started again, and always ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vdisklab.host.waiting import wait_until

ADDRESS = "127.0.0.1"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_PATIENCE = 30.0


def program(name: str) -> str:
    """The path of a program; skips the test without it, which fails in continuous integration."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    if path is None:
        pytest.skip(f"needs {name}")
    return path


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """True if somebody listens on the port."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((ADDRESS, port)) == 0


def accepts(path: Path) -> bool:
    """True if somebody listens on the unix socket: a file of its name is there before that."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        return client.connect_ex(str(path)) == 0


def run(*argv: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """What a program prints; a failure shows what it said."""
    done = subprocess.run(
        [program(str(argv[0])), *map(str, argv[1:])],
        env={**os.environ, **(environment or {})},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv[0]} {argv[1:]}: {done.stderr}"
    return done.stdout


@dataclass
class Daemon:
    """A program that serves until it is told to end, with all processes that it starts.

    It removes its `sockets` when it ends, but not when it is killed. When it is told to end, it has
    `seconds_to_end`; then it is killed.
    """

    argv: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    sockets: Sequence[Path] = ()
    seconds_to_end: float = 1.0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers; fails with its log after half a minute."""
        for left in self.sockets:
            left.unlink(missing_ok=True)  # by a daemon that was killed
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [program(self.argv[0]), *self.argv[1:]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.environment},
            )  # fmt: skip
        wait_until(lambda: self._ended() or self.ready(), timeout=_PATIENCE, what=self.argv[0])
        if self._ended():
            pytest.fail(f"{self.argv} ended: {self.log.read_text(errors='replace')[-2000:]}")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the program and to all that it started."""
        assert self.process is not None
        for pid in (self.process.pid, *_descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Ends it at once, like a crash."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(_PATIENCE)

    def end(self) -> None:
        """Lets it end as on a shutdown, while it has time.

        What it started is killed: a session of sshd outlives it.
        """
        assert self.process is not None
        if self._ended():
            return
        sessions = _descendants(self.process.pid)
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(self.seconds_to_end)
        if not self._ended():
            self.kill()
        for pid in sessions:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None


def _descendants(pid: int) -> list[int]:
    """All processes below one. sshd's sessions leave its process group, so that does not do."""
    children = [
        int(child)
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for child in _read(file).split()
    ]
    return children + [each for child in children for each in _descendants(child)]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""  # it ended


@dataclass(frozen=True)
class Server:
    """A server that answers, and what its clients need.

    `url` is what a user types after `--target NAME=`; for a server that holds files it names a
    directory. `objects` are QEMU's objects with the credentials, in QEMU's notation. `daemons`
    are its processes: all are paused, killed and started again together.
    """

    url: str
    directory: Path
    daemons: tuple[Daemon, ...]
    objects: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(daemon.process.pid for daemon in self.daemons if daemon.process is not None)

    @property
    def log(self) -> str:
        return "".join(daemon.log.read_text(errors="replace") for daemon in self.daemons)

    def pause(self) -> None:
        """Stops all its processes where they are; connections stay."""
        for daemon in self.daemons:
            daemon.signal(signal.SIGSTOP)

    def resume(self) -> None:
        for daemon in self.daemons:
            daemon.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it like a crash of the machine that serves."""
        for daemon in reversed(self.daemons):
            daemon.kill()

    def restart(self) -> None:
        """Starts it again after `kill`, under the same address."""
        for daemon in self.daemons:
            daemon.start()


@contextmanager
def running(*daemons: Daemon) -> Iterator[None]:
    """Starts daemons one after the other, and ends them in the opposite order."""
    started: list[Daemon] = []
    try:
        for daemon in daemons:
            started.append(daemon)
            daemon.start()
        yield
    finally:
        for daemon in reversed(started):
            daemon.end()
