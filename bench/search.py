"""How often the search finds the best path, and in what share of the exhaustive time.

    bench/search.py [--replays 300] [--seed 1] [--only TEXT] [--methods NAME ...] [--json FILE]
        [RECORDED.json.gz ...]
    bench/search.py --from bench/results/search.json

Replays the search with the race of its shortlist, a race of every path, an early predecessor
(elimination, which knows no structure) and measuring everything, on simulated campaigns and on
recorded exhaustive ones (files of `vdisklab export-data`; by default
bench/results/search-*.json.gz). An answer is right when it is worse than the true best by at most
the margin, and true when it is worse by at most what it says. There are three kinds of true best:

* simulated: the true values are known. Truth, drift and noise are drawn anew for each replay.
* recorded: the cell with the best mean logarithm over the recorded rounds. A replay takes the
  rounds in a random order, so measuring everything is right by definition. A method that measures
  some cells gets the round that these have met least.
* redrawn: the means of the recorded rounds are taken as the exact truth, and a replay draws rounds
  from them with replacement (bootstrap, Efron 1979).

One process; --replays is the number for the cheapest campaigns, others take fewer (the table says
how many). --only replays the campaigns whose name contains a text, --methods replays some methods;
both keep the others of --json. Each replay has random numbers of its own, so a method's answers do
not depend on what else is replayed. Prints the table of docs/proofs.md as Markdown; bench/pages.py
writes it there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))
from elimination import eliminate
from machine import machine_facts
from pages import record_of
from vdisklab.analysis.observations import Floats, MeasureKey, observe
from vdisklab.analysis.path_model import PathModel
from vdisklab.analysis.race import race_state
from vdisklab.analysis.search import first_cells, goodness, next_cells, search_state
from vdisklab.path.factors import Levels, factor_levels
from vdisklab.results.exchange import read_export
from vdisklab.results.model import Run
from vdisklab.value import replace

RESULTS = Path(__file__).parent / "results"
DRIFT = 0.15
"""Standard deviation of the random walk over one full round, and of the slope inside it."""

Rows = npt.NDArray[np.int64]


class Trial(Protocol):
    """One replay of a campaign, measured round by round."""

    @property
    def truth(self) -> Floats:
        """The true goodness of each cell (logarithms)."""

    def round(self, rows: Rows) -> Floats:
        """One more round: the goodness of these cells."""


class World(Protocol):
    """Where replays are drawn from."""

    def trial(self, rng: np.random.Generator) -> Trial:
        """A new replay."""


@dataclass(frozen=True)
class Campaign:
    """`part` of the requested replays are made."""

    name: str
    world: World
    levels: Levels
    rounds: int
    part: float = 1.0


@dataclass(frozen=True)
class Answer:
    """The row that was chosen, the runs that it took, and by how much it may be worse (a share)."""

    row: int
    runs: int
    bound: float = math.nan


Method = Callable[[Campaign, PathModel, Trial, float], Answer]


def searching(budget: float, *, each_once: bool = False) -> Method:
    """The search of `analysis.search` and the race of its shortlist, with this share of the
    exhaustive runs. With `each_once` the first round has every cell, however many there are."""

    def search(campaign: Campaign, model: PathModel, trial: Trial, margin: float) -> Answer:
        cells = len(campaign.levels)
        allowed = budget * cells * campaign.rounds
        logs, spent = np.empty((cells, 0)), 0
        rows = tuple(range(cells)) if each_once else first_cells(campaign.levels, allowed)
        shortlist: tuple[int, ...] = ()
        since, race = 0, None
        while rows:
            logs = np.column_stack([logs, np.full(cells, np.nan)])
            logs[list(rows), -1] = trial.round(np.array(rows))
            spent += len(rows)
            if race is None:
                state = search_state(model, logs, margin)
                shortlist = state.shortlist
                rows = next_cells(state, spent, allowed - spent)
                if not state.race:
                    continue
                since = logs.shape[1]
            race = race_state(logs[list(shortlist), since:], margin)
            left = tuple(shortlist[row] for row in race.left)
            rows = () if race.ended or spent + len(left) > allowed else left
        if race is None:
            race = race_state(logs[list(shortlist)], margin)
        bound = margin if race.decided and since else race.behind
        return Answer(shortlist[race.leader], spent, math.inf if bound is None else bound)

    return search


def eliminating(budget: float) -> Method:
    """The predecessor: every cell in three rounds, then only those that may be the best."""

    def search(campaign: Campaign, _model: PathModel, trial: Trial, margin: float) -> Answer:
        limit = math.inf if budget == 1 else budget * len(campaign.levels) * campaign.rounds
        row, runs = eliminate(
            lambda rows: trial.round(np.array(rows)),
            len(campaign.levels),
            campaign.rounds,
            margin,
            limit,
        )
        return Answer(row, runs)

    return search


def exhaustive(campaign: Campaign, _model: PathModel, trial: Trial, _margin: float) -> Answer:
    """All cells in all rounds: what the data can tell at most."""
    cells = np.arange(len(campaign.levels))
    total = np.sum([trial.round(cells) for _ in range(campaign.rounds)], axis=0)
    return Answer(int(np.argmax(total)), len(cells) * campaign.rounds)


def racing(campaign: Campaign, _model: PathModel, trial: Trial, margin: float) -> Answer:
    """`--every-path`: a race of all, without a model."""
    cells = np.arange(len(campaign.levels))
    logs, spent = np.empty((len(cells), 0)), 0
    left = cells
    while True:
        logs = np.column_stack([logs, np.full(len(cells), np.nan)])
        logs[left, -1] = trial.round(left)
        spent += len(left)
        race = race_state(logs, margin)
        left = np.array(race.left)
        if race.ended:
            bound = margin if race.decided else race.behind
            return Answer(race.leader, spent, math.inf if bound is None else bound)


MANY = 300
"""Of more cells nobody races all."""

METHODS: dict[str, Method] = {
    "search": searching(1),
    "search, 25 %": searching(0.25),
    "search, each path once": searching(1, each_once=True),
    "every path races": racing,
    "elimination": eliminating(1),
    "exhaustive": exhaustive,
}


def replay(
    campaign: Campaign,
    replays: int,
    margin: float,
    seed: int,
    names: Sequence[str] = tuple(METHODS),
) -> dict[str, Any]:
    """By method: share of right answers and of the exhaustive time. All get the same replays."""
    count = max(2, round(replays * campaign.part))
    model = PathModel(campaign.levels)
    began = time.process_time()
    methods = {}
    for name, method in METHODS.items():
        if name not in names or (name == "every path races" and len(campaign.levels) > MANY):
            continue
        answers = []
        for turn in range(count):
            trial = campaign.world.trial(np.random.default_rng([seed, turn]))
            answer = method(campaign, model, trial, margin)
            answers.append((answer, float(trial.truth.max() - trial.truth[answer.row])))
        methods[name] = _summary(answers, len(campaign.levels) * campaign.rounds, margin)
    return {
        "campaign": campaign.name,
        "cells": len(campaign.levels),
        "rounds": campaign.rounds,
        "replays": count,
        "cpu_seconds": round(time.process_time() - began, 1),
        "methods": methods,
    }


def _summary(
    answers: Sequence[tuple[Answer, float]], whole: int, margin: float
) -> dict[str, float | None]:
    """`right`: within the margin of the best; `true`: within the bound that the answer states.

    `deficit_p95`: 95 % of the answers are worse than the best by no more than this share.
    """
    deficits = np.array([deficit for _, deficit in answers])
    times = np.array([answer.runs / whole for answer, _ in answers])
    bounds = [
        (margin if math.isnan(answer.bound) else answer.bound, deficit)
        for answer, deficit in answers
    ]
    return {
        "replays": len(answers),
        "right": float(np.mean(deficits <= math.log1p(margin) + 1e-12)),
        "time_mean": float(times.mean()),
        "time_p95": float(np.quantile(times, 0.95)),
        "deficit_p95": float(np.expm1(np.quantile(deficits, 0.95))),
        "true": float(np.mean([deficit <= math.log1p(bound) + 1e-12 for bound, deficit in bounds])),
    }


@dataclass
class _RecordedTrial:
    """`used` counts how often each cell's value of each recorded round was given."""

    logs: Floats
    order: npt.NDArray[np.int64]
    rng: np.random.Generator
    used: npt.NDArray[np.int64]

    @property
    def truth(self) -> Floats:
        means: Floats = self.logs.mean(axis=1)
        return means

    def round(self, rows: Rows) -> Floats:
        column = self._least_used(rows) if len(self.order) else self.rng.integers(len(self.logs.T))
        self.used[rows, column] += 1
        values: Floats = self.logs[rows, column]
        return values

    def _least_used(self, rows: Rows) -> int:
        """The recorded round that these cells have met least; of several the first in the order.

        A value that is given again looks like a measurement without noise.
        """
        met = self.used[rows].sum(axis=0)[self.order]
        return int(self.order[met.argmin()])


