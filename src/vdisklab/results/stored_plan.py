"""What a campaign's stored plan must have for answers to use it; other parts are not checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from vdisklab.plan.plan_file import request_alike
from vdisklab.plan.settings import Request
from vdisklab.validation import first_problem

DEEPEST = 100
"""Maximum nesting of a plan; vdisklab's plans have five levels."""


class _Measurement(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    program: str | None = None
    settings: dict[str, Any] = {}
    filesystem: str | None = None


class _Plan(BaseModel):
    model_config = ConfigDict(extra="allow")
    cells: list[str] = []
    measurements: list[_Measurement]
    baseline: str = "host"
    guest: dict[str, Any] = {}
    qemu: dict[str, Any] = {}
    devices: list[str] | None = None
    directory: str | None = None
    size_bytes: int | None = None


def plan_error(plan: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """What is wrong with a plan, such as `measurements is missing`; None if nothing is."""
    if _is_deep(plan):
        return f"it is nested deeper than {DEEPEST} levels"
    try:
        _Plan.model_validate(plan)
        request_alike(plan, Request)
    except ValidationError as error:
        return first_problem(error)
    return None


def _is_deep(plan: object) -> bool:
    """True for a plan nested too deeply for a database or a reader."""
    level: list[object] = [plan]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        if not inner:
            return False
        level = inner
    return True
