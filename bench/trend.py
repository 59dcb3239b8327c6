"""The simulations of `vdisklab trend` in docs/proofs.md: false alarms, and changes that are found.

    bench/trend.py [--replays 2000] [--seed 1] [--only TEXT | --odds | --bound] [--keep]

Draws 24 monthly campaigns of 5 paths x 5 rounds and asks the program's functions after each from
the fourth on, as a monthly timer does. Rounds vary by 5 %; campaigns vary as the world says, all
paths alike. Changes come after the twelfth campaign unless the world says otherwise. Shares of
series in which, at any look,

* `alarm`: the exit status would be 9 (worse by more than 5 %, suddenly or for good);
* `dated`: a lasting change was dated;
* `at_all`, `found3`, `found6`, `found12`: either, and within so many campaigns after the change;
* `covers`: of the last look's steps of all paths together, those whose interval holds the truth;
* `steps`, `lines`: their mean numbers at the last look.

All is simulated twice, with the seed and with the next one. With `--only` the record keeps the
other worlds, if they are of the same seed and number of replays. `--odds` dates the changes of
all paths together with other least odds instead. `--bound` tells what no rule can exceed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.analysis.level_changes import (
    DATED_FROM,
    ChangeKind,
    level_changes,
    may_have_changed,
)
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.trend import (
    CampaignLevels,
    TrendVerdict,
    doubt,
    lasting_change,
    loss_shown,
    newest_changes,
    series_changes,
)
from vdisklab.path.cell import MeasuredCell

Rng = np.random.Generator
CAMPAIGNS, PATHS, ROUNDS = 24, 5, 5
BETWEEN_ROUNDS = 0.05
CHANGED = 12
WORSE = 0.05
_MATTERS = -math.log1p(-WORSE)
_UNIT = 1e-3
MONTHS = np.arange(CAMPAIGNS)

Campaigns = Callable[[Rng], Floats]
"""Draws what each campaign adds to the logarithms of all paths."""


def noise(spread: float, lasts: float = 0.0) -> Campaigns:
    """Normal noise, of which a part lasts into the next campaign (AR(1))."""

    def draw(rng: Rng) -> Floats:
        values = rng.normal(0, 1, CAMPAIGNS)
        for index in range(1, CAMPAIGNS):
            values[index] = lasts * values[index - 1] + math.sqrt(1 - lasts**2) * values[index]
        return spread * values

    return draw


def season(size: float, spread: float) -> Campaigns:
    """A sine with a period of twelve campaigns."""

    def draw(rng: Rng) -> Floats:
        phase = rng.uniform(0, 2 * np.pi)
        return np.asarray(size * np.sin(2 * np.pi * MONTHS / 12 + phase) + noise(spread)(rng))

    return draw


def heavy(spread: float) -> Campaigns:
    return lambda rng: np.asarray(spread * rng.standard_t(3, CAMPAIGNS) / math.sqrt(3))


@dataclass(frozen=True, slots=True)
class World:
    """The noise between campaigns, a step, and a ratio from month to month from a month on."""

    campaigns: Campaigns
    step: float = 1.0
    each: float = 1.0
    begins: int = CHANGED

    def logs(self, rng: Rng) -> Floats:
        """Logarithms as paths x campaigns x rounds."""
        moved = math.log(self.step) * (self.begins <= MONTHS)
        moved = moved + math.log(self.each) * np.maximum(0, MONTHS - self.begins + 1)
        shared = (self.campaigns(rng) + moved)[None, :, None]
        return shared + BETWEEN_ROUNDS * rng.normal(size=(PATHS, CAMPAIGNS, ROUNDS))


STEADY: Mapping[str, World] = {
    "independent, 0 %": World(noise(0)),
    "independent, 2 %": World(noise(0.02)),
    "independent, 5 %": World(noise(0.05)),
    "independent, 20 %": World(noise(0.2)),
    "heavy tails (t, 3 df), 5 %": World(heavy(0.05)),
    "AR 0.3, 5 %": World(noise(0.05, 0.3)),
    "AR 0.5, 2 %": World(noise(0.02, 0.5)),
    "AR 0.5, 5 %": World(noise(0.05, 0.5)),
    "AR 0.7, 5 %": World(noise(0.05, 0.7)),
    "seasons of ±5 %, 2 %": World(season(0.05, 0.02)),
    "seasons of ±5 %, 5 %": World(season(0.05, 0.05)),
    "seasons of ±10 %, 2 %": World(season(0.1, 0.02)),
}
CHANGES: Mapping[str, World] = {
    "step of 10 %, 2 %": World(noise(0.02), step=0.9),
    "step of 10 %, 5 %": World(noise(0.05), step=0.9),
    "gain of 10 %, 5 %": World(noise(0.05), step=1 / 0.9),
    "gain of 20 %, 5 %": World(noise(0.05), step=1 / 0.8),
    "step of 20 %, 5 %": World(noise(0.05), step=0.8),
    "step of 10 %, 10 %": World(noise(0.1), step=0.9),
    "step of 30 %, 20 %": World(noise(0.2), step=0.7),
    "step of 20 % after the 5th, 3 %": World(noise(0.03), step=0.8, begins=5),
    "decline of 2 % a month, 5 %": World(noise(0.05), each=0.98),
    "decline of 2 % from the first, 1 %": World(noise(0.01), each=0.98, begins=1),
    "decline of 2 % from the first, 5 %": World(noise(0.05), each=0.98, begins=1),
    "decline of 0.5 % from the first, 2 %": World(noise(0.02), each=0.995, begins=1),
}


def measured(logs: Floats) -> CampaignLevels:
    """What `levels` makes of the campaigns' numbers, without a gap (a test holds both together)."""
    level, inside = logs.mean(axis=2), logs - logs.mean(axis=2, keepdims=True)
    return CampaignLevels(
        (None, *(MeasuredCell(f"c{path}") for path in range(len(logs)))),
        np.vstack([level.mean(axis=0), level]),
        np.vstack([_squared_errors(inside.mean(axis=0)), *map(_squared_errors, inside)]),
        len(logs),
    )


