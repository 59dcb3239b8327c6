"""`--clients`, and a program that needs nothing but its file and its row."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.workload import program, registry
from vdisklab.workload.clients import with_clients


def database(name: str, program: str, **settings: int) -> MeasurementPlan:
    return MeasurementPlan(name, program, settings, "ext4")


def test_another_number_of_clients_is_in_names_and_settings_of_measurements_with_several() -> None:
    several = (
        database("tpcb-like-c1", "postgresql", clients=1),
        database("tpcb-like-c8-60percent", "postgresql", clients=8, rate_percent=60),
        database("oltp-read-write-c8", "mariadb", threads=8),
        MeasurementPlan("sysbench-c8", "sysbench", {"threads": 8}),
    )
    changed = with_clients(Profile("mine", "t", several), 32)
    assert [(each.name, dict(each.settings)) for each in changed.measurements] == [
        ("tpcb-like-c1", {"clients": 1}),
        ("tpcb-like-c32-60percent", {"clients": 32, "rate_percent": 60}),
        ("oltp-read-write-c32", {"threads": 32}),
        ("sysbench-c8", {"threads": 8}),
    ]


def test_clients_of_a_profile_without_several_are_refused() -> None:
    profile = Profile("mine", "t", (database("tpcb-like-c1", "postgresql", clients=1),))
    with pytest.raises(PlanError, match="--clients sets how many clients a database has"):
        with_clients(profile, 4)


class Mysql(program.Workload):
    """OLTP of sysbench on MySQL: a toy."""

    by_server = True
    clients_setting = "sessions"

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """Not run here."""
        raise NotImplementedError

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Not run here."""
        raise NotImplementedError


def test_a_new_program_is_a_class_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plans a campaign knows no program by name."""
    monkeypatch.setitem(registry.WORKLOADS, "mysql", Mysql())
    oltp = database("oltp-c8", "mysql", sessions=8)
    assert registry.workload_for(oltp).by_server
    (changed,) = with_clients(Profile("mine", "t", (oltp,)), 16).measurements
    assert (changed.name, dict(changed.settings)) == ("oltp-c16", {"sessions": 16})
