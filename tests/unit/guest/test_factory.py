"""Guests are started once, frozen while others are measured, and never used after a failure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest

from vdisklab.errors import GuestError, SilentGuestError, WrongClockError
from vdisklab.guest.agent import Agent, CompletedInGuest
from vdisklab.guest.factory import GuestKey, GuestPool
from vdisklab.guest.machine import Machine, require_steady_clock, require_steady_rate
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.systems import MicroGuest, UnfitGuestError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Aio
from vdisklab.progress import Note, silent

ONE = GuestKey("q35", Aio.THREADS)
TWO = GuestKey("q35", Aio.NATIVE)


class FakeMachine:
    """Notes what is done to it. Its process is ours, so that /proc has something to show."""

    def __init__(self, name: str, trace: list[str], *, drivers: bool) -> None:
        self.name = name
        self.trace = trace
        self.drivers = drivers
        self.pid = os.getpid()
        self.agent = self
        self.system = MicroGuest()

    def await_ready(self) -> None:
        self.system.await_ready(cast(Agent, self))

    def run(self, argv: tuple[str, ...], **_more: object) -> CompletedInGuest:
        self.trace.append(f"drivers {self.name}")
        if not self.drivers:
            raise GuestError("the guest is not ready")
        return CompletedInGuest(argv, 0, "", "", 0.0)

    def query(self, _command: str) -> list[object]:
        return []

    def freeze(self) -> None:
        self.trace.append(f"freeze {self.name}")

    def thaw(self) -> None:
        self.trace.append(f"thaw {self.name}")


class Stable:
    """Starts fake machines, numbered from 1."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.drivers = True
        self.hanging = 0  # so many guests stay silent from now on
        self._count = 0

    @contextmanager
    def start(self, machine: str, _disks: tuple[Disk, ...], _qemu: str | None) -> Iterator[Machine]:
        self._count += 1
        name = f"{machine}-{self._count}"
        self.trace.append(f"start {name}")
        try:
            if self.hanging:
                self.hanging -= 1
                error = SilentGuestError("no answer of the guest's agent within 90 s")
                error.add_note("its console:\n  [    0.1] Booting\n  [    0.4] clock")
                raise error
            yield cast(Machine, FakeMachine(name, self.trace, drivers=self.drivers))
        finally:
            self.trace.append(f"end {name}")


@pytest.fixture
def stable() -> Stable:
    return Stable()


def test_a_guest_is_started_once_and_frozen_in_between(stable: Stable) -> None:
    with GuestPool(stable.start, silent) as pool:
        with pool.guest(ONE):
            stable.trace.append("measure")
        with pool.guest(ONE):
            stable.trace.append("measure")
    assert stable.trace == [
        "start q35-1", "drivers q35-1", "measure", "freeze q35-1",
        "thaw q35-1", "measure", "freeze q35-1", "end q35-1",
    ]  # fmt: skip


def test_each_key_has_its_guest(stable: Stable) -> None:
    with GuestPool(stable.start, silent) as pool:
        with pool.guest(ONE):
            pass
        with pool.guest(TWO):
            stable.trace.append("measure")
    assert stable.trace.index("freeze q35-1") < stable.trace.index("start q35-2")
    assert {"end q35-1", "end q35-2"} <= set(stable.trace)


def test_a_guest_that_failed_is_ended_and_replaced(stable: Stable) -> None:
    with GuestPool(stable.start, silent) as pool:
        with pytest.raises(GuestError, match="lost"), pool.guest(ONE):
            raise GuestError("lost")
        assert stable.trace[-1] == "end q35-1"
        with pool.guest(ONE) as pooled:
            assert cast(FakeMachine, pooled.machine).name == "q35-2"


def test_a_guest_that_never_gets_ready_is_ended(stable: Stable) -> None:
    stable.drivers = False
    with GuestPool(stable.start, silent) as pool:
        with pytest.raises(GuestError, match="not ready"), pool.guest(ONE):
            pytest.fail("not reached")
        assert stable.trace == ["start q35-1", "drivers q35-1", "end q35-1"]


def test_ctrl_c_ends_the_guest_in_use_and_those_in_waiting(stable: Stable) -> None:
    def interrupted() -> None:
        with GuestPool(stable.start, silent) as pool:
            with pool.guest(TWO):
                pass
            with pool.guest(ONE):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sorted(line for line in stable.trace if line.startswith("end")) == [
        "end q35-1",
        "end q35-2",
    ]


