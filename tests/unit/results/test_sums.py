"""The sums and examples for reports are those of the runs themselves."""

from __future__ import annotations

from dataclasses import replace

from vdisklab.results.model import Counted, Evidence
from vdisklab.results.store import Store

from .values import BROKEN, a_campaign, a_measurement, a_run


def test_tallies_sum_a_cells_runs_by_measurement(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    evidence = Evidence(
        guest=Counted(1, 2, 3, 4, 5),
        qemu=Counted(10, 20, 30, 40, 50),
        device=Counted(100, 200, 300, 400, 500),
        host_cpu_seconds=0.25,
    )
    for block in (1, 2):
        measured = replace(a_measurement(), name="m", evidence=evidence)
        store.add_run(
            replace(a_run(campaign), id=f"r{block}", block=block, measurements=(measured,))
        )
    failed = replace(a_run(campaign), id="r3", block=3, failure=BROKEN)
    store.add_run(failed)
    (tally,) = store.tallies([campaign.id])
    assert (tally.measurement, tally.cell) == ("m", failed.cell)
    assert (tally.operations, tally.flushes, tally.device_flushes) == (140, 100, 1000)
    assert (tally.asked_bytes, tally.device_bytes) == (60, 600)
    assert tally.cpu_seconds == 0.5


def test_without_qemu_the_programs_own_count_counts(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    evidence = Evidence(guest=Counted(1, 2, 3, 4))
    measured = replace(a_measurement(), evidence=evidence)
    store.add_run(replace(a_run(campaign), measurements=(measured,)))
    (tally,) = store.tallies([campaign.id])
    assert (tally.operations, tally.asked_bytes) == (7, 3)
    assert (tally.flushes, tally.device_bytes, tally.cpu_seconds) == (None, None, None)


def test_the_last_measured_run_of_a_cell_is_its_example(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    run = a_run(campaign)
    store.add_run(replace(run, id="first", block=1))
    store.add_run(replace(run, id="second", block=2))
    store.add_run(replace(run, id="third", block=3, failure=BROKEN, measurements=()))
    (example,) = store.examples([campaign.id])
    assert (example.run, example.block, example.cell) == ("second", 2, run.cell)
    assert example.commands == run.commands
    assert example.checks == tuple((c.name, c.asked, c.seen) for c in run.checks)
    assert example.measurements == tuple((m.name, m.command) for m in run.measurements)
