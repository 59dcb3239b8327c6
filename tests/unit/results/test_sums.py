"""The sums and examples for reports are those of the runs themselves."""

from __future__ import annotations

from vdisklab.analysis.sums import sums_of, times_of
from vdisklab.results.model import Evidence, IoCounters, RunSums
from vdisklab.results.store import Store
from vdisklab.value import replace

from .values import BROKEN, a_campaign, a_measurement, a_run


def test_sums_are_of_a_cells_runs_by_measurement(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    evidence = Evidence(
        guest=IoCounters(1, 2, 3, 4, 5),
        qemu=IoCounters(10, 20, 30, 40, 50),
        device=IoCounters(100, 200, 300, 400, 500),
        host_cpu_seconds=0.25,
    )
    for round in (1, 2):
        measured = replace(a_measurement(), name="m", evidence=evidence)
        store.add_run(
            replace(a_run(campaign), id=f"r{round}", round=round, measurements=(measured,))
        )
    failed = replace(a_run(campaign), id="r3", round=3, failure=BROKEN)
    store.add_run(failed)
    (only,) = store.sums([campaign.id])
    assert (only.measurement, only.cell) == ("m", failed.cell)
    assert (only.operations, only.flushes, only.device_flushes) == (140, 100, 1000)
    assert (only.requested_bytes, only.device_bytes) == (60, 600)
    assert only.cpu_seconds == 0.5


def test_what_others_wrote_in_one_run_does_not_make_up_for_other_runs(store: Store) -> None:
    """A device counted 11 times a run's bytes, the writeback of an earlier measurement; the other
    runs' bytes stayed in memory."""
    campaign = a_campaign()
    store.add_campaign(campaign)
    for round, reached in enumerate((1131, 0, 60), start=1):
        evidence = Evidence(qemu=IoCounters(0, 100, 0, 1), device=IoCounters(0, reached, 0, 1))
        measured = replace(a_measurement(), name="m", evidence=evidence)
        run = replace(a_run(campaign), id=f"r{round}", round=round, measurements=(measured,))
        store.add_run(run)
    (only,) = store.sums([campaign.id])
    assert (only.write_requested, only.write_reached) == (300, 160)
    assert (only.read_requested, only.read_reached) == (0, None)
    assert only.device_bytes == 1191


def test_without_qemu_the_programs_own_count_counts(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    evidence = Evidence(guest=IoCounters(1, 2, 3, 4))
    measured = replace(a_measurement(), evidence=evidence)
    store.add_run(replace(a_run(campaign), measurements=(measured,)))
    (only,) = store.sums([campaign.id])
    assert (only.operations, only.requested_bytes) == (7, 3)
    assert (only.flushes, only.device_bytes, only.cpu_seconds) == (None, None, None)


def test_one_runs_sums_are_the_databases(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    counts = (None, IoCounters(1, 2, 3, 4), IoCounters(0, 20, 0, 40, 50, 0.5, 0.25))
    evidences = [
        Evidence(guest, qemu, device, 0.5, allocated_before=before, allocated_after=7)
        for guest in counts
        for qemu in counts
        for device in counts
        for before in (None, 3)
    ]
    measurements = tuple(
        replace(a_measurement(), name=f"m{place}", evidence=evidence)
        for place, evidence in enumerate(evidences)
    )
    run = replace(a_run(campaign), measurements=measurements)
    store.add_run(run)
    assert sorted(store.sums([campaign.id]), key=str) == sorted(sums_of(run), key=str)


def test_only_times_that_may_be_wrong_are_read(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    plain = replace(a_measurement(), wall_seconds=5.0, measured_seconds=5.0, evidence=Evidence())
    fast = replace(plain, name="fast", measured_seconds=5.5)
    stolen = replace(plain, name="stolen", evidence=Evidence(steal_seconds=0.25))
    run = replace(a_run(campaign), measurements=(plain, fast, stolen))
    store.add_run(run)
    store.add_run(replace(run, id="failed", round=2, failure=BROKEN))
    assert store.times([campaign.id]) == times_of(run)[1:]


def test_a_runs_cpu_needs_operations(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    counted = Evidence(qemu=IoCounters(1, 2, 3, 4), host_cpu_seconds=0.25)
    complete = replace(a_measurement(), name="known", evidence=counted)
    blind = replace(complete, name="blind", evidence=Evidence(host_cpu_seconds=9.0))
    idle = replace(complete, name="idle", evidence=replace(counted, host_cpu_seconds=None))
    run = replace(a_run(campaign), measurements=(complete, complete, blind, idle))
    store.add_run(run)
    (only,) = store.cpu_of_runs([campaign.id])
    assert only == RunSums(campaign.id, 1, run.cell, 0.5, 14)


def test_the_last_measured_run_of_a_cell_is_its_example(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    run = a_run(campaign)
    store.add_run(replace(run, id="first", round=1))
    store.add_run(replace(run, id="second", round=2))
    store.add_run(replace(run, id="third", round=3, failure=BROKEN, measurements=()))
    (example,) = store.examples([campaign.id])
    assert (example.run, example.round, example.cell) == ("second", 2, run.cell)
    assert example.commands == run.commands
    assert example.checks == tuple((c.name, c.requested, c.observed) for c in run.checks)
    assert example.measurements == tuple((m.name, m.command) for m in run.measurements)
