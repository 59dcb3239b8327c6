from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell
from tests.unit.stored import stored
from vdisklab.actions.find_best import (
    BestSearch,
    durable_paths,
    make_search,
)
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import rank
from vdisklab.answers import race as racing_module
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.loading import load
from vdisklab.answers.race import race_outcome
from vdisklab.answers.race_plan import can_race
from vdisklab.answers.rank import rank_cells
from vdisklab.campaign.chosen_slots import chosen_slots
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashStates, CrashVerdicts, PathCrashes
from vdisklab.path.named_target import parse_target
from vdisklab.path.needs import parse_need, with_default
from vdisklab.path.segments import PageCache
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import Request
from vdisklab.progress import DurablePaths
from vdisklab.results.model import Check, Direction, Failure, FailureKind, Run, Sample
from vdisklab.results.store import Store
from vdisklab.value import replace
from vdisklab.views.run import race_effort, race_sentences, ranking_after_race
from vdisklab.workload.profile_files import load_profile

READS = "randread-4k-q1/read/iops"
FIO: dict[str, Setting] = {"rw": "randread", "bs": "4k", "iodepth": 1}


@pytest.fixture
def plan() -> CampaignPlan:
    paths = ("host", "raw/none", "raw/writeback", "qcow2/directsync")
    request = Request(paths=paths, directory=Path("/tmp"))  # noqa: S108 - nothing is written
    return build_plan(request, Capabilities(), Profile("p", "t", ()))


@pytest.fixture
def by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model makes a shortlist, whatever the number of paths."""
    monkeypatch.setattr(racing_module, "RACE_UP_TO", 0)


def search(metric: str = "overall", budget: float = math.inf, rounds: int = 20) -> BestSearch:
    made = make_search(RunRequest(find=SearchFor.BEST, metric=metric, rounds=rounds, within=0.03))
    assert made is not None
    return replace(made, budget=budget)


def racing(budget: float = math.inf, within: float | None = None) -> BestSearch:
    made = make_search(RunRequest(find=SearchFor.BEST, within=within))
    assert made is not None
    return replace(made, budget=budget)


def outcome_of(search: BestSearch, store: Store) -> RaceOutcome:
    found = race_outcome(load(store, [CAMPAIGN.id]), search.terms, CrashVerdicts())
    assert found is not None
    return found


Measured = Callable[..., Store]


def planned_runs(plan: CampaignPlan, rounds: int, *paths: str) -> list[Run]:
    """The made-up campaign under the plan's fingerprints, without failed runs."""
    labels = {(cell.path.canonical, cell.page_cache.value): cell.fingerprint for cell in plan.cells}
    return [
        replace(run, cell=labels[run.path, run.page_cache])
        for run in campaign_runs(rounds)
        if run.failure is None and (not paths or run.path in paths)
    ]


@pytest.fixture
def measured(plan: CampaignPlan) -> Iterator[Measured]:
    """Makes a store with so many rounds of the plan's cells, or of some paths."""
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, **plan.as_json()})
    with ExitStack() as stack:
        yield lambda rounds, *paths: stack.enter_context(
            stored(planned_runs(plan, rounds, *paths), campaigns=[campaign])
        )


def names(plan: CampaignPlan, chosen: object) -> set[str]:
    assert isinstance(chosen, set)
    return {cell.label for cell in plan.cells if cell.fingerprint in chosen}


COMPETE = {"raw/none", "raw/writeback (cold)", "qcow2/directsync"}


