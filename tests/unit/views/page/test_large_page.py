"""Many cells: how large the page is, and what it shows first. bench/large_report.py has 10,000."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.unit.analysis.made import CAMPAIGN, START
from tests.unit.stored import Database
from tests.unit.views.page.test_browser import _CHROMIUM, Watched, browser
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.report import report_on
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.results import model
from vdisklab.results.model import Check, Origin, Run
from vdisklab.views.page.html import FIRST_PAGE, render_page

pytestmark = pytest.mark.slow

__all__ = ["browser"]

CELLS, ROUNDS = 300, 3
NAMES = ("seqread-1m-q1", "randread-4k-q1", "seqwrite-1m-q1", "randwrite-4k-q1",
         "seqread-1m-q32", "randread-4k-q32", "seqwrite-1m-q32", "randwrite-4k-q32")  # fmt: skip
METRICS = ("bandwidth", "iops", "latency_mean", "latency_p50", "latency_p99", "latency_p99.9",
           "latency_max")  # fmt: skip
COMMANDS = (
    "qemu-system-x86_64 -name guest=vdisklab-{n} -machine q35 -accel kvm -cpu host -smp 2 -m 1024 "
    "-kernel /var/cache/vdisklab/kernel -initrd /var/cache/vdisklab/initrd -append 'console=ttyS0'",
    '{{"execute": "blockdev-add", "arguments": {{"driver": "file", "node-name": "vdl{n}-file"}}}}',
    '{{"execute": "device_add", "arguments": {{"driver": "virtio-blk-pci", "id": "vdl{n}"}}}}',
)


def paths() -> list[str]:
    kinds = itertools.product(
        ("", "ext4/", "xfs/", "btrfs/"),
        ("raw", "qcow2", "qcow2:preallocation=off", "qcow2:cluster_size=128k"),
        ("none", "writeback", "writethrough", "directsync", "unsafe"),
        ("virtio", "scsi"),
        ("", ":iothread=on"),
        ("", *(f":queues={n}" for n in range(1, 32))),
    )
    found = ["host"]
    for layer, image, cache, bus, thread, queues in kinds:
        found.append(str(parse_path(f"{layer}{image}/{cache}/{bus}{thread}{queues}")))
        if len(found) == CELLS:
            break
    return found


def bare_runs(names: Sequence[str]) -> Iterator[Run]:
    """Every path in every round, without measurements."""
    numbered = list(enumerate(names))
    for round in range(1, ROUNDS + 1):
        for number, path in numbered:
            yield Run(
                id=f"{round}-{number}", campaign=CAMPAIGN.id, cell=path, path=path,
                page_cache=PageCache.BYPASSED, round=round, position=number + 1,
                origin=Origin.GUEST, started=START, wall_seconds=1.0, accelerator="kvm",
                medium="disk",
                checks=(Check("O_DIRECT", "on", "on"),
                        Check("write cache", "write back", "write back")),
                commands=tuple(command.format(n=number) for command in COMMANDS),
            )  # fmt: skip


def fill(database: Database, names: Sequence[str]) -> None:
    """Adds eight measurements of seven metrics to each run, which SQL does in seconds."""
    database.write(bare_runs(names))
    rng = np.random.default_rng(1)
    width = len(NAMES) * len(METRICS)
    level = rng.normal(18, 0.5, (len(names), width))
    logs = np.tile(level, (ROUNDS, 1)) + rng.normal(0, 0.05, (ROUNDS * len(names), width))
    values = np.exp(logs).ravel().tolist()
    way = "CASE WHEN m.name LIKE '%write%' THEN 'write' ELSE 'read' END"
    observers = json.dumps(["guest", "qemu", "device"])
    metrics = [
        (name, model.METRICS[name].unit, model.METRICS[name].better.value) for name in METRICS
    ]
    with contextlib.closing(sqlite3.connect(database.file)) as connection, connection:
        connection.create_function(
            "value_of", 3, lambda run, m, k: values[(run - 1) * width + m * len(METRICS) + k]
        )
        connection.executemany("INSERT INTO metric VALUES (?, ?, ?)", metrics)
        connection.execute(
            "INSERT INTO measurement (run, ordinal, name, program, command, started, "
            "measured_seconds, host_cpu_seconds, raw) SELECT r.key, n.key, n.value, 'fio', 'fio "
            "--name=' || n.value || ' --filename=/dev/vdb --bs=4k', r.started, 5, 0.02, x'' "
            "FROM run r, json_each(?) n",
            (json.dumps(NAMES),),
        )
        connection.execute(
            "INSERT INTO counted SELECT m.key, o.value, 4096000, 0, 1000, 0, 3, NULL, NULL, NULL "
            "FROM measurement m, json_each(?) o",
            (observers,),
        )
        connection.execute(
            f"INSERT INTO sample SELECT m.key, k.key, k.value, {way}, "  # noqa: S608 - a constant
            "value_of(m.run, m.ordinal, k.key) FROM measurement m, json_each(?) k",
            (json.dumps(METRICS),),
        )
        connection.execute(
            "INSERT INTO series SELECT m.key, 0, 'bandwidth', 'write', 1, ? FROM measurement m "
            "WHERE m.name = ?",
            ("[4e8, 3e8, 0.0, 4e8, 4e8]", NAMES[2]),
        )


@pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")
def test_size_and_first_page(browser: Browser, tmp_path: Path, database: Database) -> None:
    names = paths()
    assert len(set(names)) == CELLS
    fill(database, names)
    with database.open() as store:
        page = render_page(report_on(Analysis.of(store)))
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    size = file.stat().st_size
    seen = Watched(browser.new_page())
    seen.goto(file)
    print(f"{size / 1e6:.1f} MB")
    assert seen.page.locator("#table tbody tr").count() == FIRST_PAGE
    assert seen.complaints == []
    assert size <= 7 << 17
    seen.page.close()
