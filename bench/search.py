"""How often the adaptive search finds the best path, and in what share of the exhaustive time.

    bench/search.py [--replays 1000] [--budget 0.25] [--within 0.03 ...] [--json FILE]
                    [RECORDED.json.gz ...]
    bench/search.py --from bench/results/search.json [--docs docs/method.md]

Replays the search, plain successive halving and random search on simulated campaigns and on
recorded exhaustive ones (files of `vdisklab export-data`; by default bench/results/*.json.gz), for
each margin of the search. An answer is right when it is worse than the true best by at most the
margin.
There are three kinds of true best:

* simulated: the true values are known. Truth, drift and noise are drawn anew for each replay.
* recorded: the cell with the best mean logarithm over the recorded blocks. This is an estimate, and
  the second table has its error (`Truth`). A replay takes the blocks in a random order, so the best
  cell after all blocks of all cells is right by definition.
* redrawn: the means of the recorded blocks are taken as the exact truth, and a replay draws blocks
  from them with replacement (bootstrap, Efron 1979). The noise is the recorded one, and
  *exhaustive* shows what measuring everything once more would find. Recorded means differ by more
  than the true ones (each has its noise), so this flatters every method.

Prints the tables of docs/method.md as Markdown; --json keeps all numbers, --docs writes the tables
into a page between its marks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vdisklab.analysis.observations import Floats, MeasureKey, observe
from vdisklab.analysis.rank_intervals import rank
from vdisklab.analysis.search import Rules, SearchState, goodness, look, next_cells
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.exchange import read_export
from vdisklab.results.model import Run

RESULTS = Path(__file__).parent / "results"
MARGINS = (0.03, 0.05, 0.10, 0.15)
MARKS = ("<!-- bench/search.py -->", "<!-- end of bench/search.py -->")


class World(Protocol):
    """Where replays are drawn from."""

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Goodness by cells x blocks (logarithms), and the true goodness of each cell."""


@dataclass(frozen=True)
class Truth:
    """What is known of a recorded campaign's best.

    `noise` is the median over cells of one run's standard deviation beside its block, as a
    logarithm; `error` that of a cell's mean over all blocks. `may_be_best` cells share rank 1 in
    vdisklab's own ranking of all blocks (5 % family-wise).
    """

    noise: float
    error: float
    may_be_best: int


@dataclass(frozen=True)
class Campaign:
    """`cost` is the seconds of one run, by cell."""

    name: str
    world: World
    cost: Floats
    blocks: int
    truth: Truth | None = None


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
    found: SearchState | None = None
    spent, leader = 0.0, 0
    mean_cost = float(campaign.cost.mean())
    blocks = logs.shape[1]
    for block in range(blocks):
        seen[list(cells), block] = logs[list(cells), block]
        spent += float(campaign.cost[list(cells)].sum())
        found = look(seen[:, : block + 1], rules, found)
        leader = found.leader
        if block + 1 == blocks:
            break
        cells = next_cells(found, (budget - spent) / mean_cost)
        if not cells:
            break
    return Answer(leader, spent)


def halving(
    campaign: Campaign, logs: Floats, budget: float, _rules: Rules, _rng: np.random.Generator
) -> Answer:
    """Plain sequential halving (Karnin et al. 2013): the better half goes on to the next round.

    Rounds share the budget evenly, each with one block at least.
    """
    cells = np.arange(len(logs))
    spent, block = 0.0, 0
    while len(cells) > 1 and block < logs.shape[1]:
        each = float(campaign.cost[cells].sum())
        rounds = math.ceil(math.log2(len(cells)))
        if block and spent + each > budget:
            break
        blocks = max(1, int((budget - spent) / (rounds * each)))
        blocks = min(blocks, logs.shape[1] - block)
        block += blocks
        spent += blocks * each
        means = logs[cells, :block].mean(axis=1)
        cells = cells[np.argsort(-means, kind="stable")[: math.ceil(len(cells) / 2)]]
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


@dataclass(frozen=True)
class Asked:
    """What every campaign is replayed with."""

    replays: int
    budget: float
    margins: tuple[float, ...]
    seed: int


