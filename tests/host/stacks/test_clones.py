"""A disk that is cloned from its template's dataset: by zfs-fuse where the kernel has no ZFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab
from vdisklab.host.command import LocalHost

from .conftest import MIB

pytestmark = pytest.mark.host


def test_a_clone_of_a_dataset_lives_and_leaves_nothing(tmp_path: Path, zfs: LocalHost) -> None:
    lab = Lab(tmp_path, tmp_path / "state")
    lab.prepare()
    arguments = (
        "run", "zfs/raw/none", "--made", "zfs-clone", "--profile", "life-host", "--rounds", "1",
        "--size", "16M", "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip
    with lab.start(*arguments) as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    (run,) = lab.runs()
    assert run.failure is None, printed
    steps = {step.name: step for step in run.measurements}
    assert list(steps) == ["make", "attach", "first-write", "reset", "delete"]
    made = {sample.metric: sample.value for sample in steps["make"].samples}
    written = {sample.metric: sample.value for sample in steps["first-write"].samples}
    assert made["allocated"] < MIB, "a clone shares its blocks"
    assert 0 < written["allocated"] < MIB
    assert written["unit"] == 128 << 10, "ZFS's default recordsize"
    assert lab.leftovers() == []
    pools = zfs.run("zpool", "list", "-H", "-o", "name", allowed=(0, 1)).stdout.split()
    assert [pool for pool in pools if pool.startswith("vdl_")] == []
