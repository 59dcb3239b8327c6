"""Every pair of statements of one command agrees, and `rank` and `recommend` say the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.analysis.made import CAMPAIGN, IOPS, START, _run, cell, observed
from tests.unit.cli.test_advice import CUT_KEPT
from tests.unit.stored import stored
from vdisklab import numbers
from vdisklab.analysis.candidates import qualified
from vdisklab.analysis.paired_ratios import Ratio, Verdict
from vdisklab.analysis.race import RaceOutcome, RaceState, race_state
from vdisklab.analysis.rank_intervals import Ranked, rank
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import ChoiceVerdict, PathChoice, decide
from vdisklab.answers.compare import compare_pairs
from vdisklab.answers.disks import MeasuredPaths
from vdisklab.answers.figures import ranked_bars
from vdisklab.answers.loading import find_cells
from vdisklab.answers.raced import race_of
from vdisklab.answers.rank import RankAnswer, rank_cells
from vdisklab.answers.recommend import RecommendAnswer, recommend
from vdisklab.answers.report import report_on
from vdisklab.documents import document
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.needs import parse_need, with_default
from vdisklab.path.platforms import Platform
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.results.model import Campaign, Run
from vdisklab.value import replace
from vdisklab.views import choice as choice_view
from vdisklab.views import compare as compare_view
from vdisklab.views import rank as rank_view
from vdisklab.views import recommend as recommend_view
from vdisklab.views import report as report_view

PATHS = (
    "raw/none", "qcow2/none", "raw/writeback", "qcow2:preallocation=off/default",
    "raw/unsafe", "raw/none/scsi", "qcow2/directsync",
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A made-up campaign: each path's level, noise and number of rounds; with its baseline, the
    host, or without."""

    paths: tuple[str, ...]
    levels: tuple[float, ...]
    noise: tuple[float, ...]
    rounds: tuple[int, ...]
    seed: int
    has_host: bool = True

    def runs(self) -> Iterator[Run]:
        rng = np.random.default_rng(self.seed)
        for round in range(1, max(self.rounds) + 1):
            drift = float(np.exp(rng.normal(0, 0.2)))
            named = (("host", 1.5, 0.02, max(self.rounds)),) if self.has_host else ()
            cells = zip(self.paths, self.levels, self.noise, self.rounds, strict=True)
            for place, (path, level, noise, rounds) in enumerate((*named, *cells), start=1):
                speed = level * drift * float(np.exp(rng.normal(0, noise)))
                if round <= rounds:
                    cached = "writeback" in path or "default" in path or "unsafe" in path
                    state = "cold" if cached else "bypassed"
                    clock = START + timedelta(seconds=100 * round + place)
                    yield _run(CAMPAIGN.id, path, state, round, place, clock, speed)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    paths = draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=6, unique=True))
    count = len(paths)
    usual = draw(st.integers(2, 7))

    def each(strategy: st.SearchStrategy[float]) -> tuple[float, ...]:
        return tuple(draw(st.lists(strategy, min_size=count, max_size=count)))

    return World(
        tuple(paths),
        each(st.sampled_from([0.7, 0.95, 1.0, 1.05, 1.4])),
        each(st.sampled_from([0.005, 0.03, 0.1, 0.4])),
        tuple(int(short) for short in each(st.sampled_from([usual, usual, usual, 1, 2]))),
        draw(st.integers(0, 2**16)),
        draw(st.sampled_from([True, True, False])),
    )


@pytest.mark.parametrize("tried", [5, pytest.param(40, marks=pytest.mark.nightly)])
def test_every_pair_of_statements_agrees(tried: int) -> None:
    """Every commit tries an eighth of what the nightly run tries."""

    @settings(
        max_examples=tried, deadline=None, suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
    )  # fmt: skip
    @given(worlds())
    def agrees(world: World) -> None:
        of_one_world(world)

    agrees()


