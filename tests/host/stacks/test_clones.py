"""A disk that is cloned from its template's dataset: by zfs-fuse where the kernel has no ZFS."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
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


@pytest.mark.nightly  # five times the life above, and its pool is made by a slow zfs-fuse
@pytest.mark.parametrize(
    "command",
    ["qemu-img convert", "zfs clone", "qemu-io -c read", "qemu-io -c write", "zfs destroy"],
)
def test_what_a_kill_in_a_clones_life_leaves_is_cleaned(
    tmp_path: Path, zfs: LocalHost, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The program of a step, first on PATH, kills vdisklab, and is at work when it is gone."""
    lab = Lab(tmp_path, tmp_path / "state")
    lab.prepare()
    template = tmp_path / "golden.raw"
    template.write_bytes(os.urandom(8 * MIB) + bytes(8 * MIB))
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    program, _, order = command.partition(" ")
    fake, told, real = tmp_path / "bin" / program, tmp_path / "pid", shutil.which(program)
    assert real is not None
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "{order}"*made-*|"{order}"*template-*) kill -KILL $(cat {told});; esac\n'
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    with lab.start(
        "run", "zfs/raw/none", "--made", "zfs-clone", "--profile", "life-host", "--rounds", "1",
        "--from", str(template), "--dir", str(lab.work), "--db", str(lab.database),
    ) as process:  # fmt: skip
        told.write_text(str(process.pid))
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, printed
    assert lab.leftovers() != []
    with lab.start("clean") as cleaning:
        said, _ = cleaning.communicate(timeout=120)
    assert cleaning.returncode == 0, said
    assert lab.leftovers() == []
    pools = zfs.run("zpool", "list", "-H", "-o", "name", allowed=(0, 1)).stdout.split()
    assert [pool for pool in pools if pool.startswith("vdl_")] == []
    assert hashlib.sha256(template.read_bytes()).hexdigest() == before
