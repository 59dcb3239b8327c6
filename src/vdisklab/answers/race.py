"""A race of a campaign's paths: what its stored runs have shown, and which paths run on.

Only rounds that have ended count, so an interrupted race goes on as if nothing had happened, and
every command says the same of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from vdisklab.analysis.best import SHOWS_NOTHING, competitors
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.path_model import PathModel
from vdisklab.analysis.race import RaceOutcome, RaceState, race_state
from vdisklab.analysis.score import DEFAULT_METRIC, SCORES, add_scores, middle_path
from vdisklab.analysis.search import (
    ATTEMPTS,
    SearchState,
    given_up,
    goodness,
    margin_with_resolution,
    search_state,
)
from vdisklab.answers.loading import Loaded, find_measure
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.factors import Levels, factor_levels
from vdisklab.path.needs import unmet
from vdisklab.path.segments import HOST
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.results.model import Campaign
from vdisklab.value import Value, replace

RACE_UP_TO = 20
"""Up to this many paths all race; of more, a model of their segments leaves some out first."""


@dataclass(slots=True, eq=False)
class Contest:
    """The cells that compete, and the rows of those that race; None while the model chooses.

    The race counts the rounds `since` it began: those before it decided who races.
    """

    cells: tuple[MeasuredCell, ...]
    levels: Levels
    model: PathModel
    terms: RaceTerms
    rows: tuple[int, ...] | None
    since: int = 0

    def named(self, rows: Sequence[int]) -> tuple[MeasuredCell, ...]:
        """The cells of these rows."""
        return tuple(self.cells[row] for row in rows)

    def search(self, logs_before: Known) -> SearchState | None:
        """The state of the model; None if the race has begun, which this may do."""
        if self.rows is not None or logs_before.waits or not logs_before.anything:
            return None
        state = search_state(self.model, logs_before.logs, logs_before.margin, logs_before.out)
        if state.race:
            self.rows, self.since = state.shortlist, logs_before.logs.shape[1]
            return None
        return state

    def replay(self, numbers: Loaded, round: int) -> None:
        """Begins the race in the round before `round` in which the model has chosen who races."""
        for earlier in range(2, round):
            if self.rows is None:
                self.search(known_before(self, numbers, earlier))

    def race(self, so_far: Known) -> RaceState | None:
        """The state of the race; None if no cell that was not given up has a number."""
        if not so_far.anything:
            return None
        rows, since = self.rows, self.since
        if rows is None:
            state = search_state(self.model, so_far.logs, so_far.margin, so_far.out)
            rows, since = state.shortlist, 0
        rows = tuple(row for row in rows if row not in so_far.out)
        if not rows:
            return None
        return self._among(rows, so_far, since)

    def lost(self, so_far: Known) -> tuple[int, ...]:
        """The rows that were given up while they were in the race, which nothing has decided.

        Each counts with the rounds up to its last number: what the others did later says nothing
        of it.
        """
        if self.rows is None:
            return ()
        rows = tuple(row for row in self.rows if np.isfinite(so_far.logs[row, self.since :]).any())
        lost = []
        for row in (row for row in rows if row in so_far.out):
            ran = int(np.flatnonzero(np.isfinite(so_far.logs[row]))[-1]) + 1
            until = replace(so_far, logs=so_far.logs[:, :ran])
            if row in self._among(rows, until, self.since).left:
                lost.append(row)
        return tuple(lost)

    def _among(self, rows: tuple[int, ...], so_far: Known, since: int) -> RaceState:
        logs = so_far.logs[list(rows), since:]
        found = race_state(logs, so_far.margin, 1 - self.terms.confidence)
        return replace(
            found,
            left=tuple(rows[row] for row in found.left),
            leader=rows[found.leader],
            beaten={rows[row]: rows[by] for row, by in found.beaten.items()},
        )


class Known(Value, eq=False):
    """The results of some rounds: the goodness of competing cells x rounds, NaN if missing.

    `out` are the rows that were given up, `seconds` is the mean duration of a run, 0 without runs.
    `margin` is never finer than the values' resolution; `step` is the metric's step if that decided
    the margin. `waits` is True if nothing but the baseline's numbers is missing, in a few rounds.
    """

    logs: Floats
    out: frozenset[int]
    seconds: float
    margin: float
    step: float | None
    waits: bool = False

    @property
    def runs(self) -> int:
        """How many runs of competing cells have numbers."""
        return int(np.isfinite(self.logs).sum())

    @property
    def anything(self) -> bool:
        """True if a cell that was not given up has a number."""
        return bool(np.isfinite(np.delete(self.logs, sorted(self.out), axis=0)).any())


def contest_of(
    cells: Sequence[MeasuredCell],
    terms: RaceTerms,
    verdicts: CrashVerdicts,
    only: Collection[str] = (),
) -> Contest:
    """A race of the contestants, or a model that first makes a shortlist of them."""
    chosen = contestants(cells, terms, verdicts, only)
    levels = factor_levels(chosen)
    every = not terms.shortlist or len(chosen) <= RACE_UP_TO
    rows = tuple(range(len(chosen))) if every else None
    return Contest(chosen, levels, PathModel(levels), terms, rows)


def contestants(
    cells: Sequence[MeasuredCell],
    terms: RaceTerms,
    verdicts: CrashVerdicts,
    only: Collection[str] = (),
) -> tuple[MeasuredCell, ...]:
    """The guests' paths that meet the needs, cold where they were also measured warm.

    If fewer than two meet them, all compete. `only` are the paths to consider; all if empty.
    """
    able = [cells[place] for place in competitors(cells).tolist()]
    able = [cell for cell in able if not only or cell.name in only]
    meeting = [
        cell for cell in able if cell.path is None or not unmet(cell.path, terms.needs, verdicts)
    ]
    return tuple(meeting if len(meeting) > 1 else able)


def race_outcome(
    numbers: Loaded,
    terms: RaceTerms,
    verdicts: CrashVerdicts,
    only: Collection[str] = (),
    counting: Collection[MeasuredCell] | None = None,
) -> RaceOutcome | None:
    """The outcome of all measured rounds; None if nothing was measured in a guest.

    `only` are the paths to consider; all if empty. `counting` are the cells of which the outcome
    speaks, if not of all that raced: the race is the same. It shows nothing of a cell that did not
    compete, and nothing of any without its best: then None.
    """
    contest = contest_of(numbers.campaigns[0].cells, terms, verdicts, only)
    last = max((run.round for run in numbers.outlines), default=0)
    contest.replay(numbers, last + 1)
    so_far = known_before(contest, numbers, last + 1)
    state = contest.race(so_far)
    if state is None:
        return None
    counts = frozenset(
        row for row, cell in enumerate(contest.cells) if counting is None or cell in counting
    )
    others = counting is not None and not set(counting) <= set(contest.cells)
    if others or state.leader not in counts:
        return None
    if len(counts) < len(contest.cells) and (contest.rows is None or len(counts) < 2):
        return None  # a model still chooses who races, or nothing is left to compare
    return _outcome(contest, so_far, state, counts)


def _outcome(
    contest: Contest, so_far: Known, state: RaceState, counts: frozenset[int]
) -> RaceOutcome:
    """What the state says of the rows that count, its leader among them.

    Fewer rivals loosen nothing: the leader's limits hold for each of them. Only what another row
    dropped, which is left and does not count, is open again.
    """
    gone = contest.lost(so_far)
    never = [row for row in so_far.out if not np.isfinite(so_far.logs[row]).any()]
    long = [row for row in gone if np.isfinite(so_far.logs[row]).sum() >= MIN_ROUNDS]
    lost, enough = ([row for row in rows if row in counts] for rows in (gone, long))
    left = [row for row in state.left[1:] if row in counts]
    if not counts.issuperset(state.left):
        left += [row for row in state.beaten if row in counts and not state.behind_leader(row)]
    unbounded = enough or state.behind is None or state.behind >= SHOWS_NOTHING
    return RaceOutcome(
        best=contest.cells[state.leader],
        as_good=contest.named((*left, *enough)),
        behind=None if unbounded else state.behind,
        proven=not left and state.best and not enough,
        rounds=so_far.logs.shape[1],
        most_rounds=contest.terms.rounds,
        margin=so_far.margin,
        confidence=contest.terms.confidence,
        cells=len(counts),
        raced=0 if contest.rows is None else len(counts.intersection(contest.rows) - set(never)),
        measured=int(np.isfinite(so_far.logs[sorted(counts)]).any(axis=1).sum()),
        failed=len(so_far.out & counts),
        lost=contest.named(lost),
        step=so_far.step,
        going_on=contest.named((*state.left, *long)),
    )


def known_before(contest: Contest, numbers: Loaded, round: int) -> Known:
    """The results of the rounds before `round`."""
    runs = [run for run in numbers.outlines if run.round < round]
    place = {cell: row for row, cell in enumerate(contest.cells)}
    logs = np.full((len(place), 0), np.nan)
    margin, step = contest.terms.margin, None
    if runs:
        scored, key = _ranked_by(contest.terms.metric, numbers.observations, numbers.campaigns[0])
        columns = [column for column, earlier in enumerate(scored.rounds) if earlier.number < round]
        grid = goodness(scored, key, columns)
        logs = np.full((len(place), len(columns)), np.nan)
        resolution = np.zeros(len(place))
        known_resolution = scored.resolution(key)
        for row, cell in enumerate(scored.cells):
            if cell in place:
                logs[place[cell]] = grid[row]
                resolution[place[cell]] = known_resolution[row]
        margin = margin_with_resolution(margin, logs, resolution)
        step = key.quantity.step if margin > contest.terms.margin else None
    failures: dict[int, list[bool]] = {}
    for run in sorted(runs, key=lambda run: run.round):
        if run.measured_cell in place:
            failures.setdefault(place[run.measured_cell], []).append(run.failure is not None)
    measured = np.isfinite(logs).any(axis=1)
    # If no cell has a number, it is what scores relate to that is missing.
    lacks = ~measured if measured.any() else np.zeros(len(place), dtype=np.bool_)
    failed = [row for row, runs_ in failures.items() if all(runs_[-2:]) or lacks[row]]
    waits = not measured.any() and len(failed) < len(failures)
    return Known(
        logs=logs[:, np.isfinite(logs).any(axis=0)],
        out=given_up(contest.levels, failures, failed),
        seconds=sum(run.wall_seconds or 0.0 for run in runs) / max(1, len(runs)),
        margin=margin,
        step=step,
        waits=waits and len({run.round for run in runs}) < ATTEMPTS,
    )


def _ranked_by(
    metric: str, observations: Observations, campaign: Campaign
) -> tuple[Observations, MeasureKey]:
    """The observations (with scores if the metric is a score), and the deciding measure."""
    if metric not in SCORES:
        return observations, find_measure(observations, metric)
    baseline = str(campaign.plan.get("baseline", HOST))
    cells = [cell for cell in observations.cells if cell.name == baseline]
    middle = None
    if not cells and len(observations.rounds) >= ATTEMPTS:
        usable = [observations.cells[row] for row in competitors(observations.cells)]
        middle = middle_path(observations, usable)
    scored = add_scores(observations, cells[0] if cells else middle or MeasuredCell(baseline))
    if metric == DEFAULT_METRIC and scored.overall is not None:
        return scored.observations, scored.overall
    return scored.observations, SCORES[metric].key
