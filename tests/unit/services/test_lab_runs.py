"""Runs out of the lab's database into the user's: marked, whole, and of a machine of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.results.values import BROKEN, HOST, a_campaign, a_run
from vdisklab.errors import DatabaseError
from vdisklab.lab.lab_image import LabImage
from vdisklab.lab.lab_machine import LABEL, LabConfig, LabEnd
from vdisklab.plan.guest import Accelerator
from vdisklab.results.model import Origin
from vdisklab.results.store import open_store
from vdisklab.services.lab_runs import LabRun, copy_campaigns


def lab_run(accelerator: Accelerator = Accelerator.TCG) -> LabRun:
    image = LabImage(Path("/cache/lab/feed"), "6.1", "3.11")
    return LabRun(HOST, LabConfig(accelerator), image, LabEnd(0, 41.0, 900.0, 950.0))


def test_runs_arrive_whole_and_marked(tmp_path: Path) -> None:
    inside, url = tmp_path / "lab.sqlite", str(tmp_path / "mine.sqlite")
    campaign = a_campaign(label="stacks")
    runs = [a_run(campaign), a_run(campaign, block=2, failure=BROKEN, measurements=())]
    with open_store(str(inside)) as store:
        store.add_campaign(campaign)
        for run in runs:
            store.add_run(run)
    with open_store(url) as store:
        assert copy_campaigns(inside, store, lab_run()) == [campaign.id]
        (stored,) = store.campaigns()
        assert list(store.runs()) == [replace(run, origin=Origin.LAB) for run in runs]
    assert stored.label == "stacks (lab)"
    assert stored.host.more["lab"] == LABEL
    assert stored.host.more["lab_wall_seconds"] == "950.0"
    assert stored.host.more["governor"] == "performance"
    assert stored.host.machine_id != campaign.host.machine_id
    with open_store(url) as store, pytest.raises(DatabaseError, match="already"):
        copy_campaigns(inside, store, lab_run())


def test_the_labs_of_two_hosts_are_two_machines(tmp_path: Path) -> None:
    machines = set()
    for number in range(2):
        inside = tmp_path / f"lab{number}.sqlite"
        with open_store(str(inside)) as store:
            campaign = a_campaign()
            store.add_campaign(campaign)
            store.add_run(a_run(campaign))
            store.add_campaign(a_campaign(label="nothing was measured"))
        host = lab_run(Accelerator.KVM)
        host = replace(host, host=replace(host.host, machine_id=f"host {number}"))
        with open_store(str(tmp_path / "fleet.sqlite")) as store:
            copy_campaigns(inside, store, host)
    with open_store(str(tmp_path / "fleet.sqlite")) as store:
        for campaign in store.campaigns():
            machines.add(campaign.host.machine_id)
            assert campaign.label == "lab"
            assert campaign.host.more["lab"] == "a virtual machine"
    assert len(machines) == 2
