"""One estimate of a command's time, with what is stored of its campaign and what a budget holds."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.test_advice import runs
from tests.unit.stored import Database
from vdisklab.actions.find_best import BestSearch
from vdisklab.actions.measure import _seconds_to_come
from vdisklab.answers.begun import MeasuringHost
from vdisklab.answers.effort import SoFar, StoredTimes, effort, so_far_of
from vdisklab.answers.plan import answer_plan
from vdisklab.answers.race_plan import as_race
from vdisklab.path.durability import CrashVerdicts
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.results.store import open_store
from vdisklab.units import format_duration, time_of_race
from vdisklab.value import replace
from vdisklab.views.plan import tables
from vdisklab.workload.profile_files import load_profile

PATHS = ("raw/none", "qcow2/none", "raw/none/scsi")


@pytest.fixture
def plan() -> CampaignPlan:
    """Three paths and the host, which race."""
    request = Request(PATHS, directory=Path("/"))
    return as_race(build_plan(request, Capabilities(), load_profile("quick")), RaceTerms())


def test_what_is_stored_of_a_race_need_not_be_measured_again(plan: CampaignPlan) -> None:
    whole = effort(plan)
    assert (whole.least_runs, len(whole.slots)) == (3 * 4, 60 * 4)
    done = {(round, cell.fingerprint) for round in range(1, 6) for cell in plan.cells}
    left = [cell.measured for cell in plan.cells if str(cell.path) in PATHS[:2]]
    rest = effort(plan, SoFar(done, left))
    # the next look is after round 6; the third path has been dropped, the host is in each round
    assert (rest.least_runs, len(rest.slots)) == (3, 55 * 3)
    assert rest.at_least < rest.usually < rest.at_most < whole.at_most
    ended = effort(plan, SoFar(done, ()))
    assert (ended.slots, ended.at_most) == ((), 0.0)
    (table,) = tables(answer_plan(plan, so_far=SoFar(done, ())))
    assert table.title.startswith("4 cells measured already (--new measures them again), ")
    (table,) = tables(answer_plan(plan, so_far=SoFar(done, left)))
    assert table.title.startswith("4 cells race: 3 to 165 more runs, at least ")
    assert "`run` goes on with a campaign that has 20 runs" in table.notes


@pytest.mark.parametrize("budget", [math.inf, 100.0])
def test_run_says_first_what_plan_says(
    plan: CampaignPlan, database: Database, budget: float
) -> None:
    begun = replace(CAMPAIGN, plan=plan.stored_json(), fingerprint=plan.fingerprint)
    cells = {cell.path.canonical: cell.fingerprint for cell in plan.cells}
    made = [replace(run, cell=cells[run.path]) for run in runs(4, dict.fromkeys(cells, 0.8), 0.1)]
    database.write(made, campaigns=[begun])
    search = BestSearch(RaceTerms(), budget=budget, began=time.monotonic())
    with open_store(database.url) as store:
        least, usually, most = _seconds_to_come(store, plan, begun.host, begun, search)
        so_far = so_far_of(store, MeasuringHost.of(begun.host), plan, CrashVerdicts())
    answer = answer_plan(plan, so_far=so_far, budget=budget)
    assert answer.finished == 16
    assert 0 < least <= usually < answer.seconds_estimated
    if math.isfinite(budget):
        assert most == pytest.approx(budget, abs=10)
    else:
        found = answer.seconds_at_least, answer.seconds_usually, answer.seconds_estimated
        assert (least, usually, most) == pytest.approx(found)


def test_the_pace_is_that_of_such_runs_on_this_machine(
    plan: CampaignPlan, database: Database
) -> None:
    """Also if other paths were measured, but not with another load."""
    another = replace(CAMPAIGN.host, machine_id="another machine")
    slow = [replace(run, wall_seconds=100.0) for run in runs(3, dict.fromkeys(PATHS, 0.8))]
    for profile, other in (("quick", False), ("short", True)):
        of = build_plan(
            Request(("vdi/none",), directory=Path("/srv")), Capabilities(), load_profile(profile)
        )
        database.write(slow, campaigns=[replace(CAMPAIGN, plan=of.as_json())])
        with open_store(database.url) as store:
            so_far = so_far_of(store, MeasuringHost.of(CAMPAIGN.host), plan, CrashVerdicts())
            elsewhere = so_far_of(store, MeasuringHost.of(another), plan, CrashVerdicts())
        assert (so_far.pace == 1.0) is other
        assert elsewhere.pace == 1.0
        if not other:
            (table,) = tables(answer_plan(plan, so_far=so_far))
            seconds = [row.seconds_estimated for row in table.rows]
            assert seconds == [pytest.approx(100, rel=0.2)] * 4


def test_a_plan_says_what_fits_into_a_budget(plan: CampaignPlan) -> None:
    most = effort(plan).at_most

    def said(share: float) -> tuple[int, int, str, str]:
        answer = answer_plan(plan, budget=share * most)
        (table,) = tables(answer)
        (note,) = (note for note in table.notes if note.startswith("a budget of "))
        assert answer.within_budget is not None
        return answer.within_budget.runs, answer.within_budget.rounds, note, table.title

    runs_within, rounds, note, title = said(2.0)
    assert (runs_within, rounds) == (240, 60)
    assert note.endswith(" has time for all of it")
    runs_within, rounds, note, title = said(0.5)
    assert runs_within == pytest.approx(120, abs=4)
    assert rounds == runs_within // 4
    assert f"for about {runs_within} runs, {rounds} whole rounds of 60 if no path is" in note
    assert f"race: 12 to {runs_within} runs, " in title
    assert title.partition(" at most ")[2].startswith(format_duration(most / 2))
    runs_within, rounds, note, _ = said(0.03)
    assert rounds == 1
    assert f"{runs_within} runs, 1 whole round of 60: too few for a rank, which needs 3" in note


def test_the_times_of_a_race_are_said_once_if_they_are_equal() -> None:
    assert time_of_race(60, 120, 180) == (
        "at least 1 min 00 s, usually less than 2 min 00 s, at most 3 min 00 s"
    )
    assert time_of_race(60, 180, 180) == "at least 1 min 00 s, at most 3 min 00 s"
    assert time_of_race(180, 180, 180) == "at most 3 min 00 s"


def test_campaigns_are_read_once_for_the_times_of_many_plans(
    plan: CampaignPlan, database: Database
) -> None:
    made = runs(3, dict.fromkeys(PATHS, 0.8))
    database.write(made, campaigns=[replace(CAMPAIGN, plan=plan.as_json())])
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    with open_store(database.url) as store:
        sa.event.listen(sa.Engine, "before_cursor_execute", note)
        try:
            host = MeasuringHost.of(CAMPAIGN.host)
            times = StoredTimes(store, host.machine_id)
            first = times.so_far(host, plan, CrashVerdicts())
            read = len(asked)
            others = (replace(plan, rounds=rounds) for rounds in range(2, 9))
            assert {times.so_far(host, other, CrashVerdicts()).pace for other in others} == {
                first.pace
            }
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert read
    assert len(asked) == read


def test_a_path_alone_does_not_race() -> None:
    """Its race would end after the first rounds: with nothing to compare it, no round decides."""
    request = Request(("raw/none",), directory=Path("/"))
    alone = as_race(build_plan(request, Capabilities(), load_profile("quick")), RaceTerms())
    answer = answer_plan(alone)
    assert answer.runs == (3 * 2, 3 * 2)
    (table,) = tables(answer)
    assert table.title.startswith("2 cells × 3 rounds, about ")
    assert not any("race ends" in note for note in table.notes)
    assert "one path cannot race: to compare it, name another one beside it" in table.notes
    (limited,) = tables(answer_plan(alone, budget=20.0))
    assert "about 20 s, " in limited.title


@pytest.mark.parametrize("pace", [1.0, 2.5])
def test_the_times_of_the_runs_add_up_to_the_whole(plan: CampaignPlan, pace: float) -> None:
    for each in (plan, replace(plan, race=None, rounds=4)):
        answer = answer_plan(each, so_far=SoFar(pace=pace))
        of_runs = {row.fingerprint: row.seconds_estimated for row in answer.cells}
        runs_take = sum(of_runs[slot.cell.fingerprint] for slot in effort(each).slots)
        assert answer.seconds_estimated == pytest.approx(runs_take + answer.seconds_between)
        said = f", {format_duration(answer.seconds_between)} are beside the runs"
        (table,) = tables(answer)
        assert any(said in note for note in table.notes)
