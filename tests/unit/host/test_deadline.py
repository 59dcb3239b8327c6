"""Waiting ends: when the condition holds, or at the deadline and not before."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from vdisklab.errors import GuestError, HostError
from vdisklab.host.deadline import SystemClock, wait_until


@dataclass
class FakeClock:
    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_condition_that_holds_costs_no_sleep() -> None:
    clock = FakeClock()
    wait_until(lambda: True, timeout=0, what="anything", clock=clock)
    assert clock.slept == []


def test_returns_once_the_condition_holds() -> None:
    clock = FakeClock()
    wait_until(lambda: clock.now >= 101, timeout=5, what="the second", clock=clock)
    assert 101 <= clock.now < 101.2


def test_raises_at_the_deadline_and_says_what_was_awaited() -> None:
    clock = FakeClock()
    with pytest.raises(HostError, match=r"no release of /dev/loop7 within 2\.5 s"):
        wait_until(lambda: False, timeout=2.5, what="release of /dev/loop7", clock=clock)
    assert 102.5 <= clock.now < 102.7


def test_raises_the_error_asked_for() -> None:
    with pytest.raises(GuestError):
        wait_until(lambda: False, timeout=1, what="answer", clock=FakeClock(), error=GuestError)


def test_pauses_grow_to_a_tenth_of_a_second() -> None:
    clock = FakeClock()
    with pytest.raises(HostError):
        wait_until(lambda: False, timeout=3, what="end", clock=clock)
    assert clock.slept[0] == pytest.approx(0.01)
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == pytest.approx(0.1)


def test_a_sleep_that_took_too_long_is_followed_by_one_more_look() -> None:
    clock = FakeClock()

    def overslept() -> bool:
        if clock.slept:
            clock.now += 60
        return bool(clock.slept)

    wait_until(overslept, timeout=1, what="end", clock=clock)


def test_an_error_of_the_condition_is_not_hidden() -> None:
    def broken() -> bool:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        wait_until(broken, timeout=1, what="end", clock=FakeClock())


def test_the_system_clock_goes_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
