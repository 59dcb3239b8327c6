"""Runs from the lab in the user's database: marked, whole, and of a machine of their own."""

from __future__ import annotations

import io
from pathlib import Path

from tests.unit.results.values import BROKEN, HOST, a_campaign, a_run
from vdisklab.lab.action import LabResults, job_script, lab_facts
from vdisklab.lab.lab_image import LabImage
from vdisklab.lab.lab_machine import LabConfig
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.run_request import ONLY_MEASURE
from vdisklab.results.exchange import write_run
from vdisklab.results.model import Campaign, Origin, Run
from vdisklab.results.store import open_store
from vdisklab.value import replace

IMAGE = LabImage(Path("/cache/lab/feed"), "6.1", "3.11")


def facts(accelerator: Accelerator = Accelerator.TCG, machine: str = "one") -> dict[str, str]:
    host = replace(HOST, machine_id=machine)
    return lab_facts(host, IMAGE, LabConfig(accelerator), ["zfs/none", "--label", "a b"])


def line(campaign: Campaign, run: Run) -> str:
    sink = io.StringIO()
    write_run(sink, campaign, run)
    return sink.getvalue()


def test_runs_arrive_whole_and_marked(tmp_path: Path) -> None:
    campaign = a_campaign(label="stacks")
    runs = [a_run(campaign), a_run(campaign, round=2, failure=BROKEN, measurements=())]
    with open_store(str(tmp_path / "mine.sqlite")) as store:
        results = LabResults(store, facts(), set(), print)
        for run in runs:
            results.take(line(campaign, run))
        (stored,) = store.campaigns()
        assert list(store.runs()) == [replace(run, origin=Origin.LAB) for run in runs]
    assert list(results.campaigns) == [campaign.id]
    assert stored.label == "stacks (lab)"
    assert stored.host.more["lab"] == "an emulated host"
    assert stored.host.more["lab_command"] == "zfs/none --label 'a b'"
    assert stored.host.more["governor"] == "performance"


def test_the_labs_of_two_hosts_are_two_machines() -> None:
    first, other = facts(machine="one"), facts(machine="other")
    assert first["lab_identity"] != other["lab_identity"]
    assert facts(Accelerator.KVM)["lab"] == "a host that runs under KVM"
    script = job_script(["raw"], first["lab_identity"])
    assert f"echo {first['lab_identity']} >/etc/machine-id" in script
    assert "import" not in script
    assert f"{ONLY_MEASURE}=1" in script
    assert "import /vdisklab/files/earlier.json" in job_script(["raw"], "x", continued=True)