# A world takes half a second: each commit tries one that has such paths, and one that has none.
@pytest.mark.parametrize("seeds", [(1, 4), pytest.param((0, 2, 3, 5), marks=pytest.mark.nightly)])
def test_what_is_worse_than_another_is_not_said_to_be_worse_than_the_answer(
    seeds: tuple[int, ...],
) -> None:
    """The answer has rank 1-3, and five paths that are worse than the leader 2-8 and the like."""
    paths = (
        "raw/none/scsi", "qcow2/directsync", "raw/none", "raw/writeback",
        "qcow2:preallocation=off/default", "qcow2/none",
    )  # fmt: skip
    seen = 0
    for seed in seeds:
        levels, noise = (1.03, 1.0, 1.0, 0.95, 0.95, 0.9), (0.01, 0.03, 0.03, 0.03, 0.03, 0.03)
        world = World(paths, levels, noise, (5,) * 6, seed)
        of_one_world(world)
        with stored(world.runs()) as store:
            choice = rank_cells(Analysis.of(store, [CAMPAIGN.id])).choice
        assert choice is not None
        said = " ".join(sentence for _, sentence in choice_view.verdict_lines(choice, {}))
        shown = f"Shown not to be the best, but not shown to be worse than {choice.cell.name}: "
        assert (shown in said) == bool(choice.not_best)
        seen += bool(choice.not_best)
    assert seen, "no such world"


def test_the_default_of_a_platform_is_one_disk_in_an_answer() -> None:
    """The one that was measured; else the nearest, with what differs."""
    paths = ("raw/none", "qcow2/writeback", "qcow2:preallocation=off/default")
    for measured, cell_of_default, but in (
        (paths, "qcow2:preallocation=off/default", None),
        (paths[:2], "qcow2/writeback", "preallocation=off"),
    ):
        count = len(measured)
        world = World(measured, (1.0,) * count, (0.05,) * count, (5,) * count, 4)
        with stored(world.runs()) as store:
            choice = rank_cells(Analysis.of(store, [CAMPAIGN.id])).choice
        assert choice is not None
        of_libvirt = [disk for disk in choice.present if disk.of is Platform.LIBVIRT]
        assert [(disk.cell.name, disk.but) for disk in of_libvirt] == [(cell_of_default, but)]
        said = "libvirt's default" if but is None else f"libvirt's default but for {but}"
        assert said in choice_view.headline(choice)


def test_a_table_of_a_tie_has_all_paths_that_tie() -> None:
    on = ("", "ext4/", "xfs/")
    none = [f"{place}{image}/none" for place in on for image in ("raw", "qcow2")]
    paths = (*none, "raw/writeback", "qcow2/directsync")
    of_one_world(World(paths, (1.0,) * len(paths), (0.05,) * len(paths), (4,) * len(paths), 2))


def test_a_tie_is_no_better_than_the_choice_may_be_behind() -> None:
    """`raw/none` is chosen and at most 3.8 % behind; the pair alone would leave 5.5 % open."""
    three = ("raw/none", "qcow2/none", "raw/writeback")
    of_one_world(World(three, (0.7,) * 3, (0.005,) * 3, (3,) * 3, seed=0))


def of_one_world(world: World) -> None:
    with stored(world.runs()) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id])
        ranked = rank_cells(analysis)
        try:
            found = recommend(analysis, with_default(()))
        except PlanError:
            found = None
        report = report_on(analysis)
        of_disks(MeasuredPaths(analysis), ranked)
        of_pairs(analysis, ranked)
    of_one_ranking(ranked)
    qualifying = any(
        row.cell.path is not None and row.cell.path.is_guest_storage
        and (row.power_cut is None or row.power_cut.kind.acceptable)
        for row in ranked.cells
    )  # fmt: skip
    if found is None:
        assert ranked.choice is None or not qualifying
        assert report.recommendation is None
        return
    same_in_both(ranked, found)
    assert report.recommendation is not None
    assert report.recommendation.choice == found.choice
    assert report_view.headline(report) == choice_view.headline(found.choice)
    assert len(report_view.page_headline(report)) <= choice_view.MOST_CHARACTERS
    told = " ".join(sentence for _, sentence in report_view.page_lines(report))
    whole = choice_view.headline(found.choice)
    assert whole in f"{report_view.page_headline(report)} {told}"


