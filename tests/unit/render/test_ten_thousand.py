"""Ten thousand cells: how large the page is, and what it shows first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.unit.analysis.made import CAMPAIGN, START
from tests.unit.cli.fake_store import FakeColumns
from tests.unit.render.test_browser import _CHROMIUM, browser, watch
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.render.page.html import FIRST_PAGE, render_page
from vdisklab.results.model import Campaign, Direction, Origin, Run, Series, Witnessed
from vdisklab.results.observations import CellTally, Example, RunCourse, RunOutline
from vdisklab.results.powercut import PowerCut
from vdisklab.services.report_contents import gather

__all__ = ["browser"]

CELLS, BLOCKS = 10_000, 3
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


@dataclass
class LargeStore:
    """A campaign as the store gives it, without making a Run for each row."""

    paths: list[str]

    def campaigns(self, *, with_runs: bool = False) -> tuple[Campaign, ...]:
        del with_runs
        return (CAMPAIGN,)

    def campaign(self, _name: str) -> Campaign:
        return CAMPAIGN

    def runs(self, _id: str, *, measured_only: bool = False) -> Iterator[Run]:  # noqa: ARG002
        raise AssertionError("a report does not read ten thousand whole runs")

    def run(self, _name: str) -> Run:
        raise AssertionError

    def outlines(self, _ids: Sequence[str]) -> tuple[RunOutline, ...]:
        return tuple(
            RunOutline(f"{block}-{path}", CAMPAIGN.id, path, path, PageCache.BYPASSED, block, 1,
                       Origin.GUEST, START, "kvm", "disk", None, 1.0)
            for block in range(1, BLOCKS + 1)
            for path in self.paths
        )  # fmt: skip

    def observations(self, _ids: Sequence[str]) -> FakeColumns:
        rng = np.random.default_rng(1)
        measures = tuple(
            f"{name}/{'write' if 'write' in name else 'read'}/{metric}"
            for name in NAMES
            for metric in METRICS
        )
        shape = (len(self.paths), BLOCKS, len(measures))
        level = rng.normal(18, 0.5, (len(self.paths), 1, 1)) + rng.normal(0, 0.05, shape)
        cell, block, measure = (each.ravel().astype(np.int32) for each in np.indices(shape))
        return FakeColumns(
            (CAMPAIGN.id,), tuple(self.paths), measures, np.zeros_like(cell), cell,
            (block + 1).astype(np.int32), measure, np.exp(level).ravel(),
        )  # fmt: skip

    def power_cuts(self, _machine: str | None = None) -> tuple[PowerCut, ...]:
        return ()

    def courses(self, _ids: Sequence[str], cells: Sequence[str]) -> tuple[RunCourse, ...]:
        values = Series("bandwidth", Direction.WRITE, 1.0, (4e8, 3e8, 0.0, 4e8, 4e8))
        return tuple(
            RunCourse(CAMPAIGN.id, cell, block, NAMES[2], values)
            for cell in cells
            for block in range(1, BLOCKS + 1)
        )

    def evidence(self, _ids: Sequence[str]) -> Iterator[Witnessed]:
        raise AssertionError("a report on ten thousand cells has the sums only")

    def tallies(self, _ids: Sequence[str]) -> tuple[CellTally, ...]:
        return tuple(
            CellTally(path, name, 1000, 3, 3, 4096000, 4096000, 0.02)
            for path in self.paths
            for name in NAMES
        )

    def examples(self, _ids: Sequence[str]) -> tuple[Example, ...]:
        return tuple(
            Example(
                path, f"{number:06x}", 3, START, "kvm", "disk",
                tuple(command.format(n=number) for command in COMMANDS),
                (("O_DIRECT", "on", "on"), ("write cache", "write back", "write back")),
                tuple((name, f"fio --name={name} --filename=/dev/vdb --bs=4k") for name in NAMES),
            )
            for number, path in enumerate(self.paths)
        )  # fmt: skip


@pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")
def test_size_and_first_page(browser: Browser, tmp_path: Path) -> None:
    store = LargeStore(paths())
    assert len(set(store.paths)) == CELLS
    page = render_page(gather(store, None))
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    size = file.stat().st_size
    seen = watch(browser, file)
    print(f"{size / 1e6:.1f} MB")
    assert seen.page.locator("#table tbody tr").count() == FIRST_PAGE
    assert seen.complaints == []
    assert size <= 15 << 20
    seen.page.close()