@pytest.mark.usefixtures("by_the_model")
def test_the_first_round_measures_a_fraction_and_the_host(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Here the fraction is all that compete; a warm page cache does not."""
    choose = search().choosing(measured(0), plan, CAMPAIGN.id)
    assert names(plan, choose(1)) == COMPETE | {"host"}


@pytest.mark.parametrize("metric", ["overall", READS])
@pytest.mark.usefixtures("by_the_model")
def test_the_model_chooses_who_races(plan: CampaignPlan, measured: Measured, metric: str) -> None:
    """Rounds before the race are no part of it."""
    choose = search(metric).choosing(measured(4), plan, CAMPAIGN.id)
    # Round 2 sees round 1 only, whatever the database holds: an interrupted search goes on.
    for round in (2, 3, 4):
        assert names(plan, choose(round)) == COMPETE | {"host"}
    assert {"host", "raw/none"} <= names(plan, choose(5))
    outcome = outcome_of(search(metric), measured(4))
    assert (outcome.best.name, outcome.raced) == ("raw/none", 3)


def test_few_paths_are_raced(plan: CampaignPlan, measured: Measured) -> None:
    """raw/none leads raw/writeback by less than 10 %; qcow2/directsync is far behind."""
    store = measured(12)
    choose = racing().choosing(store, plan, CAMPAIGN.id)
    assert names(plan, choose(1)) == COMPETE | {"host"}
    assert names(plan, choose(2)) == COMPETE | {"host"}, "before the first look"
    assert names(plan, choose(4)) == {"host", "raw/none", "raw/writeback (cold)"}
    assert names(plan, choose(11)) == names(plan, choose(4)), "raw/writeback may have two speeds"
    assert names(plan, choose(12)) == set()
    outcome = outcome_of(racing(), store)
    assert (outcome.best, outcome.decided) == (cell("raw/none"), True)
    assert list(race_sentences(outcome)) == [
        "Use raw/none: within 10 % of the best (95 %), after 12 rounds."
    ]
    best = replace(outcome, proven=True)
    assert list(race_sentences(best)) == [
        "Use raw/none: it is the best of 3 paths (95 %), after 12 rounds."
    ]


def test_a_narrow_margin_keeps_the_race_going(plan: CampaignPlan, measured: Measured) -> None:
    store = measured(7)
    choose = racing(within=0.001).choosing(store, plan, CAMPAIGN.id)
    assert names(plan, choose(8)) == {"host", "raw/none", "raw/writeback (cold)"}
    outcome = outcome_of(racing(within=0.001), store)
    assert outcome.as_good == (cell("raw/writeback (cold)"),)
    said = " ".join(race_sentences(outcome))
    assert "or keep what you have if it is one of these 2: " in said
    assert "The same command goes on" in said
    ended = replace(outcome, most_rounds=7)
    assert "The limit of rounds was reached." in " ".join(race_sentences(ended))


def test_a_budget_ends_a_race_with_what_holds_then(plan: CampaignPlan, measured: Measured) -> None:
    store = measured(3)
    assert not racing(budget=1.0, within=0.001).choosing(store, plan, CAMPAIGN.id)(4)
    outcome = outcome_of(racing(within=0.001), store)
    assert outcome.behind is not None
    assert "The same command goes on." in " ".join(race_sentences(outcome))
    # As it says: what is stored was paid for by the command before.
    left = racing(budget=100.0).time_limit(store, plan, CAMPAIGN.id).left()
    assert left == pytest.approx(100.0, abs=20)


def test_a_race_in_words(measured: Measured) -> None:
    outcome = outcome_of(racing(), measured(12))
    proven = replace(outcome, proven=True, failed=2)
    assert list(race_sentences(proven)) == [
        "Use raw/none: it is the best of 3 paths (95 %), after 12 rounds.",
        "2 paths failed and did not compete.",
    ]
    unbounded = replace(outcome, as_good=(cell("qcow2/none"),), behind=None, proven=False)
    assert next(race_sentences(unbounded)) == (
        "Take raw/none, or keep what you have if it is one of these 2: none of them is shown to be "
        "better, after 12 rounds."
    )
    early = replace(unbounded, rounds=1)
    assert list(race_sentences(early)) == [
        "Nothing is shown after 1 round: the same command continues."
    ]
    assert list(race_sentences(early, "vdisklab run x")) == [
        "Nothing is shown after 1 round: `vdisklab run x` continues."
    ]
    alone = replace(outcome, measured=1)
    assert "Only raw/none of 3 paths has numbers" in next(race_sentences(alone))
    ranking = rank_cells(Analysis.of(measured(7), [CAMPAIGN.id])).ranking
    why = ranking_after_race(replace(outcome, proven=False), ranking)
    assert why is not None
    assert "one within 10 % of it" in why


def test_a_budget_that_is_used_up_ends_the_search(plan: CampaignPlan, measured: Measured) -> None:
    assert not search(budget=10.0).choosing(measured(2), plan, CAMPAIGN.id)(2)
    assert not search(budget=1.0).choosing(measured(0), plan, CAMPAIGN.id)(1)


def test_the_rounds_are_limited(plan: CampaignPlan, measured: Measured) -> None:
    assert search(rounds=3).choosing(measured(2), plan, CAMPAIGN.id)(3)
    assert not search(rounds=2).choosing(measured(2), plan, CAMPAIGN.id)(3)


def test_paths_that_did_not_race_are_said(measured: Measured) -> None:
    outcome = replace(
        outcome_of(racing(), measured(12)), cells=30, raced=3, measured=9, proven=False
    )
    assert list(race_sentences(outcome)) == [
        "Use raw/none: within 10 % of the best of the 3 that raced (95 %), after 12 rounds.",
        "27 other paths did not race: a model of the segments that paths share expects no better "
        "of them; 21 were never measured. --every-path races them all.",
    ]
    best = next(race_sentences(replace(outcome, proven=True)))
    assert best == "Use raw/none: it is the best of 3 paths that raced (95 %), after 12 rounds."
    assert race_effort(31, outcome) == "Measured 9 of 30 paths in 31 runs."


def test_nothing_is_said_of_nothing(measured: Measured) -> None:
    empty = load(measured(0), [CAMPAIGN.id])
    assert race_outcome(empty, racing().terms, CrashVerdicts()) is None


def test_a_single_path_is_not_called_better_than_others(measured: Measured) -> None:
    first, *_ = race_sentences(outcome_of(racing(), measured(1, "host", "raw/none")))
    assert first == (
        "Only raw/none of 3 paths has numbers (after 1 round), so there is nothing to compare it "
        "with."
    )


def plain() -> BestSearch:
    """What `run` without a number of rounds does."""
    made = make_search(RunRequest())
    assert made is not None
    return made


def test_without_a_number_of_rounds_all_are_measured_thrice_and_then_race(
    plan: CampaignPlan, measured: Measured
) -> None:
    everything = {cell.label for cell in plan.cells}
    choose = plain().choosing(measured(3), plan, CAMPAIGN.id)
    for round in (1, 2, 3):
        assert names(plan, choose(round)) == everything
    assert names(plan, choose(4)) == {"host", "raw/none", "raw/writeback (cold)"}


def test_a_path_that_loses_data_does_not_race_a_safe_one(measured: Measured) -> None:
    """It would win, and nobody would know which of the others to take."""
    verdicts = CrashVerdicts({"raw/none": PathCrashes("raw/none", CrashStates(60, 2))})
    loaded = load(measured(4), [CAMPAIGN.id])
    safe = race_outcome(loaded, plain().terms, verdicts)
    assert safe is not None
    assert (safe.best, safe.cells) == (cell("raw/writeback (cold)"), 2)
    unsafe = make_search(RunRequest(unsafe=True))
    assert unsafe is not None
    both = race_outcome(loaded, unsafe.terms, verdicts)
    assert both is not None
    assert (both.best, both.cells) == (cell("raw/none"), 3)


@pytest.mark.parametrize("flush", ["off", "on"])
@pytest.mark.parametrize("asked", [racing(), plain(), search()])
@pytest.mark.parametrize("model", [False, True])
def test_an_export_without_a_flush_races_only_until_its_server_is_seen(
    flush: str, asked: BestSearch, model: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race and what is said of it afterwards go by the same verdicts."""
    if model:
        monkeypatch.setattr(racing_module, "RACE_UP_TO", 0)
    paths = ("host", "far/raw/none", "raw/writeback", "qcow2/directsync")
    far = (parse_target("far=nbd://10.0.0.5/x"),)
    request = Request(paths=paths, directory=Path("/tmp"), target=far)  # noqa: S108 - nothing is written
    there = build_plan(request, Capabilities(), Profile("p", "t", ()))
    fastest = next(cell for cell in there.cells if cell.path.target is not None)
    labels = {(cell.path.canonical, cell.page_cache): cell.fingerprint for cell in there.cells}
    runs = []
    for run in campaign_runs(4):
        if run.failure is None:
            where = fastest.path.canonical if run.path == "raw/none" else run.path
            seen = (*run.checks, *[Check("host.nbd.can_flush", None, flush)] * (where != run.path))
            label = labels[where, run.page_cache]
            runs.append(replace(run, path=where, cell=label, checks=seen))
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, **there.as_json()})
    with stored(runs, campaigns=[campaign]) as store:
        choose = asked.choosing(store, there, CAMPAIGN.id)
        races = fastest.fingerprint in choose(4)
        analysis = Analysis.of(store, [CAMPAIGN.id])
        outcome = race_outcome(analysis.loaded, asked.terms, analysis.verdicts)
    assert outcome is not None
    assert (outcome.best == fastest.measured) is races is (flush == "on")


