"""`--clients`: a profile with another number of clients."""

from __future__ import annotations

import re
from dataclasses import replace

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.workload.registry import WORKLOADS


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
