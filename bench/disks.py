"""Ratios of recorded campaigns (script/record-disks), as a record and as tables of a page.

    .venv/bin/python bench/disks.py --record DIRECTORY/disks.sqlite
    .venv/bin/python bench/disks.py --docs docs/paths.md

The first call makes bench/results/disks.json, the second writes its tables between the lines
`<!-- disks LABEL -->` and `<!-- end of disks LABEL -->` of a page, one for each campaign.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machine import machine_facts
from pages import with_tables
from vdisklab.analysis.score import MEAN
from vdisklab.render import numbers
from vdisklab.results.store import Store
from vdisklab.services.advice import answer_comparisons
from vdisklab.services.answers import open_results

RESULTS = Path(__file__).parent / "results" / "disks.json"

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


def record(database: Path) -> dict[str, Any]:
    """The ratios of all pairs, by campaign, with the machine's facts."""
    with open_results(str(database)) as results:
        campaigns = {each.label: each.id for each in results.campaigns()}
        tables = {
            label: list(compared(results, campaigns[label], label))
            for label in PAIRS
            if label in campaigns
        }
    return {"machine": machine_facts(database.parent), "campaigns": tables}


def compared(results: Store, campaign: str, label: str) -> Iterator[dict[str, Any]]:
    """For each pair its paths, its blocks, and ratio, interval and verdict in each rate."""
    for a, b in PAIRS[label]:
        (answer,) = answer_comparisons(results, a, b, [campaign])
        rates = [each for each in answer.comparisons if each.main and each.measure != MEAN]
        yield {
            "path": a,
            "against": b,
            "blocks": rates[0].ratio.pairs,
            "rates": {
                str(each.measure): {
                    "ratio": each.ratio.ratio,
                    "low": each.ratio.low,
                    "high": each.ratio.high,
                    "verdict": each.verdict,
                }
                for each in rates
            },
        }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each pair, a column for each rate; a shown difference is bold."""
    rates = list(rows[0]["rates"])
    names = [rate.rpartition("/")[0].replace("/", ", ") for rate in rates]
    lines = [f"| path | against | {' | '.join(names)} |", "|---" * (2 + len(rates)) + "|"]
    for row in rows:
        cells = (cell(row["rates"][rate]) for rate in rates)
        lines.append(f"| `{row['path']}` | `{row['against']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(rate: dict[str, Any]) -> str:
    """The ratio with its interval."""
    ratio = numbers.ratio(rate["ratio"])
    text = f"{ratio} ({numbers.ratio_interval(rate['low'], rate['high'])})"
    return f"**{text}**" if rate["verdict"] in ("a-better", "b-better") else text


def main() -> None:
    """Writes the record, the page, or both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--record", type=Path, metavar="DATABASE")
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    if options.record:
        RESULTS.write_text(json.dumps(record(options.record), indent=1) + "\n")
    if options.docs:
        page = options.docs.read_text()
        for label, rows in json.loads(RESULTS.read_text())["campaigns"].items():
            page = with_tables(page, f"disks {label}", table(rows))
        options.docs.write_text(page)


if __name__ == "__main__":
    main()
