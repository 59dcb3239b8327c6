"""PostgreSQL's write transactions on each cache mode, as ratios to `none` of the same format.

    vdisklab run ext4/{raw,qcow2}/{none,writeback,writethrough,directsync,unsafe} \
        --profile bench/postgresql-writes.toml --page-cache cold --rounds 5 --db FILE
    python bench/databases.py keep FILE
    python bench/databases.py show

The record bench/results/databases.json.gz holds what `vdisklab compare` says of each pair, and the
gates that were missed. bench/pages.py writes the table into docs/databases.md.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from pages import keep_record, record_of
from vdisklab.cli.shell.main import main as vdisklab

RECORD = "databases.json.gz"
FORMATS = ("raw", "qcow2")
MODES = ("writeback", "writethrough", "directsync", "unsafe")
MEASURE = "tpcb-like-c1/write/transactions"


def keep(database: str) -> dict[str, Any]:
    """The record of a database's newest campaign."""
    pairs = []
    campaign: dict[str, Any] = {}
    for image in FORMATS:
        for mode in MODES:
            answer = _compared(f"ext4/{image}/{mode}", f"ext4/{image}/none", database)
            (campaign,) = answer["campaigns"]
            (pair,) = answer["pairs"]
            (found,) = (row for row in pair["measures"] if row["measure"] == MEASURE)
            pairs.append(
                {"image": image, "mode": mode, "a": found["a"]["median"],
                 "b": found["b"]["median"], **found["ratio"]}
            )  # fmt: skip
    host = {key: campaign["host"][key] for key in ("cpus", "kernel", "qemu")}
    return {"host": host, "started": campaign["started"], "pairs": pairs}


def _compared(path: str, other: str, database: str) -> dict[str, Any]:
    said = StringIO()
    with redirect_stdout(said):
        status = vdisklab(["compare", path, other, "--all", "--format", "json", "--db", database])
    if status:
        raise SystemExit(f"vdisklab compare {path} {other} ended with {status}")
    answer: dict[str, Any] = json.loads(said.getvalue())
    return answer


def shown(arguments: list[str]) -> str:
    """The record's table."""
    del arguments
    record = record_of(RECORD)
    lines = [
        "| image | cache | transactions a second | of none | to none | 95 % interval | rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for pair in record["pairs"]:
        interval = f"{pair['low']:.3g}–{pair['high']:.3g}" if pair["low"] is not None else "–"
        lines.append(
            f"| {pair['image']} | `{pair['mode']}` | {pair['a']:.3g} | {pair['b']:.3g} "
            f"| ×{pair['ratio']:.3g} | {interval} | {pair['pairs']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Keeps or shows."""
    if sys.argv[1] == "keep":
        keep_record(RECORD, keep(sys.argv[2]))
    sys.stdout.write(f"{shown([])}\n")


if __name__ == "__main__":
    main()
