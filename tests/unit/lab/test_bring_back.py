"""Runs out of the lab's database into the user's: marked, whole, and of a machine of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.results.values import BROKEN, HOST, a_campaign, a_run
from vdisklab.cli.import_lab import LabHost, copy_campaigns
from vdisklab.errors import DatabaseError
from vdisklab.lab.image import LabImage
from vdisklab.lab.machine import LABEL, LabConfig, LabEnd
from vdisklab.plan.guest import Accelerator
from vdisklab.results.model import Origin
from vdisklab.results.store import open_store


def lab_host(accelerator: Accelerator = Accelerator.TCG) -> LabHost:
    image = LabImage(Path("/cache/lab/feed"), "6.1", "3.11")
    return LabHost(HOST, LabConfig(accelerator), image, LabEnd(0, 41.0, 900.0, 950.0))


def test_runs_arrive_whole_and_marked(tmp_path: Path) -> None:
    inside, url = tmp_path / "lab.sqlite", str(tmp_path / "mine.sqlite")
    campaign = a_campaign(label="stacks")
    runs = [a_run(campaign), a_run(campaign, block=2, failure=BROKEN, measurements=())]
    with open_store(str(inside)) as store:
        store.add_campaign(campaign)
        for run in runs:
            store.add_run(run)
    assert copy_campaigns(inside, url, lab_host()) == [campaign.id]
    with open_store(url) as store:
        (found,) = store.campaigns()
        assert list(store.runs()) == [replace(run, origin=Origin.LAB) for run in runs]
    assert found.label == "stacks (lab)"
    assert found.host.more["lab"] == LABEL
    assert found.host.more["lab_wall_seconds"] == "950.0"
    assert found.host.more["governor"] == "performance"
    assert found.host.machine_id != campaign.host.machine_id
    with pytest.raises(DatabaseError, match="already"):
        copy_campaigns(inside, url, lab_host())


def test_the_labs_of_two_hosts_are_two_machines(tmp_path: Path) -> None:
    machines = set()
    for number in range(2):
        inside = tmp_path / f"lab{number}.sqlite"
        with open_store(str(inside)) as store:
            campaign = a_campaign()
            store.add_campaign(campaign)
            store.add_run(a_run(campaign))
            store.add_campaign(a_campaign(label="nothing was measured"))
        host = lab_host(Accelerator.KVM)
        host = replace(host, below=replace(host.below, machine_id=f"host {number}"))
        copy_campaigns(inside, str(tmp_path / "fleet.sqlite"), host)
    with open_store(str(tmp_path / "fleet.sqlite")) as store:
        for campaign in store.campaigns():
            machines.add(campaign.host.machine_id)
            assert campaign.label == "lab"
            assert campaign.host.more["lab"] == "a virtual machine"
    assert len(machines) == 2
