"""Campaigns for reports: many paths, and texts of somebody who means harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import numpy as np

from tests.unit.analysis.made import CAMPAIGN, START, _run
from tests.unit.stored import stored
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Check, Direction, Measurement, Run, Sample, Series
from vdisklab.results.store import Store
from vdisklab.value import replace

CACHES = {"none": 0.8, "directsync": 0.35, "writeback": 0.9, "writethrough": 0.3, "unsafe": 1.25,
          "default": 0.9}  # fmt: skip
STORES = {"raw": 1.0, "qcow2": 0.97, "ext4/raw": 0.95, "xfs/qcow2": 0.93,
          "qcow2:preallocation=off": 0.7}  # fmt: skip
BUSES = {"": 1.0, "/ide": 0.45, "/nvme": 0.98}


def shapely_runs(rounds: int = 6) -> Iterator[Run]:
    """What the articles measured: caches, stores and buses, with the host as the baseline."""
    rng = np.random.default_rng(11)
    speeds = {"host": 1.0}
    for store, a in STORES.items():
        for cache, b in CACHES.items():
            for bus, c in BUSES.items():
                speeds[str(parse_path(f"{store}/{cache}{bus}"))] = a * b * c
    clock = START
    for round in range(1, rounds + 1):
        drift = float(np.exp(rng.normal(0, 0.1)))
        for place, (path, speed) in enumerate(speeds.items(), start=1):
            clock += timedelta(seconds=10)
            direct = path == "host" or parse_path(path).cache.direct
            state = PageCache.BYPASSED if direct else PageCache.COLD
            factor = speed * drift * float(np.exp(rng.normal(0, 0.03)))
            run = _run(CAMPAIGN.id, path, state.value, round, place, clock, factor)
            yield replace(run, id=f"{round:02x}{place:04x}", measurements=tuple(
                replace(m, samples=(*m.samples, *_more(m.samples)), series=_series(m, round))
                for m in run.measurements
            ))  # fmt: skip


def _series(measured: Measurement, round: int) -> tuple[Series, ...]:
    """Five seconds about the run's own bandwidth; a write of the second round stands still once."""
    sample = next(each for each in measured.samples if each.metric == "bandwidth")
    values = sample.value * np.exp(np.random.default_rng(round).normal(0, 0.05, 5))
    if round == 2 and measured.name == "seqwrite-1m-q1":
        values[3] = 0.0
    return (Series("bandwidth", sample.direction, 1.0, tuple(map(float, values))),)


def _more(samples: tuple[Sample, ...]) -> list[Sample]:
    p99 = next(each for each in samples if each.metric == "latency_p99")
    return [
        replace(p99, metric="latency_p50", value=p99.value / 3),
        replace(p99, metric="latency_p99.9", value=p99.value * 4),
        replace(p99, metric="latency_max", value=p99.value * 30),
    ]


def shapely() -> AbstractContextManager[Store]:
    return stored(shapely_runs())


EVIL = (
    "</script><script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "\"'><svg onload=window.owned=1>",
    "{{7*7}}${7*7}",
    "=cmd|'/C calc'!A1",
    "\x1b]0;owned\x07\x1b[31m",
    "<!--",
    "\u202eevil",
)


def hostile() -> AbstractContextManager[Store]:
    """All that others can write: host names, labels, states, commands, messages, cells."""
    text = " ".join(EVIL)
    runs = []
    for run in shapely_runs(4):
        spoiled = replace(
            run,
            medium=text,
            commands=(text, *EVIL),
            checks=(Check(text, text, text),),
            measurements=tuple(replace(m, command=text, program=text) for m in run.measurements),
        )
        runs.append(spoiled)
    failed = replace(
        runs[-1], id="dead", round=1, cell="bad", path="raw/none/sata", measurements=()
    )
    from vdisklab.results.model import Failure, FailureKind  # noqa: PLC0415

    runs.append(replace(failed, failure=Failure(FailureKind.GUEST, text)))
    host = replace(CAMPAIGN.host, hostname=text, cpu=text, more={text: text})
    campaign = replace(CAMPAIGN, host=host, label=text, plan={**CAMPAIGN.plan, "note": text})
    return stored(runs, campaigns=(campaign,))


def renamed(runs: list[Run], name: str) -> list[Run]:
    """Measurements whose name is somebody else's."""
    return [
        replace(run, measurements=(*run.measurements, replace(
            run.measurements[0], name=name, samples=(Sample("iops", Direction.READ, 5.0),)
        )))
        for run in runs
    ]  # fmt: skip