@dataclass(frozen=True)
class Recorded:
    """Recorded rounds in a random order, or drawn with replacement.

    A cell gets a recorded value again only when a round has no new ones for the cells in it.
    """

    logs: Floats
    redrawn: bool

    def trial(self, rng: np.random.Generator) -> Trial:
        """The truth is each cell's mean over the recorded rounds."""
        order = np.empty(0, np.int64) if self.redrawn else rng.permutation(self.logs.shape[1])
        return _RecordedTrial(self.logs, order, rng, np.zeros(self.logs.shape, np.int64))


def recorded(file: Path, measure: MeasureKey) -> list[Campaign]:
    """A recorded campaign, replayed and redrawn: its cells with every round only.

    Raises ValueError for one that has no such cell.
    """
    observations = observe(_runs(file))
    logs = goodness(observations, measure)
    whole = np.isfinite(logs).all(axis=1)
    if not whole.any():
        raise ValueError(f"{file} has no cell with {measure} in every round")
    levels = factor_levels([observations.cells[row] for row in np.flatnonzero(whole)])
    logs = logs[whole]
    part = 0.34 if _noise(logs) < 0.1 else 0.1  # in noise a search measures almost everything
    name = f"{file.name.removesuffix('.json.gz')} {measure}, noise {_noise(logs):.0%}"
    return [
        Campaign(f"{kind}: {name}", Recorded(logs, kind == "redrawn"), levels, logs.shape[1], part)
        for kind in ("recorded", "redrawn")
    ]


