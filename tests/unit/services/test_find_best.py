from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell
from tests.unit.stored import stored
from vdisklab.analysis.search import Ended, Rules
from vdisklab.errors import PlanError
from vdisklab.path.durability import Cuts, PathVerdict
from vdisklab.path.needs import parse_need
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import Request
from vdisklab.progress import DurablePaths
from vdisklab.render.wording import search_effort, search_sentence
from vdisklab.results.model import Run
from vdisklab.results.store import Store
from vdisklab.services.find_best import (
    BestSearch,
    durable_paths,
    make_search,
)

READS = "randread-4k-q1/read/iops"
FIO: dict[str, Setting] = {"rw": "randread", "bs": "4k", "iodepth": 1}


@pytest.fixture
def plan() -> CampaignPlan:
    paths = ("host", "raw/none", "raw/writeback", "qcow2/directsync")
    request = Request(paths=paths, directory=Path("/tmp"))  # noqa: S108 - nothing is written
    return build_plan(request, Capabilities(), Profile("p", "t", ()))


def search(metric: str = "overall", budget: float = math.inf, blocks: int = 20) -> BestSearch:
    made = make_search(RunRequest(find=SearchFor.BEST, metric=metric, blocks=blocks))
    assert made is not None
    return dataclasses.replace(made, budget=budget)


Measured = Callable[..., Store]


def planned_runs(plan: CampaignPlan, blocks: int, *paths: str) -> list[Run]:
    """The made-up campaign under the plan's fingerprints, without failed runs."""
    labels = {(cell.path.canonical, cell.page_cache.value): cell.fingerprint for cell in plan.cells}
    return [
        dataclasses.replace(run, cell=labels[run.path, run.page_cache])
        for run in campaign_runs(blocks)
        if run.failure is None and (not paths or run.path in paths)
    ]


@pytest.fixture
def measured(plan: CampaignPlan) -> Iterator[Measured]:
    """Makes a store with so many blocks of the plan's cells, or of some paths."""
    with ExitStack() as stack:
        yield lambda blocks, *paths: stack.enter_context(stored(planned_runs(plan, blocks, *paths)))


def names(plan: CampaignPlan, chosen: object) -> set[str]:
    assert isinstance(chosen, set)
    return {cell.label for cell in plan.cells if cell.fingerprint in chosen}


def test_the_first_block_measures_everything(plan: CampaignPlan, measured: Measured) -> None:
    choose = search().choosing(measured(0), plan, CAMPAIGN.id)
    assert len(choose(1)) == len(plan.cells)


@pytest.mark.parametrize("metric", ["overall", "randread-4k-q1/read/iops"])
def test_the_clearly_worse_leave_and_the_host_stays(
    plan: CampaignPlan, measured: Measured, metric: str
) -> None:
    choose = search(metric).choosing(measured(4), plan, CAMPAIGN.id)
    # Block 2 sees block 1 only, whatever the database holds: an interrupted search goes on.
    assert {"host", "raw/writeback (warm)", "qcow2/directsync"} <= names(plan, choose(2))
    assert names(plan, choose(4)) == set()  # the best is alone


def test_what_a_budget_does_not_do_for_is_left_out_and_the_host_stays(
    plan: CampaignPlan, measured: Measured
) -> None:
    runs = planned_runs(plan, 1)
    each = sum(run.wall_seconds or 0.0 for run in runs) / len(runs)
    # What is left is eight runs, of which one is the host's and a quarter is this block's.
    choose = search(budget=each * (len(runs) + 8)).choosing(measured(1), plan, CAMPAIGN.id)
    second = names(plan, choose(2))
    assert {"host", "raw/writeback (warm)"} <= second
    assert len(second) == 3
    assert "qcow2/directsync" not in second


def test_no_budget_ends_it(plan: CampaignPlan, measured: Measured) -> None:
    assert not search(budget=10.0).choosing(measured(2), plan, CAMPAIGN.id)(2)


def test_the_outcome_is_put_into_words(plan: CampaignPlan, measured: Measured) -> None:
    found = search().outcome(measured(4), CAMPAIGN.id)
    assert found is not None
    assert found.best == cell("raw/writeback (warm)")
    assert found.ended is Ended.SEPARATED
    assert "All others are shown to be worse" in search_sentence(found)
    early = search(budget=1.0).outcome(measured(1), CAMPAIGN.id)
    assert early is not None
    assert early.ended is Ended.OUT_OF_BUDGET
    said = search_sentence(early)
    assert "may still be better." in said  # by how much nobody knows after one block
    near = dataclasses.replace(found, as_good=(cell("raw/none"),), ended=Ended.TIED)
    assert search_sentence(near) == (
        "No winner: raw/writeback (warm) leads after 4 blocks. Better by less than 3%, if at all: "
        "raw/none. Keep what you have, or take raw/none: it is the simplest."
    )
    assert search().outcome(measured(0), CAMPAIGN.id) is None


