"""Waiting, always with an end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from vdisklab.errors import HostError, VdisklabError

PATIENCE = "VDISKLAB_PATIENCE"


def patience() -> float:
    """How many times longer than usual deadlines are, at least 1.

    Set by the lab for the program inside it, where guests may be emulated under emulation.
    """
    try:
        return max(1.0, float(os.environ.get(PATIENCE, "1")))
    except ValueError:
        return 1.0


class Clock(Protocol):
    """Monotonic time and sleep, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Lets `seconds` pass."""


class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        """Seconds since boot or so; never jumps."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """Lets `seconds` pass."""
        time.sleep(seconds)


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout: float,
    what: str,
    clock: Clock | None = None,
    interval: float = 0.01,
    error: type[VdisklabError] = HostError,
) -> None:
    """Returns once `condition()` is true; raises `error` naming `what` after `timeout` seconds.

    The condition is tried at least once, and once more at the end, so a slow machine is not
    blamed for a sleep that took too long. The interval grows to a tenth of a second.
    """
    clock = clock or SystemClock()
    deadline = clock.monotonic() + timeout * patience()
    while not condition():
        if clock.monotonic() >= deadline:
            raise error(f"no {what} within {timeout:g} s")
        clock.sleep(interval)
        interval = min(interval * 1.5, 0.1)