def of_one_ranking(answer: RankAnswer) -> None:
    """The sentence, the ranks and the order of one screen."""
    rows = [row for row in answer.cells if isinstance(row.place, Ranked)]
    levels = [row.level.value for row in rows if row.level is not None]
    assert levels == sorted(levels, reverse=True)
    assert [row.cell for row in answer.cells[: len(rows)]] == [row.cell for row in rows]
    for row in rows:
        assert row.level is not None
        low, high = row.level.low, row.level.high
        assert low is None or high is None or low <= row.level.value <= high
    choice = answer.choice
    if choice is None:
        assert not rows
        return
    of_one_choice(choice)
    if not rows:
        assert choice.verdict is ChoiceVerdict.ONLY
        return
    assert rows[0].cell == choice.leader
    places = {row.cell: row.place for row in rows if isinstance(row.place, Ranked)}
    first = {row for row, place in places.items() if place.best == 1}
    assert first == set(choice.tied), "ranks and sentence name other paths"
    assert {*choice.worse, *choice.not_best} == set(places) - first
    for cell_of_row, place in places.items():  # one decision: ranks and sentence
        apart = places[choice.cell].worst < place.best if choice.cell in places else False
        assert (cell_of_row in choice.worse) == (apart and cell_of_row not in first)
        assert cell_of_row not in choice.worse or cell_of_row not in choice.not_best
    said = " ".join(sentence for _, sentence in choice_view.verdict_lines(choice, {}))
    assert ("Shown to be worse" in said) == bool(choice.ties and choice.worse)
    assert set(choice.unranked).isdisjoint(places)
    if choice.verdict is ChoiceVerdict.BEST:
        assert places[choice.cell].worst == 1
        assert all(place.best > 1 for row, place in places.items() if row != choice.cell)
    for row in rows:  # an interval says no more than the ranks
        base = places.get(answer.baseline)
        if base is None or row.ratio.low is None or row.ratio.high is None:
            continue
        place = places[row.cell]
        level = row.shown(answer.ranking.measure)
        if level is not None and level.median == row.ratio.ratio:  # two columns of one number
            assert (level.low, level.high) == (row.ratio.low, row.ratio.high)
        if place.best <= base.worst and base.best <= place.worst and row.cell != answer.baseline:
            assert row.ratio.low <= 1 <= row.ratio.high
    shown = " ".join(table.title for table in rank_view.tables(answer))
    assert choice_view.headline(choice) in shown
    notes = " ".join(note for table in rank_view.tables(answer) for note in table.notes)
    assert ("whether the answer lasts" in notes) == choice.verdict.decided
    assert not (choice.verdict.decided and "Inconclusive" in notes)


def of_disks(measured: MeasuredPaths, answer: RankAnswer) -> None:
    """What `advise` and `audit` say of a disk that has one of the paths."""
    places = {row.cell: row.place for row in answer.cells if isinstance(row.place, Ranked)}
    levels = {row.cell: row.level for row in answer.cells if row.level is not None}
    for present, path in measured.cells.items():
        others = [other for other in measured.cells if other in places and other != present]
        standing = measured.standing(path, present, others)
        place = places.get(present)
        if place is not None:
            assert (standing.best, standing.worst) == (place.best, place.worst)
            assert standing.cells == len(places)
            assert standing.score is not None
            assert standing.score.median == levels[present].value
        if standing.better is not None:
            assert standing.gain is not None
            assert standing.gain.low is not None
            assert standing.gain.low >= 1, "a change without proof"
            assert place is None or places[standing.better].worst < place.best
        if place is None:
            continue
        for other in others:
            gain = measured.ratio(other, present)
            apart = places[other].worst < place.best or place.worst < places[other].best
            if gain is not None and gain.low is not None and gain.high is not None and not apart:
                assert gain.low <= 1 <= gain.high, "a gain over a disk of the same rank"


def of_pairs(analysis: Analysis, answer: RankAnswer) -> None:
    """What `compare` says of two paths, where `rank` says something else of them."""
    places = {row.cell: row.place for row in answer.cells if isinstance(row.place, Ranked)}
    for a, b in combinations(places, 2):
        (pair,) = compare_pairs(analysis, str(a), str(b)).pairs
        first, second = places[a], places[b]
        assert pair.ranked is not None
        assert pair.ranked.paths == len(places)
        apart = first.worst < second.best or second.worst < first.best
        better = Verdict.A_BETTER if first.best < second.best else Verdict.B_BETTER
        assert pair.ranked.verdict is (better if apart else Verdict.NONE_SHOWN)
        ratio = pair.measures[0].ratio
        assert not (apart and pair.measures[0].verdict in (Verdict.A_LIKELY, Verdict.B_LIKELY))
        of_unknown_pair(answer.choice, a, b, ratio)
        if ratio.low is None or ratio.high is None:
            continue
        shown = not ratio.low <= 1 <= ratio.high
        said = compare_view.comparison_summary(pair)
        assert shown == apart or "looked at alone" in said or said.startswith("Too few")
        assert ("paths no difference is shown" in said) == (shown and not apart)
        assert ("is shown to be better (`rank`)" in said) == (apart and not shown)