def test_why_it_ended_is_what_ended_it(plan: CampaignPlan, measured: Measured) -> None:
    """A budget that was there and not used up has not ended what the blocks have."""
    late = search(budget=1e6, blocks=2).outcome(measured(2), CAMPAIGN.id)
    assert late is not None
    assert late.ended is Ended.OUT_OF_BLOCKS
    early = search(budget=1e6).outcome(measured(2), CAMPAIGN.id)
    assert early is not None
    assert early.ended is Ended.OUT_OF_BUDGET


def test_a_single_path_is_not_called_better_than_others(
    plan: CampaignPlan, measured: Measured
) -> None:
    store = measured(1, "host", "raw/none")
    found = search().outcome(store, CAMPAIGN.id)
    assert found is not None
    assert search_sentence(found) == (
        "Best: raw/none, after 1 block. No other path has numbers to compare it with."
    )


def test_how_much_was_measured_is_told() -> None:
    assert search_effort(31, 12, 6) == (
        "Measured in 31 runs; each of 12 cells in each of 6 blocks would have been 72."
    )


@pytest.mark.parametrize(
    ("names", "metric", "message"),
    [
        (("randread-4k-q1",), READS, None),
        (("randread-4k-q1",), "iops", None),
        (("randread-4k-q1", "seqread-1m-q1"), "iops", "several numbers called 'iops'"),
        (("randread-4k-q1",), "randread-4k-q1/write/iops", "nothing called"),
        (("randread-4k-q1",), "randread-4k-q1/read/speed", "nothing called"),
        (("randread-4k-q1",), "overall", "has no score 'overall'"),
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


def test_a_budget_that_one_block_exceeds_is_refused(plan: CampaignPlan) -> None:
    profile = Profile("mine", "t", (MeasurementPlan("randread-4k-q1", "fio", FIO),))
    asked = dataclasses.replace(plan, profile=profile)
    search("iops", budget=3600).require(asked)
    with pytest.raises(PlanError, match="the first block alone, of 5 cells, takes about") as caught:
        search("iops", budget=5).require(asked)
    assert "--budget " in (caught.value.hint or "")


def test_a_guests_path_that_scores_relate_to_is_measured_in_every_block(
    plan: CampaignPlan, measured: Measured
) -> None:
    """Without the baseline a block has no score of anything."""
    baseline = next(cell.path for cell in plan.cells if cell.label == "qcow2/directsync")
    asked = dataclasses.replace(plan, baseline=baseline)
    runs = planned_runs(plan, 1)
    each = sum(run.wall_seconds or 0.0 for run in runs) / len(runs)
    for metric, stays in (("overall", True), (READS, False)):
        tight = search(metric, budget=each * (len(runs) + 8))
        second = names(plan, tight.choosing(measured(1), asked, CAMPAIGN.id)(2))
        assert ("qcow2/directsync" in second) is stays


def test_needs_leave_paths_out_and_list_them(plan: CampaignPlan) -> None:
    matrix = Matrix(plan.cells, plan.dropped)
    kept = narrow_to_needs(matrix, [parse_need("cache=none")], {})
    assert [cell.label for cell in kept.cells] == ["host", "raw/none"]
    assert {one.path for one in kept.dropped} >= {"raw/writeback", "qcow2/directsync"}
    with pytest.raises(PlanError, match="no path meets format=vdi"):
        narrow_to_needs(matrix, [parse_need("format=vdi")], {})


def test_durable_goes_by_power_cuts_where_there_are_any(plan: CampaignPlan) -> None:
    needs = [parse_need("durable")]
    verdicts = {
        "raw/none": PathVerdict("raw/none", Cuts(60, 2)),
        "qcow2/directsync": PathVerdict("qcow2/directsync", Cuts(60)),
    }
    matrix = Matrix(plan.cells, plan.dropped)
    kept = narrow_to_needs(matrix, needs, verdicts)
    assert "raw/none" in {cell.label for cell in narrow_to_needs(matrix, needs, {}).cells}
    assert "raw/none" not in {cell.label for cell in kept.cells}
    (dropped,) = [one for one in kept.dropped if one.path == "raw/none"]
    assert "lost promised data in 2 of 60 power cuts" in dropped.reason
    left = dataclasses.replace(plan, cells=kept.cells)
    assert durable_paths(left, verdicts) == DurablePaths(paths=2, tested=1)


def test_a_search_is_made_of_the_options() -> None:
    assert make_search(RunRequest()) is None
    asked = RunRequest(find=SearchFor.BEST, budget=180.0, need=(parse_need("durable"),) * 2)
    made = make_search(asked)
    assert made is not None
    assert (made.rules, made.budget, len(made.needs)) == (Rules(0.03), 180.0, 1)
