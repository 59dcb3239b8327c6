"""When a disk is as fast as it stays, and what is written first."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.workload import life
from vdisklab.workload.program import Subject, Timing

FAST, SLOW = 0.001, 0.004


def test_a_rate_settles_when_the_slow_writes_end() -> None:
    found = life.settled([SLOW] * 500 + [FAST] * 3500)
    assert isinstance(found, life.Settled)
    assert found.iops == pytest.approx(1 / FAST)
    # An eighth of all writes is looked at together, so the end of the slow ones is within it.
    assert 500 * SLOW <= found.seconds <= 500 * SLOW + 500 * FAST


def test_an_even_rate_is_settled_from_the_beginning() -> None:
    found = life.settled([FAST] * 4000)
    assert isinstance(found, life.Settled)
    assert found.seconds == 0


def test_single_slow_writes_do_not_count() -> None:
    latencies = [FAST] * 4000
    latencies[3000] = 20 * FAST
    found = life.settled(latencies)
    assert isinstance(found, life.Settled)
    assert found.seconds == 0


def test_a_rate_that_still_rises_has_not_settled() -> None:
    rising = life.settled([SLOW - index * 0.0000009 for index in range(4000)])
    assert rising == life.Unsettled("the rate still rose at the end, by 72 %")
    few = life.settled([FAST] * 10)
    assert few == life.Unsettled("only 10 writes ended, and a rate is taken of 64")


def test_fios_log_is_read_and_a_mutilated_one_gives_less() -> None:
    log = "1, 1500000, 1, 4096, 0\n2, 2500000, 1, 4096, 8192\n3, 99, 0, 4096, 0\n4, 7"
    assert life.read_latencies(log) == [0.0015, 0.0025]
    with pytest.raises(WorkloadError):
        life.settled(life.read_latencies("0, 0, 1, 4096, 0\n" * 100))


def test_the_first_write_goes_amid_the_data_and_into_the_middle_of_a_cluster() -> None:
    for size in (16 << 20, 1 << 30, 3 << 30):
        place = life.written_at(size)
        assert place % life.BLOCK == 0
        assert place % (64 << 10) != 0
        assert place + life.BLOCK <= size // 2


def test_a_disk_must_have_room_for_it() -> None:
    plan = MeasurementPlan("life", "life", {})
    small = Subject("/dev/vda", 8 << 20, is_device=True)
    with pytest.raises(PlanError):
        life.Life().script(plan, small, Timing(1, 0))
    with pytest.raises(PlanError):
        life.Life().script(MeasurementPlan("life", "life", {"span": "x"}), small, Timing(1, 0))
