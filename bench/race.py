"""How many runs a race takes to "within 10 % of the best", and how often that is right.

    bench/race.py [--replays 300] [--cells 13] [--only TEXT] [--keep]

Races of simulated paths: cell + round + noise, with a standard deviation of 12 % of a run within
its round and of 15 % of rounds. An answer is right if the leader is worse than the best by no more
than the margin, or if a race without a decision states a bound that holds. `today` is what a user
was told before: measure everything in 44 rounds. Prints JSON and the table of docs/proofs.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.analysis.additive import fit, usable
from vdisklab.analysis.best import beaten
from vdisklab.analysis.diagnostics.values import LASTS
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.lasting_noise import lasting_noise
from vdisklab.analysis.observations import Floats, MeasureKey
from vdisklab.analysis.pair_noise import pair_noise
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.analysis.race import ERROR, MOST_ROUNDS, RaceState, race_states
from vdisklab.analysis.rank_intervals import LOOK_SHARE
from vdisklab.results.model import Direction

MARGIN = 0.1
NOISE = 0.12
DRIFT = 0.15
ONE_SIDED = 1.645
"""The standard errors that a normal value exceeds in 5 %."""

SECOND = 1_000_000
"""What is added to a race's seed for its second race."""

WATCHED = (5, 10, 20)
"""Numbers of rounds, after each of which somebody looks at `rank`."""

RATE = MeasureKey("randread-4k-q1", Direction.READ, "iops")

TODAY = 44
"""The rounds that were asked for to show a lead of 10 % among 13 paths."""

Truth = tuple[Floats, Floats]
"""The true logarithms of the paths, and the deviations from them, as cells x rounds."""

World = Callable[[np.random.Generator, int], Truth]


def _noise(cells: int, noisy: int = 0) -> Floats:
    noise = np.full(cells, NOISE)
    noise[:noisy] *= math.sqrt(10)
    return noise


def _ahead(lead: float, cells: int) -> Floats:
    truth = np.zeros(cells)
    truth[0] = math.log1p(lead)
    return truth


def _drawn(
    rng: np.random.Generator, truth: Floats, noise: Floats, lasts: Floats | float = 0.0
) -> Truth:
    """Normal noise, of which the part `lasts` of each path lasts into the next round (AR(1))."""
    values = rng.normal(0, 1, (len(truth), MOST_ROUNDS))
    part = np.broadcast_to(lasts, (len(truth),))
    for index in range(1, MOST_ROUNDS):
        values[:, index] = part * values[:, index - 1] + np.sqrt(1 - part**2) * values[:, index]
    return truth, values * noise[:, None]


def _lasts(part: float, paths: int | None = None) -> World:
    """The best is 11 % ahead of equals; noise lasts, of the first `paths` only if given."""

    def drawn(rng: np.random.Generator, cells: int) -> Truth:
        parts = np.where(np.arange(cells) < (cells if paths is None else paths), part, 0.0)
        return _drawn(rng, _ahead(0.11, cells), _noise(cells), parts)

    return drawn


def _two_speeds(apart: float, often: float) -> World:
    """The best is 11 % ahead of equals on average, and faster in a part of the rounds."""

    def drawn(rng: np.random.Generator, cells: int) -> Truth:
        truth, noise = _drawn(rng, _ahead(0.11, cells), _noise(cells))
        noise[0] += math.log(apart) * ((rng.random(MOST_ROUNDS) < often) - often)
        return truth, noise

    return drawn


def _swing(rng: np.random.Generator, cells: int, apart: float, period: int) -> Floats:
    """The part of the deviations that swings: half of the paths, together, over so many rounds."""
    among = rng.permutation(cells) < cells // 2
    turn = 2 * math.pi * (np.arange(MOST_ROUNDS) / period + rng.random())
    return np.where(among[:, None], math.log1p(apart) * np.sin(turn), 0.0)


def _swings(apart: float, period: int) -> World:
    """The best is 11 % ahead of equals, and half of the paths swing."""

    def drawn(rng: np.random.Generator, cells: int) -> Truth:
        swing = _swing(rng, cells, apart, period)
        truth, noise = _drawn(rng, _ahead(0.11, cells), _noise(cells))
        return truth, noise + swing

    return drawn


def _slow_start(rng: np.random.Generator, cells: int) -> Truth:
    """The best is 11 % ahead of equals, and 30 % slower in its first three rounds."""
    truth, noise = _drawn(rng, _ahead(0.11, cells), _noise(cells))
    noise[0, :3] += math.log(0.7)
    return truth, noise


