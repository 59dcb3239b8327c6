"""Profiles by name: built in, or files of the user."""

from __future__ import annotations

from pathlib import Path

from vdisklab.plan.profile import Profile
from vdisklab.plan.profile_file import parse_profile
from vdisklab.plan.toml_file import text_of
from vdisklab.workload.builtin_profiles import builtin_profile_text
from vdisklab.workload.fiojob import job_profile


def load_profile(name: str) -> Profile:
    """A built-in profile, or one from a file: TOML, or a job file of fio. Raises PlanError."""
    if not name.endswith((".toml", ".fio")):
        return parse_profile(builtin_profile_text(name), f"profile {name}")
    hint = "name a readable file in UTF-8, or a profile that `vdisklab profiles` lists"
    text = text_of(Path(name), "profile", hint)
    return parse_profile(text, name) if name.endswith(".toml") else job_profile(text, name)
