"""Does the adaptive search find the best path, and at what share of the exhaustive time?

    bench/search.py [--replays 1000] [--budget 0.25] [--json FILE] [RECORDED.json.gz ...]

Replays the search, plain successive halving and random search on recorded exhaustive campaigns
(exports of `result.export`; by default bench/results/*.json.gz) and on simulated ones. A replay
takes the recorded blocks in a random order; the truth is each cell's mean over all of them. An
answer is right when it is within the margin of the best. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vdisklab.analysis.observations import Floats, MeasureKey, cell_label, observe
from vdisklab.analysis.search import Rules, Standing, goodness, look, next_cells
from vdisklab.result.export import read_export
from vdisklab.result.model import Run

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Campaign:
    """`draw` gives, for one replay, goodness by cells x blocks (logarithms) and the true goodness.

    `cost` is the seconds of one run, by cell.
    """

    name: str
    draw: Callable[[np.random.Generator], tuple[Floats, Floats]]
    cost: Floats
    blocks: int


@dataclass(frozen=True)
class Answer:
    """The row that was chosen, and the seconds of measuring that it took."""

    row: int
    seconds: float


Method = Callable[[Campaign, Floats, float, Rules, np.random.Generator], Answer]


def adaptive(
    campaign: Campaign, logs: Floats, budget: float, rules: Rules, _rng: np.random.Generator
) -> Answer:
    """The search of `analysis.search`, with the blocks in the order of `logs`."""
    seen = np.full_like(logs, np.nan)
    cells: Sequence[int] = range(len(logs))
    found: Standing | None = None
    spent, leader = 0.0, 0
    mean_cost = float(campaign.cost.mean())
    for block in range(logs.shape[1]):
        seen[list(cells), block] = logs[list(cells), block]
        spent += float(campaign.cost[list(cells)].sum())
        found = look(seen[:, : block + 1], rules, found)
        leader = found.leader
        cells = next_cells(found, (budget - spent) / mean_cost)
        if not cells:
            break
    return Answer(leader, spent)


def halving(
    campaign: Campaign, logs: Floats, budget: float, _rules: Rules, _rng: np.random.Generator
) -> Answer:
    """Plain successive halving (Karnin et al. 2013): one block, keep the better half, repeat."""
    cells = np.arange(len(logs))
    spent = 0.0
    for block in range(logs.shape[1]):
        cost = float(campaign.cost[cells].sum())
        if block and spent + cost > budget:
            break
        spent += cost
        means = logs[cells, : block + 1].mean(axis=1)
        keep = max(1, math.ceil(len(cells) / 2))
        cells = cells[np.argsort(-means, kind="stable")[:keep]]
        if len(cells) == 1:
            break
    return Answer(int(cells[0]), spent)


def random_search(
    campaign: Campaign, logs: Floats, budget: float, _rules: Rules, rng: np.random.Generator
) -> Answer:
    """Random cells, each in all blocks, until the budget is gone; the best of them."""
    chosen: list[int] = []
    spent = 0.0
    for row in rng.permutation(len(logs)):
        cost = float(campaign.cost[row]) * logs.shape[1]
        if chosen and spent + cost > budget:
            break
        chosen.append(int(row))
        spent += cost
    means = logs[chosen].mean(axis=1)
    return Answer(chosen[int(np.argmax(means))], spent)


def exhaustive(
    campaign: Campaign, logs: Floats, _budget: float, _rules: Rules, _rng: np.random.Generator
) -> Answer:
    """All cells in all blocks, whatever the budget: what the data can tell at most."""
    return Answer(int(np.argmax(logs.mean(axis=1))), float(campaign.cost.sum()) * logs.shape[1])


METHODS: dict[str, Method] = {
    "adaptive": adaptive,
    "successive halving": halving,
    "random search": random_search,
    "exhaustive": exhaustive,
}


def replay(
    campaign: Campaign, replays: int, budget_share: float | None, rules: Rules, seed: int
) -> dict[str, Any]:
    """Share of right answers and of the exhaustive time, for each method."""
    cells, blocks = len(campaign.cost), campaign.blocks
    whole = float(campaign.cost.sum()) * blocks
    budget = math.inf if budget_share is None else budget_share * whole
    zone = math.log1p(rules.margin)
    methods: dict[str, Any] = {}
    for name, method in METHODS.items():
        rng = np.random.default_rng(seed)
        right, as_good = 0, 0
        shares: list[float] = []
        losses: list[float] = []
        for _ in range(replays):
            logs, truth = campaign.draw(rng)
            answer = method(campaign, logs, budget, rules, rng)
            loss = float(truth.max() - truth[answer.row])
            as_good += int((truth.max() - truth <= zone).sum())
            right += loss <= zone
            shares.append(answer.seconds / whole)
            losses.append(math.expm1(loss))
        methods[name] = {
            "within_margin": right / replays,
            "as_good_mean": as_good / replays,
            "time_mean": float(np.mean(shares)),
            "time_p95": float(np.quantile(shares, 0.95)),
            "loss_mean": float(np.mean(losses)),
            "loss_max": float(np.max(losses)),
        }
    return {
        "campaign": campaign.name,
        "cells": cells,
        "blocks": blocks,
        "budget": budget_share,
        "methods": methods,
    }


def recorded(file: Path, measure: MeasureKey) -> Campaign:
    """A recorded campaign, its cells with every block only. Raises ValueError for what has none."""
    candidates = _runs(file)
    observations = observe(candidates)
    logs = goodness(observations, measure)
    whole = np.isfinite(logs).all(axis=1)
    if not whole.any():
        raise ValueError(f"{file} has no cell with {measure} in every block")
    seconds: dict[str, list[float]] = {}
    for run in candidates:
        label = cell_label(run.path, run.page_cache)
        seconds.setdefault(label, []).append(run.wall_seconds or 0.0)
    cost = np.array([float(np.mean(seconds[cell])) for cell in observations.cells])
    kept = logs[whole]
    blocks = kept.shape[1]
    return Campaign(
        f"{file.name} {measure}",
        lambda rng: (kept[:, rng.permutation(blocks)], kept.mean(axis=1)),
        cost[whole],
        blocks,
    )


@dataclass(frozen=True)
class Kind:
    """How a simulated campaign is made; standard deviations are of logarithms.

    `twins`: every second cell is the same as the one before (default and writeback are).
    `unequal`: by how much the cells' own noise differs.
    """

    name: str
    cells: int
    blocks: int
    spread: float
    noise: float
    heavy: bool = False
    twins: bool = False
    unequal: float = 0.0

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Cells, noise and a random walk of 15 % per block that touches all cells, all anew."""
        truth = rng.normal(0, self.spread, self.cells)
        if self.twins:
            truth[1::2] = truth[: self.cells // 2 * 2 : 2]
        noise = self.noise * np.exp(rng.normal(0, self.unequal, self.cells))
        shape = (self.cells, self.blocks)
        # Student's t with 4 degrees of freedom has variance 2.
        raw = rng.standard_t(4, shape) / math.sqrt(2) if self.heavy else rng.normal(0, 1, shape)
        drift = np.cumsum(rng.normal(0, 0.15, self.blocks))
        logs: Floats = truth[:, None] + drift + noise[:, None] * raw
        return logs, truth


KINDS = (
    Kind("as cache modes differ, quiet", 60, 8, 0.8, 0.03),
    Kind("as cache modes differ, noisy", 60, 8, 0.8, 0.10),
    Kind("heavy tails", 60, 8, 0.8, 0.05, heavy=True),
    Kind("unequal noise", 60, 8, 0.8, 0.05, unequal=0.7),
    Kind("twins", 60, 8, 0.8, 0.05, twins=True),
    Kind("many cells", 200, 10, 0.8, 0.05),
    Kind("close together", 60, 10, 0.2, 0.05),
    Kind("close together and noisy", 60, 10, 0.2, 0.10),
)


def measures_of(file: Path) -> list[MeasureKey]:
    """The IOPS and bandwidth that a recorded campaign holds of its guests."""
    observations = observe(_runs(file))
    return [key for key in observations.measures if key.metric in ("iops", "bandwidth")][:4]


def _runs(file: Path) -> list[Run]:
    """The runs of a recorded campaign without those on the host: the search is for guests."""
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as stream:
        exported = read_export(json.load(stream), name=str(file))
    return [run for _, runs in exported for run in runs if run.path.split("/")[-1] != "host"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=0.25)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", action="append", type=MeasureKey.parse)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rules = Rules(margin=asked.within)
    campaigns = [
        Campaign(f"simulated: {kind.name}", kind.draw, np.ones(kind.cells), kind.blocks)
        for kind in KINDS
    ]
    for file in asked.files or sorted(RESULTS.glob("*.json.gz")):
        for measure in asked.measure or measures_of(file):
            campaigns.append(recorded(file, measure))
    rows = [replay(each, asked.replays, asked.budget, rules, asked.seed) for each in campaigns]
    found = {"rules": asdict(rules), "replays": asked.replays, "campaigns": rows}
    text = json.dumps(found, indent=1)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