def of_unknown_pair(choice: PathChoice | None, a: MeasuredCell, b: MeasuredCell, of: Ratio) -> None:
    """Where `compare` shows nothing of the answer and a tie, `rank` has no limit and no lead."""
    if choice is None or choice.verdict.decided or not choice.ties:
        return
    if choice.cell in (a, b) and {a, b} <= set(choice.tied):
        unknown = numbers.known_interval(of.low, of.high) is None
        assert choice.behind is None or not unknown
    said = " ".join(sentence for _, sentence in choice_view.verdict_lines(choice, {}))
    if choice.behind is None:
        assert "at most" not in said.partition(" cannot tell ")[0]
        assert "leads" not in said
    else:
        assert choice.behind < 1


def test_three_noisy_rounds_tell_nothing_in_any_verb() -> None:
    """`rank` said "at most 6.9 times as good" where `compare` said "so few rounds tell nothing"."""
    seen = 0
    for seed in range(4):
        paths = ("raw/none", "qcow2/none", "raw/none/scsi")[: 2 + seed % 2]
        world = World(paths, (1.0,) * len(paths), (0.6,) * len(paths), (3,) * len(paths), seed)
        of_one_world(world)
        with stored(world.runs()) as store:
            analysis = Analysis.of(store, [CAMPAIGN.id])
            choice = rank_cells(analysis).choice
            (pair, *_) = compare_pairs(analysis, *paths[:2]).pairs
        assert choice is not None
        said = " ".join(sentence for _, sentence in choice_view.verdict_lines(choice, {}))
        if "tell nothing" in compare_view.comparison_summary(pair):
            seen += 1
            assert f"3 rounds cannot tell which of these {len(paths)} is " in said
    assert seen, "no such world"


def of_one_choice(choice: PathChoice) -> None:
    """The value itself."""
    assert choice.leader in choice.tied
    assert choice.cell not in choice.ties
    assert set(choice.worse).isdisjoint(choice.tied)
    says = choice_view.headline(choice)
    if choice.verdict is ChoiceVerdict.CLOSE:
        assert choice.behind is not None
        assert choice.behind <= 0.1
    if choice.verdict is ChoiceVerdict.KEEP:
        assert choice.cell in {disk.cell for disk in choice.present}
    if choice.verdict in (ChoiceVerdict.KEEP, ChoiceVerdict.TIED):
        assert says.startswith("Take ") or "loses flushed data" in says
        assert choice.ahead is not None
        assert choice.behind is None or choice.ahead <= choice.behind + 1e-9
    if says.startswith("Use "):
        assert choice.verdict not in (ChoiceVerdict.KEEP, ChoiceVerdict.TIED)
    if choice.ties:
        assert " of " not in says.partition("best of ")[2].partition(" paths")[0]
        assert "it is the best" not in says
    assert len(choice_view.short_headline(choice)) <= choice_view.MOST_CHARACTERS


def same_in_both(ranked: RankAnswer, found: RecommendAnswer) -> None:
    """`rank` and `recommend`, which only qualifies paths."""
    choice = found.choice
    of_one_choice(choice)
    assert found.recommendation.cell == choice.cell
    assert found.path == choice.cell.name
    if ranked.choice is None:
        assert choice.verdict is ChoiceVerdict.ONLY
        return
    assert ranked.choice == choice
    places = {row.cell: row.place for row in ranked.cells if isinstance(row.place, Ranked)}
    if places:
        assert [row.cell for row in found.alternatives] == list(places)
    for row in found.alternatives:
        if places:
            assert row.place == places[row.cell]
        ratio = row.ratio
        if ratio is None or ratio.low is None or ratio.high is None:
            continue
        if row.cell in choice.ties:
            assert ratio.low <= 1 <= ratio.high, "a tie with an interval that shows a difference"
        if choice.verdict.decided and choice.behind is not None:
            assert ratio.high <= max(1 + choice.behind, ratio.ratio or 0) + 1e-9
    (table,) = recommend_view.tables(found)
    assert set(choice.tied) <= {row.cell for row in table.rows}, "a tie that the table lacks"
    assert all(row.ratio is not None for row in found.alternatives if row.cell in choice.ties)
    sentences = recommend_view.verdict_sentences(found)
    assert sentences[0] == f"{choice_view.headline(choice)}."
    assert document(found, sentences)["path"] == found.path


