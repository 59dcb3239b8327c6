"""Any job file of fio as a profile: jobs that run together are one measurement."""

from __future__ import annotations

import re
from pathlib import PurePath

from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.workload.fiojob import groups


def job_profile(job: str, origin: str) -> Profile:
    """The profile of a job file, named after the file; each measurement after its first job.

    Raises PlanError for a file that is none, or that reaches outside what is measured.
    """
    measurements: list[MeasurementPlan] = []
    for group in groups(job, origin):
        name = _free_name(group[0].name, [each.name for each in measurements])
        sections = tuple(section.name for section in group)
        measurements.append(MeasurementPlan(name, "fio", {"job": job, "sections": sections}))
    stem = _plain(PurePath(origin).stem)
    return Profile(stem, f"the fio job file {PurePath(origin).name}", tuple(measurements))


def _free_name(wanted: str, taken: list[str]) -> str:
    name = plain = _plain(wanted)
    number = 2
    while name in taken:
        name = f"{plain}-{number}"
        number += 1
    return name


def _plain(text: str) -> str:
    """Small letters, digits, dots and dashes, as names in profiles are."""
    kept = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")
    return kept[:60] or "job"
