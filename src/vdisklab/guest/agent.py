"""The QEMU guest agent: runs programs and reads and writes files inside a guest."""

from __future__ import annotations

import base64
import secrets
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from vdisklab.errors import (
    GuestError,
    GuestTimeoutError,
    RefusedError,
    WorkloadError,
    last_words,
    shown_command,
    way_out,
)
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.host.waiting import patience, pause_after
from vdisklab.value import Value

_SHORT_POLL = 0.005
_POLL = 0.02
_SETTLED_POLL = 0.1
_CERTAIN = 0.9
_MOST_LATE = 2.0  # if a program takes longer than that, its end was late, not its start
# QEMU's answer to a look takes CPU, too: with pauses of only `pause_after` the looks were 3 % of
# the instructions in an emulated lab with one CPU (record lab-fidelity-parameters).
_FEWER_LOOKS = 3
_CHUNK = 256 << 10
_ANSWER_SECONDS = 30.0

# The agent zeroes a buffer of this size for each answer (guest_file_read_unsafe in
# qga/commands-posix.c): with 8 MiB an emulated guest takes 68 ms for 50 bytes, with this 10 ms.
_READ_AT_ONCE = 64 << 10
_LARGEST_FILE = 64 << 20
_LEAST_PIECE = 4 << 10  # smaller ones count as this: a hostile agent could send single bytes


_Answer = TypeVar("_Answer", bound=BaseModel)


class _Started(BaseModel):
    """The answer to guest-exec."""

    pid: int


class _Written(BaseModel):
    """The answer to guest-file-write."""

    count: int


class _State(BaseModel):
    """The answer to guest-exec-status (qga/qapi-schema.json, GuestExecStatus)."""

    exited: bool
    exitcode: int | None = None
    signal: int = 0
    out_data: str = Field("", alias="out-data")
    err_data: str = Field("", alias="err-data")
    out_truncated: bool = Field(False, alias="out-truncated")


class _Piece(BaseModel):
    """The answer to guest-file-read."""

    content: str = Field("", alias="buf-b64")
    eof: bool


def _kill(pid: int) -> tuple[str, ...]:
    return ("sh", "-c", f"kill -9 {pid}")


def _taskkill(pid: int) -> tuple[str, ...]:
    return ("taskkill.exe", "/F", "/T", "/PID", str(pid))


