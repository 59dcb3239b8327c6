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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vdisklab.analysis.observations import Floats, MeasureKey, observe
from vdisklab.analysis.search import Rules, goodness, next_cells, standing
from vdisklab.result.export import read_export

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Campaign:
    """`logs` are goodness by cells x blocks without holes, `truth` by cell, `cost` in seconds."""

    name: str
    logs: Floats
    truth: Floats
    cost: Floats


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
    spent, leader = 0.0, 0
    mean_cost = float(campaign.cost.mean())
    for block in range(logs.shape[1]):
        seen[list(cells), block] = logs[list(cells), block]
        spent += float(campaign.cost[list(cells)].sum())
        found = standing(seen[:, : block + 1], rules)
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


METHODS: dict[str, Method] = {
    "adaptive": adaptive,
    "successive halving": halving,
    "random search": random_search,
}


def replay(
    campaign: Campaign, replays: int, budget_share: float | None, rules: Rules, seed: int
) -> dict[str, Any]:
    """Share of right answers and of the exhaustive time, for each method."""
    cells, blocks = campaign.logs.shape
    exhaustive = float(campaign.cost.sum()) * blocks
    budget = math.inf if budget_share is None else budget_share * exhaustive
    zone = math.log1p(rules.margin)
    methods: dict[str, Any] = {}
    for name, method in METHODS.items():
        rng = np.random.default_rng(seed)
        right, shares, losses = 0, [], []
        for _ in range(replays):
            order = rng.permutation(blocks)
            limit = 0.25 * exhaustive if name != "adaptive" else budget
            answer = method(campaign, campaign.logs[:, order], limit, rules, rng)
            loss = float(campaign.truth.max() - campaign.truth[answer.row])
            right += loss <= zone
            shares.append(answer.seconds / exhaustive)
            losses.append(math.expm1(loss))
        methods[name] = {
            "within_margin": right / replays,
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
        "as_good": int((campaign.truth.max() - campaign.truth <= zone).sum()),
        "methods": methods,
    }


def recorded(file: Path, measure: MeasureKey) -> Campaign:
    """A recorded campaign, its cells with every block only. Raises ValueError for what has none."""
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as stream:
        ((_, runs),) = read_export(json.load(stream), name=str(file))
    candidates = [run for run in runs if run.path.split("/")[-1] != "host"]
    observations = observe(candidates)
    logs = goodness(observations, measure)
    whole = np.isfinite(logs).all(axis=1)
    if not whole.any():
        raise ValueError(f"{file} has no cell with {measure} in every block")
    seconds: dict[str, list[float]] = {}
    for run in candidates:
        label = run.path if run.page_cache == "bypassed" else f"{run.path} ({run.page_cache})"
        seconds.setdefault(label, []).append(run.wall_seconds)
    cost = np.array([float(np.mean(seconds[cell])) for cell in observations.cells])
    kept = logs[whole]
    return Campaign(f"{file.name} {measure}", kept, kept.mean(axis=1), cost[whole])


def simulated(seed: int) -> Iterator[Campaign]:
    """Campaigns with a known truth: how far cells are apart, how noisy, and how they drift."""
    rng = np.random.default_rng(seed)
    for name, cells, blocks, spread, noise, heavy in (
        ("spread like cache modes, quiet", 60, 8, 0.8, 0.03, False),
        ("spread like cache modes, noisy", 60, 8, 0.8, 0.10, False),
        ("spread, heavy tails", 60, 8, 0.8, 0.05, True),
        ("spread, many cells", 200, 10, 0.8, 0.05, False),
        ("close together", 60, 10, 0.2, 0.05, False),
    ):
        truth = rng.normal(0, spread, cells)
        drift = np.cumsum(rng.normal(0, 0.15, blocks))
        raw = rng.standard_t(4, (cells, blocks)) / 2**0.5 if heavy else rng.normal(
            0, 1, (cells, blocks)
        )
        logs = truth[:, None] + drift + noise * raw
        yield Campaign(f"simulated: {name}", logs, truth, np.ones(cells))


def fresh(campaign: Campaign, replays: int, rules: Rules, seed: int) -> dict[str, Any]:
    """Like `replay`, with noise drawn anew each time, where the truth is known."""
    raise NotImplementedError


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
    campaigns = list(simulated(asked.seed))
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
