"""Profiles by name: built in, or files of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vdisklab.loads.load_file import SUFFIX
from vdisklab.plan.profile import Profile
from vdisklab.plan.profile_file import read_profile
from vdisklab.workload.builtin_profiles import builtin_profile
from vdisklab.workload.fiojob import read_job
from vdisklab.workload.replay import load_profile_of

FORMS: Mapping[str, Callable[[str], Profile]] = {
    ".toml": read_profile,
    ".fio": read_job,
    SUFFIX: load_profile_of,
}
"""By the end of a file's name, what reads its profile."""


def load_profile(name: str, beside: str | None = None) -> Profile:
    """A built-in profile, or one from a file: TOML, a job file of fio, or a recorded load.

    With `beside` the other guests run the first measurement of the profile of that name. Raises
    PlanError, LoadError.
    """
    suffix = next((suffix for suffix in FORMS if name.endswith(suffix)), None)
    profile = builtin_profile(name) if suffix is None else FORMS[suffix](name)
    return profile if beside is None else profile.beside(load_profile(beside))
