"""Disks that are made from a template, plugged into a guest, written, reset and deleted."""

from __future__ import annotations

import hashlib
import os

import pytest

from tests.lab import Lab
from vdisklab.path.disk_path import parse_path
from vdisklab.results.model import LIFE_STEPS, Run

pytestmark = pytest.mark.guest

MIB = 1 << 20


def sample(run: Run, step: str, metric: str) -> float:
    (found,) = (measured for measured in run.measurements if measured.name == step)
    return next(each.value for each in found.samples if each.metric == metric)


# 15 s of CPU. Each commit measures the life of disks without a guest (tests/host/test_life.py), and
# plugs disks into guests (test_campaigns).
@pytest.mark.nightly
def test_disks_are_plugged_into_a_guest_which_writes_first(lab: Lab) -> None:
    template = lab.directory / "golden.raw"
    template.write_bytes(os.urandom(16 * MIB) + bytes(16 * MIB))
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    arguments = (
        "run", "xfs/raw/none/virtio:made={reflink,cp}", "xfs/qcow2/none/virtio:made=overlay",
        "--profile", "life", "--from", str(template),
        "--rounds", "1", "--runtime", "1", "--accelerator", "tcg", "--guest-cpus", "1",
        "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip
    status, printed = lab.call(*arguments)
    assert status == 0, printed
    assert "which way to take for disks that are thrown away:" in printed
    assert "recommend --need disposable" in printed
    runs = {parse_path(run.path).attachment.made: run for run in lab.runs()}
    assert set(runs) == {"reflink", "overlay", "cp"}
    for run in runs.values():
        assert run.failure is None, printed
        assert {step.name for step in run.measurements} == set(LIFE_STEPS)
        assert sample(run, "attach", "duration") > 0
        assert 0 < sample(run, "first-write", "sync_max") <= sample(run, "first-write", "duration")
        (unchanged,) = (check for check in run.checks if check.name == "life.template")
        assert unchanged.confirmed
    assert sample(runs["reflink"], "first-write", "unshared") > 0
    assert sample(runs["reflink"], "make", "allocated") < MIB
    # Not also what the first disk's writes took: XFS gives that back after `reset` has ended.
    assert sample(runs["reflink"], "delete", "given_back") < MIB
    # A cluster of the image, counted while the guest has it open; and what qemu-img's hint takes.
    assert sample(runs["overlay"], "first-write", "mapped") == 64 << 10
    assert sample(runs["overlay"], "first-write", "allocated") == MIB
    assert sample(runs["cp"], "make", "allocated") >= 31 * MIB
    assert hashlib.sha256(template.read_bytes()).hexdigest() == before
