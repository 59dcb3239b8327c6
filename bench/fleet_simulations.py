"""The simulations of docs/proofs.md on fleets: how often an answer from many hosts is wrong.

    bench/fleet_simulations.py [--fleets 1000] [--seed 1] [--only NAME …] [--json FILE]
    bench/fleet_simulations.py --from bench/results/fleet-simulations.json

Draws fleets (cells x hosts x rounds; hosts, cells on hosts, rounds and runs have effects of their
own) and gives them to the program's functions:

* intervals: the share of 95 % intervals of a ratio over hosts that hold the true one, and of those
  for one more host.
* pairs: all cells are equal on the mean host. Wrong: any pair is shown to differ. Also for the
  test that takes runs, not hosts, for replications.
* outliers: no host is one. Wrong: any host of the fleet is an alarm (4 measures). Named: any is
  named. Found: one host is 40 % slower, and it is named; alarm: and it is an alarm.
* classes: two classes of hosts need the same path. Wrong: the test of the profiles, or a path that
  is shown to beat the fleet's in a class. Found: another path is 10 % better in one class.

One process, numpy only. --json keeps all numbers with the seed; bench/pages.py writes them into the
page as tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pages import record_of, simulation_options
from vdisklab.analysis.fleet.agreement import agreement
from vdisklab.analysis.fleet.host_classes import better_paths, profiles_differ
from vdisklab.analysis.fleet.host_means import FleetNumbers, fleet_numbers
from vdisklab.analysis.fleet.host_ranks import may_be_best, rank_over_hosts, separated
from vdisklab.analysis.fleet.outlier_hosts import find_outliers
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, Round
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction
from vdisklab.value import replace

Rng = np.random.Generator
Table = list[dict[str, Any]]
World = Callable[[Rng, tuple[int, int, int]], Floats]
KEYS = tuple(
    MeasureKey(f"{name}-1m-q1", direction, "bandwidth")
    for name, direction in (
        ("randread", Direction.READ),
        ("randwrite", Direction.WRITE),
        ("seqread", Direction.READ),
        ("seqwrite", Direction.WRITE),
    )
)
SIZES = [(4, 5), (13, 5), (13, 20), (40, 20), (13, 200)]
"""Cells and hosts."""


# A world: what is added to cells x hosts x rounds of logarithms. All have a host's own level (5 %),
# its drift (15 %) and noise (5 %), which `drawn` adds.


def alike(rng: Rng, shape: tuple[int, int, int]) -> Floats:
    """Hosts treat all cells alike."""
    del rng
    return np.zeros(shape)


def own_cells(rng: Rng, shape: tuple[int, int, int]) -> Floats:
    """Each host has its own 5 % for each cell."""
    return rng.normal(0, 0.05, (*shape[:2], 1)) + np.zeros(shape)


def host_families(rng: Rng, shape: tuple[int, int, int]) -> Floats:
    """Two families of cells; each host has its own 10 % for each family, and 2 % for each cell."""
    family = rng.normal(0, 0.1, (2, shape[1], 1))[np.arange(shape[0]) % 2]
    answer: Floats = family + rng.normal(0, 0.02, (*shape[:2], 1)) + np.zeros(shape)
    return answer


def heavy_tails(rng: Rng, shape: tuple[int, int, int]) -> Floats:
    """A host's own effect on a cell has heavy tails (t, 3 df)."""
    answer: Floats = rng.standard_t(3, (*shape[:2], 1)) * 0.05 / np.sqrt(3) + np.zeros(shape)
    return answer


def noisy_hosts(rng: Rng, shape: tuple[int, int, int]) -> Floats:
    """A third of the hosts is 5 times as noisy."""
    noisy = rng.random((1, shape[1], 1)) < 1 / 3
    answer: Floats = np.where(noisy, rng.normal(0, 0.25, shape), 0.0)
    return answer


