from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
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
from vdisklab.actions.planning import load_profile
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import rank
from vdisklab.analysis.search import Ended, Outcome, Rules
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.loading import load
from vdisklab.answers.rank import rank_cells
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashStates, CrashVerdicts, PathCrashes
from vdisklab.path.needs import parse_need, with_default
from vdisklab.path.segments import PageCache
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import Request
from vdisklab.progress import DurablePaths, silent
from vdisklab.results.model import Direction, Failure, FailureKind, Run, Sample
from vdisklab.results.store import Store
from vdisklab.views.run import (
    found_sentences,
    ranking_after_search,
    search_effort,
    search_sentences,
)

READS = "randread-4k-q1/read/iops"
FIO: dict[str, Setting] = {"rw": "randread", "bs": "4k", "iodepth": 1}


@pytest.fixture
def plan() -> CampaignPlan:
    paths = ("host", "raw/none", "raw/writeback", "qcow2/directsync")
    request = Request(paths=paths, directory=Path("/tmp"))  # noqa: S108 - nothing is written
    return build_plan(request, Capabilities(), Profile("p", "t", ()))


def search(metric: str = "overall", budget: float = math.inf, rounds: int = 20) -> BestSearch:
    """A search by the model, whatever the number of paths."""
    made = make_search(RunRequest(find=SearchFor.BEST, metric=metric, rounds=rounds, within=0.03))
    assert made is not None
    return dataclasses.replace(made, budget=budget, race_up_to=0)


def racing(budget: float = math.inf, within: float | None = None) -> BestSearch:
    made = make_search(RunRequest(find=SearchFor.BEST, within=within))
    assert made is not None
    return dataclasses.replace(made, budget=budget)


Measured = Callable[..., Store]


def planned_runs(plan: CampaignPlan, rounds: int, *paths: str) -> list[Run]:
    """The made-up campaign under the plan's fingerprints, without failed runs."""
    labels = {(cell.path.canonical, cell.page_cache.value): cell.fingerprint for cell in plan.cells}
    return [
        dataclasses.replace(run, cell=labels[run.path, run.page_cache])
        for run in campaign_runs(rounds)
        if run.failure is None and (not paths or run.path in paths)
    ]


@pytest.fixture
def measured(plan: CampaignPlan) -> Iterator[Measured]:
    """Makes a store with so many rounds of the plan's cells, or of some paths."""
    campaign = dataclasses.replace(CAMPAIGN, plan={**CAMPAIGN.plan, **plan.as_json()})
    with ExitStack() as stack:
        yield lambda rounds, *paths: stack.enter_context(
            stored(planned_runs(plan, rounds, *paths), campaigns=[campaign])
        )


def names(plan: CampaignPlan, chosen: object) -> set[str]:
    assert isinstance(chosen, set)
    return {cell.label for cell in plan.cells if cell.fingerprint in chosen}


COMPETE = {"raw/none", "raw/writeback (cold)", "qcow2/directsync"}


