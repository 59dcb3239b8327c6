"""What later commands say of a campaign that raced, or at which one looks before its end."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell
from tests.unit.stored import stored
from vdisklab.analysis.diagnostics.ranked import (
    Inconclusive,
    ShortSpan,
    UnplannedLook,
    span_diagnostics,
)
from vdisklab.analysis.diagnostics.values import RoundsDepend
from vdisklab.analysis.rank_intervals import Ranked
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import (
    ChoiceVerdict,
    Decision,
    Surer,
    decided_among,
    in_agreement,
)
from vdisklab.answers.raced import race_of
from vdisklab.answers.rank import _after_race, rank_cells
from vdisklab.answers.recommend import recommend
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.needs import DURABLE, parse_need
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.results.model import Failure, FailureKind, Origin
from vdisklab.value import replace
from vdisklab.views import rank as rank_view
from vdisklab.views.recommend import headline, verdict_sentences


def analysis(often: dict[str, object], rounds: int = 4, lost_after: int | None = None) -> Analysis:
    """A campaign that was measured so often; raw/none failed after some rounds, if that is said."""
    paths = ("host", "raw/none", "raw/writeback", "qcow2/directsync")
    request = Request(paths=paths, directory=Path("/tmp"))  # noqa: S108 - nothing is written
    plan = build_plan(request, Capabilities(), Profile("p", "t", ()))
    labels = {(cell.path.canonical, cell.page_cache): cell.fingerprint for cell in plan.cells}
    runs = [
        replace(run, cell=labels[run.path, run.page_cache])
        for run in campaign_runs(rounds)
        if run.failure is None
    ]
    lost = Failure(FailureKind.STORAGE, "the target was lost in the middle of the run")
    runs = [
        replace(run, measurements=(), failure=lost)
        if run.path == "raw/none" and lost_after is not None and run.round > lost_after
        else run
        for run in runs
    ]
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, **plan.as_json(), **often})
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


def test_rounds_that_lie_close_together_say_how_long_they_hold() -> None:
    """No test of a few minutes' rounds shows what an hour changes (docs/proofs.md)."""
    found = analysis({"race": RaceTerms().as_json()}, rounds=12)
    (span,) = (each for each in rank_cells(found).findings if isinstance(each, ShortSpan))
    runs = [run for run in found.loaded.outlines if run.failure is None]
    began, ended = min(run.started for run in runs), max(run.started for run in runs)
    assert (span.campaign, span.rounds) == (CAMPAIGN.id, 12)
    assert span.seconds >= (ended - began).total_seconds()
    assert "show it: measuring it again on bench1 at another hour" in str(span), "not here"
    here = replace(span, on=None, again="vdisklab run --again c0ffee01")
    assert "show it: `vdisklab run --again c0ffee01` at another hour" in str(here)
    assert any(isinstance(each, ShortSpan) for each in recommend(found, (DURABLE,)).findings)
    later = [replace(run, started=run.started + timedelta(hours=2 * run.round)) for run in runs]
    assert span_diagnostics(CAMPAIGN, later[:3], None) == span_diagnostics(CAMPAIGN, [], None) == ()
    assert span_diagnostics(CAMPAIGN, later, None) == (), "a day's rounds see its load"
    imported = [replace(run, origin=Origin.IMPORTED) for run in runs]
    assert span_diagnostics(CAMPAIGN, imported) == (), "a report has no times of its rounds"


def test_a_race_that_names_the_best_counts_its_pairs() -> None:
    """Ranks 1 and 2 never stand beside "0 of 3 pairs differ"."""
    found = analysis({"race": RaceTerms().as_json()}, rounds=12)
    race = race_of(found, found.competing)
    assert race is not None
    ranking = rank_cells(found).ranking
    rows = tuple(replace(row, best=1, worst=3) for row in ranking.rows)
    alike = replace(ranking, rows=rows, separated=0)
    proven = replace(race, proven=True, as_good=())
    after = decided_among(found, alike, proven, found.observations).ranking
    assert after.separated == sum(row.best > 1 for row in after.rows) == 2
    assert not after.inconclusive


