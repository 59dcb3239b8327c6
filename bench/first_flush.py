"""Times the first flush of a copied disk: at once, and after the kernel has written the copy back.

    python bench/first_flush.py DIRECTORY [--sizes 256M 1G] [--waits 0 45] [--rounds 3] > out.json

Needs root: one xfs on a loop device below DIRECTORY. In each round, in random order: `cp` or a
reflink of a template of random data, a pause, then one block of 4 KiB is written and flushed by
qemu-io, as a guest's first flush does. The dirty pages of the copy are counted just before. The
kernel writes pages back when they are 30 s old, or when more than a share of the memory is dirty
(Documentation/admin-guide/sysctl/vm.rst: dirty_expire_centisecs, dirty_background_ratio).
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result
from vdisklab.host import pagecache
from vdisklab.host.syscalls import attach_loop, detach_loop, sync_filesystem
from vdisklab.units import MIB, parse_size
from vdisklab.workload.life import first_write_on_host, written_at

WAYS = {"cp": ("cp", "--reflink=never"), "reflink": ("cp", "--reflink=always")}
ROOM = 512 * MIB
CHUNK = 16 * MIB
LIMITS = ("dirty_background_ratio", "dirty_ratio", "dirty_expire_centisecs")


@contextmanager
def xfs(directory: Path, size: int) -> Iterator[Path]:
    """A mounted xfs of so many bytes on a loop device."""
    file, place = directory / "xfs.img", directory / "mount"
    with file.open("wb") as opened:
        opened.truncate(size)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", file], check=True)
    place.mkdir()
    device = attach_loop(file, direct_io=True)
    try:
        subprocess.run(["mount", device, place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", place], check=True)
    finally:
        detach_loop(device)


def first_flush(place: Path, template: Path, way: str, wait: float) -> dict[str, Any]:
    """Copies a disk, counts its dirty bytes after a pause, and times its first write and flush."""
    disk = place / "disk.raw"
    sync_filesystem(place)
    subprocess.run([*WAYS[way], template, disk], check=True)
    time.sleep(wait)
    dirty = pagecache.unwritten_bytes(disk)
    write = first_write_on_host(written_at(disk.stat().st_size))
    command = (*write, "-t", "none", "-f", "raw", str(disk))
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begin
    disk.unlink()
    return {"way": way, "wait": wait, "dirty": dirty, "seconds": seconds}


def rounds(place: Path, size: int, waits: Sequence[float], count: int) -> list[dict[str, Any]]:
    """All ways and pauses in each round, in random order, the same at each call."""
    template = place / "template.raw"
    with template.open("wb") as opened:
        for _ in range(size // CHUNK):
            opened.write(os.urandom(CHUNK))
    cells, chosen = list(itertools.product(WAYS, waits)), random.Random(1)  # noqa: S311 - no secret
    found = []
    for number in range(1, count + 1):
        chosen.shuffle(cells)
        for way, wait in cells:
            run = {"size": size, "round": number, **first_flush(place, template, way, wait)}
            print(run, file=sys.stderr, flush=True)
            found.append(run)
    template.unlink()
    return found


def medians(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The medians of each size, way and pause."""
    keys = ("size", "way", "wait")
    groups = dict.fromkeys(tuple(run[key] for key in keys) for run in runs)
    rows = []
    for group in groups:
        of = [run for run in runs if tuple(run[key] for key in keys) == group]
        counted = {key: statistics.median(run[key] for run in of) for key in ("dirty", "seconds")}
        rows.append({**dict(zip(keys, group, strict=True)), **counted, "rounds": len(of)})
    return rows


def main() -> None:
    """Prints the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["256M", "1G"])
    parser.add_argument("--waits", nargs="+", type=float, default=[0, 45])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sizes = [int(parse_size(size)) for size in given.sizes]
    facts = machine_facts(given.directory)
    limits = {name: int(Path("/proc/sys/vm", name).read_text()) for name in LIMITS}
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as work,
        xfs(Path(work), 2 * max(sizes) + ROOM) as place,
    ):
        runs = [run for size in sizes for run in rounds(place, size, given.waits, given.rounds)]
        # Before the file system is unmounted, which another mount namespace may refuse.
        print_result({**facts, "limits": limits, "medians": medians(runs), "runs": runs})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
