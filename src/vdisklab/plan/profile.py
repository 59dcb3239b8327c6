"""A profile: the measurements that each cell goes through, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BOOT = "boot"
"""The program of a measurement that boots a guest from the measured disk."""

Setting = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """One program with its settings, which the program's own module reads and checks.

    `name` is unique within the profile and names the result: `randread-4k-q1`. `filesystem` is
    the one that is made in the guest for it and on whose files it works; None: the disk itself.
    """

    name: str
    program: str
    settings: Mapping[str, Setting]
    filesystem: str | None = None


@dataclass(frozen=True, slots=True)
class Usual:
    """What a profile does where the user says nothing; None: what every profile does.

    `interval` is a rest in seconds before each measurement.
    """

    blocks: int | None = None
    runtime: float | None = None
    ramp: float | None = None
    size_bytes: int | None = None
    interval: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """A named list of measurements."""

    name: str
    title: str
    measurements: tuple[MeasurementPlan, ...]
    description: str = ""
    usual: Usual = Usual()

    @property
    def boots(self) -> bool:
        """True when guests are booted from the measured disks, which therefore hold a system."""
        return any(measurement.program == BOOT for measurement in self.measurements)