SWINGS: Mapping[str, tuple[float, int]] = {
    f"half of the paths swing by ±{apart:.0%} over {period} rounds".replace("%", " %"): (
        apart, period
    )
    for apart, period in ((0.1, 60), (0.2, 40))
}  # fmt: skip
"""Worlds in which paths get faster and slower against each other more slowly than a race runs."""

WORLDS: Mapping[str, World] = {
    "two groups, the better one close together": lambda rng, cells: _drawn(
        rng,
        np.log(np.r_[np.linspace(1.0, 0.9, cells // 3), np.linspace(0.6, 0.3, cells - cells // 3)]),
        _noise(cells),
    ),
    "random, standard deviation 20 %": lambda rng, cells: _drawn(
        rng, rng.normal(0, 0.2, cells), _noise(cells)
    ),
    "the best 11 % ahead of equals": _lasts(0),
    "all equal": lambda rng, cells: _drawn(rng, np.zeros(cells), _noise(cells)),
    "11 % ahead, a third with ten times the variance": lambda rng, cells: _drawn(
        rng, np.roll(_ahead(0.11, cells), int(rng.integers(cells))), _noise(cells, cells // 3)
    ),
    "11 % ahead, the best is among the noisy third": lambda rng, cells: _drawn(
        rng, _ahead(0.11, cells), _noise(cells, cells // 3)
    ),
    **{
        f"noise lasts, AR {part:g}": _lasts(part) for part in (0.2, 0.3, 0.6)
    },
    "noise lasts, AR 0.6, of the best and three others": _lasts(0.6, 4),
    "the best is 30 % slower in rounds 1–3": _slow_start,
    **{
        f"the best has two speeds, ×{apart:g} in {share} of the rounds": _two_speeds(apart, often)
        for apart, share, often in (
            (1.3, "½", 0.5), (2.0, "½", 0.5), (2.0, "¼", 0.25), (2.0, "a tenth", 0.1)
        )
    },
    **{name: _swings(*swing) for name, swing in SWINGS.items()},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class End:
    """The end of one race: how much worse its leader is than the best (a share), whether `rank`
    leaves the best out then, and whether a finding says that noise lasts."""

    state: RaceState
    logs: Floats
    behind: float
    left_out: bool
    warned: bool

    @property
    def runs(self) -> int:
        """How many runs it took."""
        return int(np.isfinite(self.logs).sum())

    @property
    def right(self) -> bool:
        """True if what the race says of its leader is true."""
        return is_right(self.state, self.behind)


def race(world: World, cells: int, seed: int) -> End:
    """One race."""
    rng = np.random.default_rng(seed)
    truth, noise = world(rng, cells)
    logs = truth[:, None] + noise + rng.normal(0, DRIFT, MOST_ROUNDS)
    for state in race_states(logs, MARGIN):
        logs[[row for row in range(cells) if row not in state.left], state.rounds :] = np.nan
        if state.ended:
            break
    logs = logs[:, : state.rounds]
    behind = float(math.expm1(truth.max() - truth[state.leader]))
    (left_out,) = _left_out(logs, ERROR * LOOK_SHARE)
    lasts = lasting_noise(fit(logs, usable(logs)).residual)
    warned = lasts.shown >= max(LASTS, 2 * lasts.error)  # as `lasting_diagnostics`
    return End(state, logs, behind, bool(left_out[truth.argmax()]), warned)


def seen(name: str, cells: int, seed: int, end: End) -> bool:
    """Whether the best test there is sees a swing in the numbers of a race, at 5 %: one that knows
    which paths swing, when and how far, and all noise (Neyman & Pearson 1933)."""
    swing = _swing(np.random.default_rng(seed), cells, *SWINGS[name])[:, : end.logs.shape[1]]
    swing[~np.isfinite(end.logs)] = np.nan
    seen_noise, swung_by = (fit(grid, usable(end.logs)).residual for grid in (end.logs, swing))
    size = math.sqrt(float(np.nansum(swung_by**2)))
    return bool(np.nansum(seen_noise * swung_by) > ONE_SIDED * NOISE * size)


def other_answer(name: str, cells: int, seed: int, end: End) -> bool:
    """Whether the same paths, raced again when the swing is anywhere, give another answer."""
    again = np.random.default_rng((seed, 1))
    members = np.random.default_rng(seed)
    apart, period = SWINGS[name]
    among = np.ptp(_swing(members, cells, apart, period), axis=1) > 0

    def world(rng: np.random.Generator, cells: int) -> Truth:
        truth, noise = _drawn(rng, _ahead(0.11, cells), _noise(cells))
        turn = 2 * math.pi * (np.arange(MOST_ROUNDS) / period + again.random())
        return truth, noise + np.where(among[:, None], math.log1p(apart) * np.sin(turn), 0.0)

    second = race(world, cells, seed + SECOND)
    return second.state.decided and second.state.leader != end.state.leader


def watch(cells: int, seed: int) -> Floats:
    """Whether looks at a campaign of equals leave one of them out of `rank`'s set: for looks after
    3, 4, … rounds, with all of the error, and with the share of an unplanned look."""
    rng = np.random.default_rng(seed)
    rounds = max(WATCHED)
    logs = rng.normal(0, DRIFT, rounds) + rng.normal(0, NOISE, (cells, rounds))
    return np.array(
        [
            _left_out(logs[:, :look], ERROR, ERROR * LOOK_SHARE)[:, 0]
            for look in range(MIN_ROUNDS, rounds + 1)
        ]
    )


def _left_out(logs: Floats, *errors: float) -> npt.NDArray[np.bool_]:
    """For each error and path, whether `rank` leaves it out; False for one without numbers."""
    model = fit(logs, usable(logs))
    noise = pair_noise(model, np.arange(len(model.rows)))
    order = np.argsort(-model.effect, kind="stable")
    answer = np.zeros((len(errors), len(logs)), dtype=np.bool_)
    answer[:, model.rows] = [beaten(model.effect, noise, order, error) for error in errors]
    return answer


def watching(cells: int, replays: int) -> dict[str, dict[str, float]]:
    """By the planned number of rounds: the shares of campaigns of equals that leave the best out.

    `at_the_end` is one look, `at_each` one after each round, `as_allowed` the same as `rank` does
    it: all but the last with the share of an unplanned look.
    """
    seen = np.array([watch(cells, seed) for seed in range(replays)])
    found = {}
    for rounds in WATCHED:
        last = rounds - MIN_ROUNDS
        full, small = seen[:, : last + 1, 0], seen[:, :last, 1]
        found[str(rounds)] = {
            "replays": replays,
            "at_the_end": float(full[:, last].mean()),
            "at_each": float(full.any(axis=1).mean()),
            "as_allowed": float((small.any(axis=1) | full[:, last].astype(bool)).mean()),
        }
    return found


def lasting(cells: int, replays: int) -> dict[str, dict[str, float]]:
    """What noise that lasts does to `compare` and `rank`, which do not allow for it: the shares of
    95 % intervals of a pair's ratio that hold, and of campaigns of equals whose best is left out.
    """
    found = {}
    for part in (0.0, 0.2, 0.3, 0.6):
        for rounds in (5, 10, 20):
            held, out = [], []
            for seed in range(replays):
                rng = np.random.default_rng((seed, rounds))
                logs = _drawn(rng, np.zeros(cells), _noise(cells), part)[1][:, :rounds]
                logs = logs + rng.normal(0, DRIFT, rounds)
                ends = np.exp(logs[:, None])
                ratios = [
                    paired_ratios(ends[index], ends[index + 1], RATE.quantity)[0]
                    for index in range(0, cells - 1, 2)
                ]
                held += [(ratio.low or 0) <= 1 <= (ratio.high or math.inf) for ratio in ratios]
                out.append(_left_out(logs, ERROR)[0, 0])
            found[f"AR {part:g}, {rounds} rounds"] = {
                "interval_holds": float(np.mean(held)), "left_out": float(np.mean(out)),
            }  # fmt: skip
    return found


def is_right(state: RaceState, behind: float) -> bool:
    """True if what the race says of its leader is true."""
    bound = MARGIN if state.decided else (state.behind or 0.0)
    return behind <= bound + 1e-9


def simulate(world: World, cells: int, replays: int) -> dict[str, float]:
    """Mean runs, the share of right answers, of decisions, and the saving over `today`."""
    ends = races(world, cells, replays)
    runs = float(np.mean([end.runs for end in ends]))
    return {
        "replays": replays,
        "runs": round(runs, 1),
        "right": sum(end.right for end in ends) / replays,
        "decided": sum(end.state.decided for end in ends) / replays,
        "left_out_by_rank": sum(end.left_out for end in ends) / replays,
        "share_of_today": round(runs / (TODAY * cells), 3),
        "warned": sum(end.warned for end in ends) / replays,
    }


@cache
def races(world: World, cells: int, replays: int) -> tuple[End, ...]:
    """The ends of so many races of a world."""
    return tuple(race(world, cells, seed) for seed in range(replays))


def swings(cells: int, replays: int, only: str = "") -> dict[str, dict[str, float]]:
    """Of the races whose paths swing and whose answer is wrong: the shares with the finding that
    noise lasts, of which the best test there is sees the swing, and whose second race differs."""
    found = {}
    for name in (name for name in SWINGS if only in name):
        ends = races(WORLDS[name], cells, replays)
        wrong = [(seed, end) for seed, end in enumerate(ends) if not end.right]
        found[name] = {
            "wrong": len(wrong) / replays,
            "warned": _share(end.warned for _, end in wrong),
            "seen": _share(seen(name, cells, seed, end) for seed, end in wrong),
            "other_answer": _share(other_answer(name, cells, seed, end) for seed, end in wrong),
        }
    return found


def _share(answers: Iterable[bool]) -> float:
    """The share that is true; NaN of none."""
    every = list(answers)
    return sum(every) / len(every) if every else math.nan


def shown(arguments: list[str]) -> str:
    """A table of docs/proofs.md, from its record: of races, or of `watching`."""
    record = record_of("race.json.gz")
    if "watching" in arguments:
        return watched(record["watching"])
    if "swings" in arguments:
        return swung(record["swings"])
    return lasted(record["lasting"]) if "lasting" in arguments else table(record["worlds"])


def lasted(found: Mapping[str, Mapping[str, float]]) -> str:
    """What lasting noise does to ratios and ranks, as Markdown."""
    lines = ["| noise | 95 % intervals of ratios that hold | `rank` leaves out one of equals |"]
    lines += ["|---|---|---|"]
    lines += [
        f"| {name} | {row['interval_holds']:.0%} | {row['left_out']:.0%} |"
        for name, row in found.items()
    ]
    return "\n".join(lines)


def swung(found: Mapping[str, Mapping[str, float]]) -> str:
    """What can be known of wrong races whose paths swing, as Markdown."""
    lines = [
        "| world | wrong races | of them with a finding of lasting noise "
        "| the best test sees it | a second race differs |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['wrong']:.0%} | {row['warned']:.0%} | {row['seen']:.0%} "
        f"| {row['other_answer']:.0%} |"
        for name, row in found.items()
    ]
    return "\n".join(lines)


def watched(found: Mapping[str, Mapping[str, float]]) -> str:
    """What looking after each round costs, as Markdown."""
    lines = [
        "| planned rounds | one look, at the end | after each round | as `rank` does it |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {rounds} | {row['at_the_end']:.1%} | {row['at_each']:.1%} | {row['as_allowed']:.1%} |"
        for rounds, row in found.items()
    ]
    return "\n".join(lines)


def table(worlds: Mapping[str, Mapping[str, float]]) -> str:
    """The results as Markdown."""
    lines = [
        "| world | runs | right | decided | `rank` leaves the best out at the end |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {found['runs']:.0f} | {found['right']:.1%} | {found['decided']:.0%} "
        f"| {found['left_out_by_rank']:.1%} |"
        for name, found in worlds.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Simulates all worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--cells", type=int, default=13)
    parser.add_argument("--only", default="", metavar="TEXT", help="these worlds; others stay")
    parser.add_argument("--keep", action="store_true", help="keep the record of docs/proofs.md")
    wanted = parser.parse_args()
    found = {
        name: simulate(world, wanted.cells, wanted.replays)
        for name, world in WORLDS.items()
        if wanted.only in name
    }
    looks = {} if wanted.only else watching(wanted.cells, wanted.replays)
    lasts = {} if wanted.only else lasting(wanted.cells, wanted.replays)
    of_swings = swings(wanted.cells, wanted.replays, wanted.only)
    if wanted.only and wanted.keep:
        earlier = record_of("race.json.gz")
        every = {**earlier["worlds"], **found}
        found = {name: every[name] for name in WORLDS if name in every}
        of_swings = {**earlier.get("swings", {}), **of_swings}
        looks, lasts = earlier["watching"], earlier["lasting"]
    record = {
        "machine": machine_facts(Path.cwd()), "cells": wanted.cells, "worlds": found,
        "watching": looks, "lasting": lasts, "swings": of_swings, "replays": wanted.replays,
    }  # fmt: skip
    if wanted.keep:
        keep_record("race.json.gz", record)
    print(json.dumps(record, indent=1))
    print(table(found), watched(looks), lasted(lasts), swung(of_swings), sep="\n\n")


if __name__ == "__main__":
    main()