def planned(*paths: str, profile: str = "quick", **more: object) -> CampaignPlan:
    request = Request(paths=paths, directory=Path("/tmp"), **more)  # type: ignore[arg-type] # noqa: S108 - nothing is written
    return build_plan(request, Capabilities(), load_profile(profile))


@pytest.mark.parametrize(
    ("made", "races"),
    [
        (planned("raw/none", "qcow2/none"), True),
        (planned("raw/none", "qcow2/none", profile="short"), True),
        (planned("raw/none"), False),
        (planned("host", "ext4/host"), False),
        (planned("raw/none", "null"), False),
        (planned("raw/none", "qcow2/none", guests=("1", "2")), False),
        (planned("raw/none", "qcow2/none", profile="open-load"), False),
        (planned("raw/none", "qcow2/none", profile="crystaldiskmark"), False),
    ],
)
def test_a_plan_with_something_to_rank_and_no_number_of_rounds_races(
    made: CampaignPlan, races: bool
) -> None:
    assert can_race(made, plain().terms) is races
    narrowed = plain().narrow(made, CrashVerdicts())
    left = narrowed.plan
    assert (narrowed.search is not None, left.race is not None) == (races, races)
    assert left.cells == made.cells
    assert left.fingerprint == made.fingerprint, "the same campaign as with a number of rounds"