def replay(asked: Asked, campaign: Campaign) -> dict[str, Any]:
    """By method and margin: share of right answers and of the exhaustive time.

    All methods and margins get the same replays. Only the search is told the margin.
    """
    methods: dict[str, Any] = {}
    for name, method in METHODS.items():
        told = asked.margins if method is adaptive else asked.margins[:1]
        taken = {margin: _answers(asked, campaign, method, margin) for margin in told}
        methods[name] = {
            f"{margin:g}": _share(*taken.get(margin, taken[told[0]]), margin)
            for margin in asked.margins
        }
    return {
        "campaign": campaign.name,
        "cells": len(campaign.cost),
        "blocks": campaign.blocks,
        "truth": None if campaign.truth is None else asdict(campaign.truth),
        "methods": methods,
    }


def _answers(
    asked: Asked, campaign: Campaign, method: Method, margin: float
) -> tuple[Floats, Floats]:
    """By replay: how much worse than the best the answer is (logarithm), and its share of time."""
    rng = np.random.default_rng(asked.seed)
    chance = np.random.default_rng([asked.seed, 1])
    whole = float(campaign.cost.sum()) * campaign.blocks
    deficits, shares = np.empty(asked.replays), np.empty(asked.replays)
    for turn in range(asked.replays):
        logs, truth = campaign.world.draw(rng)
        answer = method(campaign, logs, asked.budget * whole, Rules(margin=margin), chance)
        deficits[turn] = truth.max() - truth[answer.row]
        shares[turn] = answer.seconds / whole
    return deficits, shares


def _share(deficits: Floats, times: Floats, margin: float) -> dict[str, float]:
    """`deficit_p95`: 95 % of the answers are worse than the best by no more than this share."""
    return {
        "within": float(np.mean(deficits <= math.log1p(margin) + 1e-12)),
        "time_mean": float(times.mean()),
        "time_p95": float(np.quantile(times, 0.95)),
        "deficit_mean": float(np.expm1(deficits).mean()),
        "deficit_p95": float(np.expm1(np.quantile(deficits, 0.95))),
    }


@dataclass(frozen=True)
class Recorded:
    """The recorded blocks, each once, in a random order; or drawn with replacement."""

    logs: Floats
    redrawn: bool

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The truth is each cell's mean over the recorded blocks."""
        blocks = self.logs.shape[1]
        order = rng.integers(0, blocks, blocks) if self.redrawn else rng.permutation(blocks)
        return self.logs[:, order], self.logs.mean(axis=1)


def recorded(file: Path, measure: MeasureKey) -> list[Campaign]:
    """A recorded campaign, replayed and redrawn: its cells with every block only.

    Raises ValueError for one that has no such cell.
    """
    candidates = _runs(file)
    observations = observe(candidates)
    logs = goodness(observations, measure)
    whole = np.isfinite(logs).all(axis=1)
    if not whole.any():
        raise ValueError(f"{file} has no cell with {measure} in every block")
    seconds: dict[MeasuredCell, list[float]] = {}
    for run in candidates:
        seconds.setdefault(run.measured_cell, []).append(run.wall_seconds or 0.0)
    cost = np.array([float(np.mean(seconds[cell])) for cell in observations.cells])[whole]
    kept = logs[whole]
    noise = float(np.median(_deviations(kept)))
    blocks = kept.shape[1]
    first = sum(row.best == 1 for row in rank(observations, measure).rows)
    truth = Truth(noise, noise / math.sqrt(blocks), first)
    name = f"{file.name.removesuffix('.json.gz')} {measure}"
    return [
        Campaign(f"recorded: {name}", Recorded(kept, redrawn=False), cost, blocks, truth),
        Campaign(f"redrawn: {name}", Recorded(kept, redrawn=True), cost, blocks, truth),
    ]


def _deviations(logs: Floats) -> Floats:
    """By cell, one run's standard deviation beside its block."""
    residual = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    answer: Floats = residual.std(axis=1, ddof=1)
    return answer


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
    Kind("differences 0.8, noise 3 %", 60, 8, 0.8, 0.03),
    Kind("differences 0.8, noise 10 %", 60, 8, 0.8, 0.10),
    Kind("differences 0.8, noise 5 % with heavy tails (t, 4 df)", 60, 8, 0.8, 0.05, heavy=True),
    Kind("differences 0.8, noise 5 % differing by cell (0.7)", 60, 8, 0.8, 0.05, unequal=0.7),
    Kind("differences 0.8, noise 5 %, each second a twin", 60, 8, 0.8, 0.05, twins=True),
    Kind("differences 0.8, noise 5 %, many cells", 200, 10, 0.8, 0.05),
    Kind("differences 0.2, noise 5 %", 60, 10, 0.2, 0.05),
    Kind("differences 0.2, noise 10 %", 60, 10, 0.2, 0.10),
    Kind("differences 0.2, noise 30 %", 60, 24, 0.2, 0.30),
)


