"""The profiles that come with vdisklab: each is whole, and like its article."""

from __future__ import annotations

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.units import GIB
from vdisklab.workload.builtin_profiles import builtin_profiles
from vdisklab.workload.fio import Fio
from vdisklab.workload.open_load import GroupStart
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.program import Subject, Timing
from vdisklab.workload.registry import workload_for


@pytest.mark.parametrize("name", builtin_profiles())
def test_each_fits_its_own_size(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    size = profile.usual.size_bytes or GIB
    for measurement in profile.measurements:
        place = Subject("/x", size, is_device=not measurement.filesystem,
                        is_directory=bool(measurement.filesystem), memory=GIB)  # fmt: skip
        workload = workload_for(measurement)
        assert measurement.filesystem or not workload.needs_directory
        timing = Timing(5, 0.5)
        if profile.is_open_load:
            start = GroupStart(1.0, 1)
            assert Fio().group_script(measurement, place, timing, start).command
        else:
            assert workload.script(measurement, place, timing).command


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("postgres", "postgresql"),
        ("marriadb", "mariadb"),
        ("SQLite", "sync-heavy"),
        ("mysql", "mariadb"),
        ("innodb", "mariadb"),
        ("db_bench", "rocksdb"),
    ],
)
def test_a_program_or_a_misspelt_name_leads_to_its_profile(name: str, meant: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_profile(name)
    assert (refused.value.hint or "").startswith(f"did you mean {meant}? ")


def test_the_articles_job() -> None:
    profile = load_profile("fio-40jobs")
    place = Subject("/x", 5 * GIB, is_device=False, is_directory=True)
    first = profile.measurements[0]
    command = workload_for(first).script(first, place, Timing(60, 0)).command
    assert {
        "--rw=write", "--bs=4096", f"--size={100 << 20}", "--numjobs=40", "--runtime=60000ms",
        "--direct=1", "--ioengine=libaio", "--iodepth=32", "--iodepth_batch=32",
        "--group_reporting=1",
    } <= set(command)  # fmt: skip


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in builtin_profiles())
    assert main(["profiles", "hdtune"]) == 0
    assert "bsrange=512-1M" in capsys.readouterr().out


def test_here_takes_no_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--here", "raw/none"]) == 2
    assert "takes no PATHS" in capsys.readouterr().err
