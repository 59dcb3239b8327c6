"""Several real guests at once, of which one is late, dies or hangs in the middle of a step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.lab import Lab, require_ran_as_planned
from vdisklab.actions.measure import measure
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.density_request import DensityRequest
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, MeasurementStarted
from vdisklab.results.model import FailureKind
from vdisklab.results.store import open_store
from vdisklab.units import MIB

pytestmark = pytest.mark.guest

_PROFILE = """
name = "open"
title = "An open load"
[[measurement]]
name = "writes"
program = "fio"
rw = "randwrite"
bs = "4k"
rate_iops = 40
"""

RELEASE = 2.9
"""Seconds from a measurement's announcement until two guests are released together."""


@dataclass
class Trouble:
    """Does something to the second guest, so many seconds after a measurement is announced.

    The first `spared` measurements are left alone.
    """

    lab: Lab
    after: float
    act: Callable[[int], None]
    spared: int = 0
    timers: list[threading.Timer] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, MeasurementStarted):
            return
        if self.spared:
            self.spared -= 1
        else:
            second = max(self.lab.guests(), key=started)  # process numbers start anew at times
            self.timers.append(threading.Timer(self.after, self.act, [second]))
            self.timers[-1].start()


def started(pid: int) -> int:
    """When a process started, in ticks since the boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def late(pid: int) -> None:
    """The guest stands still while both are released."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(pid, signal.SIGCONT)


def killed(pid: int) -> None:
    """Kills a guest's QEMU, which may make no system calls that it does not need."""
    assert "Seccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text()
    os.kill(pid, signal.SIGKILL)


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def test_two_guests_are_measured_at_once_and_one_that_dies_fails_its_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both runs have the same guests, of which the second dies in the middle of the second run.

    On a busy machine guests start and answer late, and QEMU's counters are read late: bounds hold
    for any load, and numbers agree with each other.
    """
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    profile = lab.directory / "open.toml"
    profile.write_text(_PROFILE)
    request = Request(
        paths=("raw/{none,writeback}",), profile=str(profile), guests=("2",), rounds=1,
        runtime=2.0, ramp=3.0, size_bytes=32 * MIB, guest_memory=128 * MIB, guest_cpus=1,
        accelerator=AcceleratorChoice.TCG, directory=lab.work, baseline="none",
        page_cache=PageCacheChoice.COLD,
    )  # fmt: skip
    trouble = Trouble(lab, RELEASE + 1, killed, spared=1)
    with open_store(f"sqlite:///{lab.database}") as store:
        assert measure(store, request, trouble).failed == 1
    for timer in trouble.timers:
        timer.join()
    run, failed = sorted(lab.runs(), key=lambda run: run.started)
    assert run.failure is None
    assert run.path.endswith("guests=2")
    (measured,) = run.measurements
    group = measured.group
    assert group is not None
    assert group.seconds == pytest.approx(2, abs=0.06)
    assert 0 <= max(member.start for member in group.members) <= 3
    assert [member.number for member in group.members] == [1, 2]
    for member in group.members:
        assert member.offered is not None
        assert 40 < member.offered < 120
        assert 0 < member.served <= member.offered
        assert member.iops > 0
        assert member.evidence.qemu is not None
        assert member.evidence.qemu.write_operations > 0
    command = [
        *lab.arguments("raw/{none,writeback}", runtime="2s", profile="open"), "--ramp", "3",
        "--guests", "2", "--guest-memory", "128M",
    ]  # fmt: skip
    require_ran_as_planned(lab, [run], command)
    rates = {sample.metric: sample.value for sample in measured.samples}
    assert rates["iops"] == pytest.approx(sum(member.iops for member in group.members), rel=0.01)
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.GUEST
    assert "guest 2 of 2 ended while all were measured" in failed.failure.message
    assert "last lines of the guest's console" in failed.failure.message
    assert failed.measurements == ()


# A guest that dies is tried with each commit, above; two guests take 12 s of CPU.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("act", "after", "sentence"),
    [
        (late, RELEASE - 1, "s apart, not all started within 0.5 s"),
        (stopped, RELEASE + 1, "guest 2 of 2: no answer"),
    ],
)
def test_the_run_fails_and_says_why(
    act: Callable[[int], None],
    after: float,
    sentence: str,
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    profile = lab.directory / "open.toml"
    profile.write_text(_PROFILE)
    request = DensityRequest(
        paths=("raw/none",), profile=str(profile), guests=("2",), rounds=1, runtime=2.0, ramp=0.5,
        size_bytes=32 * MIB, guest_memory=128 * MIB, guest_cpus=1, directory=lab.work,
        baseline="none",
    )  # fmt: skip
    trouble = Trouble(lab, after, act)
    began = time.monotonic()
    with open_store(f"sqlite:///{lab.database}") as store:
        measured = measure(store, request, trouble)
    for timer in trouble.timers:
        timer.join()
    assert measured.failed == 1
    (run,) = lab.runs()
    print(run.failure, time.monotonic() - began)
    assert run.failure is not None
    assert sentence in run.failure.message
    assert run.measurements == ()
