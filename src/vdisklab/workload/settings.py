"""A measurement's settings, typed by the program that reads them."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan


class Settings(BaseModel):
    """Settings of one program: types are not converted, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Model = TypeVar("Model", bound=Settings)


def read_settings(plan: MeasurementPlan, model: type[Model]) -> Model:
    """The measurement's settings. Raises PlanError naming the first wrong one."""
    try:
        return model.model_validate(dict(plan.settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(model.model_fields) or "none"
        raise PlanError(
            f"measurement {plan.name!r}: {plan.program} setting {where!r}: {first['msg']}",
            hint=f"settings of a {plan.program} measurement: {known}",
        ) from error


def require_room(
    plan: MeasurementPlan, needed: int, given: int, *, or_less: str = ", or a smaller --scale"
) -> None:
    """Raises PlanError when a measurement needs more bytes than it is given.

    `or_less` is what makes it need less; empty where nothing does.
    """
    if needed > given:
        raise PlanError(
            f"measurement {plan.name!r} needs {_mebibytes(needed)} of room and the disk "
            f"gives {_mebibytes(given)}",
            hint=f"choose a larger --size{or_less}",
        )


def require_memory(plan: MeasurementPlan, needed: int, given: int | None) -> None:
    """Raises PlanError when a measurement needs more bytes of memory than its machine has; None
    where that is not known."""
    if given is not None and needed > given:
        whole = -(-needed // (1 << 20))
        raise PlanError(
            f"measurement {plan.name!r} needs {whole} MiB of memory and the guest has "
            f"{given >> 20} MiB",
            hint=f"ask for --guest-memory {whole}M",
        )


def _mebibytes(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"
