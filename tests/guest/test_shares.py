"""Directories of the host's in real guests: virtiofs and 9p."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.lab import Lab, require_ran_as_planned
from vdisklab.results.model import Run

pytestmark = pytest.mark.guest

VIRTIOFS = "virtiofs:cache=none"
NINE_P = "9p:cache=loose:msize=256k"


def measured(lab: Lab, path: str) -> Run:
    status, printed = lab.call(*lab.arguments(path, profile="files"))
    assert status == 0, printed
    (run,) = lab.runs()
    assert run.failure is None, printed
    return run


# A commit measures a directory on virtiofs; a guest for 9p takes 10 s of CPU.
@pytest.mark.parametrize("path", [VIRTIOFS, pytest.param(NINE_P, marks=pytest.mark.nightly)])
def test_files_are_written_and_every_setting_is_read_back(lab: Lab, path: str) -> None:
    run = measured(lab, path)
    seen = {check.name: check.observed for check in run.checks}
    if path == VIRTIOFS:
        assert (seen["virtiofsd.cache"], seen["guest.filesystem"]) == ("none", "virtiofs")
        assert seen["virtiofsd.source"].startswith(str(lab.work))
        assert seen["qemu.tag"].startswith("vdl")
    else:
        assert seen["guest.filesystem"] == "9p"
        assert {"msize=262144", "loose", "trans=virtio"} <= set(seen["guest.mount"].split(","))
    assert all(check.confirmed for check in run.checks)
    (measurement,) = run.measurements
    evidence = measurement.evidence
    assert evidence.guest is not None
    assert evidence.guest.write_bytes > 0
    assert evidence.host_cpu_seconds
    assert evidence.resident_after is not None
    assert evidence.allocated_after
    assert lab.leftovers() == []
    require_ran_as_planned(lab, [run], lab.arguments(path, profile="files"))


# A guest takes 7 s of CPU. Each commit holds the sentence (test_served_disks), and kills a guest in
# the middle of a measurement, of which nothing is left (test_campaigns).
@pytest.mark.nightly
def test_a_killed_virtiofsd_is_a_failed_cell_and_leaves_nothing(lab: Lab) -> None:
    arguments = lab.arguments("virtiofs", profile="files", runtime="8")
    with lab.start(*arguments) as process:
        daemon = wait_for_daemon(lab)
        time.sleep(3.0)
        os.kill(daemon, signal.SIGKILL)
        printed, _ = process.communicate(timeout=280)
    (run,) = lab.runs()
    failure = run.failure
    assert failure is not None, printed
    assert "virtiofsd, which serves the guest, has ended" in failure.message
    assert lab.leftovers() == []


def wait_for_daemon(lab: Lab) -> int:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for pid in lab.guests():
            arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if any(word.startswith("--fd=") for word in arguments):
                return pid
        time.sleep(0.1)
    raise AssertionError("virtiofsd was never started")
