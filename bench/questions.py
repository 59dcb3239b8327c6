"""What came out for the questions of docs/questions.md: ratios of two recorded disk paths.

    python bench/questions.py DATABASE... CAMPAIGNS.json.gz... [--advice ANSWER.json] \
        > bench/results/questions.json

Reads the campaigns that `script/record-questions` and others have recorded; a campaign is known by
its label, `search-disk` by its file. pages.py prints the record's figures into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins

from machine import machine_facts, print_result
from pages import record_of
from vdisklab import numbers
from vdisklab.actions.export_data import import_campaigns
from vdisklab.analysis.observations import Floats, MeasureKey
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.analysis.sums import relative_sums
from vdisklab.answers.loading import Loaded, find_cells, load_chosen
from vdisklab.errors import PlanError
from vdisklab.results.store import Store, open_store

SEARCH = "search-disk"
"""The campaign of bench/results/search-disk.json.gz, which has no label."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two paths to compare for a question, in the campaigns with these labels."""

    question: int
    a: str
    b: str
    label: str = SEARCH
    label_b: str = ""
    metric: str = "iops"


PROXMOX = "raw/none/scsi:aio=io_uring:detect_zeroes=on:iothread=on"
LIBVIRT = "qcow2:preallocation=off/default"
MEMORY = "tmpfs/raw/none"

PAIRS = (
    Pair(1, "btrfs/raw/none", "none", "layers"),
    Pair(1, "btrfs/qcow2/none", "none", "layers"),
    Pair(2, "raw/writethrough", "raw/none"),
    Pair(2, "raw/none/usb", "raw/none"),
    Pair(3, "raw/none/scsi", "raw/none"),
    Pair(4, "raw/none/nvme", "raw/none"),
    Pair(5, "raw/writeback", "raw/none", "disk"),
    Pair(5, "raw/writethrough", "raw/none", "disk"),
    Pair(5, "raw/directsync", "raw/none", "disk"),
    Pair(8, "tmpfs/qcow2:backing=1:extended_l2=on/none", "tmpfs/qcow2:backing=1/none", "block"),
    Pair(9, "raw/none", "raw/default"),
    Pair(10, "raw/unsafe", "raw/none"),
    Pair(10, "raw/directsync", "raw/none"),
    Pair(11, f"{MEMORY}/virtio:iothread=on", MEMORY, "block"),
    Pair(12, "raw/none/virtio:aio=native", "raw/none"),
    Pair(12, "raw/none/virtio:aio=io_uring", "raw/none"),
    Pair(13, "qcow2/none", "raw/none"),
    Pair(14, "raw/directunsafe", "raw/none", "disk"),
    Pair(14, "raw/unsafe", "raw/none", "disk"),
    Pair(15, f"{MEMORY}/virtio:guest_scheduler=mq-deadline", MEMORY, "memory"),
    Pair(18, "btrfs/qcow2/none", "ext4/raw/none", "layers"),
    Pair(19, f"{MEMORY}/virtio:throttle_iops=500", MEMORY, "memory"),
    Pair(19, f"{MEMORY}/virtio:throttle_iops=5000", MEMORY, "memory"),
    Pair(21, "tmpfs/raw:encrypt=luks/none", MEMORY, "block"),
    Pair(24, PROXMOX, "raw/none", "disk"),
    Pair(24, f"tmpfs/{PROXMOX}", MEMORY, "memory"),
    Pair(24, LIBVIRT, "raw/none", "disk"),
    Pair(25, "ext4/raw/none", "none", "layers"),
    Pair(26, "tmpfs/virtiofs", "tmpfs/9p", "files", metric="bandwidth"),  # as docs/paths.md has it
    Pair(26, "tmpfs/9p:msize=500k", "tmpfs/virtiofs", "files", metric="bandwidth"),
    Pair(27, "ext4/qcow2/none", "ext4/qcow2/none", "aged", "new"),
)


