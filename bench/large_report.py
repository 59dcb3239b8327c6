"""Measures how long a report on many cells takes, from a database on disk to a table in a browser.

    bench/large_report.py [--cells 10000] [--rounds 3] > bench/results/large-report.json

Fills an SQLite database with synthetic runs (eight measurements of seven metrics each, with
evidence, states, commands and seconds). Then runs `vdisklab report --db FILE` in its own process,
three times, and opens the file in headless Chromium, five times, each in a fresh browser context.
The speeds in the report are synthetic; only its size and its times are measured.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from playwright.sync_api import sync_playwright

from machine import machine_facts, print_result
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.results import rows, schema
from vdisklab.results.model import (
    METRICS,
    Campaign,
    Check,
    Direction,
    Evidence,
    HostFacts,
    IoCounters,
    Measurement,
    Origin,
    Run,
    Sample,
    Series,
)
from vdisklab.results.store import open_store

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAMES = tuple(
    f"{order}{way}-{size}-q{depth}"
    for order, size in (("seq", "1m"), ("rand", "4k"))
    for way in ("write", "read")
    for depth in (1, 32)
)
REPORTED = ("bandwidth", "iops", "latency_mean", "latency_p50", "latency_p99", "latency_p99.9",
            "latency_max")  # fmt: skip
COMMANDS = (
    "qemu-system-x86_64 -name guest=vdisklab-{n} -machine q35 -accel kvm -cpu host -smp 2 -m 1024 "
    "-kernel /var/cache/vdisklab/kernel -initrd /var/cache/vdisklab/initrd -append 'console=ttyS0'",
    '{{"execute": "blockdev-add", "arguments": {{"driver": "file", "node-name": "vdl{n}-file"}}}}',
    '{{"execute": "device_add", "arguments": {{"driver": "virtio-blk-pci", "id": "vdl{n}"}}}}',
)
CAMPAIGN = Campaign(
    id="be9c0001",
    fingerprint="b" * 16,
    plan={"baseline": "host", "size_bytes": 1 << 30, "runtime": 5.0, "measurements": []},
    host=HostFacts("bench", "0" * 32, "6.1.0", "made up", 2, 8 << 30, "7.2", "3.33"),
    started=START,
    label="made up",
)


def paths(count: int) -> list[str]:
    """`count` distinct paths, the host first."""
    kinds = itertools.product(
        ("", "ext4/", "xfs/", "btrfs/"),
        ("raw", "qcow2", "qcow2:preallocation=off", "qcow2:cluster_size=128k"),
        ("none", "writeback", "writethrough", "directsync", "unsafe"),
        ("virtio", "scsi"),
        ("", ":iothread=on"),
        ("", *(f":queues={n}" for n in range(1, 33))),
    )
    made = (str(parse_path("".join((a, b, "/", c, "/", *rest)))) for a, b, c, *rest in kinds)
    return ["host", *itertools.islice(made, count - 1)]


def runs(cells: int, rounds: int) -> Iterator[Run]:
    """Every cell in every round, with drift, noise and seconds."""
    rng = np.random.default_rng(1)
    named = paths(cells)
    level = rng.normal(18, 0.5, cells)
    clock = START
    for round in range(1, rounds + 1):
        for number, place in enumerate(rng.permutation(cells), 1):
            clock += timedelta(seconds=1)
            path = parse_path(named[place])
            cached = not path.cache.direct and not path.on_host
            cell = Cell(path, PageCache.COLD if cached else PageCache.BYPASSED)
            speeds = np.exp(level[place] + rng.normal(0, 0.05, len(NAMES)))
            yield Run(
                id=f"{round:02x}{place:06x}", campaign=CAMPAIGN.id, cell=cell.fingerprint,
                path=named[place], page_cache=cell.page_cache, round=round, position=number,
                origin=Origin.HOST if path.on_host else Origin.GUEST, started=clock,
                wall_seconds=50.0, accelerator=None if path.on_host else "kvm", medium="a disk",
                checks=(Check("O_DIRECT", "on", "on"),
                        Check("write cache", "write back", "write back")),
                commands=tuple(command.format(n=place) for command in COMMANDS),
                measurements=tuple(
                    measurement(name, float(speed), clock)
                    for name, speed in zip(NAMES, speeds, strict=True)
                ),
            )  # fmt: skip


def measurement(name: str, speed: float, clock: datetime) -> Measurement:
    """Five seconds at a speed in bytes per second."""
    reads = "read" in name
    way = Direction.READ if reads else Direction.WRITE
    size = 4096 if "4k" in name else 1 << 20
    counts = IoCounters(
        int(5 * speed) * reads, int(5 * speed) * (not reads), int(5 * speed / size) * reads,
        int(5 * speed / size) * (not reads), 3,
    )  # fmt: skip
    delay = size / speed
    values = (speed, speed / size, delay, delay, 3 * delay, 9 * delay, 50 * delay)
    return Measurement(
        name, "fio", f"fio --name={name} --filename=/dev/vdb --bs={size} --direct=1",
        tuple(Sample(metric, way, value) for metric, value in zip(REPORTED, values, strict=True)),
        Evidence(counts, counts, counts, host_cpu_seconds=0.4), clock, 5.5, 5.0, "",
        (Series("bandwidth", way, 1.0, (speed,) * 5),),
    )  # fmt: skip


def counted(database: Path) -> int:
    """How many samples a database holds."""
    with sa.create_engine(f"sqlite:///{database}").connect() as connection:
        query = sa.select(sa.func.count()).select_from(schema.sample)
        return int(connection.execute(query).scalar_one())


def fill(file: Path, cells: int, rounds: int) -> None:
    """Creates the database."""
    with open_store(str(file)) as store:
        store.add_campaign(CAMPAIGN)
    tables = (schema.run, schema.state_check, schema.measurement, schema.counted, schema.sample,
              schema.series)  # fmt: skip
    waiting: dict[sa.Table, list[dict[str, Any]]] = {table: [] for table in tables}
    inner = 0
    with sa.create_engine(f"sqlite:///{file}").begin() as connection:
        campaign = connection.execute(sa.select(schema.campaign.c.key)).scalar_one()
        metrics = [METRICS[name] for name in REPORTED]
        connection.execute(sa.insert(schema.metric), [
            {"name": each.name, "unit": each.unit, "better": each.better} for each in metrics
        ])  # fmt: skip
        for key, run in enumerate(runs(cells, rounds), 1):
            waiting[schema.run].append({"key": key, **rows.run_row(run, campaign)})
            waiting[schema.state_check] += rows.check_rows(run.checks, key)
            for ordinal, measurement in enumerate(run.measurements):
                inner += 1
                row = rows.measurement_row(measurement, key, ordinal)
                waiting[schema.measurement].append({"key": inner, **row})
                waiting[schema.counted] += rows.counted_rows(measurement.evidence, inner)
                waiting[schema.sample] += rows.sample_rows(measurement.samples, inner)
                waiting[schema.series] += rows.series_rows(measurement.series, inner)
            if key % 500 == 0:
                flush(connection, waiting)
        flush(connection, waiting)


def flush(connection: sa.Connection, waiting: dict[sa.Table, list[dict[str, Any]]]) -> None:
    """Inserts the collected rows, parents first."""
    for table, found in waiting.items():
        if found:
            connection.execute(sa.insert(table), found)
            found.clear()


def build(database: Path, page: Path) -> dict[str, float]:
    """Seconds that `vdisklab report` takes, by the clock and of the processor; its peak memory."""
    begun = time.monotonic()
    argv = (sys.executable, "-m", "vdisklab", "report", "--db", str(database), "-o", str(page))
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"vdisklab report ended with {process.returncode}")
    return {
        "seconds": time.monotonic() - begun,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mebibytes": used.ru_maxrss / 1024,
    }


def show(page: Path, chromium: str | None, times: int) -> list[float]:
    """Seconds from the start of the navigation until the first page of the table is shown."""
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    script = "performance.getEntriesByName('vdisklab-table')[0].startTime / 1000"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        found = []
        for _ in range(times):
            tab = browser.new_context().new_page()
            tab.goto(page.as_uri())
            found.append(float(tab.evaluate(script)))
            tab.close()
        browser.close()
    return found


def main() -> None:
    """Fills, builds, opens; prints one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--turns", type=int, default=3, help="how often the report is built")
    parser.add_argument("--keep", type=Path, help="leave database and page in this directory, and "
                        "take the database that an earlier call left there")  # fmt: skip
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = asked.keep or Path(temporary)
        database, page = place / "many.sqlite", place / "report.html"
        facts = machine_facts(place)
        begun = time.monotonic()
        filled = None
        if not database.exists():
            fill(database, asked.cells, asked.rounds)
            filled = time.monotonic() - begun
        samples = counted(database)
        built = [build(database, page) for _ in range(asked.turns)]
        shown = show(page, asked.chromium, 5)
        print_result({
            "benchmark": "report",
            "machine": facts,
            "cells": asked.cells,
            "rounds": asked.rounds,
            "samples": samples,
            "database_mebibytes": database.stat().st_size / (1 << 20),
            "filled_seconds": filled,
            "page_mebibytes": page.stat().st_size / (1 << 20),
            "built": built,
            "first_table_seconds": shown,
            "goals": {"page_mebibytes": 15, "built_seconds": 10, "first_table_seconds": 1},
            "load_after": Path("/proc/loadavg").read_text().split()[0],
        })  # fmt: skip


if __name__ == "__main__":
    main()
