"""Profiles as users write them, in TOML.

    name = "quick"
    title = "Sequential and random, shallow and deep"

    [[measurement]]
    name = "randread-4k-q1"
    program = "fio"
    rw = "randread"        # all further keys are settings, which the program's module reads

The built-in profiles are package data of `vdisklab.workload`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.toml import Table, read_toml


def _setting(value: object) -> object:
    """A scalar as it is, a list of strings as a tuple; raises ValueError for anything else."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError("a setting is a string, a number, true, false, or a list of strings")


# Names become parts of file names, metric names and SQL; they say nothing that needs quoting.
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
_Setting = Annotated[Setting, BeforeValidator(_setting)]


class _MeasurementTable(Table):
    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, _Setting] = Field(init=False)

    name: _Name = Field(description='name = "randread-4k-q1", unique within the profile')
    program: _Name = Field(description='program = "fio"')

    def as_plan(self) -> MeasurementPlan:
        return MeasurementPlan(self.name, self.program, dict(self.__pydantic_extra__))


class _ProfileTable(Table):
    name: _Name = Field(description='name = "quick"')
    title: str = Field(min_length=1, description='title = "what it measures, in a few words"')
    description: str = ""
    measurement: list[_MeasurementTable] = Field(
        min_length=1, description="one table [[measurement]] for each, with name and program"
    )


def parse_profile(text: str, origin: str) -> Profile:
    """The profile that a TOML text describes.

    Raises PlanError naming `origin`, the table and the key, also for two measurements of one name.
    """
    table = read_toml(text, origin, _ProfileTable)
    names = Counter(measurement.name for measurement in table.measurement)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise PlanError(
            f"key 'name' is {twice[0]!r} in two tables [[measurement]] of {origin}",
            hint="give each measurement a name of its own",
        )
    return Profile(
        name=table.name,
        title=table.title,
        measurements=tuple(measurement.as_plan() for measurement in table.measurement),
        description=table.description,
    )
