"""Campaigns and runs to store: plain ones, and as nasty as hypothesis can make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

from hypothesis import strategies as st

from vdisklab.path.segments import PageCache
from vdisklab.results.model import (
    METRICS,
    Campaign,
    Check,
    Direction,
    Evidence,
    Failure,
    FailureKind,
    GuestGroup,
    HostFacts,
    HostLoad,
    IoCounters,
    Measurement,
    Member,
    Origin,
    Run,
    Sample,
    Series,
)
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.rows import plan_error
from vdisklab.value import replace

NOON = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
HOST = HostFacts(
    hostname="lab",
    machine_id="0123456789abcdef",
    kernel="6.1.0-42-amd64",
    cpu="Some CPU",
    cpus=2,
    memory_bytes=24 << 30,
    qemu="7.2.15",
    fio="fio-3.33",
    more={"governor": "performance"},
)
BROKEN = Failure(FailureKind.GUEST, "the guest died: Kernel panic - not syncing")


def a_campaign(**changes: Any) -> Campaign:  # noqa: ANN401 - fields of every type
    plain = Campaign(
        id=uuid4().hex,
        fingerprint="feedc0dedeadbeef",
        plan={"seed": 1, "cells": ["raw/none/virtio"], "measurements": []},
        host=HOST,
        started=NOON,
    )
    return replace(plain, **changes)


def a_power_cut(**changes: Any) -> PowerCut:  # noqa: ANN401 - fields of every type
    plain = PowerCut(
        id=uuid4().hex, fingerprint="f", path="ext4/raw/none", client="flushes", access="nbd",
        host=HOST, started=NOON, wall_seconds=1.5, survives=True, claim="…", states=60,
        possible=1e9, exhaustive=False, acknowledged=20, flushes=7, leaked_states=0,
        repaired_states=0, post_recovery_states=2, outcomes={"kept": 60}, settings={"writes": 80},
        observed={"loop.fua": "0"},
    )  # fmt: skip
    return replace(plain, **changes)


def a_measurement(**changes: Any) -> Measurement:  # noqa: ANN401 - fields of every type
    plain = Measurement(
        name="randread-4k-qd1",
        program="fio",
        command="fio --rw=randread --bs=4k",
        samples=(
            Sample("iops", Direction.READ, 9870.5),
            Sample("latency_p99", Direction.READ, 0.00025),
        ),
        evidence=Evidence(
            guest=IoCounters(4096, 0, 1, 0),
            qemu=IoCounters(4096, 0, 1, 0, flush_operations=3),
            host_cpu_seconds=0.5,
        ),
        started=NOON,
        wall_seconds=5.5,
        measured_seconds=5.0,
        series=(Series("bandwidth", Direction.READ, 1.0, (1.5, 0.0, 2e9)),),
        group=GuestGroup(
            5.0,
            (
                Member(1, 0.0, 500.0, 0.001, 0.001, 0.002, 0.01, None, 2500),
                Member(
                    2,
                    0.25,
                    490.0,
                    0.001,
                    0.001,
                    0.003,
                    0.02,
                    2510,
                    2450,
                    Evidence(qemu=IoCounters(0, 4096, 0, 1, 2), host_cpu_seconds=1.5),
                ),
            ),
            HostLoad(cpu=0.5, thread="CPU 0/TCG of guest 2", thread_cpu=0.9),
        ),
        raw='{"fio version": "fio-3.33"}',
    )
    return replace(plain, **changes)


def a_run(campaign: Campaign, /, **changes: Any) -> Run:  # noqa: ANN401 - fields of every type
    plain = Run(
        id=uuid4().hex,
        campaign=campaign.id,
        cell="",
        path="raw/none/virtio",
        page_cache=PageCache.BYPASSED,
        round=1,
        position=1,
        origin=Origin.GUEST,
        started=NOON,
        wall_seconds=7.0,
        accelerator="tcg",
        medium="vda",
        checks=(Check("o_direct", "on", "on"),),
        commands=("qemu-system-x86_64 -M q35", "fio --rw=randread --bs=4k"),
        measurements=(a_measurement(),),
    )
    run = replace(plain, **changes)
    return run if "cell" in changes else replace(run, cell=run.measured_cell.fingerprint)


# A database keeps every text but NUL and lone surrogates; `test_unstorable_*` is about those.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
any_texts = st.text(st.characters(), max_size=200)
numbers = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
bytes_counted = st.integers(0, 2**63 - 1)
places = st.integers(1, 2**31 - 1)
times = st.datetimes(
    min_value=datetime(1971, 1, 1),
    timezones=st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))),
    max_value=datetime(9998, 1, 1),
)
keys = st.text(st.characters(codec="utf-8"), max_size=20)
plans = (
    st.dictionaries(
        keys,
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | any_texts,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
            max_leaves=6,
        ),
        max_size=3,
    )
    .map(lambda plan: plan | {"measurements": []})
    .filter(lambda plan: plan_error(plan) is None)
)
"""Of plans that an answer can read: a key of a real one, such as `baseline`, has its type."""
counts = st.builds(
    IoCounters,
    bytes_counted,
    bytes_counted,
    bytes_counted,
    bytes_counted,
    st.none() | bytes_counted,
)
evidences = st.builds(
    Evidence,
    guest=st.none() | counts,
    qemu=st.none() | counts,
    device=st.none() | counts,
    host_cpu_seconds=st.none() | numbers,
    resident_before=st.none() | numbers,
    resident_after=st.none() | numbers,
    allocated_before=st.none() | bytes_counted,
    allocated_after=st.none() | bytes_counted,
    steal_seconds=st.none() | numbers,
)
samples = st.builds(Sample, st.sampled_from(sorted(METRICS)), st.sampled_from(Direction), numbers)
loads = st.builds(
    HostLoad,
    cpu=st.none() | numbers,
    steal=st.none() | numbers,
    device=st.none() | numbers,
    queue=st.none() | numbers,
    thread=st.none() | texts,
    thread_cpu=st.none() | numbers,
)


def members(number: int) -> st.SearchStrategy[Member]:
    return st.builds(
        Member,
        number=st.just(number),
        start=numbers,
        iops=numbers,
        latency_mean=numbers,
        latency_p50=numbers,
        latency_p99=numbers,
        latency_max=numbers,
        offered=st.none() | bytes_counted,
        served=bytes_counted,
        evidence=evidences,
    )


groups = st.builds(
    GuestGroup,
    seconds=numbers,
    members=st.integers(1, 3).flatmap(
        lambda count: st.tuples(*(members(number) for number in range(1, count + 1)))
    ),
    load=loads,
)
measurements = st.builds(
    Measurement,
    name=texts,
    program=texts,
    command=texts,
    samples=st.lists(samples, max_size=4).map(tuple),
    evidence=evidences,
    started=times,
    wall_seconds=numbers,
    measured_seconds=st.none() | numbers,
    raw=any_texts,
    group=st.none() | groups,
)
hosts = st.builds(
    HostFacts,
    hostname=texts,
    machine_id=texts,
    kernel=texts,
    cpu=texts,
    cpus=places,
    memory_bytes=bytes_counted,
    qemu=st.none() | texts,
    fio=st.none() | texts,
    more=st.dictionaries(keys, any_texts, max_size=3),
)
campaigns = st.builds(
    Campaign,
    id=st.builds(lambda: uuid4().hex),  # each example meets the same database
    fingerprint=texts,
    plan=plans,
    host=hosts,
    started=times,
    label=texts,
)
failures = st.builds(Failure, st.sampled_from(FailureKind), texts)


def runs_of(campaign: Campaign) -> st.SearchStrategy[Run]:
    return st.builds(
        Run,
        id=st.builds(lambda: uuid4().hex),
        campaign=st.just(campaign.id),
        cell=texts,
        path=texts,
        page_cache=st.sampled_from(PageCache),
        round=places,
        position=places,
        origin=st.sampled_from(Origin),
        started=times,
        wall_seconds=numbers,
        accelerator=st.none() | st.sampled_from(("kvm", "tcg")),
        emulated=st.booleans(),
        medium=st.none() | texts,
        checks=st.lists(st.builds(Check, texts, texts, texts), max_size=3).map(tuple),
        commands=st.lists(any_texts, max_size=3).map(tuple),
        measurements=st.lists(measurements, max_size=3).map(tuple),
        failure=st.none() | failures,
    ).map(lambda run: replace(run, cell=run.measured_cell.fingerprint))


campaigns_with_runs = campaigns.flatmap(
    lambda campaign: st.tuples(
        st.just(campaign),
        st.lists(runs_of(campaign), max_size=3, unique_by=lambda run: (run.round, run.cell)),
    )
)