def _noise(logs: Floats) -> float:
    """The median over cells of a run's standard deviation beside its round."""
    residual = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    return float(np.median(residual.std(axis=1, ddof=1)))


@dataclass
class _SimulatedTrial:
    truth: Floats
    noise: Floats
    heavy: bool
    rng: np.random.Generator
    level: float = 0.0

    def round(self, rows: Rows) -> Floats:
        count = len(rows)
        step = DRIFT * math.sqrt(count / len(self.truth))
        self.level += self.rng.normal(0, step)
        position = self.rng.permutation(count) / max(1, count - 1) - 0.5
        # Student's t with 4 degrees of freedom has variance 2.
        heavy = self.heavy
        raw = self.rng.standard_t(4, count) / math.sqrt(2) if heavy else self.rng.normal(size=count)
        drift = self.level + self.rng.normal(0, step) * position
        values: Floats = self.truth[rows] + drift + self.noise[rows] * raw
        return values


@dataclass(frozen=True)
class Kind:
    """How a simulated campaign is made; standard deviations are of logarithms.

    `sizes` are the levels of each factor, `main` what each factor adds, `pairs` what each pair of
    factors but the first with the last adds, `alone` what each cell adds. `unequal`: by how much
    the cells' own noise differs. `twins`: the last factor has no effect at all. `exception`: one
    cell is raised until it is the best by this much.
    """

    name: str
    sizes: tuple[int, ...]
    noise: float = 0.05
    main: tuple[float, ...] = (0.35, 0.15, 0.4, 0.2)
    pairs: float = 0.0
    alone: float = 0.0
    heavy: bool = False
    unequal: float = 0.0
    twins: bool = False
    exception: float = 0.0
    rounds: int = 8
    part: float = 1.0

    @property
    def levels(self) -> Levels:
        """All combinations."""
        return np.array(list(itertools.product(*map(range, self.sizes))), np.int64)

    def trial(self, rng: np.random.Generator) -> Trial:
        """Truth, noise and drift, all anew."""
        levels = self.levels
        cells, factors = levels.shape
        truth = np.zeros(cells)
        truth += rng.normal(0, self.alone, cells)
        effective = factors - 1 if self.twins else factors
        for factor, size in zip(range(effective), self.main, strict=False):
            truth += rng.normal(0, size, self.sizes[factor])[levels[:, factor]]
        for first, other in itertools.combinations(range(effective), 2):
            if self.pairs and (first, other) != (0, factors - 1):
                table = rng.normal(0, self.pairs, (self.sizes[first], self.sizes[other]))
                truth += table[levels[:, first], levels[:, other]]
        if self.exception:
            truth[rng.integers(cells)] = truth.max() + self.exception
        noise: Floats = self.noise * np.exp(rng.normal(0, self.unequal, cells))
        return _SimulatedTrial(truth, noise, self.heavy, rng)


