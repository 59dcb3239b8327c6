"""`--clients`, and a program that needs nothing but its file and its row."""

from __future__ import annotations

import sys

import pytest

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.results.model import Direction
from vdisklab.units import GIB
from vdisklab.workload import program, registry, sysbench
from vdisklab.workload.profile_files import with_clients


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


class MysqlSettings(program.Settings):
    """Settings of a MySQL measurement."""

    sessions: int


class Mysql(program.Workload):
    """OLTP of sysbench on a MySQL server that runs in the guest: a toy."""

    by_server = True
    clients_setting = "sessions"

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        settings = program.read_settings(plan, MysqlSettings)
        test = (
            "sysbench", "oltp_read_write", "--db-driver=mysql", "--mysql-socket=mysql.sock",
            f"--threads={settings.sessions}", "--percentile=99", "--histogram=on",
        )  # fmt: skip
        return program.Script(
            program.in_directory(subject.path, (*test, f"--time={timing.runtime:.0f}", "run")),
            timing.runtime,
            timing.runtime + 60,
            prepare=(
                program.SideCommand(program.in_directory(subject.path, (*test, "prepare")), 60),
            ),
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        del plan
        return sysbench.parse_oltp(output.stdout).outcome


def test_a_new_program_is_a_class_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plans a campaign knows no program by name."""
    monkeypatch.setitem(sys.modules, "vdisklab.workload.mysql", sys.modules[__name__])
    monkeypatch.setitem(registry._CLASSES, "mysql", ("mysql", "Mysql"))
    oltp = database("oltp-c8", "mysql", sessions=8)
    assert registry.workload_for(oltp).by_server
    (changed,) = with_clients(Profile("mine", "t", (oltp,)), 16).measurements
    assert (changed.name, dict(changed.settings)) == ("oltp-c16", {"sessions": 16})
    mysql = registry.workload_for(changed)
    subject = program.Subject("/srv/mysql", GIB, is_device=False, is_directory=True)
    script = mysql.script(changed, subject, program.Timing(30, 2))
    assert program.program_of(script.command) == "sysbench"
    assert "--threads=16" in script.command
    printed = program.Outputs(recorded("sysbench-1.0.20-oltp_read_write.txt"))
    transactions = mysql.parse(changed, printed).samples[0]
    assert (transactions.metric, transactions.direction) == ("transactions", Direction.WRITE)
    with pytest.raises(WorkloadError, match="completed no transaction"):
        mysql.parse(changed, program.Outputs(""))
    with pytest.raises(PlanError, match="mysql's setting"):
        mysql.script(database("oltp", "mysql", clients=8), subject, program.Timing(30, 2))