def test_who_asks_for_a_race_is_told_why_there_is_none() -> None:
    asked = make_search(RunRequest(within=0.05))
    assert asked is not None
    with pytest.raises(PlanError, match="is open"):
        asked.narrow(planned("raw/none", "qcow2/none", profile="open-load"), CrashVerdicts())


def test_one_failure_does_not_end_a_race_for_a_path(plan: CampaignPlan, measured: Measured) -> None:
    store = measured(2)
    for round in (3, 4):
        for run in planned_runs(plan, round)[-5:]:
            failed = run.path == "raw/none" and round == 3
            failure = Failure(FailureKind.GUEST, "the guest did not answer") if failed else None
            store.add_run(replace(run, failure=failure))
    assert "raw/none" in names(plan, racing().choosing(store, plan, CAMPAIGN.id)(4))
    assert outcome_of(racing(), store).failed == 0


def fails(plan: CampaignPlan, store: Store, path: str, *rounds: int) -> str:
    """Stores failed runs of a path; returns its fingerprint."""
    run = next(run for run in planned_runs(plan, 1) if run.path == path)
    failure = Failure(FailureKind.STORAGE, "the target was lost in the middle of the run")
    for round in rounds:
        store.add_run(
            replace(run, id=f"{round:016x}", round=round, measurements=(), failure=failure)
        )
    return run.cell


def rounds_without(plan: CampaignPlan, store: Store, path: str, rounds: Sequence[int]) -> None:
    for round in rounds:
        for run in planned_runs(plan, round):
            if run.round == round and run.path != path:
                store.add_run(run)