SIZES = {
    12: (3, 2, 2), 60: (3, 2, 5, 2), 100: (5, 2, 5, 2), 120: (5, 3, 4, 2), 300: (5, 3, 5, 4),
    5000: (5, 4, 5, 5, 10),
}  # fmt: skip
EXCEPTION = "additive, one exception 30 % ahead, noise 12 %"
"""One path that no segment of it promises, by the number of paths."""
NONE = (0.0,) * 4


def _kinds() -> Iterator[Kind]:
    for cells, noise, part in (
        (60, 0.05, 1.0),
        (300, 0.05, 0.34),
        (60, 0.10, 0.34),
        (300, 0.10, 0.34),
    ):
        common = Kind("", SIZES[cells], noise, part=part)
        label = f"noise {noise:.0%}"
        yield replace(common, name=f"additive, {label}")
        yield replace(common, name=f"interact, {label}", pairs=0.1, alone=0.03)
        yield replace(common, name=f"strong, {label}", pairs=0.25, alone=0.08)
        yield replace(common, name=f"no structure, {label}", main=NONE, alone=0.4)
    common = Kind("interact", SIZES[60], pairs=0.1, alone=0.03, part=0.34)
    yield replace(common, name="interact, heavy tails (t, 4 df)", heavy=True)
    yield replace(common, name="interact, noise differs by cell (0.7)", unequal=0.7)
    yield replace(common, name="interact, each cell twice (twins)", twins=True)
    yield replace(common, name="interact, one exception 20 % ahead", exception=math.log(1.2))
    for cells in (60, 100, 120, 300):
        yield Kind(EXCEPTION, SIZES[cells], 0.12, part=0.34, exception=math.log(1.3))
    yield replace(common, name="interact, few cells", sizes=SIZES[12], part=1.0)
    yield Kind("no structure, few cells", SIZES[12], main=NONE, alone=0.4)
    yield Kind("no structure, noise 30 %", SIZES[60], 0.3, NONE, alone=0.2, part=0.34)
    thousands = replace(common, sizes=SIZES[5000], main=(0.3,) * 5, part=0.03)
    yield replace(thousands, name="interact, thousands")
    yield replace(
        thousands, name="no structure, thousands", main=(0.0,) * 5, pairs=0.0, alone=0.4, part=0.01
    )


def measures_of(file: Path) -> list[MeasureKey]:
    """The IOPS and median latencies that a recorded campaign holds of its guests.

    Latencies only where fio was asked for those of whole requests: percentiles of completion alone
    (`clat`) lack the time that a submission takes, and have two modes for no other reason.
    """
    runs = _runs(file)
    commands = [measurement.command for run in runs for measurement in run.measurements]
    whole = all("--lat_percentiles=1" in command for command in commands)
    metrics = ("iops", "latency_p50") if whole else ("iops",)
    return [key for key in observe(runs).measures if key.metric in metrics]


