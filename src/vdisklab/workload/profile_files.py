"""Profiles by name, built in or files of the user, and the profile that a request asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from vdisklab.errors import PlanError
from vdisklab.loads.load_file import SUFFIX
from vdisklab.plan.profile import RATE, MeasurementPlan, Profile
from vdisklab.plan.profile_file import read_profile
from vdisklab.plan.settings import Request
from vdisklab.value import replace
from vdisklab.workload.builtin_profiles import builtin_profile
from vdisklab.workload.fiojob import read_job
from vdisklab.workload.registry import WORKLOADS, beside_workload_for


def _of_load(file: str) -> Profile:
    from vdisklab.workload.replay import load_profile_of  # noqa: PLC0415 - few replay a load

    return load_profile_of(file)


FORMS: Mapping[str, Callable[[str], Profile]] = {
    ".toml": read_profile,
    ".fio": read_job,
    SUFFIX: _of_load,
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


def requested_profile(request: Request) -> Profile:
    """The profile of a request, shaped by --neighbour, --clients and --load.

    Raises PlanError if there is none, if it has no rate or no clients to set, or if it cannot run
    beside an operation.
    """
    if request.has_operations and (request.made or request.template is not None):
        raise PlanError(
            "--made measures how disks are made, and --during what an operation costs a guest that "
            "runs: they are two runs",
            hint="leave out --during, or --made and --from",
        )
    profile = load_profile(request.profile_name, beside=request.neighbour)
    if not request.has_operations:
        return _with_load(with_clients(profile, request.clients), request.load)
    # The first measurement runs alone beside the operation, and need not have a rate.
    first = profile.measurements[0]
    if not beside_workload_for(first).needs_rate and request.load is not None:
        raise PlanError(
            f"--load sets the rate of made-up requests, and {profile.name} has the recording's",
            hint="leave out --load",
        )
    return replace(profile, measurements=(first,))


def with_clients(profile: Profile, clients: int | None) -> Profile:
    """The profile with another number of clients wherever it has several, also in the names.

    Raises PlanError if no measurement has several.
    """
    if clients is None:
        return profile
    settings = {name: workload.clients_setting for name, workload in WORKLOADS.items()}
    before = {
        measurement.name: several
        for measurement in profile.measurements
        if (several := measurement.settings.get(settings.get(measurement.program) or "", 1)) != 1
    }
    if not before:
        raise PlanError(
            f"--clients sets how many clients a database has, and profile {profile.name} has no "
            "measurement with several",
            hint="choose --profile postgresql or mariadb",
        )

    def changed(measurement: MeasurementPlan) -> MeasurementPlan:
        name = re.sub(rf"(?<=-c){before[measurement.name]}(?=-|$)", str(clients), measurement.name)
        return replace(
            measurement,
            name=name,
            settings={**measurement.settings, str(settings[measurement.program]): clients},
        )

    return replace(
        profile,
        measurements=tuple(
            changed(measurement) if measurement.name in before else measurement
            for measurement in profile.measurements
        ),
    )


def _with_load(profile: Profile, load: int | None) -> Profile:
    """The profile with another rate. Raises PlanError if its load has no rate."""
    if load is None:
        return profile
    if not profile.is_open_load:
        raise PlanError(
            f"--load sets the rate of an open load, and profile {profile.name} has none",
            hint="choose --profile open-load, or a profile of yours with rate_iops",
        )
    return replace(
        profile,
        measurements=tuple(
            replace(measurement, settings={**measurement.settings, RATE: load})
            if RATE in measurement.settings
            else measurement
            for measurement in profile.measurements
        ),
    )