def missing_cells(rng: Rng, shape: tuple[int, int, int]) -> Floats:
    """A fifth of the runs is missing, and each host has its own 5 % for each cell."""
    return np.where(rng.random(shape) < 0.2, np.nan, own_cells(rng, shape))


WORLDS: Mapping[str, World] = {
    "hosts alike": alike,
    "own 5 % for each cell": own_cells,
    "two families 10 %, own 2 %": host_families,
    "heavy tails (t, 3 df)": heavy_tails,
    "a third 5× noisier": noisy_hosts,
    "a fifth missing, own 5 %": missing_cells,
}


def drawn(
    rng: Rng, world: str, cells: int, hosts: int, rounds: int = 3, *, walk: bool = True
) -> Floats:
    """A fleet without any true difference between cells."""
    shape = (cells, hosts, rounds)
    drift = rng.normal(0, 0.15 if walk else 0.10, (1, hosts, rounds))
    answer: Floats = (
        WORLDS[world](rng, shape)
        + rng.normal(0, 0.05, (1, hosts, 1))
        + (np.cumsum(drift, axis=2) if walk else drift)
        + rng.normal(0, 0.05, shape)
    )
    return answer


def fleet_of(tables: Mapping[MeasureKey, Floats]) -> FleetNumbers:
    """The fleet with these logarithms, cells x hosts x rounds each; NaN is missing."""
    cells, hosts, rounds = next(iter(tables.values())).shape
    columns: list[tuple[Any, ...]] = []
    for code, logs in enumerate(tables.values()):
        grid = np.exp(logs.reshape(cells, hosts * rounds))
        rows, places = np.nonzero(np.isfinite(grid))
        columns.append((rows, places, np.full(len(rows), code), grid[rows, places]))
    row, place, measure, value = (np.concatenate(each) for each in zip(*columns, strict=True))
    observations = Observations(
        cell=row.astype(np.int32),
        round=place.astype(np.int32),
        measure=measure.astype(np.int32),
        value=value,
        cells=tuple(cells_named(cells)),
        rounds=tuple(
            Round(f"{host:03d}", round) for host in range(hosts) for round in range(rounds)
        ),
        measures=tuple(tables),
    )
    return fleet_numbers(
        observations, {f"{host:03d}": f"{host:03d}" for host in range(hosts)}, [*tables]
    )


def cells_named(count: int) -> list[MeasuredCell]:
    return [MeasuredCell(f"c{number:02d}") for number in range(count)]


def intervals(rng: Rng, fleets: int) -> Table:
    """Coverage of the ratio of two cells over hosts, and of the interval for one more host."""
    rows = []
    for name in WORLDS:
        for hosts in (3, 5, 20, 200):
            mean, more = [], []
            for _ in range(fleets):
                logs = drawn(rng, name, 4, hosts + 1)
                if not np.isfinite(logs[:2, -1]).all(axis=0).any():
                    continue
                first, second = cells_named(2)
                numbers = fleet_of({KEYS[0]: logs[:, :-1]})
                pair = agreement(numbers, KEYS[0], first, second)
                if pair.ratio.low is None or pair.ratio.high is None:
                    continue
                mean.append(pair.ratio.low <= 1 <= pair.ratio.high)
                other = np.exp(np.nanmean(logs[0, -1] - logs[1, -1]))
                more.append((pair.next_low or 0) <= other <= (pair.next_high or np.inf))
            rows.append(
                {"world": name, "hosts": hosts, "mean": np.mean(mean), "more": np.mean(more)}
            )
    return rows


