"""Campaigns of a simulated fleet: a recorded campaign with host effects, in a database.

Each host measures the cells of a recorded campaign (bench/results/search-disk.json.gz), and made-up
ones with the same levels if more are wanted. A value is that of a recorded run, drawn at random
from those of its cell, times what the host does to all cells (5 %), to this cell (3 %) and to a
round (10 %). What makes a world special is in `Fleet`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import parse_path
from vdisklab.results import rows, schema
from vdisklab.results.exchange import read_export
from vdisklab.results.model import METRICS, Campaign, HostFacts, Run
from vdisklab.results.store import open_store
from vdisklab.value import replace

RECORD = Path(__file__).parent / "results" / "search-disk.json.gz"
MEDIA = ("Samsung SSD 840", "WDC WD40EFRX")


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many hosts, cells and rounds; `slow` hosts are 40 % slower than others."""

    hosts: int = 200
    cells: int = 100
    rounds: int = 5
    slow: tuple[int, ...] = (7,)
    seed: int = 1


def campaigns(fleet: Fleet) -> Iterator[tuple[Campaign, list[Run]]]:
    """Each host's campaign with its runs. Every other host has another medium."""
    recorded, by_cell = _recorded(fleet.cells)
    effects = np.random.default_rng([fleet.seed, 0])
    levels = effects.normal(0, 0.05, fleet.hosts)
    for number in range(fleet.hosts):
        rng = np.random.default_rng([fleet.seed, 1, number])
        slow = math.log(0.6) if number in fleet.slow else 0.0
        name = f"kvm{number:03d}"
        campaign = replace(
            recorded,
            id=f"f1ee{number:04x}",
            host=_host(recorded.host, name, number),
            label=name,
            plan={**recorded.plan, "cells": list(by_cell)},
        )
        independent = rng.normal(0, 0.03, len(by_cell))
        runs: list[Run] = []
        for round in range(1, fleet.rounds + 1):
            drift = rng.normal(0, 0.10)
            for place, (path, sources) in enumerate(by_cell.items()):
                source = sources[rng.integers(len(sources))]
                factor = math.exp(levels[number] + slow + independent[place] + drift)
                runs.append(_run(source, campaign, path, (number, round, place), factor))
        yield campaign, runs


def _host(recorded: HostFacts, name: str, number: int) -> HostFacts:
    return replace(recorded, hostname=name, machine_id=f"{number:032x}")


def _recorded(cells: int) -> tuple[Campaign, dict[str, list[Run]]]:
    """The recorded campaign, and the runs to draw from for each path."""
    (whole,) = read_export(RECORD.read_bytes(), name=str(RECORD)).campaigns
    by_cell: dict[str, list[Run]] = {}
    for run in whole.runs:
        if run.failure is None:
            by_cell.setdefault(run.path, []).append(run)
    recorded = list(by_cell.values())
    more = (
        str(
            parse_path(f"qcow2:cluster_size={1 << 9 + size}/none/virtio:iothread=on:queues={count}")
        )
        for count in range(1, 65)
        for size in range(13)
    )
    for path, runs in zip(more, itertools.cycle(recorded), strict=False):
        if len(by_cell) >= cells:
            break
        by_cell.setdefault(path, runs)
    return whole.campaign, dict(itertools.islice(by_cell.items(), cells))


def _run(
    source: Run, campaign: Campaign, path: str, place: tuple[int, int, int], factor: float
) -> Run:
    number, round, cell = place
    started = campaign.started + timedelta(seconds=60 * (round * 1000 + cell))
    return replace(
        source,
        id=f"{number:04x}{round:02x}{cell:04x}",
        campaign=campaign.id,
        path=path,
        cell=Cell(parse_path(path), source.page_cache).fingerprint if path != source.path
        else source.cell,
        round=round,
        position=cell + 1,
        started=started,
        medium=MEDIA[number % 2],
        measurements=tuple(
            replace(
                measured,
                samples=tuple(
                    replace(
                        sample,
                        value=sample.value * factor
                        if METRICS[sample.metric].better == "higher"
                        else sample.value / factor,
                    )
                    for sample in measured.samples
                ),
            )
            for measured in source.measurements
        ),
    )  # fmt: skip


def fill(file: Path, fleet: Fleet) -> int:
    """Writes the fleet into a new SQLite database, in bulk; returns the number of samples."""
    with open_store(str(file)) as store:
        store.add_together([campaign for campaign, _ in campaigns(replace(fleet, rounds=0))], [])
    engine = sa.create_engine(f"sqlite:///{file}")
    keys, samples = itertools.count(1), 0
    measured_keys = itertools.count(1)
    with engine.begin() as connection:
        connection.execute(sa.insert(schema.metric), [rows.metric_row(m) for m in METRICS.values()])
        of_campaign = dict(
            connection.execute(sa.select(schema.campaign.c.id, schema.campaign.c.key)).all()
        )
        for campaign, runs in campaigns(fleet):
            waiting: dict[sa.Table, list[dict[str, object]]] = {}
            for run, key in zip(runs, keys, strict=False):
                row = {"key": key, **rows.run_row(run, of_campaign[campaign.id])}
                waiting.setdefault(schema.run, []).append(row)
                for ordinal, measured in enumerate(run.measurements):
                    measured_key = next(measured_keys)
                    row = {"key": measured_key, **rows.measurement_row(measured, key, ordinal)}
                    waiting.setdefault(schema.measurement, []).append(row)
                    numbers = rows.sample_rows(measured.samples, measured_key)
                    waiting.setdefault(schema.sample, []).extend(numbers)
                    counts = rows.counted_rows(measured.evidence, measured_key)
                    waiting.setdefault(schema.counted, []).extend(counts)
                    samples += len(numbers)
            for table, new in waiting.items():
                connection.execute(sa.insert(table), new)
    engine.dispose()
    return samples