# The sentence depends on whether three rounds can be compared: each commit tests both cases.
@pytest.mark.parametrize("path", ["raw/none", "raw/writeback", "qcow2/directsync"])
@pytest.mark.parametrize(
    "ran", [2, 3, *(pytest.param(rounds, marks=pytest.mark.nightly) for rounds in (1, 4))]
)
def test_a_path_that_failed_in_later_rounds_is_not_beaten_by_that(
    plan: CampaignPlan, measured: Measured, path: str, ran: int
) -> None:
    """It is compared by the rounds that it ran in, whatever the others did after them."""
    alone = outcome_of(racing(), measured(ran))
    was_left = [cell for cell in (alone.best, *alone.as_good) if cell.name == path]
    store = measured(ran)
    fails(plan, store, path, *range(ran + 1, ran + 3))
    rounds_without(plan, store, path, range(ran + 1, ran + 6))
    outcome = outcome_of(racing(), store)
    assert outcome.failed == 1
    assert outcome.best.name != path
    assert list(outcome.lost) == was_left
    said = " ".join(race_sentences(outcome))
    assert "did not compete" not in said or not was_left
    if not was_left:
        return
    (lost,) = was_left
    assert f"Failed in the middle of the race: {lost}." in said
    if ran < 3:  # none of its rounds can be compared
        assert outcome.few == (lost,)
        assert "that were compared" in said or not outcome.decided
    else:
        assert lost in outcome.as_good
        assert (outcome.decided, outcome.proven, outcome.behind) == (False, False, None)
        assert "Use " not in said


def test_a_path_that_never_ran_is_not_one_of_those_that_were_compared(
    plan: CampaignPlan, measured: Measured
) -> None:
    store = measured(12, "host", "raw/none", "raw/writeback")
    fails(plan, store, "qcow2/directsync", 1, 2)
    outcome = outcome_of(racing(), store)
    assert (outcome.raced, outcome.failed, outcome.lost) == (2, 1, ())
    assert list(race_sentences(outcome))[-1] == "1 path failed and did not compete."


def test_what_failed_is_measured_again_also_when_the_budget_is_used_up(
    plan: CampaignPlan, measured: Measured
) -> None:
    """A server that is back is tried again by the same command."""
    store = measured(3)
    cell = fails(plan, store, "raw/none", 4, 5)
    rounds_without(plan, store, "raw/none", (4, 5))
    for budget in (1.0, math.inf):
        searching = racing(budget=budget)
        limit = searching.time_limit(store, plan, CAMPAIGN.id)
        assert limit.owed == {(4, cell), (5, cell)}
        slots = chosen_slots(
            plan,
            store.finished(CAMPAIGN.id),
            searching.choosing(store, plan, CAMPAIGN.id),
            limit,
            lambda _: None,
        )
        first = [(slot.round, slot.cell.path.canonical) for slot in itertools.islice(slots, 2)]
        assert first == [(4, "raw/none"), (5, "raw/none")]
        if budget == 1.0:
            assert not list(slots)