def test_what_the_ranks_show_is_not_likely_in_compare() -> None:
    """`likely (not proven)` stood beside `A is shown to be better`, of one pair and one score."""
    seen = 0
    for seed in range(12):
        world = World(("raw/none", "qcow2/none"), (1.09, 1.0), (0.05, 0.05), (8, 8), seed)
        with stored(world.runs()) as store:
            answer = compare_pairs(Analysis.of(store, [CAMPAIGN.id]), *world.paths)
        (pair,), (table,) = answer.pairs, compare_view.tables(answer)
        score, ranked = pair.measures[0], pair.ranked
        assert ranked is not None
        assert score.p_adjusted is not None
        by_rank = any("is that of `rank`" in note for note in table.notes)
        if ranked.verdict is Verdict.A_BETTER and (score.ratio.low or 0) > 1:
            assert score.verdict is Verdict.A_BETTER
            assert by_rank == (score.p_adjusted > 0.05)
            seen += by_rank
        else:
            assert not by_rank
    assert seen, "no such world"


NEEDS = (
    "format=raw", "format=qcow2", "cache=none", "cache=writeback", "cache=directsync",
    "bus=virtio", "bus=scsi", "snapshots", "live-migration",
)  # fmt: skip


@pytest.mark.parametrize("seeds", [3, pytest.param(80, marks=pytest.mark.nightly)])
def test_a_race_says_the_same_of_the_paths_that_meet_a_need(seeds: int) -> None:
    """`Use raw/none` became `Take qcow2…, race for 25 min` with a need that raw/none meets."""
    seen = {"kept": 0, "gone": 0}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        paths = tuple(rng.permutation(PATHS)[: rng.integers(3, 7)].tolist())
        levels = tuple(rng.choice([0.7, 0.95, 1.0, 1.05, 1.4], len(paths)).tolist())
        noise = tuple(rng.choice([0.01, 0.03, 0.1], len(paths)).tolist())
        rounds = (int(rng.integers(4, 15)),) * len(paths)
        of_one_race(World(paths, levels, noise, rounds, seed), seen)
    assert all(seen.values()), "no such world"


def of_one_race(world: World, seen: dict[str, int]) -> None:
    """What a race says of all paths, and of those that meet a need."""
    cells = list(dict.fromkeys(run.measured_cell.label for run in world.runs()))
    plan = {**CAMPAIGN.plan, "cells": cells, "race": RaceTerms().as_json()}
    with stored(raced(world.runs()), campaigns=[replace(CAMPAIGN, plan=plan)]) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id])
        whole, ranked = race_of(analysis, analysis.competing), rank_cells(analysis)
        try:
            found = recommend(analysis, with_default(()))
        except PlanError:
            return
        same_in_both(ranked, found)
        if whole is None:
            return
        for need in with_default(map(parse_need, NEEDS))[1:]:
            needs = with_default((need,))
            meeting = qualified(analysis.observations, needs, analysis.verdicts)
            part = race_of(analysis, meeting)
            if not len(meeting) > 1 or whole.best not in meeting:
                assert part is None or set(meeting) == set(analysis.competing)
                seen["gone"] += len(meeting) > 1
                continue
            assert part is not None
            seen["kept"] += 1
            no_looser(part, whole, meeting)
            choice = recommend(analysis, needs).choice
            of_one_choice(choice)
            assert set(choice.tied) == {part.best, *part.as_good}
            if found.choice.verdict.decided:
                assert choice.cell == found.choice.cell
                assert choice.verdict.decided or choice.verdict is ChoiceVerdict.ONLY


def no_looser(part: RaceOutcome, whole: RaceOutcome, meeting: list[MeasuredCell]) -> None:
    """A race among some of its paths shows at least what the race among all does."""
    assert part.best == whole.best
    assert {*part.as_good, part.best} <= set(meeting)
    assert set(whole.as_good).intersection(meeting) <= set(part.as_good)
    assert part.decided or not whole.decided
    assert part.proven or not whole.proven
    if whole.behind is not None:
        assert part.behind is not None
        assert part.behind <= whole.behind


