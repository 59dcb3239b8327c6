"""Simulated fleets for tests: cells x hosts x rounds of logarithms as observations."""

from __future__ import annotations

import numpy as np

from vdisklab.analysis.fleet.host_means import FleetNumbers, fleet_numbers
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, Round
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction

IOPS = MeasureKey("randread-4k-q1", Direction.READ, "iops")
P99 = MeasureKey("randread-4k-q1", Direction.READ, "latency_p99")


def host_name(number: int) -> str:
    return f"kvm{number:03d}"


def cell(number: int) -> MeasuredCell:
    return MeasuredCell(f"c{number:02d}")


def fleet_of(logs: Floats, measure: MeasureKey = IOPS) -> FleetNumbers:
    """The fleet with these logarithms; NaN is missing."""
    cells, hosts, rounds = logs.shape
    grid = np.exp(logs.reshape(cells, hosts * rounds))
    rows, columns = np.nonzero(np.isfinite(grid))
    observations = Observations(
        cell=rows.astype(np.int32),
        round=columns.astype(np.int32),
        measure=np.zeros(len(rows), np.int32),
        value=grid[rows, columns],
        cells=tuple(map(cell, range(cells))),
        rounds=tuple(
            Round(f"id-{host}", round) for host in range(hosts) for round in range(rounds)
        ),
        measures=(measure,),
    )
    host_of = {f"id-{number}": host_name(number) for number in range(hosts)}
    return fleet_numbers(observations, host_of, [measure])


def drawn(
    rng: np.random.Generator, truth: Floats, hosts: int, rounds: int = 3, *, spread: float = 0.03
) -> Floats:
    """Logarithms with host effects of 5 %, cells on hosts of `spread`, drift and noise of 5 %."""
    shape = (len(truth), hosts, rounds)
    answer: Floats = (
        truth[:, None, None]
        + rng.normal(0, 0.05, (1, hosts, 1))
        + rng.normal(0, spread, (len(truth), hosts, 1))
        + rng.normal(0, 0.15, (1, hosts, rounds))
        + rng.normal(0, 0.05, shape)
    )
    return answer
