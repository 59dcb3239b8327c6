"""What happens inside the guest, through the QEMU guest agent."""

from __future__ import annotations

import base64
import binascii
import secrets
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.monitor import Channel
from vdisklab.host.deadline import patience

_POLL = 0.02
_SETTLED_POLL = 0.1


class _Started(BaseModel):
    """The answer to guest-exec."""

    pid: int


class _State(BaseModel):
    """The answer to guest-exec-status (qga/qapi-schema.json, GuestExecStatus)."""

    exited: bool
    exitcode: int | None = None
    signal: int = 0
    out_data: str = Field("", alias="out-data")
    err_data: str = Field("", alias="err-data")
    out_truncated: bool = Field(False, alias="out-truncated")


_Answer = TypeVar("_Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ran in the guest."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float


class Agent:
    """The guest agent of one running guest."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def synchronise(self, *, timeout: float) -> None:
        """Makes sure that the next answer belongs to the next question.

        A random number is echoed, because answers of an earlier conversation may still be in the
        channel (qemu-ga's documentation of guest-sync). Raises GuestError.
        """
        token = secrets.randbelow(1 << 31)
        answer = self._channel.execute("guest-sync", {"id": token}, timeout=timeout)
        if answer != token:
            raise GuestError(f"the guest agent answered {answer!r} to a synchronisation")

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        expected: float = 0.0,
        watch: Callable[[], None] | None = None,
    ) -> Ended:
        """Runs a program in the guest to its end.

        `expected` is how long it will take at least: it is not asked after before, so that
        asking does not disturb what it measures. `watch` is called about twice a second
        meanwhile. Raises WorkloadError for a status outside `allowed`, GuestError when the
        agent stops answering or the program does not end within `timeout` seconds.
        """
        started = time.monotonic()
        pid = self._start(argv, stdin)
        self._idle(started + expected, watch)
        while True:
            state = self._ask(_State, "guest-exec-status", {"pid": pid})
            elapsed = time.monotonic() - started
            if state.exited:
                return _ended(argv, state, elapsed, allowed)
            if elapsed > timeout * patience():
                self._kill(pid)
                raise GuestError(f"`{shlex.join(argv)}` did not end within {timeout:g} s")
            if watch is not None:
                watch()
            self._channel.pause(_POLL if elapsed < expected + 2 else _SETTLED_POLL)

    def _start(self, argv: Sequence[str], stdin: str | None) -> int:
        request: dict[str, Any] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        if stdin is not None:
            request["input-data"] = base64.b64encode(stdin.encode()).decode()
        return self._ask(_Started, "guest-exec", request).pid

    def _ask(self, kind: type[_Answer], command: str, arguments: dict[str, Any]) -> _Answer:
        answer = self._channel.execute(command, arguments)
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise GuestError(
                f"the guest agent's answer to {command} is not as expected: {answer!r:.200}"
            ) from error

    def _idle(self, until: float, watch: Callable[[], None] | None) -> None:
        while (left := until - time.monotonic()) > 0:
            self._channel.pause(min(left, 0.5))
            if watch is not None and left > 0.5:
                watch()

    def _kill(self, pid: int) -> None:
        self._channel.execute(
            "guest-exec", {"path": "/bin/busybox", "arg": ["kill", "-9", str(pid)]}
        )


def _ended(argv: Sequence[str], state: _State, seconds: float, allowed: Collection[int]) -> Ended:
    status = -state.signal if state.exitcode is None else state.exitcode
    if state.out_truncated:
        raise WorkloadError(f"`{argv[0]}` printed more than the guest agent carries (16 MiB)")
    stdout, stderr = _text(state.out_data), _text(state.err_data)
    if status not in allowed:
        last = " | ".join((stderr.strip() or stdout.strip()).splitlines()[-3:])
        ended = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
        raise WorkloadError(f"`{shlex.join(argv)}` {ended} in the guest: {last}")
    return Ended(tuple(argv), status, stdout, stderr, seconds)


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise GuestError("the guest agent sent damaged base64") from error