def measures_of(file: Path) -> list[MeasureKey]:
    """The IOPS and median latencies that a recorded campaign holds of its guests.

    Latencies only where fio was asked for those of whole requests: percentiles of completion alone
    (`clat`) lack the time that a submission takes, and have two modes for no other reason.
    """
    runs = _runs(file)
    commands = [each.command for run in runs for each in run.measurements]
    whole = all("--lat_percentiles=1" in command for command in commands)
    metrics = ("iops", "latency_p50") if whole else ("iops",)
    return [key for key in observe(runs).measures if key.metric in metrics]


def _runs(file: Path) -> list[Run]:
    """The guests' runs of a recorded campaign, without blocks that an interruption cut short."""
    exported = read_export(file.read_bytes(), name=str(file))
    runs = [run for whole in exported.campaigns for run in whole.runs]
    cells = {run.cell for run in runs}
    tried = Counter(block for block, _ in {(run.block, run.cell) for run in runs})
    return [run for run in runs if tried[run.block] == len(cells) and not run.measured_cell.on_host]


def tables(found: dict[str, Any]) -> str:
    """Everything that a document of results says, as Markdown."""
    margins = [f"{margin:g}" for margin in found["margins"]]
    lines = [
        f"{found['replays']:,} replays each.",
        "",
        "| campaign (cells × blocks) | "
        + " | ".join(f"within {float(margin):.0%}" for margin in margins)
        + " | time |",
        "|---|" + "---|" * (len(margins) + 1),
    ]
    for row in found["campaigns"]:
        shares = [
            " / ".join(f"{100 * each[margin]['within']:.1f}" for each in row["methods"].values())
            for margin in margins
        ]
        times = " / ".join(
            f"{100 * each[margins[0]]['time_mean']:.0f}" for each in row["methods"].values()
        )
        lines.append(f"| {_named(row)} | {' | '.join(shares)} | {times} |")
    lines += [
        "",
        "| recorded campaign | sd of a run | error of a cell's mean | cells that may be the best "
        "| 95 % of the search's answers are within |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['campaign'].removeprefix('recorded: ')} | {row['truth']['noise']:.2f} "
        f"| {row['truth']['error']:.1%} | {row['truth']['may_be_best']} of {row['cells']} "
        f"| {row['methods']['adaptive'][margins[0]]['deficit_p95']:.1%} |"
        for row in found["campaigns"]
        if row["campaign"].startswith("recorded: ")
    ]
    return "\n".join(lines)


def _named(row: dict[str, Any]) -> str:
    return f"{row['campaign']} ({row['cells']} × {row['blocks']})"


def with_tables(page: str, found: dict[str, Any]) -> str:
    """The page with the tables between its marks. Raises ValueError for a page without marks."""
    start, end = (re.escape(mark) for mark in MARKS)
    text, count = re.subn(
        f"({start}).*?({end})",
        lambda match: f"{match[1]}\n\n{tables(found)}\n\n{match[2]}",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"the page lacks the marks {MARKS[0]} and {MARKS[1]}")
    return text


def measured(files: Sequence[Path], measures: Sequence[MeasureKey], asked: Asked) -> dict[str, Any]:
    """The document of results of all campaigns, simulated and recorded."""
    campaigns = [
        Campaign(f"simulated: {kind.name}", kind, np.ones(kind.cells), kind.blocks)
        for kind in KINDS
    ]
    for file in files:
        for measure in measures or measures_of(file):
            campaigns += recorded(file, measure)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(partial(replay, asked), campaigns))
    return {**asdict(asked), "alpha": Rules().alpha, "campaigns": rows}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=0.25)
    parser.add_argument("--within", type=float, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", action="append", type=MeasureKey.parse)
    parser.add_argument("--json", type=Path, help="keep all numbers here")
    parser.add_argument("--from", dest="kept", type=Path, help="replay nothing, read this")
    parser.add_argument("--docs", type=Path, help="write the tables into this page")
    given = parser.parse_args()
    if given.kept:
        found = json.loads(given.kept.read_text(encoding="utf-8"))
    else:
        margins = tuple(given.within or MARGINS)
        asked = Asked(given.replays, given.budget, margins, given.seed)
        files = given.files or sorted(RESULTS.glob("*.json.gz"))
        found = measured(files, given.measure or (), asked)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.docs:
        page = given.docs.read_text(encoding="utf-8")
        given.docs.write_text(with_tables(page, found), encoding="utf-8")
    print(tables(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
