"""After an upgrade of the host `run` measures anew, and every answer's time says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.test_advice import runs
from tests.unit.stored import Database
from vdisklab.actions.measure import _campaign, unchanged_campaign
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.begun import MeasuringHost
from vdisklab.answers.effort import effort, so_far_of
from vdisklab.answers.race_plan import as_race
from vdisklab.answers.rank import rank_cells
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.path.durability import CrashVerdicts
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.progress import Event
from vdisklab.results.model import Campaign
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile

ROUNDS = 5


@pytest.fixture
def plan(tmp_path: Path) -> CampaignPlan:
    request = Request(("raw/none", "qcow2/none", "raw/none/scsi"), directory=tmp_path)
    return as_race(build_plan(request, Capabilities(), load_profile("short")), RaceTerms())


def stored(database: Database, plan: CampaignPlan, upgrade: dict[str, Any]) -> Campaign:
    """A race of this host before an upgrade, in which no path is shown to be the best."""
    host = replace(collect_facts(LocalHost()), **upgrade)
    text = {**plan.stored_json(), "race": RaceTerms().as_json()}
    campaign = replace(CAMPAIGN, plan=text, fingerprint=plan.fingerprint, host=host)
    cells = {cell.path.canonical: cell.fingerprint for cell in plan.cells}
    made = runs(ROUNDS, dict.fromkeys(cells, 0.8), 0.3)
    database.write([replace(run, cell=cells[run.path]) for run in made], campaigns=[campaign])
    return campaign


@pytest.mark.parametrize("before", [{}, {"kernel": "2.6"}, {"qemu": "0.9"}, {"fio": "1.0"}])
def test_what_an_upgrade_makes_old_counts_for_no_estimate(
    database: Database, plan: CampaignPlan, before: dict[str, Any]
) -> None:
    begun, said = stored(database, plan, before), list[Event]()
    now = collect_facts(LocalHost())
    if getattr(now, next(iter(before), "kernel")) is None:
        pytest.skip("this host lacks the program")
    with open_store(database.url) as store:
        so_far = so_far_of(store, MeasuringHost.of(now), plan, CrashVerdicts())
        goes_on = _campaign(store, plan, now, said.append, new=False).id == begun.id
    assert goes_on == (not before)
    assert len(so_far.finished) == (ROUNDS * len(plan.cells) if goes_on else 0)
    assert (so_far.racing is None) == (not goes_on)


@pytest.mark.parametrize("before", [{}, {"kernel": "2.6"}])
def test_rank_says_how_long_its_command_takes_after_an_upgrade(
    database: Database, plan: CampaignPlan, before: dict[str, Any]
) -> None:
    begun = stored(database, plan, before)
    with open_store(database.url) as store:
        choice = rank_cells(Analysis.of(store, [begun.id])).choice
        continued = unchanged_campaign(store, plan)
    assert choice is not None
    assert choice.surer is not None
    assert choice.surer.command is not None
    assert (continued is None) == bool(before)
    whole = len(effort(plan).slots)
    assert choice.surer.runs == whole if before else choice.surer.runs < whole
