"""From which fill on thin storage is slow, how it refuses when it is full, and what growing mends.

    python bench/filling.py [--rounds 5] [--dir DIR]     # writes bench/results/filling.json

A thin qcow2 grows in steps of 8 MiB (64 KiB a request, 8 at once, O_DIRECT, a flush each 32) on a
new file system of 512 MiB, on a loop device in memory, until a request fails; then the file system
or its quota grows, and one more step is made. The memory is fast, so what slows down is the file
system's own work. Needs root, and QEMU's programs; no guest runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine_facts
from pages import RESULTS, record_of
from vdisklab.host import syscalls
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Kind, open_ledger
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.site import Site, open_site
from vdisklab.units import GIB, KIB, MIB

RECORD = "filling.json"

_SIZE = 512 * MIB
_QUOTA = 256 * MIB
_MORE = 256 * MIB
_STEP = 8 * MIB
_REQUEST = 64 * KIB
_TIME = re.compile(r"Run completed in ([\d.]+) seconds")
_ERROR = re.compile(r"(?:Failed request|Failed flush|qemu-img): *(.*)")
_SOUND = (0, 3)
"""qemu-img check: no error, or leaked clusters alone."""
_EDGES = (0.5, 0.8, 0.9, 0.95, 0.98, 1.0)
"""Shares of the space, between which rates are summed up."""


@dataclass(frozen=True, slots=True)
class ThinStorage:
    """A file system that a thin image fills, and how it grows."""

    name: str
    kind: str
    mkfs: tuple[str, ...]
    grow: tuple[str, ...]
    """Words of the command; DEVICE and MOUNTPOINT stand for themselves."""
    quota: int | None = None
    ballast: int = 0
    """Bytes of another file there, which `grow` may remove: not every kernel lets ext4 grow."""


STORAGES = (
    ThinStorage(
        "ext4", "ext4", ("mkfs.ext4", "-q", "-F"), ("rm", "MOUNTPOINT/ballast"), ballast=64 * MIB
    ),
    ThinStorage("xfs", "xfs", ("mkfs.xfs", "-q", "-f"), ("xfs_growfs", "MOUNTPOINT")),
    ThinStorage(
        "btrfs", "btrfs", ("mkfs.btrfs", "-q", "-f"),
        ("btrfs", "filesystem", "resize", "max", "MOUNTPOINT"),
    ),
    ThinStorage(
        "btrfs, quota of a subvolume", "btrfs", ("mkfs.btrfs", "-q", "-f"),
        ("btrfs", "qgroup", "limit", str(_QUOTA + _MORE), "MOUNTPOINT/guest"), _QUOTA,
    ),
)  # fmt: skip


@contextmanager
def mounted(
    site: Site, storage: ThinStorage, name: str
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A directory on the new file system, and what makes it larger."""
    file, mountpoint = site.directory / f"{name}.disk", site.directory / f"{name}.mnt"
    with (
        site.tracked(Kind.FILE, file),
        site.tracked(Kind.DIRECTORY, mountpoint),
        site.tracked(Kind.LOOP, file),
        site.tracked(Kind.MOUNT, mountpoint),
    ):
        site.new_file(file)
        os.truncate(file, _SIZE)
        mountpoint.mkdir()
        device = syscalls.attach_loop(file)
        site.run(*storage.mkfs, device)
        syscalls.mount(device, mountpoint, storage.kind)
        if storage.ballast:
            site.run("fallocate", "--length", str(storage.ballast), mountpoint / "ballast")
        directory = mountpoint / "guest"
        if storage.quota is None:
            directory.mkdir()
        else:
            site.run("btrfs", "quota", "enable", mountpoint)
            site.run("btrfs", "subvolume", "create", directory)
            site.run("btrfs", "qgroup", "limit", str(storage.quota), directory)

        def grow() -> None:
            if storage.quota is None and not storage.ballast:
                os.truncate(file, _SIZE + _MORE)
                site.run("losetup", "--set-capacity", device)
            site.run(*(
                word.replace("DEVICE", device).replace("MOUNTPOINT", str(mountpoint))
                for word in storage.grow
            ))  # fmt: skip

        yield directory, grow