def _squared_errors(inside: Floats) -> Floats:
    rounds = inside.shape[1]
    return np.asarray((inside**2).sum(axis=1, keepdims=True).T / (rounds * (rounds - 1)))


@dataclass(slots=True)
class Looks:
    """When a series was first said to have changed, and what its last look dated."""

    alarm: float = math.inf
    dated: float = math.inf
    steps: int = 0
    lines: int = 0
    covers: int = 0


def speaks(hosts: Sequence[CampaignLevels], count: int) -> npt.NDArray[np.bool_]:
    """The hosts of which the look after so many campaigns may say anything: of the others the
    search dates no change, and the newest loss is smaller than the least that is shown."""
    level = np.stack([host.level[:, :count] for host in hosts])
    host, series = hosts[0], range(level.shape[1])
    change = may_have_changed(level[:, 0])
    for each in series[1:]:
        change |= may_have_changed(level[:, each], doubt=doubt(host))
    earlier = level[..., :-1]
    spread = earlier.std(axis=2, ddof=1)
    fewest = np.array([loss_shown(host, each, _UNIT, count - 1) for each in series], float)
    least = -np.log1p(-fewest) / _UNIT * spread
    return np.asarray(change | (earlier.mean(axis=2) - level[..., -1] > 0.999 * least).any(axis=1))


def looked(seen: Looks, whole: CampaignLevels, world: World, count: int) -> None:
    """What the look after so many campaigns says."""
    found = CampaignLevels(
        whole.cells, whole.level[:, :count], whole.error[:, :count], whole.together
    )
    changes = series_changes(found, WORSE)
    sudden = any(
        change.verdict is TrendVerdict.WORSE and (change.change.ratio or 1) < 1 - WORSE
        for change in newest_changes(found, changes)
    )
    lasting = [lasting_change(changes, index, count) or 1.0 for index in range(len(found.cells))]
    if sudden or min(lasting) < 1 - WORSE:
        seen.alarm = min(seen.alarm, count)
    if changes:
        seen.dated = min(seen.dated, count)
    if count < CAMPAIGNS:
        return
    first = [change.dated for change in changes if change.series == 0]
    seen.lines = sum(row.kind is ChangeKind.LINE for row in first)
    steps = [row for row in first if row.kind is ChangeKind.STEP]
    seen.steps = len(steps)
    seen.covers = sum(
        (step.change.low or 0) <= world.step <= (step.change.high or math.inf) for step in steps
    )


def watched(world: World, replays: int, seed: int) -> list[Looks]:
    """What monthly looks say of each host."""
    hosts = [measured(world.logs(np.random.default_rng((seed, index)))) for index in range(replays)]
    seen = [Looks() for _ in hosts]
    for count in range(4, CAMPAIGNS + 1):
        for index in np.flatnonzero(speaks(hosts, count)).tolist():
            told = max(seen[index].alarm, seen[index].dated) < math.inf
            if count == CAMPAIGNS or not told:
                looked(seen[index], hosts[index], world, count)
    return seen


