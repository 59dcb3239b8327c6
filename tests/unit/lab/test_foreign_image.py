"""The lab of another architecture: what is left out, and what no package's script could do here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vdisklab.errors import PlanError
from vdisklab.lab import foreign_image
from vdisklab.lab.lab_image import PACKAGES, foreign_packages
from vdisklab.lab.verb import note_on_layers
from vdisklab.path.architecture import ARCHITECTURES, CHOICE, GUEST, Architecture
from vdisklab.path.disk_path import parse_path


def test_nothing_is_compiled_and_no_zfs_is_there() -> None:
    left_out = set(PACKAGES) - set(foreign_packages())
    assert GUEST.packages.kernel_headers in left_out
    assert "zfs-dkms" in left_out
    assert {"lvm2", "mdadm", "python3", "fio", GUEST.packages.kernel} <= set(foreign_packages())


def test_paths_on_zfs_are_named_before_the_lab_boots() -> None:
    lvm, zvol, dataset = map(parse_path, ("lvm/none", "zvol/ext4/raw/none", "zfs/raw/none"))
    assert note_on_layers((lvm,)) is None
    note = note_on_layers((lvm, zvol))
    assert note is not None
    assert note.startswith(f"note: the lab for {GUEST.name} has no ZFS")
    with pytest.raises(PlanError, match="has no ZFS"):
        note_on_layers((zvol, dataset))


def test_what_the_packages_scripts_would_have_made(tmp_path: Path) -> None:
    masters = tmp_path / "usr/share/base-passwd"
    masters.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "sbin").mkdir()
    for name in ("passwd", "group"):
        (masters / f"{name}.master").write_text("root:x:0:0\n")
    foreign_image._configure(tmp_path)
    assert (tmp_path / "etc/passwd").read_text() == "root:x:0:0\n"
    assert os.access(tmp_path / "sbin/vdisklab-lab", os.X_OK)
    assert (tmp_path / "etc/mdadm/mdadm.conf").read_text() == "AUTO -all\n"


PROGRAM = """
from pathlib import Path
from vdisklab.lab.lab_image import LabImage, PACKAGES
from vdisklab.lab.lab_machine import LabConfig, LabFiles, lab_argv, start_script, usable_cpus
from vdisklab.plan.accelerator import Accelerator
files = LabFiles(LabImage(Path("/lab"), "6.1", "3.11"), Path("/w"), Path("/c"))
print(*lab_argv(LabConfig(Accelerator.TCG, 2), files, "n", None), usable_cpus(Accelerator.TCG, 2))
print(*PACKAGES)
print(start_script())
"""


@pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.name)
def test_the_machine_of_each_lab_offers_kvm(row: Architecture) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, CHOICE: row.name},
    )  # fmt: skip
    argv, packages, start = done.stdout.split("\n", 2)
    assert argv.startswith(f"{row.emulator} ")
    assert f"{row.lab_options},accel=tcg -cpu {row.lab_cpu} " in argv
    assert f"console={row.console} " in argv
    assert argv.endswith(" 2" if row.lab_has_cpus else " 1")
    assert {row.packages.kernel, row.packages.emulator} <= set(packages.split())
    assert f"/dev/{row.console}" in start