def filled(site: Site, storage: ThinStorage, name: str) -> dict[str, Any]:
    """The rate of each step by the share of the space that was used before it, and the end."""
    steps: list[tuple[float, float]] = []
    with mounted(site, storage, name) as (directory, grow):
        image = directory / "thin.qcow2"
        site.run("qemu-img", "create", "-q", "-f", "qcow2", image, str(4 * GIB))
        space = storage.quota or _free(directory)
        begun = _free(directory)
        offset, error = 0, ""
        while not error:
            used = (begun - _free(directory)) / space
            seconds, error = step(site, image, offset)
            if seconds is not None:
                steps.append((round(used, 4), round(_STEP / seconds / MIB, 1)))
                offset += _STEP
        refused_at = (begun - _free(directory)) / space
        grow()
        again, still = step(site, image, offset)
        check = site.host.run("qemu-img", "check", "-q", image, allowed=range(256)).status
    return {
        "storage": storage.name, "steps": steps, "error": error,
        "refused_at": round(refused_at, 4), "after_growing": None if again is None
        else round(_STEP / again / MIB, 1), "error_after_growing": still, "check": check,
    }  # fmt: skip


def step(site: Site, image: Path, offset: int) -> tuple[float | None, str]:
    """The seconds of a step, or how its first failed request ended."""
    ended = site.host.run(
        "qemu-img", "bench", "-w", "-f", "qcow2", "-t", "none", "-d", "8",
        "-c", str(_STEP // _REQUEST), "-s", str(_REQUEST), "-o", str(offset),
        "--flush-interval", "32", image, timeout=120, allowed=range(256),
    )  # fmt: skip
    time = _TIME.search(ended.stdout)
    if ended.status == 0 and time is not None:
        return float(time[1]), ""
    said = _ERROR.search(ended.stderr)
    return None, said[1].removeprefix("Failed request: ") if said else ended.stderr.strip()


def _free(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path())
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, options.dir.absolute()) as outer,
        tmpfs(outer, "memory", 2 * GIB) as memory,
        open_site(LocalHost(), ledger, memory.path) as site,
    ):
        chance = random.Random(1)  # noqa: S311 - an order, not a secret
        for number in range(options.rounds):
            for storage in chance.sample(STORAGES, len(STORAGES)):
                name = f"{storage.kind}{number}{'q' if storage.quota else ''}"
                runs.append({"round": number, **filled(site, storage, name)})
    record = {"bench": "filling", **machine_facts(options.dir.absolute()), "runs": runs}
    (RESULTS / RECORD).write_text(json.dumps(record) + "\n")


def shown(arguments: Sequence[str]) -> str:
    """The record's table: rates relative to the emptier half, and the end."""
    del arguments
    runs = record_of(RECORD)["runs"]
    bands = list(itertools.pairwise(_EDGES))
    head = " | ".join(f"{low:.0%} to {high:.0%}" for low, high in bands)
    lines = [
        f"| thin qcow2 on | MiB/s up to {_EDGES[0]:.0%} full | {head} | refused at | with "
        "| after growing |",
        "|---|---|" + "---|" * len(bands) + "---|---|---|",
    ]
    for name in dict.fromkeys(run["storage"] for run in runs):
        of_it = [run for run in runs if run["storage"] == name]
        first = _median(of_it, 0.0, _EDGES[0])
        cells = [_relative(_median(of_it, low, high), first) for low, high in bands]
        errors = dict.fromkeys(run["error"].removeprefix("Failed request: ") for run in of_it)
        grown = sum(run["after_growing"] is not None and run["check"] in _SOUND for run in of_it)
        lines.append(
            f"| {name} | {first:.0f} | {' | '.join(cells)} "
            f"| {statistics.median(run['refused_at'] for run in of_it):.0%} "
            f"| {', '.join(errors)} "
            f"| goes on in {grown} of {len(of_it)} |"
        )
    return "\n".join(lines)


def _median(runs: Sequence[Mapping[str, Any]], low: float, high: float) -> float | None:
    rates = [rate for run in runs for used, rate in run["steps"] if low <= used < high]
    return statistics.median(rates) if rates else None


def _relative(rate: float | None, first: float | None) -> str:
    return "–" if rate is None or first is None else f"×{rate / first:.2f}"


if __name__ == "__main__":
    main()
