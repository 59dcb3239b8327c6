"""The simulations of `vdisklab trend` in docs/proofs.md: false alarms, and shifts that are found.

    bench/trend.py [--replays 500] [--seed 1] [--keep]

Draws 12 monthly campaigns of 5 rounds and gives them to the program's functions, three times:

* nothing changes. Wrong: the newest campaign is said to be worse, or a shift is dated;
* all paths become 10 % slower for good at a random campaign, the 4th to the 10th. Right: a shift of
  all paths together is dated within one campaign, and its interval holds the true size;
* only the newest campaign is 10 % slower. Right: it is said to be worse.

`bound` is the share of the second case in which Student's t shows the shift at 5 % if somebody
tells it the place: no method that searches can do better.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.analysis.distributions import t_sf
from vdisklab.analysis.observations import Floats, MeasureKey, Round, from_numbers
from vdisklab.analysis.trend import (
    CampaignLevels,
    TrendVerdict,
    level_shifts,
    levels,
    newest_changes,
)
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction

Rng = np.random.Generator
CAMPAIGNS, ROUNDS = 12, 5
SLOWER = 0.9
RATE = MeasureKey("randread-4k-q1", Direction.READ, "iops")


@dataclass(frozen=True, slots=True)
class World:
    """Noise of logarithms: between a campaign's rounds, and between campaigns for all paths."""

    paths: int
    rounds: float = 0.05
    campaigns: float = 0.0
    draw: Callable[[Rng, tuple[int, ...]], Floats] = lambda rng, shape: rng.normal(size=shape)

    def logs(self, rng: Rng) -> Floats:
        """Logarithms as paths x campaigns x rounds."""
        within = self.rounds * self.draw(rng, (self.paths, CAMPAIGNS, ROUNDS))
        between = self.campaigns * rng.normal(size=(1, CAMPAIGNS, 1))
        return np.asarray(within + between)


def heavy(rng: Rng, shape: tuple[int, ...]) -> Floats:
    return np.asarray(rng.standard_t(3, shape) / np.sqrt(3))


WORLDS: Mapping[str, World] = {
    "1 path, rounds 5 %": World(1),
    "5 paths, rounds 5 %": World(5),
    "5 paths, rounds 5 % with heavy tails (t, 3 df)": World(5, draw=heavy),
    "1 path, rounds 5 %, campaigns 2 %": World(1, campaigns=0.02),
    "5 paths, rounds 5 %, campaigns 2 %": World(5, campaigns=0.02),
    "5 paths, rounds 5 %, campaigns 5 %": World(5, campaigns=0.05),
}


def measured(logs: Floats) -> CampaignLevels:
    """What the program makes of the campaigns' numbers."""
    numbers = {
        (MeasuredCell(f"c{path}"), Round(f"{campaign:02d}", at + 1), RATE): math.exp(value)
        for (path, campaign, at), value in np.ndenumerate(logs)
    }
    names = [f"{campaign:02d}" for campaign in range(CAMPAIGNS)]
    return levels(from_numbers(numbers), names, [RATE])


def verdicts(found: CampaignLevels) -> set[TrendVerdict]:
    return {one.verdict for one in newest_changes(found, level_shifts(found))}


def shows_known_shift(level: Floats, at: int) -> bool:
    """Whether Student's t shows a shift at a place that is known."""
    before, after = level[:at], level[at:]
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in (before, after))
    error = math.sqrt(squares / (CAMPAIGNS - 2) * (1 / len(before) + 1 / len(after)))
    return 2 * float(t_sf(abs(after.mean() - before.mean()) / error, CAMPAIGNS - 2)) <= 0.05


def simulate(world: World, replays: int, seed: int) -> dict[str, float]:
    """The share of each outcome."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(
        ("said_worse", "dated", "alarm", "found", "within_one", "covered", "bound", "newest"), 0
    )
    for _ in range(replays):
        steady = measured(world.logs(rng))
        worse, shifts = TrendVerdict.WORSE in verdicts(steady), level_shifts(steady)
        counts["said_worse"] += worse
        counts["dated"] += bool(shifts)
        counts["alarm"] += worse or bool(shifts)
        at = int(rng.integers(3, 10))
        logs = world.logs(rng)
        logs[:, at:] += math.log(SLOWER)
        slower = measured(logs)
        first = [one for one in level_shifts(slower) if one.series == 0]
        near = [one for one in first if abs(one.at - at) <= 1]
        counts["found"] += bool(first)
        counts["within_one"] += bool(near)
        counts["bound"] += shows_known_shift(slower.level[0], at)
        counts["covered"] += any(
            one.change.low is not None and one.change.high is not None
            and one.change.low <= SLOWER <= one.change.high
            for one in near
        )  # fmt: skip
        logs = world.logs(rng)
        logs[:, -1] += math.log(SLOWER)
        counts["newest"] += TrendVerdict.WORSE in verdicts(measured(logs))
    shares = {name: count / replays for name, count in counts.items()}
    return shares | {"covered": counts["covered"] / max(1, counts["within_one"])}


def shown(words: list[str]) -> str:
    """The table of docs/proofs.md, from its record."""
    del words
    return table(record_of("trend.json.gz")["worlds"])


def table(worlds: Mapping[str, Mapping[str, float]]) -> str:
    """The results as Markdown."""
    lines = [
        "| noise | no change: said worse | shift dated | either | shift of 10 %: found "
        "| within one campaign | bound | interval holds it | newest 10 % slower: shown |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    keys = ("said_worse", "dated", "alarm", "found", "within_one", "bound", "covered", "newest")
    lines += [
        f"| {name} | {' | '.join(f'{100 * found[key]:.1f}' for key in keys)} |"
        for name, found in worlds.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Simulates all worlds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replays", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the record of docs/proofs.md")
    wanted = parser.parse_args()
    found = {name: simulate(world, wanted.replays, wanted.seed) for name, world in WORLDS.items()}
    record = {
        "machine": machine_facts(Path.cwd()), "replays": wanted.replays, "seed": wanted.seed,
        "worlds": found,
    }  # fmt: skip
    if wanted.keep:
        keep_record("trend.json.gz", record)
    print(json.dumps(record, indent=1))
    print(table(found))


if __name__ == "__main__":
    main()
