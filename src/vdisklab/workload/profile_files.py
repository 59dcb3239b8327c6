"""Profiles by name: built in, or files of the user."""

from __future__ import annotations

from pathlib import Path

from vdisklab.plan.profile import Profile
from vdisklab.plan.profile_file import parse_profile
from vdisklab.plan.toml_file import text_of
from vdisklab.workload.builtin_profiles import builtin_profile_text
from vdisklab.workload.fiojob import job_profile
from vdisklab.workload.replay import is_load, load_profile_of

_READABLE = "name a readable file in UTF-8, or a profile that `vdisklab profiles` lists"


def load_profile(name: str, beside: str | None = None) -> Profile:
    """A built-in profile, or one from a file: TOML, a job file of fio, or a recorded load.

    With `beside` the other guests run the first measurement of the profile of that name. Raises
    PlanError, LoadError.
    """
    if is_load(name):
        profile = load_profile_of(name)
    elif not name.endswith((".toml", ".fio")):
        text = builtin_profile_text(name)
        profile = parse_profile(text, f"profile {name}")
    else:
        text = text_of(Path(name), "profile", _READABLE)
        is_job = name.endswith(".fio")
        profile = job_profile(text, name) if is_job else parse_profile(text, name)
    return profile if beside is None else profile.beside(load_profile(beside))
