"""When the agent is asked whether a program has ended: polls take the guest's CPU from it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.guest.fake_agent import FakeAgent, Said, agent_of
from vdisklab.errors import WorkloadError
from vdisklab.guest import agent as module
from vdisklab.guest.agent import Agent
from vdisklab.guest.qemu.qmp import Channel

EXPECTED = 2.0


class SlowGuest:
    """A guest whose programs start late; it has a clock of its own, which polls do not move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.late = 0.5
        self.begun = 0.0
        self.polled: list[float] = []
        self.pauses: list[float] = []

    def execute(
        self, command: str, _arguments: object = None, *, timeout: float | None = None
    ) -> object:
        del timeout
        if command == "guest-exec":
            self.begun, self.polled, self.pauses = self.now, [], []
            return {"pid": 7}
        self.polled.append(self.now - self.begun)
        ended = self.now >= self.begun + EXPECTED + self.late
        return {"exited": True, "exitcode": 0} if ended else {"exited": False}

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def deadline(self, seconds: float) -> Callable[[], float]:
        end = self.now + seconds
        return lambda: end - self.now


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> SlowGuest:
    guest = SlowGuest()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: guest.now))
    return guest


def polls(agent: Agent, guest: SlowGuest, expected: float = EXPECTED) -> list[float]:
    """When a program was polled, in seconds after its start."""
    agent.run(("fio",), timeout=100, expected=expected)
    return guest.polled


def test_a_program_is_not_polled_while_it_must_still_run(guest: SlowGuest) -> None:
    agent = Agent(cast("Channel", guest))
    first = polls(agent, guest)
    assert first[0] == pytest.approx(EXPECTED)
    assert len(first) > 20
    second = polls(agent, guest)
    assert second[0] == pytest.approx(EXPECTED + 0.9 * 0.5, abs=0.05)
    assert len(second) < 7
    assert second[-1] == pytest.approx(first[-1], abs=0.05), "and its end is not seen later"


def test_what_is_learned_of_the_start_is_unlearned_when_it_becomes_faster(guest: SlowGuest) -> None:
    agent = Agent(cast("Channel", guest))
    polls(agent, guest)
    guest.late = 0.1
    for _ in range(20):
        polls(agent, guest)
    seen = polls(agent, guest)
    assert seen[-1] == pytest.approx(EXPECTED + guest.late, abs=0.03)
    assert len(seen) < 5


def test_a_program_without_a_time_is_polled_at_once(guest: SlowGuest) -> None:
    agent = Agent(cast("Channel", guest))
    polls(agent, guest)
    guest.late = -EXPECTED
    assert polls(agent, guest, expected=0.0) == [0.0]


def test_one_program_that_ended_very_late_does_not_hold_up_the_next(guest: SlowGuest) -> None:
    agent = Agent(cast("Channel", guest))
    guest.late = 60.0
    polls(agent, guest)
    guest.late = 0.1
    assert polls(agent, guest)[-1] < EXPECTED + 2.0


@pytest.mark.parametrize(("costs", "pauses"), [(0.0, 4), (0.27, 3), (5.0, 2)])
def test_vdisklab_sleeps_until_the_next_look(
    guest: SlowGuest, monkeypatch: pytest.MonkeyPatch, costs: float, pauses: int
) -> None:
    """`costs` are the seconds in which a look uses 1 % of a CPU; the next is due after three times
    as many. Each time that vdisklab wakes up takes CPU from a guest that shares it."""
    looks: list[float] = []

    def look() -> None:
        looks.append(guest.now - guest.begun)

    def pause_after(watch: Callable[[], None]) -> float:
        watch()
        return costs

    monkeypatch.setattr(module, "pause_after", pause_after)
    guest.late = 0.0
    Agent(cast("Channel", guest)).run(("fio",), timeout=100, expected=EXPECTED, watch=look)
    assert len(guest.pauses) == pauses
    assert guest.polled == [EXPECTED]
    assert looks[0] == 0.5


def test_without_a_watch_it_sleeps_until_the_program_can_have_ended(guest: SlowGuest) -> None:
    guest.late = 0.0
    polls(Agent(cast("Channel", guest)), guest)
    assert guest.pauses == [EXPECTED]


@pytest.mark.parametrize(
    ("argv", "said", "shown", "way"),
    [
        (("tar", "-x"), "tar: a: No space left on device\n" + "tar: b: Cannot open\n" * 4,
         "`tar -x` exited", "choose a larger --size"),
        (("sh", "-c", 'cd "$0" && exec "$@"', "/mnt/data", "pgbench", "-c1"), "Out of memory",
         "`pgbench -c1` exited", "choose a larger --guest-memory"),
        (("sh", "-s", "--", "start", "/mnt"), "did not start", "`sh -s -- start …` exited", None),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_named_with_the_way_out(
    argv: tuple[str, ...], said: str, shown: str, way: str | None
) -> None:
    fake = FakeAgent({"id": "debian"}, lambda _argv, _stdin: Said("", said, 2))
    with agent_of(fake) as agent, pytest.raises(WorkloadError) as told:
        agent.run(argv, timeout=5)
    assert str(told.value).startswith(shown)
    assert (way or "") in (told.value.hint or "")
    assert (way is None) is (told.value.hint is None)
