"""What `run` says at its end: of a search, and the next step."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import assert_never

from vdisklab.analysis.candidates import simplest
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.search import Ended, Outcome
from vdisklab.units import counted, named


def next_step(path: str | None, db: str | None, campaign: str | None) -> str:
    """The commands that show the results of a run and print the configuration of a path.

    `db` and `campaign` are named unless they are the defaults (None).
    """
    place = "" if db is None else f" --db {shlex.quote(db)}"
    chosen = "" if campaign is None else f" --campaign {campaign}"
    see = f"see it: vdisklab report{chosen}{place}"
    return see if path is None else f"{see}; paste it: vdisklab export {path}{place}"


def found_sentences(outcome: Outcome | RaceOutcome) -> Iterator[str]:
    """What a search or a race for the best path found."""
    if isinstance(outcome, RaceOutcome):
        yield from race_sentences(outcome)
    else:
        yield from search_sentences(outcome)


def race_sentences(outcome: RaceOutcome) -> Iterator[str]:
    """The path to use and how sure that is; without a decision what is left, and what it costs."""
    after = f"after {counted(outcome.rounds, 'round')}"
    sure = f"{1 - outcome.alpha:.0%} sure"
    if outcome.measured == 1:
        yield (
            f"Only {outcome.best} of {counted(outcome.cells, 'path')} has numbers ({after}), so "
            "there is nothing to compare it with."
        )
    elif outcome.proven:
        yield f"Use {outcome.best}: it is the best ({sure}), {after}."
    elif outcome.decided:
        yield (
            f"Use {outcome.best}: no other path is better by more than {_margin(outcome)} "
            f"({sure}), {after}."
        )
    else:
        yield f"No decision yet: {outcome.best} leads {after}."
        others = named(outcome.as_good)
        if outcome.behind is None:
            yield f"These may be better, and nothing says by how much: {others}."
        else:
            yield f"These may be better, by at most {outcome.behind:.0%} ({sure}): {others}."
        if outcome.ended is Ended.OUT_OF_BUDGET:
            yield "The budget ran out. The same command with a larger --budget continues."
        else:
            yield "The limit of rounds was reached. More --rounds or a longer --runtime decide."
    if outcome.failed:
        yield f"{counted(outcome.failed, 'path')} failed and did not compete."


def search_sentences(outcome: Outcome) -> Iterator[str]:
    """The result of a search for the best path, how sure it is, and why the search ended."""
    after = f"after {counted(outcome.rounds, 'round')}"
    if outcome.measured == 1:
        yield (
            f"Only {outcome.best} of {counted(outcome.cells, 'path')} has numbers ({after}), so "
            "there is nothing to compare it with."
        )
        yield from _why_it_ended(outcome)
        return
    if outcome.alone:
        yield f"Best: {outcome.best}, {after}."
    else:
        unseen = ", by prediction: it was not measured itself" if outcome.predicted else ""
        yield f"No winner: {outcome.best} leads {after}{unseen}."
    yield (
        f"With a probability of {_probability(outcome.probability)} no other path is better by "
        f"more than {_margin(outcome)}, judged from {outcome.measured} measured paths of "
        f"{outcome.cells} and the segments that they share."
    )
    yield from _why_it_ended(outcome)
    if outcome.rivals:
        yield f"Compared in {MIN_ROUNDS} rounds or more: {_rivals(outcome)}."
    if outcome.as_good:
        simple = simplest((outcome.best, *outcome.as_good))
        yield f"Keep what you have if it is one of them, or take {simple}: it is the simplest."
    if outcome.failed:
        yield (
            f"{counted(outcome.failed, 'path')} failed, or share a segment with paths that all "
            "failed, and were given up."
        )


def ranking_after_search(outcome: Outcome | RaceOutcome, ranking: Ranking) -> str | None:
    """Why the ranking does not say the same as the search or race; None if it does."""
    best = ranking.best
    if isinstance(outcome, RaceOutcome):
        if best is None or best.alone or not outcome.decided:
            return None
        return (
            "The ranking asks which path is the best of all, and that takes more rounds; the race "
            f"asked only for one within {_margin(outcome)} of it."
        )
    if best is None or (best.leader, best.alone) == (outcome.best, outcome.alone):
        return None
    if all(row.cell != outcome.best for row in ranking.rows):
        differs = f"leaves out {outcome.best}, which it cannot rank"
    elif outcome.best not in best.cells:
        differs = f"counts {outcome.best} as beaten"
    elif best.alone:
        differs = f"names {best.leader} alone"
    elif outcome.alone:
        differs = f"keeps {counted(len(best.cells), 'path')} that may be the best"
    else:
        differs = f"begins with {best.leader}"
    return (
        f"The ranking goes by each path's own runs in {MIN_ROUNDS} rounds or more, not by segments "
        "that paths share, has no margin, and allows for noise that differs or is shared; so it "
        f"{differs}. The search answers for all paths, within {_margin(outcome)}."
    )


def _why_it_ended(outcome: Outcome) -> Iterator[str]:
    match outcome.ended:
        case Ended.OUT_OF_BUDGET:
            yield (
                "The budget ran out before the search was done: with more time the answer may "
                "change."
            )
        case Ended.OUT_OF_ROUNDS:
            yield (
                "The limit of rounds was reached before the search was done: with more --rounds "
                "the answer may change."
            )
        case Ended.FOUND:
            unmeasured = outcome.cells - outcome.measured - outcome.failed
            if unmeasured > 0:
                yield (
                    f"Not measured: {counted(unmeasured, 'path')}. In case one is better than its "
                    "segments promise, --every-path measures each at least once."
                )
        case _:
            assert_never(outcome.ended)


def _margin(outcome: Outcome | RaceOutcome) -> str:
    return f"{outcome.margin:.0%}" if outcome.step is None else f"the step of {outcome.step:g}"


def _probability(share: float) -> str:
    """A percentage, rounded down: `more than 99 %` is never spelled as certainty."""
    return "more than 99%" if share > 0.99 else f"{math.floor(share * 100)}%"


def _rivals(outcome: Outcome) -> str:
    worse = outcome.rivals - len(outcome.as_good) - len(outcome.undecided)
    parts = []
    if worse:
        parts.append(f"{counted(worse, 'rival')} shown to be worse")
    if outcome.as_good:
        names = named(outcome.as_good)
        parts.append(f"{names} better by less than {_margin(outcome)}, if at all")
    if outcome.undecided:
        parts.append(f"{named(outcome.undecided)} may be better by up to {outcome.gap:.0%}")
    return "; ".join(parts)


def search_effort(runs: int, measured: int, cells: int) -> str:
    """How many runs a search made of how many cells."""
    return f"Measured {measured} of {counted(cells, 'cell')} in {counted(runs, 'run')}."
