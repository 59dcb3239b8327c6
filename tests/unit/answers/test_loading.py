"""Which campaign an answer is about when none is named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.analysis.made import CAMPAIGN, HOST, campaign_runs, labelled, under
from tests.unit.stored import stored
from vdisklab.analysis.claimfile import builtin_claims
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.claims import answer_claims
from vdisklab.answers.loading import choose_campaigns, first_measure, joinable_campaigns, load
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.settings import Request
from vdisklab.results.model import Direction, RanUnder, Run
from vdisklab.value import replace
from vdisklab.views.claims import tables

KILLED = replace(CAMPAIGN, id="ffff0000", started=CAMPAIGN.started + timedelta(days=1))


def test_a_campaign_that_was_killed_before_its_first_cell_hides_no_answer() -> None:
    with stored(campaigns=(KILLED, CAMPAIGN)) as store:
        assert choose_campaigns(store, None) == (CAMPAIGN,)
        assert choose_campaigns(store, [KILLED.id]) == (KILLED,)
        assert joinable_campaigns(store, None) == ((CAMPAIGN.id,), ())


def test_without_any_run_the_newest_campaign_says_that_it_is_empty() -> None:
    with stored((), campaigns=(KILLED,)) as store:
        assert choose_campaigns(store, None) == (KILLED,)


def test_without_any_campaign_the_way_to_one_is_told() -> None:
    with stored((), campaigns=()) as store, pytest.raises(DatabaseError, match="no campaign"):
        choose_campaigns(store, None)


EARLIER = CAMPAIGN.started - timedelta(days=1)
EMULATED = replace(CAMPAIGN, id="eeee0000", started=CAMPAIGN.started + timedelta(days=1))


def ran(ran_under: RanUnder, campaign: str, mark: str) -> list[Run]:
    return [
        under(ran_under, replace(run, id=f"{mark}{run.id}", campaign=campaign))
        for run in campaign_runs()
        if run.accelerator is not None
    ]


@pytest.mark.parametrize(
    "other", [RanUnder(Accelerator.TCG), RanUnder(Accelerator.KVM, emulated=True)]
)
def test_campaigns_under_two_accelerators_are_never_ranked_together(other: RanUnder) -> None:
    runs = [*ran(RanUnder(Accelerator.KVM), CAMPAIGN.id, "a"), *ran(other, EMULATED.id, "b")]
    with stored(runs, campaigns=(EMULATED, CAMPAIGN)) as store:
        assert len(load(store, [CAMPAIGN.id]).outlines) == len(runs) // 2
        with pytest.raises(PlanError, match="never ranked together") as refused:
            load(store, [CAMPAIGN.id, EMULATED.id])
        assert "under KVM and" in str(refused.value)
        assert other.phrase in str(refused.value)
        joined, left_out = joinable_campaigns(store, None)
        assert joined == (EMULATED.id,)
        assert "never ranked together" in left_out[0]


def test_nor_with_the_help_of_a_campaign_without_guests() -> None:
    """It agrees with both, but the first of them that joins it excludes the other."""
    host = replace(CAMPAIGN, id="dddd0000", started=CAMPAIGN.started + timedelta(days=2))
    alone = [
        replace(run, id=f"c{run.id}", campaign=host.id)
        for run in campaign_runs()
        if run.accelerator is None
    ]
    assert alone
    runs = [
        *alone,
        *ran(RanUnder(Accelerator.KVM), CAMPAIGN.id, "a"),
        *ran(RanUnder(Accelerator.KVM, emulated=True), EMULATED.id, "b"),
    ]
    with stored(runs, campaigns=(host, EMULATED, CAMPAIGN)) as store:
        joined, left_out = joinable_campaigns(store, None)
        assert joined == (host.id, EMULATED.id)
        assert len(left_out) == 1
        assert "never ranked together" in left_out[0]
        assert len(load(store, joined).campaigns) == 2
        with pytest.raises(PlanError, match=f"{EMULATED.id}, {CAMPAIGN.id} ran"):
            load(store, [host.id, EMULATED.id, CAMPAIGN.id])


def test_nor_the_runs_of_a_campaign_that_has_both() -> None:
    runs = ran(RanUnder(Accelerator.KVM), CAMPAIGN.id, "a")
    runs[0] = replace(runs[0], accelerator="tcg")
    with stored(runs) as store, pytest.raises(PlanError, match="never ranked together"):
        load(store, None)


@pytest.mark.parametrize("metric", ["bandwidth", "transactions", "freed_image", "boot_time"])
def test_the_example_of_a_measure_is_what_the_program_was_run_for(metric: str) -> None:
    main = MeasureKey("z", Direction.WRITE, metric)
    beside = [MeasureKey("a", Direction.NONE, other) for other in ("longest_stall", "worst_second")]
    assert first_measure(labelled({("raw/none", 0, key): 1.0 for key in (main, *beside)})) == main


def test_who_is_left_out_is_named_and_not_the_campaign_that_the_table_is_of() -> None:
    """The reason named both campaigns, so that the answer seemed to leave out what it shows."""
    elsewhere = replace(HOST, machine_id="2e40bb04" * 4)
    other = replace(CAMPAIGN, id="dddd0000", host=elsewhere, started=EARLIER)
    shorter = replace(
        CAMPAIGN,
        id="eeee0000",
        plan={**CAMPAIGN.plan, "runtime": 1},
        started=EARLIER,
    )
    runs = [
        replace(run, id=f"{campaign.id}{run.id}", campaign=campaign.id)
        for campaign in (CAMPAIGN, other, shorter)
        for run in campaign_runs()
    ]
    with stored(runs, campaigns=(CAMPAIGN, other, shorter)) as store:
        answer = answer_claims(store, builtin_claims(), None, Request())
        (sentence,) = (
            note for table in tables(answer) for note in table.notes if "Left out" in note
        )
    assert [campaign.id for campaign in answer.campaigns] == [CAMPAIGN.id]
    verdicts_of, _, left_out = sentence.partition("Left out: ")
    assert CAMPAIGN.id in verdicts_of
    assert "dddd0000 (measured on another machine, " in left_out
    assert "-2e40bb04)" in left_out
    assert "eeee0000 (campaigns " in left_out
    assert "differ in runtime" in left_out
