"""The ratios of recorded campaigns (script/record-disks) as tables of docs/paths.md.

The record, bench/results/disks.json.gz, is a file that `vdisklab import` reads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pages import RESULTS
from vdisklab import numbers
from vdisklab.actions.export_data import import_campaigns
from vdisklab.analysis.paired_ratios import Comparison, Verdict
from vdisklab.analysis.score import MEAN
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.compare import compare_pairs
from vdisklab.answers.loading import open_results
from vdisklab.results.store import Store

QCOW2, RAW = "tmpfs/qcow2/none", "tmpfs/raw/none"
THREAD = f"{RAW}/virtio:iothread=on"
CHAINS = ("extended_l2=on", *(f"backing={n}{more}" for more in ("", ":extended_l2=on")
                              for n in (1, 2, 4, 8)))  # fmt: skip
PAIRS = {
    "block": (
        *((f"tmpfs/qcow2:{options}/none", QCOW2) for options in CHAINS),
        ("tmpfs/qcow2:encrypt=luks/none", QCOW2),
        ("tmpfs/raw:encrypt=luks/none", RAW),
        (THREAD, RAW),
        (f"{RAW}/vhostuser", RAW),
        (f"{RAW}/vhostuser:iothread=on", THREAD),
    ),
    "zeroes": (
        (f"{QCOW2}/virtio:detect_zeroes=on", QCOW2),
        (f"{QCOW2}/virtio:detect_zeroes=unmap:discard=unmap", QCOW2),
    ),
    "files": (
        ("tmpfs/virtiofs", "tmpfs/raw/writeback"),
        ("tmpfs/9p", "tmpfs/raw/writeback"),
        ("tmpfs/9p:msize=500k", "tmpfs/9p"),
        ("tmpfs/virtiofs", "tmpfs/9p"),
    ),
}
"""Which paths are compared, by the campaign's label."""


@dataclass(frozen=True, slots=True)
class Row:
    """Two paths, and their comparison in each rate."""

    path: str
    against: str
    rates: tuple[Comparison, ...]


def shown(arguments: Sequence[str]) -> str:
    """The table of the campaign with a label."""
    (label,) = arguments
    return _tables()[label]


@cache
def _tables() -> dict[str, str]:
    return dict(tables(RESULTS / "disks.json.gz"))


def tables(record: Path) -> Iterator[tuple[str, str]]:
    """Each campaign's label, and its table in Markdown: the pairs that were measured."""
    with tempfile.TemporaryDirectory() as directory:
        database = f"{directory}/disks.sqlite"
        import_campaigns(database, [record])
        with open_results(database) as results:
            for campaign in results.campaigns():
                label = campaign.label or ""
                paths = {run.path for run in results.outlines([campaign.id]) if not run.failure}
                pairs = (pair for pair in PAIRS[label] if paths.issuperset(pair))
                yield label, table([compared(results, campaign.id, *pair) for pair in pairs])


def compared(results: Store, campaign: str, a: str, b: str) -> Row:
    """The two paths, and ratio, interval and verdict in each main rate."""
    (pair,) = compare_pairs(Analysis.of(results, [campaign]), a, b).pairs
    rates = tuple(each for each in pair.measures if each.main and each.measure != MEAN)
    return Row(a, b, rates)


def table(rows: Sequence[Row]) -> str:
    """A row for each pair, a column for each rate; a difference that is shown is bold."""
    names = [f"{rate.measure.name}, {rate.measure.direction}" for rate in rows[0].rates]
    lines = [f"| path | against | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for row in rows:
        cells = " | ".join(map(cell, row.rates))
        lines.append(f"| `{row.path}` | `{row.against}` | {cells} |")
    return "\n".join(lines)


def cell(rate: Comparison) -> str:
    """The ratio with its interval."""
    interval = numbers.ratio_interval(rate.ratio.low, rate.ratio.high)
    text = f"{numbers.ratio(rate.ratio.ratio)} ({interval})"
    return f"**{text}**" if rate.verdict in (Verdict.A_BETTER, Verdict.B_BETTER) else text