@pytest.mark.parametrize(
    ("limit", "as_good", "says"),
    [
        (12, (), "; this race ended so after 12 rounds."),
        (40, (cell("raw/writeback"),), "; 12 rounds have not shown that yet."),
        (12, (cell("raw/writeback"),), "; this race reached its limit of 12 rounds before."),
    ],
)
def test_after_a_race_the_notes_go_by_its_rule(
    limit: int, as_good: tuple[MeasuredCell, ...], says: str
) -> None:
    """`13 rounds are too few to show which path is the best`, and `More rounds (--rounds)`."""
    answer = rank_cells(analysis({"race": RaceTerms().as_json()}, rounds=12))
    assert answer.race is not None
    race = replace(answer.race, as_good=as_good, most_rounds=limit)
    (table,) = rank_view.tables(replace(answer, race=race))
    rule = "A race ends when one path is shown to be within 10 % of the best"
    assert f"{rule}{says}" in table.notes
    said = " ".join((table.title, *table.intro, *table.notes))
    for of_ranking in ("too few to show", "usually show", "(no `--rounds`)", "(--rounds)"):
        assert of_ranking not in said
    depend = RoundsDepend("score/none/overall", CAMPAIGN.id, 0.4, 0.1)
    assert str(depend).endswith("quieter host, or let `run` race (without --rounds).")
    (raced,) = _after_race(Decision(answer.choice, answer.ranking, race), [depend])
    assert str(raced).endswith("Measure on a quieter host.")
    assert answer.choice is not None
    tie = replace(answer.choice, surer=Surer(0, 12, 60.0, command="vdisklab run x"))
    assert not list(in_agreement(tie, [Inconclusive(3)])), "the command is said already"
    assert list(in_agreement(replace(tie, surer=None), [Inconclusive(3)])) == (
        [] if tie.verdict.decided else [Inconclusive(3)]
    )


@pytest.mark.parametrize("ran", [2, 3])
def test_a_path_that_was_lost_is_compared_by_the_rounds_that_it_ran_in(ran: int) -> None:
    """One order and one verdict: `rank` and `recommend` of a race whose server went away."""
    found = analysis({"race": RaceTerms().as_json()}, rounds=7, lost_after=ran)
    answer, ranked = recommend(found, (DURABLE,)), rank_cells(found)
    assert answer.race is not None
    assert answer.race.lost == (cell("raw/none"),)
    assert answer.choice == ranked.choice
    assert answer.recommendation.cell.name == "raw/writeback"
    said = " ".join(verdict_sentences(answer))
    assert "Failed in the middle of the race: raw/none." in said
    places = {row.cell: row.place for row in ranked.cells}
    if ran == 2:
        assert "that were compared" in said or "only one" in said
        assert "Too few numbers to be compared, so it may be better: raw/none." in said
    else:
        assert answer.choice.verdict in (ChoiceVerdict.TIED, ChoiceVerdict.KEEP)
        place = places[cell("raw/none")]
        assert isinstance(place, Ranked)
        assert place.best == 1
        assert ranked.cells[0].cell == answer.choice.leader


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_race_shows_nothing_before_its_first_look(rounds: int) -> None:
    """Any path may lead after two rounds: `rank` and `recommend` say the same."""
    found = analysis({"race": RaceTerms().as_json()}, rounds)
    said = f"othing is shown after {rounds} round{'s' * (rounds > 1)}"
    ranked = rank_cells(found)
    assert ranked.choice is None
    title = next(rank_view.tables(ranked)).title
    assert title == f"N{said}: continue on bench1 with --rounds 3 or more."
    with pytest.raises(PlanError, match=said) as error:
        recommend(found, (DURABLE,))
    assert error.value.hint == "continue on bench1 with --rounds 3 or more"


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
