"""DISKSPD in the place of fio: its command line, and its XML."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.plan.profile_file import parse_profile
from vdisklab.results.model import Direction
from vdisklab.workload.builtin_profiles import builtin_profile_text
from vdisklab.workload.diskspd import Diskspd
from vdisklab.workload.program import Outputs, Subject, Timing
from vdisklab.workload.registry import workload_for

XML = (Path(__file__).parents[2] / "data" / "foreign" / "diskspd-2.0.xml").read_text()
SUBJECT = Subject("#1", 64 << 20, is_device=True, scratch=r"C:\Windows\Temp")


def measurement(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("m", "fio", settings)


def test_the_whole_command() -> None:
    script = Diskspd().script(
        measurement(rw="randrw", bs="4k", iodepth=8, numjobs=2, rwmixread=70),
        SUBJECT,
        Timing(1.5, 0.2),
    )
    assert script.command == (
        r"C:\Windows\Temp\vdisklab-diskspd.exe", "-b4096", "-f67108864", "-d2", "-W1", "-t2",
        "-o8", "-r4096", "-w30", "-Su", "-Z1M", "-L", "-D1000", "-Rxml", "#1",
    )  # fmt: skip
    assert script.expected == 3.0


@pytest.mark.parametrize(
    ("rw", "jobs", "arguments"),
    [
        ("read", 1, ["-w0"]),
        ("write", 1, ["-w100"]),
        ("write", 4, ["-si", "-w100"]),
        ("randread", 1, ["-r1048576", "-w0"]),
        ("rw", 1, ["-w50"]),
    ],
)
def test_orders_and_directions(rw: str, jobs: int, arguments: list[str]) -> None:
    script = Diskspd().script(measurement(rw=rw, bs="1M", numjobs=jobs), SUBJECT, Timing(5.0, 0.0))
    found = [word for word in script.command if word.startswith(("-r", "-si", "-w"))]
    assert found == arguments


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"rw": "write", "bs": "4k", "fsync": 1}, "fsync"),
        ({"rw": "write", "bsrange": "512-1M"}, "bsrange"),
        ({"rw": "write", "bs": "4k", "size": "1M"}, "size"),
        ({"rw": "write", "bs": "4k", "iodepth_batch": 4}, "iodepth_batch"),
        ({"rw": "write", "bs": "4k", "time_based": False}, "time_based"),
    ],
)
def test_what_it_lacks_is_refused(settings: dict[str, Setting], what: str) -> None:
    with pytest.raises(PlanError, match=what):
        Diskspd().script(measurement(**settings), SUBJECT, Timing(1.0, 0.0))


def test_its_answer() -> None:
    outcome = Diskspd().parse(measurement(rw="randread", bs="4k"), Outputs("\ufeff" + XML))
    values = {(each.metric, each.direction): each.value for each in outcome.samples}
    assert values["iops", Direction.READ] == 1000.0
    assert outcome.measured_seconds == 2.0
    for damaged in ("", XML[: len(XML) // 2], "WARNING: cannot open #1"):
        with pytest.raises(WorkloadError):
            Diskspd().parse(measurement(rw="randread", bs="4k"), Outputs(damaged))


def test_which_profiles_a_windows_guest_can_run() -> None:
    for name in ("quick", "crystaldiskmark", "mixed"):
        for each in parse_profile(builtin_profile_text(name), name).measurements:
            workload_for(each, in_windows=True).script(each, SUBJECT, Timing(1.0, 0.0))
    with pytest.raises(PlanError, match="does not run on Windows"):
        workload_for(MeasurementPlan("s", "sysbench", {}), in_windows=True)
