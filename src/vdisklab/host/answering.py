"""Calls into a file system whose server may be gone: a hard NFS mount then waits for ever (nfs(5)).

SIGKILL alone ends such a call, so it is made in a thread of its own, which is left behind.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import CommandError, CommandTimeoutError, HostError
from vdisklab.host.command import Host, LocalHost

_ANSWER_SECONDS = 15.0
_PATIENT_SECONDS = 5.0  # a call may take longer if the file system still answers

_Answer = TypeVar("_Answer")


def require_answer(host: Host, place: Path) -> None:
    """Raises HostError unless the file system of `place` answers; CommandError if it says no.

    Asked by statfs(2), which is never answered from a cache of attributes (fs/nfs/super.c).
    """
    try:
        host.run("stat", "--file-system", "--format=%T", place, timeout=_ANSWER_SECONDS)
    except CommandTimeoutError as error:
        raise HostError(
            f"{place} does not answer within {_ANSWER_SECONDS:.0f} s",
            hint="its server may be gone: run this again when it is back",
        ) from error


def answered(place: Path, call: Callable[[], _Answer]) -> _Answer:
    """What `call` returns or raises.

    Raises HostError if the file system of `place` stops answering meanwhile. The call then goes on
    in a thread, which ends when the server is back, or with this process.
    """
    future: Future[_Answer] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not wait([future], _PATIENT_SECONDS).done:
        with suppress(CommandError):  # what is wrong with the place is the call's to say
            require_answer(LocalHost(), place)
    return future.result()
