"""The profile that a request names, with the load and the clients that it asks for."""

from __future__ import annotations

import re
from dataclasses import replace

from vdisklab.errors import PlanError
from vdisklab.plan.profile import RATE, MeasurementPlan, Profile
from vdisklab.plan.settings import DEFAULT_PROFILE, DURING_PROFILE, LIFE_PROFILE, Request
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.registry import WORKLOADS, beside_workload_for


def requested_profile(request: Request) -> Profile:
    """The profile of a request, shaped by --neighbour, --clients and --load.

    Raises PlanError if there is none, or if it has no rate or no clients to set.
    """
    if request.has_operations and (request.made or request.template is not None):
        raise PlanError(
            "--made measures how disks are made, and --during what an operation costs a guest that "
            "runs: they are two runs",
            hint="leave out --during, or --made and --from",
        )
    profile = load_profile(profile_of(request), beside=request.neighbour)
    if request.has_operations:
        return _beside_operation(profile, request.load)
    return with_load(with_clients(profile, request.clients), request.load)


def profile_of(request: Request) -> str:
    """The name of the profile, or its file: the request's, else what fits its other options."""
    if request.profile:
        return request.profile
    if request.made or request.template is not None:
        return LIFE_PROFILE
    return DURING_PROFILE if request.has_operations else DEFAULT_PROFILE


def _beside_operation(profile: Profile, rate: int | None) -> Profile:
    """The profile's first measurement alone, whose rate need not be in the profile.

    Raises PlanError if it cannot run beside an operation, or not at that rate.
    """
    first = profile.measurements[0]
    if not beside_workload_for(first).needs_rate and rate is not None:
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


def with_load(profile: Profile, load: int | None) -> Profile:
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