def test_no_path_is_given_up_because_the_baseline_failed(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Scores relate to the path in the middle then, and the search goes on."""
    guests = ("raw/none", "raw/writeback", "qcow2/directsync")
    store = measured(1, *guests)
    chosen = names(plan, search().choosing(store, plan, CAMPAIGN.id)(2))
    assert {"host", "raw/none"} < chosen
    for round in (2, 3):
        for run in planned_runs(plan, round, *guests)[-4:]:
            store.add_run(run)
    assert "host" in names(plan, search().choosing(store, plan, CAMPAIGN.id)(4))
    (host, *_) = planned_runs(plan, 4, "host")[-1:]
    store.add_run(host)
    for run in planned_runs(plan, 4, *guests)[-4:]:
        store.add_run(run)
    assert outcome_of(search(), store).failed == 0


@pytest.mark.parametrize(
    ("names", "metric", "message"),
    [
        (("randread-4k-q1",), READS, None),
        (("randread-4k-q1",), "iops", None),
        (("randread-4k-q1", "seqread-1m-q1"), "iops", "several numbers called 'iops'"),
        (("randread-4k-q1",), "randread-4k-q1/write/iops", "nothing called"),
        (("randread-4k-q1",), "randread-4k-q1/read/speed", "nothing called"),
        (("randread-4k-q1",), "overall", None),
        (("randread-4k-q1",), "write", "has no score 'write'"),
        (("randread-4k-q1", "seqread-1m-q1"), "read", None),
    ],
)
def test_what_nothing_measures_is_refused_before_it_is_measured(
    plan: CampaignPlan, names: tuple[str, ...], metric: str, message: str | None
) -> None:
    measurements = tuple(MeasurementPlan(name, "fio", FIO) for name in names)
    asked = replace(plan, profile=Profile("mine", "t", measurements))
    if message is None:
        search(metric).require(asked)
        return
    with pytest.raises(PlanError, match=message):
        search(metric).require(asked)


def test_ways_of_making_a_disk_race_by_a_step(plan: CampaignPlan) -> None:
    life = MeasurementPlan("life", "life", {"guest": False})
    asked = replace(plan, profile=Profile("life-host", "t", (life,)))
    search("first-write/none/ready").require(asked)
    with pytest.raises(PlanError, match="nothing called 'life/none/ready'"):
        search("life/none/ready").require(asked)


def test_an_open_load_is_not_searched_by_its_rate(plan: CampaignPlan) -> None:
    asked = replace(plan, profile=load_profile("open-load"))
    with pytest.raises(PlanError, match="is open"):
        search("overall").require(asked)


def test_a_budget_below_one_round_works_and_one_below_two_runs_is_refused(
    plan: CampaignPlan,
) -> None:
    profile = Profile("mine", "t", (MeasurementPlan("randread-4k-q1", "fio", FIO),))
    asked = replace(plan, profile=profile)
    search("iops", budget=40).require(asked)
    with pytest.raises(PlanError, match="measuring two paths alone takes about") as caught:
        search("iops", budget=5).require(asked)
    assert "--budget 5m" in (caught.value.hint or "")


def test_a_search_needs_paths_that_a_guest_can_use(plan: CampaignPlan) -> None:
    asked = replace(plan, cells=plan.cells[:1])
    with pytest.raises(PlanError, match="compares guests' paths, and none is given"):
        search().narrow(asked, CrashVerdicts())


def test_a_guests_path_that_scores_relate_to_is_measured_in_every_round(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Without the baseline a round has no score of anything."""
    baseline = next(cell.path for cell in plan.cells if cell.label == "qcow2/directsync")
    asked = replace(plan, baseline=baseline)
    for metric, stays in (("overall", True), (READS, False)):
        chosen = search(metric).choosing(measured(4), asked, CAMPAIGN.id)(4)
        assert ("qcow2/directsync" in names(plan, chosen)) is stays


def test_needs_leave_paths_out_and_list_them(plan: CampaignPlan) -> None:
    matrix = Matrix(plan.cells, plan.dropped)
    kept = narrow_to_needs(matrix, [parse_need("cache=none")], CrashVerdicts())
    assert [cell.label for cell in kept.cells] == ["host", "raw/none"]
    assert {row.path for row in kept.dropped} >= {"raw/writeback", "qcow2/directsync"}
    null = Cell(parse_path("null"), PageCache.BYPASSED)  # a ceiling to compare with
    assert (
        null
        in narrow_to_needs(Matrix((*plan.cells, null), ()), with_default(()), CrashVerdicts()).cells
    )
    with pytest.raises(PlanError, match="no path meets format=vdi"):
        narrow_to_needs(matrix, [parse_need("format=vdi")], CrashVerdicts())


def test_durable_goes_by_power_cuts_where_there_are_any(plan: CampaignPlan) -> None:
    needs = [parse_need("durable")]
    verdicts = CrashVerdicts(
        {
            "raw/none": PathCrashes("raw/none", CrashStates(60, 2)),
            "qcow2/directsync": PathCrashes("qcow2/directsync", CrashStates(60)),
        }
    )
    matrix = Matrix(plan.cells, plan.dropped)
    kept = narrow_to_needs(matrix, needs, verdicts)
    assert "raw/none" in {
        cell.label for cell in narrow_to_needs(matrix, needs, CrashVerdicts()).cells
    }
    assert "raw/none" not in {cell.label for cell in kept.cells}
    (dropped,) = [row for row in kept.dropped if row.path == "raw/none"]
    assert "lost acknowledged writes in 2 of 60 power cuts" in dropped.reason
    left = replace(plan, cells=kept.cells)
    assert durable_paths(left, verdicts) == DurablePaths(paths=2, tested=1)


def test_a_race_is_made_of_the_options() -> None:
    assert make_search(RunRequest(rounds=3)) is None
    asked = RunRequest(find=SearchFor.BEST, budget=180.0, need=(parse_need("durable"),) * 2)
    made = make_search(asked)
    assert made is not None
    assert (made.terms, made.budget) == (RaceTerms(shortlist=True), 180.0)
    every = make_search(replace(asked, every_path=True, confidence=0.99, rounds=7))
    assert every is not None
    assert every.terms == RaceTerms(confidence=0.99, rounds=7)
    assert (plain().terms, plain().find, plain().asked) == (RaceTerms(), False, False)


@pytest.mark.parametrize(
    "terms",
    [
        RaceTerms(),
        RaceTerms(0.05, 0.99, READS, (parse_need("format=raw"),), shortlist=True, rounds=9),
        RaceTerms(groups=(("raw/none", "raw/writeback"), ("qcow2/none",))),
    ],
)
def test_terms_are_read_back_from_the_plan(terms: RaceTerms) -> None:
    assert RaceTerms.of({"race": terms.as_json()}) == terms


@pytest.mark.parametrize(
    "race", [None, 5, [], {}, {**RaceTerms().as_json(), "needs": ["?"]},
             {**RaceTerms().as_json(), "confidence": 2}, {**RaceTerms().as_json(), "margin": "x"}],
)  # fmt: skip
def test_terms_that_nobody_understands_are_none(race: object) -> None:
    assert RaceTerms.of({"race": race}) is None


STALLS = "seqread-1m-q32/read/longest_stall"


def stalled(run: Run, seconds: float) -> Run:
    """The run with a read that stalled for so long and did nothing else."""
    sample = Sample("longest_stall", Direction.READ, seconds)
    read = replace(run.measurements[0], name="seqread-1m-q32", samples=(sample,))
    return replace(run, measurements=(read,))


def test_a_search_goes_by_zeros_as_by_any_other_number() -> None:
    """Those on raw with cache=none never stall. They tie: nothing is told apart below the step."""
    paths = itertools.product(("raw", "qcow2"), ("none", "directsync"), ("virtio", "scsi", "nvme"))
    wanted = tuple("/".join(parts) for parts in paths)
    profile = Profile("p", "t", (MeasurementPlan("seqread-1m-q32", "fio", FIO),))
    plan = build_plan(
        Request(paths=wanted, directory=Path("/tmp"), baseline="none"),  # noqa: S108 - nothing is written
        Capabilities(), profile,
    )  # fmt: skip
    model = next(run for run in campaign_runs(1) if run.path == "raw/none")
    rng = np.random.default_rng(1)
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, **plan.as_json()})
    finder = search(STALLS)
    with stored([], campaigns=[campaign]) as store:
        choose, runs = finder.choosing(store, plan, CAMPAIGN.id), 0
        for number in itertools.count(1):
            chosen = choose(number)
            if not chosen:
                break
            for cell in plan.cells:
                if cell.fingerprint not in chosen:
                    continue
                never = cell.label.startswith("raw/none")
                seconds = 0.0 if never else round(float(rng.exponential(0.3)), 3)
                runs += 1
                run = replace(
                    model, id=f"{runs:012x}", cell=cell.fingerprint, path=cell.path.canonical,
                    round=number, position=runs, page_cache=cell.page_cache,
                )  # fmt: skip
                store.add_run(stalled(run, seconds))
        outcome = outcome_of(finder, store)
        ranking = rank(store.observations([CAMPAIGN.id]), MeasureKey.parse(STALLS))
    assert (outcome.best.name.startswith("raw/none"), outcome.decided) == (True, True)
    assert outcome.margin == pytest.approx(1.0)
    assert outcome.step == 0.1
    assert "within a step of 0.1 of the best" in " ".join(race_sentences(outcome))
    assert ranking.best is not None
    assert ranking.best.leader.name.startswith("raw/none")
