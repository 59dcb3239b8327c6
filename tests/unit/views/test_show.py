"""The guests of a group as `show` prints them."""

from __future__ import annotations

import pytest

from tests.unit.analysis.made import campaign_runs
from vdisklab import numbers
from vdisklab.answers.show import ShowAnswer, answer_run
from vdisklab.results.model import (
    Check,
    Direction,
    Evidence,
    GuestGroup,
    HostLoad,
    IoCounters,
    Member,
    Sample,
)
from vdisklab.value import replace
from vdisklab.views.layout import Table
from vdisklab.views.show import tables

MEMBERS = (
    Member(1, 0.0, 500.0, 0.001, 0.001, 0.002, 0.01, None, 2500),
    Member(2, 0.25, 250.0, 0.001, 0.001, 0.003, 0.02, 2510, 2450, Evidence(host_cpu_seconds=1.5)),
)


def group_answer(group: GuestGroup, name: str = "m") -> ShowAnswer:
    """The answer about a run of several guests."""
    run = next(iter(campaign_runs()))
    measured = replace(run.measurements[0], name=name, group=group)
    return answer_run(replace(run, measurements=(measured,)), raw=False)


def group_table(group: GuestGroup) -> Table[Member]:
    """Its table of guests."""
    found = [table for table in tables(group_answer(group)) if table.title.startswith("Guests of")]
    return found[0]


def test_each_guest_has_a_row() -> None:
    load = HostLoad(cpu=0.5, steal=0.01, device=0.9, queue=3.0, thread="IO", thread_cpu=0.7)
    table = group_table(GuestGroup(5.0, MEMBERS, load))
    first, second = ([column.show(row) for column in table.columns] for row in table.rows)
    assert first[0:2] == ["1", "+0.00 s"]
    assert first[-2:] == ["2500", numbers.MISSING]
    assert second[-2:] == ["2450 of 2510", "1.5 s"]
    assert "5.0 s in which all ran" in table.title
    assert len(table.notes) == 4
    assert table.notes[0] == "fairness (Jain): 0.900"


def test_unknown_loads_are_left_out() -> None:
    assert len(group_table(GuestGroup(5.0, MEMBERS)).notes) == 1
    unnamed = group_table(GuestGroup(5.0, MEMBERS, HostLoad(thread_cpu=0.7)))
    assert len(unnamed.notes) == 1


def test_a_closed_load_is_said() -> None:
    closed, first = group_table(GuestGroup(5.0, MEMBERS[:1])).notes[0], MEMBERS[0]
    assert closed.startswith("the load was closed")
    is_open = GuestGroup(5.0, (replace(first, offered=2500), first))
    assert "closed" not in " ".join(group_table(is_open).notes)


def test_transactions_are_no_iops() -> None:
    run = next(iter(campaign_runs()))
    samples = (
        Sample("transactions", Direction.WRITE, 183.0),
        Sample("iops", Direction.READ, 12_345.0),
    )
    measured = replace(run.measurements[0], samples=samples)
    answer = answer_run(replace(run, measurements=(measured,)), raw=False)
    shown = [
        column.show(row)
        for table in tables(answer)
        for column in table.columns
        if str(column.heading) == "value"
        for row in table.rows
    ]
    assert shown == ["183/s", "12.3k IOPS"]


@pytest.mark.parametrize(
    ("seen", "network"),
    [
        ({"net.round_trip_ms": "5.55", "net.least_round_trip_ms": "0.02"}, 2e-5),
        ({"net.round_trip_ms": "0.4"}, 4e-4),
        ({}, None),
    ],
)
def test_the_servers_time_is_not_the_networks(seen: dict[str, str], network: float | None) -> None:
    """nbdkit that waits 5 ms made TCP's mean round trip 5.55 ms on the loopback."""
    run = next(iter(campaign_runs()))
    counted = IoCounters(0, 0, 10, 0, 0, read_seconds=0.07)
    measured = replace(run.measurements[0], evidence=Evidence(qemu=counted))
    checks = tuple(Check(name, None, value) for name, value in seen.items())
    answer = answer_run(replace(run, checks=checks, measurements=(measured,)), raw=False)
    (part, *_) = answer.measurements[0].latency
    assert part.network == network