def pairs(rng: Rng, fleets: int) -> Table:
    """Equal cells: how often any pair is shown to differ, by hosts and by runs."""
    rows = []
    for name in WORLDS:
        for cells, hosts in SIZES:
            wrong, by_runs = [], []
            for _ in range(fleets):
                logs = drawn(rng, name, cells, hosts)
                means = fleet_of({KEYS[0]: logs}).means.logs(KEYS[0])
                wrong.append(separated(means, np.zeros(cells), 0.05)[0].any())
                runs = logs.reshape(cells, -1)
                runs = runs[:, np.isfinite(runs).any(axis=0)]
                by_runs.append(separated(runs, np.zeros(cells), 0.05)[0].any())
            rows.append({"world": name, "size": f"{cells} × {hosts}", "wrong": np.mean(wrong),
                         "by runs": np.mean(by_runs)})  # fmt: skip
    return rows


def normal_levels(spread: float) -> Callable[[Rng, int], Floats]:
    return lambda rng, hosts: rng.normal(0, spread, hosts)


def heavy_levels(spread: float, freedom: int = 5) -> Callable[[Rng, int], Floats]:
    scale = spread * ((freedom - 2) / freedom) ** 0.5
    return lambda rng, hosts: rng.standard_t(freedom, hosts) * scale


def worn(rng: Rng, hosts: int) -> Floats:
    """Most hosts are alike, and some have become slower, by 10 % on average."""
    return -rng.exponential(0.1, hosts) + rng.normal(0, 0.02, hosts)


def hidden_kinds(rng: Rng, hosts: int) -> Floats:
    """A tenth of the hosts has a disk that is 30 % slower, and no fact says so."""
    return np.where(rng.random(hosts) < 0.1, np.log(0.7), 0.0) + rng.normal(0, 0.05, hosts)


LEVELS: Mapping[str, tuple[Callable[[Rng, int], Floats], bool, float]] = {
    "log-normal 5 %": (normal_levels(0.05), False, 1),
    "log-normal 10 %": (normal_levels(0.1), False, 1),
    "uniform ±10 %": (lambda rng, hosts: rng.uniform(-0.1, 0.1, hosts), False, 1),
    "heavy tails (t, 5 df), 5 %": (heavy_levels(0.05), False, 1),
    "heavy tails (t, 5 df), 10 %": (heavy_levels(0.1), False, 1),
    "heavy tails (t, 3 df), 10 %": (heavy_levels(0.1, 3), False, 1),
    "wear (exponential, 10 % slower)": (worn, False, 1),
    "a tenth is 30 % slower": (hidden_kinds, False, 1),
    "log-normal 2 %, all else a tenth": (normal_levels(0.02), False, 0.1),
    "heavy tails 2 %, all else a tenth": (heavy_levels(0.02), False, 0.1),
    "log-normal 5 %, rounds wander": (normal_levels(0.05), True, 1),
}
"""How hosts' levels differ, whether their rounds wander (by 15 % a round) or scatter (10 %), and by
what all but the levels is multiplied."""


def outliers(rng: Rng, fleets: int) -> Table:
    """Healthy fleets with an alarm and with a named host; slow hosts that are named, and alarms."""
    rows = []
    for name, (level, walk, rest) in LEVELS.items():
        for hosts in (8, 20, 60, 200):
            outcome: dict[str, list[bool]] = {
                kind: [] for kind in ("wrong", "named", "found", "alarm")
            }
            groups = [[f"{host:03d}" for host in range(hosts)]]
            for _ in range(fleets):
                tables = {}
                for key in KEYS:
                    logs = rest * drawn(rng, "own 5 % for each cell", 6, hosts, walk=walk)
                    tables[key] = logs + level(rng, hosts)[:, None]
                means = fleet_of(tables).means
                healthy = find_outliers(means, KEYS, groups).outliers
                outcome["wrong"].append(any(host.alarm for host in healthy))
                outcome["named"].append(bool(healthy))
                value = means.value * np.where(means.round == 0, 0.6, 1.0)
                outliers = find_outliers(replace(means, value=value), KEYS, groups).outliers
                slow = [outlier for outlier in outliers if outlier.host == "000"]
                outcome["found"].append(bool(slow))
                outcome["alarm"].append(any(host.alarm for host in slow))
            shares = {kind: np.mean(values) for kind, values in outcome.items()}
            rows.append({"levels": name, "hosts": hosts, **shares})
    return rows


