"""A profile: the measurements that each cell goes through, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Setting = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """One program with its settings, which the program's own module reads and checks.

    `name` is unique within the profile and names the result: `randread-4k-q1`.
    """

    name: str
    program: str
    settings: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Profile:
    """A named list of measurements."""

    name: str
    title: str
    measurements: tuple[MeasurementPlan, ...]
    description: str = ""