def raced(runs: Iterator[Run]) -> Iterator[Run]:
    """The runs of a race: what a look has left out is not measured in later rounds."""
    so_far, out = list[Run](), set[str]()
    rounds: dict[int, list[Run]] = {}
    for run in runs:
        rounds.setdefault(run.round, []).append(run)
    for of_round in rounds.values():
        so_far += [run for run in of_round if run.path not in out]
        names = [run.path for run in of_round if run.path not in {*out, "host", "raw/unsafe"}]
        if len(names) > 1:
            out |= left_out(so_far, names)
    yield from so_far


def left_out(runs: list[Run], names: list[str]) -> set[str]:
    """The paths that a race of these leaves out after these runs."""
    last = max(run.round for run in runs)
    logs = np.full((len(names), last), np.nan)
    for run in runs:
        if run.path in names:
            value = run.measurements[1].samples[0].value
            logs[names.index(run.path), run.round - 1] = np.log(value)
    return set(names) - {names[row] for row in race_state(logs, 0.1).left}


def test_what_a_path_that_does_not_count_has_left_out_is_open_again() -> None:
    """The leader dropped one row itself, and one by a row that it dropped."""
    state = RaceState((4, 2), 4, 0.3, True, 9, 0.1, 0.05, beaten={0: 1, 1: 4, 3: 2})
    assert [state.behind_leader(row) for row in range(5)] == [True, True, False, False, True]


NOISY = np.array([[1.274, 1.267, 1.281], [1.052, 1.146, 1.013]])


def test_ranks_never_differ_beside_paths_that_are_not_shown_to_be_worse() -> None:
    """Two cells, three rounds, one much noisier: by pooled noise they differ, by their own not."""
    data = observed({IOPS: NOISY})
    ranking = rank(data, IOPS)
    assert ranking.best is not None
    assert not ranking.best.alone
    assert [(row.best, row.worst) for row in ranking.rows] == [(1, 2), (1, 2)]
    assert ranking.separated == 0


def test_who_is_named_the_best_is_first_alone() -> None:
    """Naming the best takes fewer comparisons than ranking all: ranks say it, too."""
    rng = np.random.default_rng(4)
    data = observed({IOPS: np.exp(np.log([[1.12]] + [[1.0]] * 9) + rng.normal(0, 0.035, (10, 5)))})
    ranking = rank(data, IOPS)
    assert ranking.best is not None
    assert ranking.best.alone
    assert ranking.best.leader == cell("c00")
    assert (ranking.rows[0].best, ranking.rows[0].worst) == (1, 1)
    assert all(row.best > 1 for row in ranking.rows[1:])


@pytest.mark.parametrize("seed", range(20))
def test_ranks_and_the_set_of_the_best_agree_for_any_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, rounds = int(rng.integers(2, 9)), int(rng.integers(3, 8))
    noise = rng.choice([0.01, 0.05, 0.4], (cells, 1))
    logs = rng.normal(0, 0.1, (cells, 1)) + noise * rng.normal(0, 1, (cells, rounds))
    logs[rng.random(logs.shape) < 0.1] = np.nan
    ranking = rank(observed({IOPS: np.exp(logs)}), IOPS)
    if ranking.best is None:
        return
    assert {row.cell for row in ranking.rows if row.best == 1} == set(ranking.best.cells)
    for row in ranking.rows:
        assert 1 <= row.best <= row.worst <= len(ranking.rows)


def campaign_of(
    id: str, day: int, rounds: int, paths: tuple[str, ...]
) -> tuple[Campaign, list[Run]]:
    plan = {**CAMPAIGN.plan, "cells": list(paths), "rounds": rounds}
    started = CAMPAIGN.started + timedelta(days=day)
    campaign = replace(CAMPAIGN, id=id, fingerprint=id * 2, plan=plan, started=started)
    count = len(paths)
    world = World(paths, (1.0,) * count, (0.02,) * count, (rounds,) * count, day)
    later = timedelta(days=day)
    moved = [
        replace(run, campaign=id, id=f"{day:02x}{run.id[:6]}", started=run.started + later)
        for run in world.runs()
    ]
    return campaign, moved