def simulate(world: World, replays: int, seed: int) -> dict[str, float]:
    """The share of each outcome."""
    ends = watched(world, replays, seed)
    told = np.array([min(end.alarm, end.dated) for end in ends])
    steps = sum(end.steps for end in ends)
    return {
        "alarm": sum(end.alarm < math.inf for end in ends) / replays,
        "at_all": float((told < math.inf).mean()),
        "dated": sum(end.dated < math.inf for end in ends) / replays,
        **{
            f"found{months}": float((told <= world.begins + months).mean()) for months in (3, 6, 12)
        },
        "steps": steps / replays,
        "lines": sum(end.lines for end in ends) / replays,
        "covers": sum(end.covers for end in ends) / max(1, steps),
    }


DOUBTS = (0.5, 1.0, 2.0)
"""Multiples of the least odds."""

CHOICE = ("independent, 5 %", "AR 0.5, 5 %", "step of 10 %, 5 %", "gain of 10 %, 5 %")


def dated_at(world: World, times: float, replays: int, seed: int) -> float:
    """The share of hosts of which any look dates a change of all paths together, if the least odds
    are so many times as high."""
    logs = [world.logs(np.random.default_rng((seed, index))) for index in range(replays)]
    level = np.stack([measured(host).level[0] for host in logs])
    told = np.zeros(replays, dtype=np.bool_)
    for count in range(DATED_FROM, CAMPAIGNS + 1):
        part = level[:, :count]
        for index in np.flatnonzero(may_have_changed(part, doubt=times) & ~told).tolist():
            told[index] = bool(level_changes(part[index], matters=_MATTERS, doubt=times))
    return float(told.mean())


FALSE_DATES = 0.1
"""Share of false dates in noise of AR 0.5 at which `bound` tells the best possible power."""

_SCALES = np.linspace(-1.6, 1.6, 81)
"""Logarithms of the noise's scale over its true one: likelihoods are integrated over them."""


def bound(step: float, replays: int, seed: int) -> dict[str, float]:
    """How often the best rule finds a step at `CHANGED` beside independent noise of 5 %, if it
    dates a change in `FALSE_DATES` of series with noise of AR 0.5: `losses`, and in `both`
    directions.

    The rule knows the step's size in units of the noise, how the noise of either world lasts, that
    there is one step at most, and looks only once, at the end. It does not know the step's place,
    and answers do not depend on the series' level and scale. By Neyman & Pearson's lemma for
    invariant tests (Lehmann, Testing Statistical Hypotheses, chapter 6) none finds more on average
    over all places: its statistic is the ratio of the marginal likelihoods.
    """
    rng, size = np.random.default_rng(seed), math.log(step) / BETWEEN_ROUNDS
    every = np.vstack([np.ones(CAMPAIGNS), np.eye(CAMPAIGNS)[:-1]]).T
    contrasts = np.linalg.qr(every)[0][:, 1:].T
    rounds = np.eye(CAMPAIGNS) / (PATHS * ROUNDS)
    apart = contrasts @ (np.eye(CAMPAIGNS) + rounds) @ contrasts.T
    lasting = contrasts @ (0.5 ** np.abs(MONTHS[:, None] - MONTHS) + rounds) @ contrasts.T
    places = [contrasts @ (size * (place <= MONTHS)) for place in range(2, CAMPAIGNS - 1)]
    nothing = np.zeros(len(contrasts))

    def likelihood(series: Floats, covariance: Floats, mean: Floats) -> Floats:
        by_inverse = series @ np.linalg.inv(covariance)
        whole, cross = (by_inverse * series).sum(axis=1), by_inverse @ mean
        itself = float(mean @ np.linalg.inv(covariance) @ mean)
        scale = np.exp(_SCALES)
        terms = -(whole[:, None] / scale**2 - 2 * cross[:, None] / scale + itself) / 2
        terms = terms - len(mean) * _SCALES - float(np.linalg.slogdet(covariance)[1]) / 2
        return np.asarray(np.logaddexp.reduce(terms, axis=1))

    def drawn(covariance: Floats, mean: Floats) -> Floats:
        normal = rng.normal(size=(replays, len(mean)))
        return np.asarray(normal @ np.linalg.cholesky(covariance).T + mean)

    steady = drawn(lasting, nothing)
    stepped = [drawn(apart, place) for place in places]
    power = {}
    for name, signs in (("losses", (1,)), ("both", (1, -1))):
        means = [sign * place for place in places for sign in signs]

        def odds(series: Floats, means: Sequence[Floats] = means) -> Floats:
            steps = [likelihood(series, apart, mean) for mean in means]
            none = likelihood(series, lasting, nothing)
            return np.asarray(np.logaddexp.reduce(steps, axis=0) - none)

        least = np.quantile(odds(steady), 1 - FALSE_DATES)
        shares = [float((odds(series) > least).mean()) for series in stepped]
        power[name] = sum(shares) / len(shares)
        power[f"{name}, in the middle"] = shares[CHANGED - 2]
    return power


