"""The outcome of one cell in one block."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.results.model import Check, Measurement


@dataclass(frozen=True, slots=True)
class CellResult:
    """What was read back, run and measured of a cell."""

    checks: tuple[Check, ...] = ()
    commands: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()
