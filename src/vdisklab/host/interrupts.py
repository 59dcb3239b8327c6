"""Ctrl-C and its like, kept waiting while something must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vdisklab.errors import DirtyHostError

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end us as Ctrl-C does, so that what was built is taken down."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """What asks us to end is heard when the block ends.

    Python hears signals in its main thread only, so elsewhere there is nothing to hold. A signal
    that is ignored or has its default way stays so. A DirtyHostError ends us anyway, and must not
    give way to an interrupt: what stands below the thing that stays must stay as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    held = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in held:
            signal.signal(number, hold)
        yield
    except DirtyHostError:
        heard.clear()
        raise
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])