def test_the_first_round_measures_a_fraction_and_the_host(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Here the fraction is all that compete; a warm page cache does not."""
    choose = search().choosing(measured(0), plan, CAMPAIGN.id)
    assert names(plan, choose(1)) == COMPETE | {"host"}


@pytest.mark.parametrize("metric", ["overall", READS])
def test_a_search_reads_earlier_rounds_and_ends_when_one_is_the_best(
    plan: CampaignPlan, measured: Measured, metric: str
) -> None:
    choose = search(metric).choosing(measured(4), plan, CAMPAIGN.id)
    # Round 2 sees round 1 only, whatever the database holds: an interrupted search goes on.
    assert {"host", "raw/writeback (cold)"} < names(plan, choose(2))
    assert names(plan, choose(5)) == set()


def test_few_paths_are_raced(plan: CampaignPlan, measured: Measured) -> None:
    """raw/none leads raw/writeback by less than 10 %; qcow2/directsync is far behind."""
    store = measured(4)
    choose = racing().choosing(store, plan, CAMPAIGN.id)
    assert names(plan, choose(1)) == COMPETE | {"host"}
    assert names(plan, choose(2)) == COMPETE | {"host"}, "before the first look"
    assert names(plan, choose(4)) == {"host", "raw/none", "raw/writeback (cold)"}
    assert names(plan, choose(5)) == set()
    outcome = racing().outcome(load(store, [CAMPAIGN.id]))
    assert isinstance(outcome, RaceOutcome)
    assert (outcome.best, outcome.decided, outcome.ended) == (cell("raw/none"), True, Ended.FOUND)
    assert list(found_sentences(outcome)) == [
        "Use raw/none: no other path is better by more than 10% (95% sure), after 4 rounds."
    ]


def test_a_narrow_margin_keeps_the_race_going(plan: CampaignPlan, measured: Measured) -> None:
    store = measured(4)
    choose = racing(within=0.001).choosing(store, plan, CAMPAIGN.id)
    assert names(plan, choose(5)) == {"host", "raw/none", "raw/writeback (cold)"}
    outcome = racing(within=0.001).outcome(load(store, [CAMPAIGN.id]))
    assert isinstance(outcome, RaceOutcome)
    assert outcome.as_good == (cell("raw/writeback (cold)"),)
    said = " ".join(found_sentences(outcome))
    assert said.startswith("No decision yet: raw/none leads after 4 rounds. These may be better, ")
    assert "The limit of rounds was reached." in said


def test_a_budget_ends_a_race_with_what_holds_then(plan: CampaignPlan, measured: Measured) -> None:
    store = measured(3)
    assert not racing(budget=1.0, within=0.001).choosing(store, plan, CAMPAIGN.id)(4)
    outcome = racing(budget=1.0, within=0.001).outcome(load(store, [CAMPAIGN.id]))
    assert isinstance(outcome, RaceOutcome)
    assert outcome.ended is Ended.OUT_OF_BUDGET
    assert outcome.behind is not None
    assert "The same command with a larger --budget" in " ".join(found_sentences(outcome))


def test_a_race_in_words(measured: Measured) -> None:
    outcome = racing().outcome(load(measured(4), [CAMPAIGN.id]))
    assert isinstance(outcome, RaceOutcome)
    proven = dataclasses.replace(outcome, proven=True, failed=2)
    assert list(found_sentences(proven)) == [
        "Use raw/none: it is the best (95% sure), after 4 rounds.",
        "2 paths failed and did not compete.",
    ]
    unbounded = dataclasses.replace(outcome, as_good=(cell("qcow2/none"),), behind=None)
    assert "nothing says by how much: qcow2/none." in " ".join(found_sentences(unbounded))
    alone = dataclasses.replace(outcome, measured=1)
    assert "Only raw/none of 3 paths has numbers" in next(found_sentences(alone))
    ranking = rank_cells(Analysis.of(measured(4), [CAMPAIGN.id])).ranking
    why = ranking_after_search(outcome, ranking)
    assert why is not None
    assert "one within 10% of it" in why


def test_a_small_budget_selects_few_cells_and_the_host_stays(
    plan: CampaignPlan, measured: Measured
) -> None:
    runs = planned_runs(plan, 1)
    mean = sum(run.wall_seconds or 0.0 for run in runs) / len(runs)
    choose = search(budget=mean * (len(runs) + 3.5)).choosing(measured(1), plan, CAMPAIGN.id)
    second = names(plan, choose(2))
    assert {"host", "raw/writeback (cold)"} <= second
    assert len(second) == 3


def test_a_budget_that_is_used_up_ends_the_search(plan: CampaignPlan, measured: Measured) -> None:
    assert not search(budget=10.0).choosing(measured(2), plan, CAMPAIGN.id)(2)
    assert not search(budget=1.0).choosing(measured(0), plan, CAMPAIGN.id)(1)


def test_the_rounds_limit_the_runs(plan: CampaignPlan, measured: Measured) -> None:
    assert not search(rounds=2).choosing(measured(2), plan, CAMPAIGN.id)(3)


def test_a_ranking_that_says_something_else_is_explained(measured: Measured) -> None:
    store = measured(4)
    outcome = search().outcome(load(store, [CAMPAIGN.id]))
    ranking = rank_cells(Analysis.of(store, [CAMPAIGN.id])).ranking
    assert isinstance(outcome, Outcome)
    best_set = ranking.best
    assert best_set is not None
    pair = (cell("raw/none"), cell("raw/writeback (cold)"))
    assert set(best_set.cells) == set(pair)
    assert ranking_after_search(dataclasses.replace(outcome, best=best_set.leader), ranking) is None

    def why(cells: tuple[MeasuredCell, ...], best: str, *, alone: bool) -> str:
        """The end of the sentence, if these cells are the set and the search found `best`."""
        near = () if alone else (cell("null"),)
        asked = dataclasses.replace(outcome, best=cell(best), as_good=near)
        given = dataclasses.replace(ranking, best=dataclasses.replace(best_set, cells=cells))
        sentence = ranking_after_search(asked, given)
        assert sentence is not None
        assert sentence.startswith("The ranking goes by each path's own runs in 3 rounds or more")
        assert sentence.endswith(". The search answers for all paths, within 3%.")
        return sentence.partition("; so it ")[2].partition(". The")[0]

    assert why(pair, "raw/none", alone=True) == "keeps 2 paths that may be the best"
    assert why(pair[:1], "raw/none", alone=False) == "names raw/none alone"
    assert why(pair[:1], "qcow2/directsync", alone=True) == "counts qcow2/directsync as beaten"
    assert why(pair, "raw/writeback (cold)", alone=False) == "begins with raw/none"
    assert why(pair, "qcow2/none", alone=False) == "leaves out qcow2/none, which it cannot rank"


def test_the_outcome_is_put_into_words(measured: Measured) -> None:
    outcome = search().outcome(load(measured(4), [CAMPAIGN.id]))
    assert isinstance(outcome, Outcome)
    assert outcome.best == cell("raw/none")
    assert outcome.ended is Ended.FOUND
    assert " ".join(search_sentences(outcome)) == (
        "No winner: raw/none leads after 4 rounds. With a probability of more than 99% no other "
        "path is better by more than 3%, judged from 3 measured paths of 3 and the segments that "
        "they share. Compared in 3 rounds or more: raw/writeback (cold) better by less than 3%, if "
        "at all. Keep what you have if it is one of them, or take raw/none: it is the simplest."
    )
    alone = dataclasses.replace(outcome, as_good=())
    assert "Best: raw/none, after 4 rounds." in search_sentences(alone)
    assert "Compared in 3 rounds or more: 1 rival shown to be worse." in search_sentences(alone)
    early = search(budget=1.0).outcome(load(measured(1), [CAMPAIGN.id]))
    assert isinstance(early, Outcome)
    assert early.ended is Ended.OUT_OF_BUDGET
    sentences = " ".join(search_sentences(early))
    assert "The budget ran out before the search was done" in sentences
    assert "Compared" not in sentences  # one round is too few
    assert "Not measured" not in " ".join(search_sentences(outcome))
    most = " ".join(search_sentences(dataclasses.replace(outcome, cells=9, failed=1)))
    assert (
        "Not measured: 5 paths. In case one is better than its segments promise, --every-" in most
    )
    guessed = dataclasses.replace(outcome, predicted=True)
    assert "leads after 4 rounds, by prediction: it was not" in next(search_sentences(guessed))
    other = dataclasses.replace(
        outcome, probability=0.9537, rivals=3, as_good=(cell("qcow2/none"),), failed=2,
        undecided=(cell("raw/unsafe"),), gap=0.07, ended=Ended.OUT_OF_ROUNDS,
    )  # fmt: skip
    sentences = " ".join(search_sentences(other))
    assert "a probability of 95%" in sentences
    assert "The limit of rounds was reached before" in sentences
    assert (
        "1 rival shown to be worse; qcow2/none better by less than 3%, if at all; "
        "raw/unsafe may be better by up to 7%." in sentences
    )
    assert "2 paths failed" in sentences
    assert search().outcome(load(measured(0), [CAMPAIGN.id])) is None


def test_why_it_ended_is_what_ended_it(measured: Measured) -> None:
    """A budget that was there and not used up has not ended what the rounds have."""
    late = search(budget=1e6, rounds=2).outcome(load(measured(2), [CAMPAIGN.id]))
    assert late is not None
    assert late.ended is Ended.OUT_OF_ROUNDS
    early = search(budget=1e6).outcome(load(measured(2), [CAMPAIGN.id]))
    assert isinstance(early, Outcome)
    assert early.ended is Ended.OUT_OF_BUDGET


def test_a_single_path_is_not_called_better_than_others(measured: Measured) -> None:
    outcome = search().outcome(load(measured(1, "host", "raw/none"), [CAMPAIGN.id]))
    assert isinstance(outcome, Outcome)
    first, *_ = search_sentences(outcome)
    assert first == (
        "Only raw/none of 3 paths has numbers (after 1 round), so there is nothing to compare it "
        "with."
    )


def test_a_path_that_failed_last_is_not_the_best(plan: CampaignPlan, measured: Measured) -> None:
    store = measured(3)
    fastest = next(run for run in planned_runs(plan, 1) if run.path == "raw/none")
    failure = Failure(FailureKind.GUEST, "the guest did not answer")
    store.add_run(
        dataclasses.replace(fastest, id="f" * 16, round=4, measurements=(), failure=failure)
    )
    outcome = search().outcome(load(store, [CAMPAIGN.id]))
    assert isinstance(outcome, Outcome)
    assert (outcome.best.name, outcome.failed) == ("raw/writeback", 1)


def test_no_path_is_given_up_because_the_baseline_failed(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Without the host's numbers a round has no score, and the next round tries again."""
    guests = ("raw/none", "raw/writeback", "qcow2/directsync")
    store = measured(1, *guests)
    chosen = names(plan, search().choosing(store, plan, CAMPAIGN.id)(2))
    assert {"host", "raw/none"} < chosen
    for round in (2, 3):
        for run in planned_runs(plan, round, *guests)[-4:]:
            store.add_run(run)
    with pytest.raises(PlanError, match="no guest path has the measure 'overall' after round 3"):
        search().choosing(store, plan, CAMPAIGN.id)(4)
    (host, *_) = planned_runs(plan, 4, "host")[-1:]
    store.add_run(host)
    for run in planned_runs(plan, 4, *guests)[-4:]:
        store.add_run(run)
    outcome = search().outcome(load(store, [CAMPAIGN.id]))
    assert isinstance(outcome, Outcome)
    assert outcome.failed == 0


def test_how_much_was_measured_is_said() -> None:
    assert search_effort(31, 9, 12) == "Measured 9 of 12 cells in 31 runs."


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
    asked = dataclasses.replace(plan, profile=Profile("mine", "t", measurements))
    if message is None:
        search(metric).require(asked)
        return
    with pytest.raises(PlanError, match=message):
        search(metric).require(asked)


def test_an_open_load_is_not_searched_by_its_rate(plan: CampaignPlan) -> None:
    asked = dataclasses.replace(plan, profile=load_profile("open-load"))
    with pytest.raises(PlanError, match="is open"):
        search("overall").require(asked)


def test_a_budget_below_one_round_works_and_one_below_two_runs_is_refused(
    plan: CampaignPlan,
) -> None:
    profile = Profile("mine", "t", (MeasurementPlan("randread-4k-q1", "fio", FIO),))
    asked = dataclasses.replace(plan, profile=profile)
    search("iops", budget=40).require(asked)
    with pytest.raises(PlanError, match="measuring two paths alone takes about") as caught:
        search("iops", budget=5).require(asked)
    assert "--budget 5m" in (caught.value.hint or "")


def test_a_search_needs_paths_that_a_guest_can_use(plan: CampaignPlan) -> None:
    asked = dataclasses.replace(plan, cells=plan.cells[:1])
    with pytest.raises(PlanError, match="compares guests' paths, and none is given"):
        search().narrow(asked, CrashVerdicts(), silent)


def test_a_guests_path_that_scores_relate_to_is_measured_in_every_round(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Without the baseline a round has no score of anything."""
    baseline = next(cell.path for cell in plan.cells if cell.label == "qcow2/directsync")
    asked = dataclasses.replace(plan, baseline=baseline)
    runs = planned_runs(plan, 1)
    mean = sum(run.wall_seconds or 0.0 for run in runs) / len(runs)
    for metric, extra, stays in (("overall", 4.9, True), (READS, 3.5, False)):
        tight = search(metric, budget=mean * (len(runs) + extra))
        second = names(plan, tight.choosing(measured(1), asked, CAMPAIGN.id)(2))
        assert ("qcow2/directsync" in second) is stays


def test_needs_leave_paths_out_and_list_them(plan: CampaignPlan) -> None:
    matrix = Matrix(plan.cells, plan.dropped)
    kept = narrow_to_needs(matrix, [parse_need("cache=none")], CrashVerdicts())
    assert [cell.label for cell in kept.cells] == ["host", "raw/none"]
    assert {one.path for one in kept.dropped} >= {"raw/writeback", "qcow2/directsync"}
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
    (dropped,) = [one for one in kept.dropped if one.path == "raw/none"]
    assert "lost acknowledged writes in 2 of 60 power cuts" in dropped.reason
    left = dataclasses.replace(plan, cells=kept.cells)
    assert durable_paths(left, verdicts) == DurablePaths(paths=2, tested=1)


def test_a_search_is_made_of_the_options() -> None:
    assert make_search(RunRequest()) is None
    asked = RunRequest(find=SearchFor.BEST, budget=180.0, need=(parse_need("durable"),) * 2)
    made = make_search(asked)
    assert made is not None
    assert (made.rules, made.budget, len(made.needs)) == (Rules(0.1), 180.0, 1)
    every = make_search(dataclasses.replace(asked, every_path=True))
    assert every is not None
    assert every.rules == Rules(0.1, every_cell=True)
    surer = make_search(dataclasses.replace(asked, confidence=0.99))
    assert surer is not None
    assert surer.alpha == pytest.approx(0.01)


STALLS = "seqread-1m-q32/read/longest_stall"


def stalled(run: Run, seconds: float) -> Run:
    """The run with a read that stalled for so long and did nothing else."""
    sample = Sample("longest_stall", Direction.READ, seconds)
    read = dataclasses.replace(run.measurements[0], name="seqread-1m-q32", samples=(sample,))
    return dataclasses.replace(run, measurements=(read,))


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
    campaign = dataclasses.replace(CAMPAIGN, plan={**CAMPAIGN.plan, **plan.as_json()})
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
                run = dataclasses.replace(
                    model, id=f"{runs:012x}", cell=cell.fingerprint, path=cell.path.canonical,
                    round=number, position=runs, page_cache=cell.page_cache,
                )  # fmt: skip
                store.add_run(stalled(run, seconds))
        outcome = finder.outcome(load(store, [CAMPAIGN.id]))
        ranking = rank(store.observations([CAMPAIGN.id]), MeasureKey.parse(STALLS))
    assert isinstance(outcome, Outcome)
    assert (outcome.best.name.startswith("raw/none"), outcome.ended) == (True, Ended.FOUND)
    assert outcome.margin == pytest.approx(1.0)
    assert outcome.step == 0.1
    assert "is better by more than the step of 0.1, judged" in " ".join(search_sentences(outcome))
    assert ranking.best is not None
    assert ranking.best.leader.name.startswith("raw/none")