def test_a_new_round_gets_new_guests(stable: Stable) -> None:
    with GuestPool(stable.start, silent) as pool:
        with pool.guest(ONE):
            pass
        pool.renew()
        assert stable.trace[-1] == "end q35-1"
        with pool.guest(ONE):
            pass
    assert "start q35-2" in stable.trace


def test_a_guest_that_does_not_thaw_is_ended_and_forgotten(
    stable: Stable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: FakeMachine) -> None:
        raise GuestError("no answer to cont")

    with GuestPool(stable.start, silent) as pool:
        with pool.guest(ONE):
            pass
        monkeypatch.setattr(FakeMachine, "thaw", refuse)
        with pytest.raises(GuestError, match="cont"), pool.guest(ONE):
            pytest.fail("not reached")
        assert stable.trace[-1] == "end q35-1"
        with pool.guest(ONE) as pooled:
            assert cast(FakeMachine, pooled.machine).name == "q35-2"


@pytest.mark.parametrize(("bus", "machine"), [("ide", "pc"), ("sata", "q35")])
def test_a_guest_of_its_own_is_ended_after_its_cell(stable: Stable, bus: str, machine: str) -> None:
    path = parse_path(f"raw/none/{bus}")
    disk = Disk(
        "s", 1 << 25, {"driver": "file", "filename": "/i"}, "raw", path.cache, path.attachment
    )
    with (
        GuestPool(stable.start, silent) as pool,
        pool.dedicated_guest(path.attachment.bus, disk),
    ):
        stable.trace.append("measure")
    name = f"{machine}-1"
    assert stable.trace == [f"start {name}", f"drivers {name}", "measure", f"end {name}"]


def test_an_unfit_guest_is_not_booted_again(
    stable: Stable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the user's own, and each boot of it may take minutes."""

    def require(_self: MicroGuest, _agent: Agent, programs: Sequence[str]) -> None:
        raise UnfitGuestError(f"the guest has no {programs[0]}")

    monkeypatch.setattr(MicroGuest, "require", require)
    with GuestPool(stable.start, silent, ("fio",)) as pool:
        for _ in range(2):
            with pytest.raises(UnfitGuestError, match="has no fio"), pool.guest(ONE):
                pytest.fail("not reached")
    assert stable.trace == ["start q35-1", "drivers q35-1", "end q35-1"]


def test_a_guest_that_stays_silent_while_it_boots_gets_one_successor(stable: Stable) -> None:
    stable.hanging = 1
    steps: list[object] = []
    with GuestPool(stable.start, steps.append) as pool, pool.guest(ONE):
        pass
    assert stable.trace[:3] == ["start q35-1", "end q35-1", "start q35-2"]
    assert [step.text for step in steps if isinstance(step, Note)] == [
        "no answer of the guest's agent within 90 s (its console ends with: [    0.4] clock); "
        "booting another guest"
    ]


def test_a_clock_that_ran_ahead_while_the_guest_booted_is_an_error() -> None:
    class Clock(Agent):
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def query(self, command: str) -> int:
            assert command == "guest-get-time"
            return int(self.seconds * 1e9)

    for right in (999.0, 1000.0, 1001.5):
        require_steady_clock(Clock(right), lambda: 1000.0)
    with pytest.raises(WrongClockError, match="57 s ahead"):
        require_steady_clock(Clock(1057.0), lambda: 1000.0)


@pytest.mark.parametrize(
    ("rate", "delay", "wrong"),
    [(1.0, 0.0, False), (1.04, 0.0, False), (1.0, 5.0, False), (6.2, 0.0, True), (0.4, 0.0, True)],
)
def test_a_users_guest_may_have_any_time_but_must_count_right(
    rate: float, delay: float, *, wrong: bool
) -> None:
    """Its RTC may hold local time. A late answer of a busy host is not an error."""
    passed = [0.0]

    def pass_by(seconds: float) -> None:
        passed[0] += seconds

    class Clock(Agent):
        def __init__(self) -> None:
            pass

        def query(self, command: str) -> int:
            assert command == "guest-get-time"
            seen = 1_700_007_200 + passed[0] * rate
            pass_by(delay)
            return int(seen * 1e9)

    with pytest.raises(WrongClockError, match="counted") if wrong else contextlib.nullcontext():
        require_steady_rate(Clock(), pass_by, lambda: passed[0])


def test_two_silent_guests_in_a_row_are_an_error(stable: Stable) -> None:
    stable.hanging = 2
    with GuestPool(stable.start, silent) as pool, pytest.raises(SilentGuestError), pool.guest(ONE):
        pass
    assert [step for step in stable.trace if "end" in step] == ["end q35-1", "end q35-2"]