def classes(rng: Rng, fleets: int) -> Table:
    """Two classes: false and true differences between them."""
    rows = []
    cells = cells_named(8)
    for name in WORLDS:
        for small, hosts in ((4, 12), (10, 40), (40, 200)):
            class_of = {f"{host:03d}": "ab"[host < small] for host in range(hosts)}
            outcome: dict[str, list[bool]] = {"profiles": [], "better": [], "found": []}
            for _ in range(fleets):
                logs = drawn(rng, name, 8, hosts)
                means = fleet_of({KEYS[0]: logs}).means
                p = profiles_differ(means, KEYS[0], class_of, cells)
                outcome["profiles"].append(p is not None and p <= 0.05)
                chosen = may_be_best(rank_over_hosts(means, KEYS[0]))[0]
                better = better_paths(means, KEYS[0], class_of, cells, chosen=chosen)
                outcome["better"].append(any(better.values()))
                logs[0] += 0.2
                logs[1, :small] += 0.2 + np.log(1.1)
                better = better_paths(
                    fleet_of({KEYS[0]: logs}).means, KEYS[0], class_of, cells, chosen=cells[0]
                )
                outcome["found"].append(cells[1] in {path.cell for path in better["b"]})
            rows.append(
                {
                    "world": name,
                    "size": f"{small} of {hosts}",
                    **{kind: np.mean(values) for kind, values in outcome.items()},
                }
            )
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _crossed(rows: Table, down: str, across: str, columns: Sequence[str]) -> str:
    """One row per world, one column per size, with the columns' shares in per cent."""
    sizes = list(dict.fromkeys(row[across] for row in rows))
    shown = {
        (row[down], row[across]): " / ".join(_percent(row[column]) for column in columns)
        for row in rows
    }
    return _markdown(
        [down, *(str(size) for size in sizes)],
        [
            [name, *(shown[name, size] for size in sizes)]
            for name in dict.fromkeys(row[down] for row in rows)
        ],
    )


SIMULATIONS: Mapping[str, tuple[Callable[[Rng, int], Table], tuple[str, str, tuple[str, ...]]]] = {
    "intervals": (intervals, ("world", "hosts", ("mean", "more"))),
    "pairs": (pairs, ("world", "size", ("wrong", "by runs"))),
    "outliers": (outliers, ("levels", "hosts", ("wrong", "named", "found", "alarm"))),
    "classes": (classes, ("world", "size", ("profiles", "better", "found"))),
}


def simulated(name: str, fleets: int, seed: int) -> Table:
    """The results of one simulation, from its own stream of random numbers."""
    place = list(SIMULATIONS).index(name)
    return SIMULATIONS[name][0](np.random.default_rng([seed, place]), fleets)


def table_of(name: str, rows: Table) -> str:
    return _crossed(rows, *SIMULATIONS[name][1])


def shown(arguments: Sequence[str]) -> str:
    """The table of a simulation in the record."""
    (name,) = arguments
    return table_of(name, record_of("fleet-simulations.json")["results"][name])


def main() -> int:
    given = simulation_options(__doc__, "--fleets", list(SIMULATIONS)).parse_args()
    record: dict[str, Any] = {"bench": "fleet-simulations", "seed": given.seed}
    record |= {"fleets": {}, "results": {}}
    if given.kept:
        record = json.loads(given.kept.read_text(encoding="utf-8"))
    else:
        if given.json and given.json.exists():
            record |= json.loads(given.json.read_text(encoding="utf-8"))
        for name in given.only:
            record["results"][name] = simulated(name, given.fleets, given.seed)
            record["fleets"][name] = given.fleets
            if given.json:
                text = json.dumps(record, indent=1, default=float)
                given.json.write_text(text + "\n", encoding="utf-8")
    for name, rows in record["results"].items():
        print(f"{name}\n\n{table_of(name, rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
