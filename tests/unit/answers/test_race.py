"""What later commands say of a campaign that raced, or at which one looks before its end."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell
from tests.unit.stored import stored
from vdisklab.analysis.diagnostics.ranked import UnplannedLook
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.rank import rank_cells
from vdisklab.answers.recommend import recommend
from vdisklab.errors import PlanError
from vdisklab.path.needs import DURABLE, parse_need
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.views import rank as rank_view
from vdisklab.views.recommend import headline, verdict_sentences


def analysis(often: dict[str, object], rounds: int = 4) -> Analysis:
    paths = ("host", "raw/none", "raw/writeback", "qcow2/directsync")
    request = Request(paths=paths, directory=Path("/tmp"))  # noqa: S108 - nothing is written
    plan = build_plan(request, Capabilities(), Profile("p", "t", ()))
    labels = {(cell.path.canonical, cell.page_cache): cell.fingerprint for cell in plan.cells}
    runs = [
        dataclasses.replace(run, cell=labels[run.path, run.page_cache])
        for run in campaign_runs(rounds)
        if run.failure is None
    ]
    campaign = dataclasses.replace(CAMPAIGN, plan={**CAMPAIGN.plan, **plan.as_json(), **often})
    with stored(runs, campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        rank_cells(found)
        with suppress(PlanError):
            recommend(found, (DURABLE,))
        return found


def test_recommend_says_what_the_race_has_shown() -> None:
    found = analysis({"race": RaceTerms().as_json()}, rounds=12)
    answer = recommend(found, (DURABLE,))
    assert answer.race is not None
    assert answer.race.decided
    assert (answer.recommendation.cell, answer.recommendation.ties) == (cell("raw/none"), ())
    first, *others = verdict_sentences(answer)
    assert first == "Use raw/none: within 10 % of the best (95 %)."
    assert "No winner" not in headline(answer)
    assert not [other for other in others if "Tied" in other or "--rounds" in other]


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_race_shows_nothing_before_its_first_look(rounds: int) -> None:
    """Any path may lead after two rounds: `rank` and `recommend` say the same."""
    found = analysis({"race": RaceTerms().as_json()}, rounds)
    said = f"othing is shown after {rounds} round{'s' * (rounds > 1)}"
    ranked = rank_cells(found)
    assert ranked.choice is None
    title = next(rank_view.tables(ranked)).title
    assert title == f"N{said}: continue with --rounds 3 or more."
    with pytest.raises(PlanError, match=said) as error:
        recommend(found, (DURABLE,))
    assert error.value.hint == "continue with --rounds 3 or more"


def test_a_race_for_other_needs_or_by_another_metric_decides_nothing() -> None:
    for terms in (
        RaceTerms(metric="read"),
        RaceTerms(needs=(parse_need("format=raw"),)),
        RaceTerms(groups=(("raw/none",), ("qcow2/directsync",))),
    ):
        assert recommend(analysis({"race": terms.as_json()}), (DURABLE,)).race is None


@pytest.mark.parametrize(
    ("often", "sentence"),
    [
        ({"race": RaceTerms().as_json()}, "A race ends when its numbers say so"),
        ({"rounds": 9}, "4 of 9 planned rounds are measured. Looking earlier is allowed"),
        ({"rounds": 3}, "3 rounds were planned and 4 are measured"),
    ],
)
def test_an_unplanned_look_has_a_smaller_error(often: dict[str, object], sentence: str) -> None:
    planned, look = analysis({"rounds": 4}), analysis(often)
    assert planned.unplanned_look is None
    assert analysis({}).unplanned_look is None, "an older campaign does not say what was planned"
    answer = rank_cells(look)
    (said,) = [finding for finding in answer.findings if isinstance(finding, UnplannedLook)]
    assert sentence in str(said)
    usual = rank_cells(planned)
    assert not [finding for finding in usual.findings if isinstance(finding, UnplannedLook)]
    assert answer.ranking.alpha == usual.ranking.alpha == pytest.approx(0.05)
    assert answer.ranking.separated <= usual.ranking.separated
    best, of_usual = answer.ranking.best, usual.ranking.best
    assert best is not None
    assert of_usual is not None
    assert set(of_usual.cells) <= set(best.cells)
    assert (best.shows or 0) > (of_usual.shows or 0)
    assert RaceTerms().metric == DEFAULT_METRIC
