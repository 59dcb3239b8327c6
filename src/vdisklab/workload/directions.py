"""What a measurement can give numbers of, as far as its settings alone tell."""

from __future__ import annotations

from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction

_ONE_WAY = {
    "read": Direction.READ,
    "randread": Direction.READ,
    "write": Direction.WRITE,
    "randwrite": Direction.WRITE,
}


def directions_of(measurement: MeasurementPlan) -> tuple[Direction, ...] | None:
    """The only directions that fio or dd will report; None where the settings do not tell."""
    match measurement.program:
        case "fio":
            said = measurement.settings.get("rw")
        case "dd":
            said = measurement.settings.get("direction", "write")
        case _:
            return None
    one = _ONE_WAY.get(said) if isinstance(said, str) else None
    return None if one is None else (one,)
