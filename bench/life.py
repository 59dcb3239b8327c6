"""Counts what disks made from a template read, write and occupy, for two sizes of the template.

    python bench/life.py DIRECTORY [--sizes 64M 256M] [--paths PATH...] > life.json

Needs root: xfs and btrfs on loop devices below DIRECTORY, or what --paths names, without guests.
Counts are exact: of the device below, of the disks' dirty pages and of their blocks. What is
written until the first flush is checked against what the way must write, what a clone's first write
allocates against the layer's unit, and what deleting gives back against what was allocated; the
exit status is 1 if a count is wrong. Volumes of LVM and ZFS: tests/lab_operations.sh.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result

PATHS = ("{xfs,btrfs}/raw/none", "{xfs,btrfs}/qcow2/none")
READY = ("make", "attach", "first-write")
TABLES = 2 << 20
"""What file systems, formats and pools write of their own, at most."""

CLONES = ("thin-snapshot", "zvol-clone", "zfs-clone")
CHUNK = 64 << 10
"""LVM's default chunk of a small thin pool (lvmthin(7))."""

FULL = ("cp", "dd", "sparse", "convert")

SHARES: Mapping[str, Callable[[int], int]] = {
    "cp": lambda size: size,
    "dd": lambda size: size,
    "sparse": lambda size: size // 4 * 3,
    "convert": lambda size: size // 4 * 3,
    "reflink": lambda _size: 0,
    "overlay": lambda _size: 0,
    "btrfs-snapshot": lambda _size: 0,
    "create": lambda _size: 0,
    **dict.fromkeys(CLONES, lambda _size: 0),
}
"""Bytes that a disk's making and first flush write; the template's last quarter are zeros."""


def lives(directory: Path, size: str, paths: Sequence[str]) -> list[dict[str, Any]]:
    """What `vdisklab life` says of a campaign of one round."""
    with tempfile.TemporaryDirectory(dir=directory) as work:
        database = str(Path(work) / "life.sqlite")
        program = (sys.executable, "-m", "vdisklab")
        run = (*program, "run", *paths, "--profile", "life-host", "--rounds", "1", "--size", size)
        quiet = {**os.environ, "VDISKLAB_STATE": str(Path(work) / "state")}
        subprocess.run(
            [*run, "--dir", work, "--db", database],
            check=True, env=quiet, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        read = [*program, "life", "--db", database, "--format", "json"]
        said = subprocess.run(read, check=True, env=quiet, capture_output=True, text=True).stdout
    answer = json.loads(said)
    return [counts(answer["size"], life) for life in answer["lives"]]


def counts(size: int, life: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of one way on one path, and whether they are what they must be."""
    steps = life["steps"]
    written = sum(steps[name]["written"] for name in READY)
    made, allocated = life["made"], steps["first-write"]["allocated"]
    must = SHARES[made](size)
    is_device, is_zfs = (
        "/raw" not in life["path"] and "/qcow2" not in life["path"],
        "zfs" in life["path"],
    )
    # Of a qcow2 image a copy has no zeros, and ZFS keeps what was written in its cache and log.
    least = 0 if is_zfs or life["path"].startswith("zvol") else must
    if "/qcow2" in life["path"]:
        least = min(must, size // 4 * 3)
    # qemu-img writes zeros to a device, too, which is not told that it holds them.
    most = (size if made == "convert" and is_device else must) + TABLES
    right = least <= written <= most and life["failure"] is None
    if made == "thin-snapshot":
        right &= allocated == CHUNK
    elif made in CLONES:
        right &= 0 < allocated <= TABLES
    taken = sum(step["allocated"] or 0 for step in steps.values())
    if made in FULL and not is_device:
        # ZFS counts a copy's blocks once it has written them: the steps before see only a part.
        expected = (size // 4 * 3, size) if is_zfs else (taken, taken)
        right &= expected[0] - TABLES <= life["given_back"] <= expected[1] + TABLES
    return {
        "size": size,
        "path": life["path"],
        "made": life["made"],
        "read_to_make": steps["make"]["read"],
        "written_until_flushed": written,
        "must_write": [least, most],
        "as_it_must": right,
        "unwritten_at_first_write": steps["first-write"]["unwritten"],
        "allocated_by_make": steps["make"]["allocated"],
        "allocated_by_first_write": allocated,
        "unshared_by_first_write": life["unshared"],
        "given_back": life["given_back"],
        "besides": life["why"],
    }


def main() -> int:
    """Prints the record; 1 if a count is not what it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["64M", "256M"])
    parser.add_argument("--paths", nargs="+", default=list(PATHS))
    given = parser.parse_args()
    facts = machine_facts(given.directory)
    rows = [row for size in given.sizes for row in lives(given.directory, size, given.paths)]
    print_result({**facts, "rows": rows})
    return 0 if all(row["as_it_must"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
