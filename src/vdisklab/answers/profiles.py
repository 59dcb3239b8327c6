"""`profiles`: what can be measured, how long it takes, and how much space it needs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from vdisklab.answers.plan import answer_plan
from vdisklab.documents import Answer
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import Request
from vdisklab.value import Value

EXAMPLE_PATH = "raw/none"
"""A path whose image bypasses the page cache, for the cost of a profile."""


class ListedProfile(Value):
    """One profile, with the time and space that one path and its baseline need."""

    profile: str
    title: str
    programs: tuple[str, ...]
    measurements: int
    rounds: int
    seconds: float
    at_least: Annotated[
        bool, "true if a program takes as long as the disk needs, so `seconds` is the minimum"
    ]
    disk_bytes: int
    room_bytes: Annotated[int, "in the work directory"]


class ProfilesAnswer(Answer):
    """`vdisklab profiles`: all profiles."""

    FORMAT = "vdisklab.profiles/2"

    profiles: tuple[ListedProfile, ...]


class ProfileMeasurement(Value):
    """One measurement of a profile."""

    name: str
    program: str
    filesystem: Annotated[str | None, "null: the disk itself"]
    settings: str


class ProfileAnswer(Answer):
    """`vdisklab profiles PROFILE`: its measurements."""

    FORMAT = "vdisklab.profile/2"

    profile: str
    title: str
    description: str
    measurements: tuple[ProfileMeasurement, ...]


def answer_profiles(profiles: Iterable[Profile]) -> ProfilesAnswer:
    """The cost of each profile's smallest useful campaign: one path and its baseline."""
    return ProfilesAnswer(tuple(map(_listed, profiles)))


def _listed(profile: Profile) -> ListedProfile:
    request = Request(paths=(EXAMPLE_PATH,), directory=Path("/"))
    plan = build_plan(request, Capabilities(), profile)
    cost = answer_plan(plan)
    return ListedProfile(
        profile=plan.profile.name,
        title=plan.profile.title,
        programs=tuple(
            dict.fromkeys(measurement.program for measurement in plan.profile.measurements)
        ),
        measurements=len(plan.profile.measurements),
        rounds=plan.rounds,
        seconds=cost.seconds_estimated,
        at_least=any(
            measurement.program in ("dd", "bonnie++", "sqlite", "dpkg")
            or measurement.settings.get("time_based") is False
            for measurement in plan.profile.measurements
        ),
        disk_bytes=plan.size_bytes,
        room_bytes=cost.bytes_needed,
    )


def answer_profile(profile: Profile) -> ProfileAnswer:
    """The measurements of one profile."""
    return ProfileAnswer(
        profile=profile.name,
        title=profile.title,
        description=" ".join(profile.description.split()),
        measurements=tuple(
            ProfileMeasurement(
                measurement.name, measurement.program, measurement.filesystem,
                ", ".join(f"{key}={value}" for key, value in measurement.settings.items()),
            )
            for measurement in profile.measurements
        ),
    )  # fmt: skip