class CompletedInGuest(Value):
    """The output of a program in the guest, and its run time in seconds."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float


class _Looks:
    """A watch that ignores calls that come too soon after the last one, in this run or an earlier
    one.

    `pause` has the least seconds between two looks, None before the first one; `due` is the moment
    of the next.
    """

    def __init__(self, watch: Callable[[], None], pause: float | None) -> None:
        self._watch = watch
        self.pause = pause
        self.due = time.monotonic() + (pause or 0.0)

    def __call__(self) -> None:
        if time.monotonic() >= self.due:
            pause = _FEWER_LOOKS * pause_after(self._watch)
            self.pause = pause if self.pause is None else min(pause, self.pause)
            self.due = time.monotonic() + pause


class Agent:
    """The guest agent of one running guest."""

    def __init__(
        self,
        channel: Channel,
        kill: Callable[[int], tuple[str, ...]] = _kill,
        *,
        patience_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        """`kill(pid)` is the guest's command that ends a process.

        `patience_seconds` is the deadline for each answer.
        """
        self._channel = channel
        self._kill_command = kill
        self._patience = patience_seconds
        self._late: float | None = None  # the least delay of a timed program's end, in seconds
        self._pause: float | None = None  # the least seconds between two looks of a watch

    def on_windows(self) -> Agent:
        """The same agent with Windows' command to end a process."""
        return Agent(self._channel, _taskkill, patience_seconds=self._patience)

    def query(self, command: str) -> Any:  # noqa: ANN401 - the protocol returns any JSON value
        """The agent's answer to a command without arguments. Raises GuestError."""
        return self._channel.execute(command)

    def clock_seconds(self) -> float:
        """The guest's time of day in seconds since 1970. Raises GuestError."""
        nanoseconds = self.query("guest-get-time")
        if not isinstance(nanoseconds, int) or abs(nanoseconds) >= 1 << 63:
            shown = f"{nanoseconds!r:.200}"
            raise GuestError(f"the guest agent's answer to guest-get-time is not a time: {shown}")
        return nanoseconds / 1e9

    def write_file(self, path: str, content: bytes) -> None:
        """Writes a file in the guest, replacing it. Raises GuestError."""
        handle = self._channel.execute("guest-file-open", {"path": path, "mode": "wb"})
        try:
            for start in range(0, len(content), _CHUNK):
                part = base64.b64encode(content[start : start + _CHUNK]).decode()
                arguments = {"handle": handle, "buf-b64": part}
                written = self._ask(_Written, "guest-file-write", arguments).count
                if written != len(content[start : start + _CHUNK]):
                    raise GuestError(
                        f"the guest agent wrote only part of {path}: the guest's disk may be full",
                        hint="free space in that directory of the guest",
                    )
        finally:
            self._channel.execute("guest-file-close", {"handle": handle})

    def synchronise(self, *, timeout: float) -> None:
        """Discards answers to earlier commands that may still be in the channel.

        The agent echoes a random number (qemu-ga's documentation of guest-sync). Raises GuestError.
        """
        token = secrets.randbelow(1 << 31)
        answer = self._channel.execute("guest-sync", {"id": token}, timeout=timeout)
        if answer != token:
            raise GuestError(
                f"the guest agent answered {answer!r} to guest-sync",
                hint="another program, such as libvirt, uses the guest agent: stop it",
            )

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        expected: float = 0.0,
        watch: Callable[[], None] | None = None,
    ) -> CompletedInGuest:
        """Runs a program in the guest to its end.

        `expected` is its minimum run time in seconds; its state is polled only after that, so that
        polling does not disturb the measurement. Such a program also takes time to start, up to a
        second in an emulated guest, where polls take a tenth of the CPU: nearly as long as those
        before it took is not polled either. `watch` is called about twice a second, but never uses
        more than a third of 1 % of a CPU. Raises WorkloadError for a status outside `allowed`,
        GuestError when the agent stops answering or the program does not end within `timeout`
        seconds.
        """
        looks = None if watch is None else _Looks(watch, self._pause)
        started = time.monotonic()
        pid = self.start(argv, stdin=stdin)
        quiet = expected + _CERTAIN * (self._late or 0.0) if expected else 0.0
        self._idle(started + quiet, looks)
        ended = self._await_end(
            pid, argv, started, timeout=timeout, allowed=allowed, expected=expected, watch=looks
        )
        self._pause = self._pause if looks is None else looks.pause
        if expected:
            late = min(max(0.0, ended.seconds - expected), _MOST_LATE)
            self._late = late if self._late is None else min(late, self._late)
        return ended

    @contextmanager
    def sparing(self, watch: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """The watch, which ignores calls that come so soon that its looks would use CPU time."""
        looks = _Looks(watch, self._pause)
        yield looks
        self._pause = looks.pause

    def start(self, argv: Sequence[str], *, stdin: str | None = None) -> int:
        """Starts a program in the guest and returns its process number, for `finish`."""
        request: dict[str, Any] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        if stdin is not None:
            request["input-data"] = base64.b64encode(stdin.encode()).decode()
        return self._ask(_Started, "guest-exec", request).pid

    def finish(
        self, pid: int, argv: Sequence[str], *, timeout: float, allowed: Collection[int] = (0,)
    ) -> CompletedInGuest:
        """Waits until the process that `start` returned has ended.

        Raises the same errors as `run`.
        """
        return self._await_end(pid, argv, time.monotonic(), timeout=timeout, allowed=allowed)

    def _await_end(
        self,
        pid: int,
        argv: Sequence[str],
        started: float,
        *,
        timeout: float,
        allowed: Collection[int],
        expected: float = 0.0,
        watch: Callable[[], None] | None = None,
    ) -> CompletedInGuest:
        deadline = self._channel.deadline(timeout * patience() - (time.monotonic() - started))
        while True:
            state = self._state(pid, argv)
            elapsed = time.monotonic() - started
            if state.exited:
                return _ended(argv, state, elapsed, allowed)
            if deadline() <= 0:
                self._kill(pid)
                raise GuestTimeoutError(
                    f"`{shlex.join(argv)}` did not end within {timeout:g} s",
                    hint="the machine may be too busy: try again when it is idle",
                )
            if watch is not None:
                watch()
            self._channel.pause(_interval(elapsed, expected))

    def _state(self, pid: int, argv: Sequence[str]) -> _State:
        try:
            return self._ask(_State, "guest-exec-status", {"pid": pid})
        except RefusedError as error:
            # A restarted agent does not know the processes that it started before.
            raise GuestError(
                f"the guest agent was restarted while it ran `{shlex.join(argv)}`, so the result "
                f"is lost ({error})",
                hint="look in the guest's journal for what ended its qemu-guest-agent",
            ) from error

    def read_file(self, name: str) -> str:
        """The text of a file in the guest.

        The agent reads it itself: starting a program takes 70 ms in an emulated guest. Raises
        WorkloadError for a file that is missing or larger than 64 MiB, GuestError when the agent
        stops answering.
        """
        try:
            handle = self._channel.execute("guest-file-open", {"path": name, "mode": "r"})
            content = b"".join(self._pieces(name, handle))
            self._channel.execute("guest-file-close", {"handle": handle})
        except RefusedError as error:
            raise WorkloadError(
                f"the program did not write {name} in the guest: {error}"
            ) from error
        return content.decode(errors="replace")

    def _pieces(self, name: str, handle: int) -> Iterator[bytes]:
        request = {"handle": handle, "count": _READ_AT_ONCE}
        size, ended = 0, False
        while not ended:
            piece = self._ask(_Piece, "guest-file-read", request)
            content = _bytes(piece.content)
            ended = piece.eof or not content
            size += max(len(content), _LEAST_PIECE)
            if size > _LARGEST_FILE:
                raise WorkloadError(
                    f"{name} in the guest is larger than {_LARGEST_FILE >> 20} MiB",
                    hint="measure for a shorter time: --runtime",
                )
            yield content

    def _ask(self, kind: type[_Answer], command: str, arguments: dict[str, Any]) -> _Answer:
        answer = self._channel.execute(command, arguments, timeout=self._patience)
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise GuestError(
                f"the guest agent's answer to {command} is not as expected: {answer!r:.200}"
            ) from error

    def _idle(self, until: float, looks: _Looks | None) -> None:
        """Sleeps until the next look is due, because each wake-up costs CPU."""
        while (left := until - time.monotonic()) > 0:
            due = left if looks is None else max(0.5, looks.due - time.monotonic())
            self._channel.pause(min(left, due))
            if looks is not None and left > due:
                looks()

    def _kill(self, pid: int) -> None:
        program, *arguments = self._kill_command(pid)
        self._channel.execute("guest-exec", {"path": program, "arg": arguments})


def _interval(elapsed: float, expected: float) -> float:
    """Seconds between two polls: short for programs that measure nothing, else long."""
    if not expected and elapsed < 0.5:
        return _SHORT_POLL
    return (_POLL if elapsed < expected + 2 else _SETTLED_POLL) * patience()


def _ended(
    argv: Sequence[str], state: _State, seconds: float, allowed: Collection[int]
) -> CompletedInGuest:
    status = -state.signal if state.exitcode is None else state.exitcode
    if state.out_truncated:
        raise WorkloadError(
            f"`{argv[0]}` printed more than the guest agent can pass on (16 MiB)",
            hint="change the profile so that the program prints less",
        )
    stdout, stderr = _text(state.out_data), _text(state.err_data)
    if status not in allowed:
        last = last_words(argv, stderr.strip() or stdout)
        ended = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
        text = f"`{shown_command(argv)}` {ended} in the guest: {last}"
        raise WorkloadError(text, hint=way_out(stderr or stdout))
    return CompletedInGuest(tuple(argv), status, stdout, stderr, seconds)


def _text(encoded: str) -> str:
    return _bytes(encoded).decode(errors="replace")


def _bytes(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:  # also for text that is not ASCII
        raise GuestError(
            "the guest agent sent damaged base64",
            hint="install the distribution's qemu-guest-agent in the guest",
        ) from error