def answers(store: Store, loaded: dict[str, Loaded]) -> dict[str, list[dict[str, Any]]]:
    """The figures of each question; pairs that were not recorded are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pair in PAIRS:
        first, other = loaded.get(pair.label), loaded.get(pair.label_b or pair.label)
        if first is None or other is None:
            continue
        try:
            figures = to_builtins(pair) | _figures(store, pair, first, other)
        except PlanError as error:  # all runs of a path failed
            print(error, file=sys.stderr)
        else:
            found.setdefault(str(pair.question), []).append(figures)
    return found


def _figures(store: Store, pair: Pair, first: Loaded, other: Loaded) -> dict[str, Any]:
    """For reads and writes A/B within rounds, both medians in IOPS, and bytes at the device."""
    found: dict[str, Any] = {}
    for key in first.observations.used:
        if key.metric == "bandwidth" and key in other.observations.used:
            iops = MeasureKey(key.name, key.direction, "iops")
            a, b = _rounds(first, pair.a, iops), _rounds(other, pair.b, iops)
            pairs = min(len(a), len(b))  # of two campaigns, which were measured in turns
            rate = MeasureKey(key.name, key.direction, pair.metric)
            (ratio,) = paired_ratios(
                _rounds(first, pair.a, rate)[:pairs], _rounds(other, pair.b, rate)[:pairs]
            )
            found[key.direction.value] = {
                "rounds": ratio.pairs,
                "ratio": ratio.ratio,
                "low": ratio.low,
                "high": ratio.high,
                "rounds_needed": ratio.rounds_needed,
                "iops_a": float(np.nanmedian(a)),
                "iops_b": float(np.nanmedian(b)),
                "device_bytes_a": _device_bytes(store, first, pair.a, key.name),
                "device_bytes_b": _device_bytes(store, other, pair.b, key.name),
            }
    return found


def _rounds(loaded: Loaded, path: str, key: MeasureKey) -> Floats:
    """The values of a path, one for each round."""
    (cell, *_) = find_cells(loaded.observations, path)
    values: Floats = loaded.observations.grid(key)[loaded.observations.place[cell]]
    return values


def _device_bytes(store: Store, loaded: Loaded, path: str, measurement: str) -> float | None:
    """The bytes at the host's device for each byte that the guest read or wrote."""
    (cell, *_) = find_cells(loaded.observations, path)
    sums = [row for row in store.sums(loaded.ids) if row.measurement == measurement]
    return relative_sums(sums, loaded.cells)[cell].device_share


def load_all(store: Store) -> dict[str, Loaded]:
    """The campaigns of a database by their labels."""
    return {
        campaign.label or SEARCH: load_chosen(store, (campaign,))
        for campaign in store.campaigns(with_runs=True)
    }


def shown(arguments: Sequence[str]) -> str:
    """The figures of these questions, or of all, a row for each pair of paths; see pages.py."""
    record = record_of("questions.json")
    rows = [
        "| # | in | path | against | reads | writes | rounds to decide |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, pairs in sorted(record["questions"].items(), key=lambda item: int(item[0])):
        for pair in pairs if not arguments or number in arguments else ():
            given = [pair[key] for key in ("read", "write")]
            figures = map(_ratio, given)
            open_ones = [row for row in given if row["low"] <= 1 <= row["high"]]
            more = ", ".join(str(row["rounds_needed"] or numbers.MISSING) for row in open_ones)
            paths = f"{pair['label']} | `{pair['a']}` | `{pair['b']}`"
            rows.append(f"| {number} | {paths} | {' | '.join(figures)} | {more} |")
    if not arguments or "23" in arguments:
        advice = record["advice"]
        gain = numbers.gain(advice["gain"], advice["gain_low"], advice["gain_high"])
        paths = f"`{advice['other']}` | `{advice['path']}`"
        rows.append(f"| 23 | advise | {paths} | {gain} of both | | |")
    return "\n".join(rows)


def _ratio(figures: Mapping[str, Any]) -> str:
    interval = numbers.ratio_interval(figures["low"], figures["high"])
    return f"{numbers.ratio(figures['ratio'])} ({interval})"


def main() -> None:
    """Reads the files, and prints the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="databases and exported campaigns")
    parser.add_argument("--advice", type=Path, help="the JSON of `vdisklab advise --measure`")
    options = parser.parse_args()
    questions: dict[str, list[dict[str, Any]]] = {}
    machines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        imported = Path(place) / "imported.sqlite"
        exports = [file for file in options.files if file.name.endswith(".json.gz")]
        databases = [file for file in options.files if file not in exports]
        if exports:
            import_campaigns(str(imported), exports)
            databases.append(imported)
        for database in databases:
            store = stack.enter_context(open_store(str(database), create=False))
            loaded = load_all(store)
            machines += [_campaign(label, campaign) for label, campaign in loaded.items()]
            for question, figures in answers(store, loaded).items():
                questions.setdefault(question, []).extend(figures)
    advice = None if options.advice is None else _advice(json.loads(options.advice.read_text()))
    print_result(
        machine_facts(Path()) | {"campaigns": machines, "questions": questions, "advice": advice}
    )


def _advice(document: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for the first disk, without the names of this machine's files."""
    advice = document["disks"][0]["advice"]
    gain = {f"gain_{key}": advice["gain"][key] for key in ("low", "high")}
    kept = {key: advice[key] for key in ("path", "other")}
    return {"advice": advice["action"], "gain": advice["gain"]["ratio"], **gain, **kept}


def _campaign(label: str, loaded: Loaded) -> dict[str, Any]:
    (campaign,) = loaded.campaigns
    return {
        "label": label,
        "date": campaign.started.isoformat(timespec="seconds"),
        "host": {
            key: str(value) for key, value in to_builtins(campaign.host).items() if key != "more"
        },
        "rounds": loaded.rounds,
        "emulated": loaded.caveats.accelerator == "tcg",
    }


if __name__ == "__main__":
    main()
