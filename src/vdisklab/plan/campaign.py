"""A campaign as asked: which cells, in how many blocks, with which programs, where."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vdisklab.plan.cell import Cell
from vdisklab.plan.ground import WORK_DIRECTORY, Ground
from vdisklab.plan.guest import GuestPlan
from vdisklab.plan.path import DiskPath
from vdisklab.plan.profile import Profile


@dataclass(frozen=True, slots=True)
class Dropped:
    """A path of the matrix that is not measured: why, and what to write instead."""

    path: str
    reason: str
    instead: str


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """Everything that decides what is measured, and nothing that is found out while measuring.

    `size_bytes` is the size of the disk that the guest sees, `runtime` and `ramp` are seconds
    for each timed measurement, `scale` the share of the totals of those that are not timed,
    `baseline` the path that scores are related to.
    """

    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]
    profile: Profile
    blocks: int
    seed: int
    size_bytes: int
    runtime: float
    ramp: float
    directory: Path
    baseline: DiskPath
    guest: GuestPlan = field(default_factory=GuestPlan)
    ground: Ground = WORK_DIRECTORY
    label: str = ""
    scale: float = 1.0

    def as_json(self) -> dict[str, Any]:
        """What identifies the plan, as plain JSON values; the dropped paths are left out.

        The number of blocks is left out too: asking for more blocks continues the campaign.
        """
        return {
            "cells": [cell.label for cell in self.cells],
            "profile": self.profile.name,
            "measurements": [
                {"name": m.name, "program": m.program, "settings": dict(m.settings)}
                | ({"filesystem": m.filesystem} if m.filesystem else {})
                for m in self.profile.measurements
            ],
            "seed": self.seed,
            "size_bytes": self.size_bytes,
            "runtime": self.runtime,
            "ramp": self.ramp,
            "directory": str(self.directory),
            **self.ground.as_json(),
            "baseline": self.baseline.canonical,
            **({"scale": self.scale} if self.scale != 1.0 else {}),
            "guest": {
                "cpus": self.guest.cpus,
                "memory_bytes": self.guest.memory_bytes,
                "accelerator": self.guest.accelerator,
                "kernel": self.guest.kernel,
            },
        }

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits; the same plan has the same, so `run` finds what is measured."""
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def rebuilds(self) -> bool:
        """True when stacks share the user's devices, and so stand one after the other."""
        stacks = {cell.path.layers for cell in self.cells if cell.path.has_storage}
        return sum(self.ground.on_devices(layers) for layers in stacks) > 1
