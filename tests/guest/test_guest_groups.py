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

from tests.lab import Lab
from vdisklab.actions.measure import measure
from vdisklab.plan.density_request import DensityRequest
from vdisklab.progress import Event, MeasurementStarted
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
    """Does something to the second guest, so many seconds after a measurement is announced."""

    lab: Lab
    after: float
    act: Callable[[int], None]
    timers: list[threading.Timer] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if isinstance(event, MeasurementStarted):
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
    os.kill(pid, signal.SIGKILL)


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("act", "after", "sentence"),
    [
        pytest.param(
            late, RELEASE - 1, "s apart, not all started within 0.5 s", marks=pytest.mark.nightly
        ),
        (killed, RELEASE + 1, "guest 2 of 2 ended while all were measured"),
        # A guest that dies is tried with each commit; two guests take 12 s of CPU.
        pytest.param(stopped, RELEASE + 1, "guest 2 of 2: no answer", marks=pytest.mark.nightly),
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
