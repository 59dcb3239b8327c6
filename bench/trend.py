"""The simulations of `vdisklab trend` in docs/proofs.md: false alarms, and changes that are found.

    bench/trend.py [--replays 200] [--seed 1] [--only TEXT] [--keep]

Draws 24 monthly campaigns of 5 paths x 5 rounds and asks the program's functions after each from
the fourth on, as a monthly timer does. Rounds vary by 5 %; campaigns vary as the world says, all
paths alike. Changes come after the twelfth campaign unless the world says otherwise. Shares of
series in which, at any look,

* `alarm`: the exit status would be 9 (worse by more than 5 %, suddenly or for good);
* `dated`: a lasting change was dated;
* `at_all`, `found3`, `found6`, `found12`: either, and within so many campaigns after the change;
* `covers`: of the last look's steps of all paths together, those whose interval holds the truth;
* `steps`, `lines`: their mean numbers at the last look.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.analysis.level_changes import ChangeKind
from vdisklab.analysis.observations import Floats, MeasureKey, Round, from_numbers
from vdisklab.analysis.trend import (
    CampaignLevels,
    SeriesChange,
    TrendVerdict,
    lasting_change,
    levels,
    newest_changes,
    series_changes,
)
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction

Rng = np.random.Generator
CAMPAIGNS, PATHS, ROUNDS = 24, 5, 5
BETWEEN_ROUNDS = 0.05
CHANGED = 12
WORSE = 0.05
RATE = MeasureKey("randread-4k-q1", Direction.READ, "iops")
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
    "step of 20 %, 5 %": World(noise(0.05), step=0.8),
    "step of 10 %, 10 %": World(noise(0.1), step=0.9),
    "step of 30 %, 20 %": World(noise(0.2), step=0.7),
    "step of 20 % after the 5th, 3 %": World(noise(0.03), step=0.8, begins=5),
    "decline of 2 % a month, 5 %": World(noise(0.05), each=0.98),
    "decline of 2 % from the first, 5 %": World(noise(0.05), each=0.98, begins=1),
    "decline of 0.5 % from the first, 2 %": World(noise(0.02), each=0.995, begins=1),
}


def measured(logs: Floats) -> CampaignLevels:
    """What the program makes of the campaigns' numbers."""
    numbers = {
        (MeasuredCell(f"c{path}"), Round(f"{campaign:02d}", place + 1), RATE): math.exp(value)
        for (path, campaign, place), value in np.ndenumerate(logs)
    }
    names = [f"{campaign:02d}" for campaign in range(CAMPAIGNS)]
    return levels(from_numbers(numbers), names, [RATE])


@dataclass(slots=True)
class Looks:
    """When a series was first said to have changed, and what its last look dated."""

    alarm: float = math.inf
    dated: float = math.inf
    steps: int = 0
    lines: int = 0
    covers: int = 0


def looked(whole: CampaignLevels, world: World) -> Looks:
    """What monthly looks say."""
    seen = Looks()
    changes: tuple[SeriesChange, ...] = ()
    for count in range(4, CAMPAIGNS + 1):
        found = CampaignLevels(
            whole.cells, whole.level[:, :count], whole.error[:, :count], whole.together
        )
        changes = series_changes(found, WORSE)
        sudden = any(
            change.verdict is TrendVerdict.WORSE and (change.change.ratio or 1) < 1 - WORSE
            for change in newest_changes(found, changes)
        )
        lasting = [
            lasting_change(changes, index, count) or 1.0 for index in range(len(found.cells))
        ]
        if sudden or min(lasting) < 1 - WORSE:
            seen.alarm = min(seen.alarm, count)
        if changes:
            seen.dated = min(seen.dated, count)
    first = [change.dated for change in changes if change.series == 0]
    seen.lines = sum(row.kind is ChangeKind.LINE for row in first)
    steps = [row for row in first if row.kind is ChangeKind.STEP]
    seen.steps = len(steps)
    seen.covers = sum(
        (step.change.low or 0) <= world.step <= (step.change.high or math.inf) for step in steps
    )
    return seen


def simulate(world: World, replays: int, seed: int) -> dict[str, float]:
    """The share of each outcome."""
    ends = [
        looked(measured(world.logs(np.random.default_rng((seed, index)))), world)
        for index in range(replays)
    ]
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


def shown(arguments: list[str]) -> str:
    """A table of docs/proofs.md, from its record: of `steady` hosts, or of changes."""
    worlds = record_of("trend.json.gz")["worlds"]
    return steady(worlds) if "steady" in arguments else changed(worlds)


def steady(worlds: Mapping[str, Mapping[str, float]]) -> str:
    """What is said of hosts that do not change, as Markdown."""
    lines = ["| campaigns vary by | exit status 9 | a change is dated |", "|---|---|---|"]
    lines += [
        f"| {name} | {100 * found['alarm']:.1f} | {100 * found['dated']:.1f} |"
        for name, found in worlds.items()
        if name in STEADY
    ]
    return "\n".join(lines)


def changed(worlds: Mapping[str, Mapping[str, float]]) -> str:
    """What is found, as Markdown."""
    lines = [
        "| change, campaigns vary by | found within 3 | 6 | 12 campaigns | at all | steps | lines "
        "| intervals of steps that hold |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in (name for name in worlds if name in CHANGES):
        found = worlds[name]
        early = " | ".join(f"{100 * found[f'found{months}']:.0f}" for months in (3, 6, 12))
        holds = f"{100 * found['covers']:.0f}" if CHANGES[name].step != 1 else "–"
        lines.append(
            f"| {name} | {early} | {100 * found['at_all']:.0f} | {found['steps']:.1f} "
            f"| {found['lines']:.1f} | {holds} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulates all worlds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="these worlds")
    parser.add_argument("--keep", action="store_true", help="keep the record of docs/proofs.md")
    wanted = parser.parse_args()
    found = {
        name: simulate(world, wanted.replays, wanted.seed)
        for name, world in {**STEADY, **CHANGES}.items()
        if wanted.only in name
    }
    record = {
        "machine": machine_facts(Path.cwd()), "replays": wanted.replays, "seed": wanted.seed,
        "worlds": found,
    }  # fmt: skip
    if wanted.keep:
        keep_record("trend.json.gz", record)
    print(json.dumps(record, indent=1))
    print(steady(found), changed(found), sep="\n\n")


if __name__ == "__main__":
    main()
