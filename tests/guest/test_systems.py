"""An operating system installed in a guest, and guests booted from the measured disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab

pytestmark = pytest.mark.guest


def run(lab: Lab, *arguments: str) -> str:
    """What a campaign of one round printed that measured all its cells."""
    command_line = (
        "run", *arguments, "--baseline", "none", "--page-cache", "cold", "--rounds", "1",
        "--accelerator", "tcg", "--guest-cpus", "1",
        "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip
    status, printed = lab.call(*command_line)
    assert status == 0, printed
    return printed


ONE_INSTALLATION = """
name = "one"
title = "the short system, once"

[[measurement]]
name = "install"
program = "dpkg"
filesystem = "ext4"
system = "short"
"""


@pytest.mark.nightly
def test_an_installation_makes_a_thin_image_grow(lab: Lab, tmp_path: Path) -> None:
    profile = tmp_path / "one.toml"
    profile.write_text(ONE_INSTALLATION)
    printed = run(
        lab, "qcow2:preallocation=off/writeback", "--profile", str(profile), "--size", "300M"
    )
    (found,) = lab.runs()
    (installed,) = found.measurements
    seen = {sample.metric: sample.value for sample in installed.samples}
    # 26 packages of 53 MB; dpkg wants each file, and its database, to be kept
    assert 40e6 < seen["mapped"] < 300e6
    assert 40e6 < seen["allocated"] < 300e6
    assert seen["flushes"] > 50
    assert seen["duration"] > 0
    # dpkg says nothing of these: QEMU's counters do
    assert {"worst_second", "longest_stall"} <= seen.keys()
    assert "Setting up dash" in installed.raw
    assert "packages.short" in {check.name for check in found.checks}
    assert "Growth" in printed


@pytest.mark.parametrize(
    "path",
    [
        "raw/none/ide",
        # Each commit plugs a disk on NVMe into a guest that booted from another.
        pytest.param("qcow2:preallocation=off/writeback/nvme", marks=pytest.mark.nightly),
    ],
)
def test_boot_from_the_measured_disk(lab: Lab, path: str) -> None:
    run(lab, path, "--profile", "boot", "--size", "320M")
    (found,) = lab.runs()
    (boot,) = found.measurements
    samples = {sample.metric: sample.value for sample in boot.samples}
    assert 0 < samples["boot_time"] < 90
    assert 0 <= samples["longest_stall"] < samples["boot_time"]
    assert 0 < samples["shutdown_time"] < 90
    # the programs came from the measured disk
    assert boot.evidence.qemu is not None
    assert boot.evidence.qemu.read_bytes > 4e6
    assert all(check.confirmed for check in found.checks)
