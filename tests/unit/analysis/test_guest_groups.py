"""Whether a step passes, how fair it was, and what limited it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.analysis.guest_groups import (
    LimitedBy,
    bottleneck,
    jain,
    judge,
    parse_criterion,
)
from vdisklab.errors import PlanError
from vdisklab.results.model import (
    Direction,
    Evidence,
    GuestGroup,
    HostLoad,
    IoCounters,
    Member,
    Sample,
)
from vdisklab.value import replace

GOOD = Member(1, 0.0, 100.0, 0.001, 0.001, 0.004, 0.5, 1000, 1000, Evidence(host_cpu_seconds=2.0))
LIMIT = parse_criterion("latency_p99<=5ms")


def a_group(*members: Member, load: HostLoad | None = None) -> GuestGroup:
    return GuestGroup(10.0, members, load or HostLoad())


class TestStep:
    def test_the_worst_guest_decides(self) -> None:
        slow = replace(GOOD, number=2, latency_p99=0.006)
        assert judge(a_group(GOOD, GOOD), LIMIT).passed
        step = judge(a_group(GOOD, slow), LIMIT)
        assert not step.passed
        assert step.worst == 0.006
        assert step.iops == 200
        assert step.cpu_for_each == pytest.approx(0.2)

    def test_the_p99_of_all_requests_is_that_of_the_slower_direction(self) -> None:
        samples = [
            Sample("latency_p99", Direction.READ, 0.003),
            Sample("latency_p99", Direction.WRITE, 0.004),
            Sample("latency_max", Direction.WRITE, 0.5),
        ]
        assert judge(a_group(GOOD), LIMIT, samples).p99 == 0.004
        assert judge(a_group(GOOD), LIMIT).p99 is None

    def test_requests_that_were_not_completed_fail_it(self) -> None:
        # Coordinated omission: latency looks fine, because what was slow was never started.
        short = replace(GOOD, served=989)
        assert not judge(a_group(GOOD, short), LIMIT).passed
        assert judge(a_group(replace(GOOD, served=990)), LIMIT).passed

    def test_a_closed_load_offers_nothing(self) -> None:
        step = judge(a_group(replace(GOOD, offered=None)), LIMIT)
        assert step.passed
        assert step.served is None


class TestJain:
    @given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20))
    def test_it_is_a_share(self, rates: list[float]) -> None:
        assert 1 / len(rates) - 1e-9 <= jain(rates) <= 1 + 1e-9

    def test_ends(self) -> None:
        assert jain([5.0, 5.0, 5.0]) == pytest.approx(1)
        assert jain([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)
        assert jain([0.0, 0.0]) == 1

    def test_the_largest_and_smallest_rates_that_can_be_stored(self) -> None:
        assert jain([1e300, 1e300]) == pytest.approx(1)
        assert jain([1e300, 0.0]) == pytest.approx(1 / 2)
        assert jain([1e-300, 0.0]) == pytest.approx(1 / 2)


class TestCriterion:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("latency_p99<=5ms", "latency_p99<=5ms"),
            ("latency_mean <= 1.5s", "latency_mean<=1500ms"),
        ],
    )
    def test_possible(self, text: str, shown: str) -> None:
        assert str(parse_criterion(text)) == shown

    @pytest.mark.parametrize(
        "text", ["", "p99", "latency_p99<5ms", "latency_p99<=", "latency_p98<=5ms", "iops<=5ms",
                 "latency_p99<=fast", "latency_p99<=0ms"],
    )  # fmt: skip
    def test_impossible(self, text: str) -> None:
        with pytest.raises(PlanError) as error:
            parse_criterion(text)
        assert error.value.hint


@pytest.mark.parametrize(
    ("load", "evidence", "limit"),
    [
        (HostLoad(cpu=0.95, device=0.99), Evidence(), LimitedBy.CPUS),
        (HostLoad(cpu=0.5, steal=0.06), Evidence(), LimitedBy.CPUS),
        (HostLoad(cpu=0.5, thread="IO", thread_cpu=0.97), Evidence(), LimitedBy.THREAD),
        (HostLoad(cpu=0.5, device=0.98, queue=7.0), Evidence(), LimitedBy.DEVICE),
        (
            HostLoad(cpu=0.5, device=0.1),
            Evidence(guest=IoCounters(1000, 0, 1, 0), device=IoCounters(90, 0, 1, 0)),
            LimitedBy.PAGE_CACHE,
        ),
        (HostLoad(cpu=0.5, device=0.1), Evidence(), LimitedBy.UNKNOWN),
        (HostLoad(), Evidence(), LimitedBy.UNKNOWN),
    ],
)
def test_what_limited_it(load: HostLoad, evidence: Evidence, limit: LimitedBy) -> None:
    found = bottleneck(a_group(GOOD, load=load), evidence)
    assert found.limit is limit
    assert bool(found.evidence) is (limit is not LimitedBy.UNKNOWN)


def test_a_thread_without_a_name() -> None:
    found = bottleneck(a_group(GOOD, load=HostLoad(thread_cpu=1.0)), Evidence())
    assert found.limit is LimitedBy.THREAD
    assert "None" not in found.evidence
