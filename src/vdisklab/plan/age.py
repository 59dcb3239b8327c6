"""Ageing: how images and file systems are worn before they are measured (`--age`).

Other benchmarks use fresh images on empty file systems; images in use are neither.
"""

from __future__ import annotations

import re

from vdisklab.errors import PlanError
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind
from vdisklab.value import Value, replace

REWRITTEN = 10
"""Percent of the disk that one pass of rewrites writes."""

_LIMITS = {"fill": (1, 95), "rewrites": (1, 1000), "snapshots": (1, 1000)}
_FILLED = tuple(kind for kind in LayerKind if kind.facts.has_fallocate)
"""File systems with fallocate(2), by which they are filled."""


class Age(Value):
    """`fill`: the percentage of the file system below that other files occupy. `rewrites`: how many
    passes of random writes are made. `snapshots`: how many of these passes have a snapshot.
    """

    fill: int = 0
    rewrites: int = 0
    snapshots: int = 0

    def __str__(self) -> str:
        values = {"fill": f"{self.fill}%", "rewrites": self.rewrites, "snapshots": self.snapshots}
        return ",".join(f"{name}={word}" for name, word in values.items() if getattr(self, name))

    def capacity(self, needed: int) -> int:
        """Bytes of a file system that has `needed` bytes left when it is filled."""
        return needed if not self.fill else needed * 100 // (100 - self.fill) * 103 // 100


NEW = Age()
"""Fresh images on empty file systems."""


def parse_age(text: str) -> Age:
    """Parses `fill=80%,rewrites=3,snapshots=2`. Raises PlanError."""
    values: dict[str, int] = {}
    for part in text.split(","):
        name, _, word = part.strip().partition("=")
        if name not in _LIMITS:
            raise PlanError(
                f"unknown ageing {name!r} in --age {text}",
                hint=f"write {', '.join(Age.__struct_fields__)}, such as "
                "--age fill=80%,rewrites=3,snapshots=2",
            )
        if name in values:
            raise PlanError(f"{name} is given twice in --age {text}", hint="write it once")
        low, high = _LIMITS[name]
        match = re.fullmatch(r"([0-9]{1,4})(%?)", word.strip())
        percent = name == "fill"
        if match is None or not low <= int(match[1]) <= high or (match[2] and not percent):
            sign = "%" if percent else ""
            raise PlanError(
                f"{name}={word} is not possible in --age {text}",
                hint=f"write a whole number from {low}{sign} to {high}{sign}",
            )
        values[name] = int(match[1])
    age = Age(**values)
    if age.snapshots > age.rewrites:
        raise PlanError(
            f"--age {text}: a snapshot without writes after it changes nothing",
            hint=f"add rewrites={age.snapshots} or more",
        )
    return age


def not_aged(
    path: DiskPath, age: Age, backing: BackingDevices = WORK_DIRECTORY
) -> Impossible | None:
    """Why a path cannot be aged; None if it can, or if it stores nothing."""
    if age == NEW or not path.has_storage:
        return None
    if age.fill:
        refused = _not_filled(path, backing)
        if refused is not None:
            return refused
    image = path.image
    if age.rewrites and path.shares_directory:
        return Impossible(
            "a directory has no image, so rewrites are not made in it", "leave out rewrites"
        )
    if age.rewrites and image is not None and image.backing:
        return Impossible(
            "a chain has written overlays, so rewrites are not made in it",
            "say how much of each overlay is written with overlay=SHARE",
        )
    if age.snapshots and not (image is not None and image.can_have_snapshots and not path.on_host):
        return Impossible(
            "only qcow2 without a data file has internal snapshots",
            "leave out snapshots, or measure qcow2",
        )
    return None


def not_with_age(age: Age, backing: BackingDevices, path: DiskPath) -> Impossible | None:
    """Why a requested path cannot be aged, as a rule of the matrix that names the option."""
    verdict = not_aged(path, age, backing)
    return verdict and replace(verdict, reason=f"--age {age}: {verdict.reason}")


def _not_filled(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    where, names = path.stack or "the work directory", ", ".join(_FILLED)
    if backing.ends_on_device(path.layers):
        reason = f"fill=… needs a file system, and {where} is a block device"
    elif not path.layers:
        reason = "fill=… would fill your own file system, because the path has none"
    elif path.layers[-1].kind not in _FILLED:
        reason = f"fill=… needs a file system with fallocate, and {path.layers[-1].kind} has none"
    else:
        return None
    return Impossible(reason, f"put one of {names} into the path, or leave out fill")
