"""Reads a profile, which users write in TOML.

    name = "quick"
    title = "Sequential and random, shallow and deep"

    [[measurement]]
    name = "randread-4k-q1"
    program = "fio"
    filesystem = "ext4"    # created in the guest; without this key the disk itself is measured
    rw = "randread"        # all further keys are settings, which the program's module reads

Before the measurements a table [usual] may give rounds, runtime, ramp, size, memory (the guest's),
interval and paths.

The built-in profiles are package data of `vdisklab.workload`.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field

from vdisklab.errors import PlanError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.segments import GuestFsKind
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting, Usual
from vdisklab.plan.toml_file import TomlTable, read_toml, text_of
from vdisklab.plan.value_kinds import Bytes, Seconds

READABLE = "name a readable file in UTF-8, or a profile that `vdisklab profiles` lists"

# Names become parts of file names, metric names and SQL; they contain nothing that needs quoting.
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]

_Program = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+_-]{0,62}$")]


def _setting(value: object) -> object:
    """A scalar unchanged, a list of strings as a tuple; raises ValueError for anything else."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError("a setting is a string, a number, true, false, or a list of strings")


_Setting = Annotated[Setting, BeforeValidator(_setting)]


class _MeasurementTable(TomlTable):
    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, _Setting] = Field(init=False)

    name: _Name = Field(description='name = "randread-4k-q1", unique within the profile')
    program: _Program = Field(description='program = "fio"')
    filesystem: Annotated[GuestFsKind, Field(strict=False)] | None = Field(
        None, description='filesystem = "ext4": created in the guest; the program uses files in it'
    )

    def as_plan(self) -> MeasurementPlan:
        settings = dict(self.__pydantic_extra__)
        return MeasurementPlan(self.name, self.program, settings, self.filesystem)


class _UsualTable(TomlTable):
    rounds: int | None = Field(
        None,
        validation_alias=AliasChoices("rounds", "blocks"),  # blocks: the earlier name
        ge=1,
        description="number of repetitions, from 1",
    )
    runtime: Seconds | None = Field(None, description="seconds of each measurement")
    ramp: Seconds | None = Field(None, description="warm-up in seconds, which is not measured")
    size: Bytes | None = Field(None, description='size of the disk: size = "1G"')
    memory: Bytes | None = Field(None, description='memory of the guest: memory = "256M"')
    interval: Seconds = Field(0.0, description="pause in seconds before each measurement")
    paths: list[str] = Field([], description='disk paths to measure: paths = ["{raw,qcow2}/none"]')
    page_cache: Annotated[PageCacheChoice, Field(strict=False)] | None = Field(
        None, description='state of the host\'s page cache: page_cache = "cold"'
    )

    def as_usual(self) -> Usual:
        paths = tuple(self.paths)
        return Usual(
            self.rounds, self.runtime, self.ramp, self.size, self.interval, paths, self.memory,
            self.page_cache,
        )  # fmt: skip


class _ProfileTable(TomlTable):
    name: _Name = Field(description='name = "quick"')
    title: str = Field(min_length=1, description='title = "what it measures, in a few words"')
    description: str = ""
    usual: _UsualTable | None = Field(
        None,
        description="a table with the usual rounds, runtime, ramp, size, memory, interval, paths, "
        "page_cache",
    )
    measurement: list[_MeasurementTable] = Field(
        min_length=1,
        description="a table [[measurement]] with name and program for each measurement",
    )


def read_profile(name: str) -> Profile:
    """The profile in a TOML file of the user. Raises PlanError."""
    return parse_profile(text_of(Path(name), "profile", READABLE), name)


def parse_profile(text: str, origin: str) -> Profile:
    """The profile that a TOML text describes.

    Raises PlanError naming `origin`, the table and the key; also if two measurements have one name.
    """
    table = read_toml(text, origin, _ProfileTable)
    names = Counter(measurement.name for measurement in table.measurement)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise PlanError(
            f"two tables [[measurement]] of {origin} have the name {twice[0]!r} (key 'name')",
            hint="give each measurement a different name",
        )
    return Profile(
        name=table.name,
        title=table.title,
        measurements=tuple(measurement.as_plan() for measurement in table.measurement),
        description=table.description,
        usual=Usual() if table.usual is None else table.usual.as_usual(),
    )