def test_a_campaign_that_compares_nothing_is_joined_by_an_older_one() -> None:
    """`--again --rounds 2` after a decision must not take the answer away."""
    old, runs = campaign_of("aaaaaaa1", 0, 5, PATHS[:3])
    new, more = campaign_of("bbbbbbb2", 1, 2, PATHS[:3])
    with stored([*runs, *more], campaigns=[new, old]) as store:
        analysis = Analysis.of(store)
        assert [campaign.id for campaign in analysis.campaigns] == ["bbbbbbb2", "aaaaaaa1"]
        answer = rank_cells(analysis)
        assert answer.choice is not None
        title = next(iter(rank_view.tables(answer))).intro
        assert any("campaigns bbbbbbb2" in line and "aaaaaaa1" in line for line in title)
        alone = rank_cells(Analysis.of(store, ["bbbbbbb2"]))
        assert any(
            "`vdisklab rank --campaign aaaaaaa1`" in str(finding) for finding in alone.findings
        )
        with pytest.raises(PlanError, match="nothing is shown after 2 rounds") as error:
            recommend(Analysis.of(store, ["bbbbbbb2"]), with_default(()))
        assert "`vdisklab recommend --campaign aaaaaaa1` answers" in str(error.value.hint)


def test_of_joined_campaigns_each_path_has_the_verdicts_of_its_own_kernel() -> None:
    """All were judged by the kernel of the first campaign."""
    old, runs = campaign_of("aaaaaaa1", 0, 5, ("raw/none", "raw/directsync"))
    new, more = campaign_of("bbbbbbb2", 1, 5, ("raw/none", "qcow2/none"))
    new = replace(new, host=replace(new.host, kernel="another"))
    cuts = [
        replace(CUT_KEPT, id=f"{path} {number}", path=path, host=campaign.host)
        for path in ("raw/none", "raw/directsync", "qcow2/none")
        for number, campaign in enumerate((old, new))
    ]
    with stored([*runs, *more], campaigns=[new, old], power_cuts=cuts) as store:
        for ids in ([old.id, new.id], [new.id, old.id]):
            verdicts = Analysis.of(store, ids).verdicts
            found = {path: crashes.flushed.judged for path, crashes in verdicts.by_path.items()}
            assert found == {"raw/none": 200, "raw/directsync": 100, "qcow2/none": 100}
        alone = Analysis.of(store, [old.id]).verdicts
        assert {crashes.flushed.judged for crashes in alone.by_path.values()} == {100}


def test_the_only_path_of_the_newest_campaign_is_compared_with_those_before() -> None:
    old, runs = campaign_of("aaaaaaa1", 0, 5, PATHS[:2])
    new, more = campaign_of("bbbbbbb2", 1, 4, PATHS[2:3])
    with stored([*runs, *more], campaigns=[new, old]) as store:
        answer = rank_cells(Analysis.of(store))
        assert {row.cell.name for row in answer.cells if isinstance(row.place, Ranked)} == {
            "raw/none", "qcow2/none", "raw/writeback",
        }  # fmt: skip
        found = recommend(Analysis.of(store, ["aaaaaaa1"]), with_default(()))
        said = " ".join(recommend_view.reasons(found))
        mode = "QEMU's default cache mode"
        assert f"{mode} was not measured in campaign aaaaaaa1, but in campaign bbbbbbb2" in said
    other = replace(old, host=replace(old.host, kernel="another"))
    with stored([*runs, *more], campaigns=[new, other]) as store:
        choice = rank_cells(Analysis.of(store)).choice
        assert choice is not None
        assert choice_view.headline(choice) == (
            "Nothing to compare: raw/writeback is the only path with numbers of campaign bbbbbbb2"
        )


@pytest.mark.parametrize(
    "paths", [("raw/unsafe", "raw/directsync"), ("raw/directsync", "raw/unsafe")]
)
def test_of_a_tie_the_path_that_keeps_data_is_the_answer(paths: tuple[str, str]) -> None:
    """The other one was named, with "each of them loses flushed data"."""
    world = World(paths, (1.01, 1.0), (0.1, 0.1), (4, 4), 1)
    with stored(world.runs()) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id], unsafe=True)
        choice = decide(analysis, analysis.measure("overall")).choice
    assert choice is not None
    assert {each.name for each in choice.tied} == set(paths)
    assert choice.cell.name == "raw/directsync"
    assert "each of them" not in choice_view.headline(choice)