def choice(odds: Mapping[str, Sequence[float]]) -> str:
    """What other least odds would date, as Markdown."""
    lines = [f"| least odds | {' | '.join(odds)} |", "|---|" + "---|" * len(odds)]
    for place, times in enumerate(DOUBTS):
        name = f"× {times:g}" if times != 1 else "× 1 (the rule)"
        shares = " | ".join(f"{100 * found[place]:.1f}" for found in odds.values())
        lines.append(f"| {name} | {shares} |")
    return "\n".join(lines)


def shown(arguments: list[str]) -> str:
    """A part of docs/proofs.md: of `steady` hosts, `choice` of odds, `bound`, or of changes."""
    record = record_of("trend.json.gz")
    if "choice" in arguments:
        return choice(record["odds"])
    if "bound" in arguments:
        return bound_told(record["bound"])
    return (steady if "steady" in arguments else changed)(record["worlds"], record["again"])


def bound_told(power: Mapping[str, float]) -> str:
    """What no rule can exceed, as a sentence."""
    told = {name: f"{100 * share:.0f} %" for name, share in power.items()}
    return (
        "The best possible rule, which knows the step's size and the noise and looks once, finds "
        f"{told['both']} of losses and gains of 10 % with {100 * FALSE_DATES:.0f} % false dates at "
        f"AR 0.5 ({told['both, in the middle']} after the 12th campaign), or {told['losses']} of "
        f"losses alone ({told['losses, in the middle']})."
    )


Found = Mapping[str, Mapping[str, float]]
"""What `simulate` returns for each world."""


def steady(worlds: Found, again: Found) -> str:
    """What is said of hosts that do not change, as Markdown."""
    lines = [
        "| campaigns vary by | exit status 9 | a change is dated | either | either, next seed |",
        "|---|---|---|---|---|",
    ]
    for name in (name for name in STEADY if name in worlds):
        found = [worlds[name][key] for key in ("alarm", "dated", "at_all")]
        shares = " | ".join(f"{100 * share:.1f}" for share in (*found, again[name]["at_all"]))
        lines.append(f"| {name} | {shares} |")
    return "\n".join(lines)


def changed(worlds: Found, again: Found) -> str:
    """What is found, as Markdown."""
    lines = [
        "| change, campaigns vary by | found within 3 | 6 | 12 campaigns | at all | next seed "
        "| steps | lines | intervals of steps that hold |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in (name for name in CHANGES if name in worlds):
        found = worlds[name]
        shares = [found[key] for key in ("found3", "found6", "found12", "at_all")]
        early = " | ".join(f"{100 * share:.0f}" for share in (*shares, again[name]["at_all"]))
        holds = f"{100 * found['covers']:.0f}" if CHANGES[name].step != 1 else "–"
        lines.append(
            f"| {name} | {early} | {found['steps']:.1f} | {found['lines']:.1f} | {holds} |"
        )
    return "\n".join(lines)


def kept(found: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the worlds of an earlier one that it lacks, if both are of the same hosts."""
    if any(found[key] != before.get(key) for key in ("replays", "seed")):
        return dict(found)
    worlds = {key: {**before.get(key, {}), **found[key]} for key in ("worlds", "again")}
    wholes = {key: found[key] or before.get(key, {}) for key in ("odds", "bound")}
    return {**found, **worlds, **wholes}


def main() -> None:
    """Simulates all worlds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replays", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="these worlds")
    parser.add_argument("--odds", action="store_true", help="other least odds instead")
    parser.add_argument("--bound", action="store_true", help="what no rule can exceed, instead")
    parser.add_argument("--keep", action="store_true", help="keep the record of docs/proofs.md")
    wanted = parser.parse_args()
    every = {**STEADY, **CHANGES}
    alone = wanted.odds or wanted.bound
    worlds = {} if alone else {n: world for n, world in every.items() if wanted.only in n}
    odds = {
        name: [dated_at(every[name], times, wanted.replays, wanted.seed) for times in DOUBTS]
        for name in (CHOICE if wanted.odds else ())
    }
    found, again = (
        {name: simulate(world, wanted.replays, seed) for name, world in worlds.items()}
        for seed in (wanted.seed, wanted.seed + 1)
    )
    record = {
        "machine": machine_facts(Path.cwd()), "replays": wanted.replays, "seed": wanted.seed,
        "worlds": found, "again": again, "odds": odds,
        "bound": bound(0.9, wanted.replays, wanted.seed) if wanted.bound else {},
    }  # fmt: skip
    if wanted.keep:
        keep_record("trend.json.gz", kept(record, record_of("trend.json.gz")))
    print(json.dumps(record, indent=1))
    print(steady(found, again), changed(found, again), choice(odds), sep="\n\n")


if __name__ == "__main__":
    main()