def _runs(file: Path) -> list[Run]:
    """The guests' runs of a recorded campaign, without rounds that an interruption cut short."""
    exported = read_export(file.read_bytes(), name=str(file))
    runs = [run for whole in exported.campaigns for run in whole.runs]
    cells = {run.cell for run in runs}
    tried = Counter(round for round, _ in {(run.round, run.cell) for run in runs})
    return [run for run in runs if tried[run.round] == len(cells) and not run.measured_cell.on_host]


def tables(results: dict[str, Any]) -> str:
    """Everything that a document of results says, as Markdown."""
    lines = [
        f"| campaign (cells × rounds, replays) | {' | '.join(METHODS)} |",
        "|---|" + "---|" * len(METHODS),
    ]
    for row in results["campaigns"]:
        methods = (row["methods"].get(name) for name in METHODS)
        entries = [_entry(method) if method else "–" for method in methods]
        counts = sorted({int(method["replays"]) for method in row["methods"].values()})
        replays = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        size = f"{row['cells']} × {row['rounds']}, {replays}"
        lines.append(f"| {row['campaign']} ({size}) | {' | '.join(entries)} |")
    return "\n".join(lines)


ENOUGH = 100
"""With fewer replays, an entry has the 95 % interval of the share of right answers."""


def _entry(method: dict[str, float]) -> str:
    right, replays = method["right"], int(method["replays"])
    text = f"{100 * right:.0f}"
    if replays < ENOUGH:
        low, high = wilson(right, replays)
        text += f" ({100 * low:.0f}–{100 * high:.0f})"
    true = method.get("true", right)
    said = "" if round(100 * true) == round(100 * right) else f", true {100 * true:.0f},"
    return f"{text}{said} in {100 * method['time_mean']:.1f}"


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, Journal of the American Statistical Association 22,
    1927)."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def shown(arguments: Sequence[str]) -> str:
    """A table of the record: of the `exceptions`, or of all others."""
    rows = record_of("search.json")["campaigns"]
    wanted = [row for row in rows if (row["campaign"] == EXCEPTION) == ("exceptions" in arguments)]
    return tables({"campaigns": wanted})


def campaigns(files: Sequence[Path]) -> list[Campaign]:
    """Simulated and recorded ones."""
    simulated = [
        Campaign(kind.name, kind, kind.levels, kind.rounds, kind.part) for kind in _kinds()
    ]
    return simulated + [
        campaign
        for file in files
        for measure in measures_of(file)
        for campaign in recorded(file, measure)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--within", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--json", type=Path, help="keep all numbers here")
    parser.add_argument("--from", dest="kept", type=Path, help="replay nothing, read this")
    given = parser.parse_args()
    if given.kept:
        results = json.loads(given.kept.read_text(encoding="utf-8"))
    else:
        results = _replay_all(given)
    print(tables(results))
    return 0


def _replay_all(given: argparse.Namespace) -> dict[str, Any]:
    """Replays the chosen campaigns, and writes the results after each of them."""
    record: dict[str, Any] = {}
    partly = given.only or given.methods != list(METHODS)
    if given.json and given.json.exists() and partly:
        rows = json.loads(given.json.read_text(encoding="utf-8"))["campaigns"]
        record = {_key(row["campaign"], row["cells"]): row for row in rows}
    every = campaigns(given.files or sorted(RESULTS.glob("search-*.json.gz")))
    results: dict[str, Any] = {
        "machine": machine_facts(RESULTS),
        "margin": given.within,
        "seed": given.seed,
        "campaigns": [],
    }
    order = [_key(campaign.name, len(campaign.levels)) for campaign in every]
    for campaign in every:
        name = _key(campaign.name, len(campaign.levels))
        if given.only in name:
            fresh = replay(campaign, given.replays, given.within, given.seed, given.methods)
            kept = fresh if given.methods == list(METHODS) else record.get(name, fresh)
            record[name] = kept | {"methods": kept["methods"] | fresh["methods"]}
            print(tables({"campaigns": [record[name]]}).splitlines()[-1], file=sys.stderr)
        results["campaigns"] = [record[place] for place in order if place in record]
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def _key(name: str, cells: int) -> str:
    return f"{name} ({cells})"


if __name__ == "__main__":
    sys.exit(main())