@pytest.mark.parametrize("tested", ["raw/directsync", "qcow2/directsync"])
def test_of_a_tie_that_nobody_has_the_path_that_kept_its_data_is_the_answer(tested: str) -> None:
    paths = ("raw/directsync", "qcow2/directsync")
    world = World(paths, (1.0, 1.0), (0.1, 0.1), (4, 4), 1)
    cut = replace(CUT_KEPT, path=tested)
    with stored(world.runs(), power_cuts=[cut]) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id])
        choice = decide(analysis, analysis.measure("overall")).choice
    assert choice is not None
    assert {each.name for each in choice.tied} == set(paths)
    assert choice.cell.name == tested


def test_a_path_is_found_by_the_name_that_the_user_gave_its_target() -> None:
    paths = ("nbd:at=shelf/raw/none", "raw/none")
    world = World(paths, (1.0, 1.0), (0.02, 0.02), (4, 4), 1)
    with stored(world.runs()) as store:
        observations = Analysis.of(store, [CAMPAIGN.id]).observations
    assert find_cells(observations, "shelf/raw/none") == (cell("nbd:at=shelf/raw/none"),)
    with pytest.raises(PlanError):
        find_cells(observations, "other/raw/none")


@pytest.mark.parametrize("is_named", [True, False])
def test_a_reference_that_nobody_named_is_not_what_the_user_has(*, is_named: bool) -> None:
    """`--baseline none` leaves the first path as the reference, and says no more of it."""
    paths = ("raw/none/scsi", "raw/none")
    plan = {**CAMPAIGN.plan, "cells": list(paths), "baseline": paths[0]}
    campaign = replace(CAMPAIGN, plan=plan if is_named else {**plan, "no_baseline": True})
    world = World(paths, (1.0, 1.0), (0.03, 0.03), (5, 5), 3, has_host=False)
    with stored(world.runs(), campaigns=[campaign]) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id])
        choice = rank_cells(analysis).choice
        assert analysis.baseline == cell(paths[0])
        assert Analysis.of(store, [CAMPAIGN.id], baseline=paths[0]).names_baseline
    assert choice is not None
    assert (cell(paths[0]) in {disk.cell for disk in choice.present}) is is_named
    assert ("the baseline" in choice_view.headline(choice)) is is_named


def test_no_path_of_the_host_is_for_a_guest() -> None:
    paths = ("ext4/host", "xfs/host")
    world = World(paths, (1.0, 1.0), (0.03, 0.03), (5, 5), 3)
    with stored(world.runs(), campaigns=[CAMPAIGN]) as store:
        answer = rank_cells(Analysis.of(store, [CAMPAIGN.id]))
    assert answer.choice is None
    assert len(answer.ranking.rows) == 3
    title = next(rank_view.tables(answer)).title
    assert title == "No path to use yet: no path that a guest could use was measured."


def test_places_that_were_measured_as_they_are_have_a_command_that_shows_them() -> None:
    """After `run --here --dir A --dir B` no path is recommended, and the way on is printed."""
    stored_ones, runs = list[Campaign](), list[Run]()
    for id, day, place in (("aaaaaaa1", 0, "/mnt/a"), ("bbbbbbb2", 1, "/mnt/b")):
        campaign, _ = campaign_of(id, day, 3, PATHS[:1])
        plan = {**campaign.plan, "cells": ["host"], "directory": place}
        stored_ones.insert(0, replace(campaign, plan=plan))
        world = World(("raw/none",), (1.0,), (0.02,), (3,), day)
        runs += [
            replace(run, campaign=id, id=f"{day:02x}{run.id[:6]}")
            for run in world.runs() if run.path == "host"
        ]  # fmt: skip
    with stored(runs, campaigns=stored_ones) as store, pytest.raises(PlanError) as error:
        recommend(Analysis.of(store, ["bbbbbbb2"]), with_default(()))
    command = "`vdisklab table --campaign aaaaaaa1 --campaign bbbbbbb2` shows the places"
    assert command in str(error.value.hint)


def test_bars_and_table_have_the_same_intervals() -> None:
    """Where no difference to the baseline is shown, both intervals hold 1."""
    world = World(("ext4/host", "xfs/host"), (1.2, 1.0), (0.6, 0.6), (5, 5), 3)
    with stored(world.runs(), campaigns=[CAMPAIGN]) as store:
        answer = rank_cells(Analysis.of(store, [CAMPAIGN.id]))
    bars = {bar.label: (bar.low, bar.high) for bar in ranked_bars(answer, 9)[0]}
    for row in answer.cells[1:]:
        assert bars[row.cell.label] == (row.ratio.low, row.ratio.high)
