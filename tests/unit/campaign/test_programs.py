"""The programs that a guest of the user's own must have."""

from __future__ import annotations

from vdisklab.campaign.context import programs_of
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile

from .plans import a_plan


def test_each_profile_names_the_programs_that_do_its_work() -> None:
    """sysbench is led to its directory by a shell, which every guest has."""
    plan = replace(a_plan("raw/none"), size_bytes=4 << 30)
    found = {
        name: set(programs_of(replace(plan, profile=load_profile(name)))) - {"mkdir", "mount"}
        for name in ("sysbench-fileio", "bonnie", "sync-heavy", "dd-direct", "hdtune")
    }
    assert found == {
        "sysbench-fileio": {"mkfs.ext4", "sysbench"},
        "bonnie": {"mkfs.ext2", "mkfs.ext4", "mkfs.xfs", "bonnie++"},
        "sync-heavy": {"mkfs.ext4", "sqlite3", "rm", "fio"},
        "dd-direct": {"mkfs.ext4", "dd", "rm"},
        "hdtune": {"fio"},
    }
