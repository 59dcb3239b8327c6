"""Guests that are measured at once must have started together."""

from __future__ import annotations

import pytest

from vdisklab.campaign.measure_group import require_together
from vdisklab.campaign.measured_evidence import StateError
from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction
from vdisklab.workload.open_load import GuestRequests, LoggedRequest, common_window

RAMP, RUNTIME = 1.0, 3.0


def a_guest(start: float, end: float) -> GuestRequests:
    requests = (LoggedRequest(2.0, 0.001, Direction.WRITE, 4096),) * 400
    return GuestRequests(start, end, True, requests)


def together(*guests: GuestRequests) -> str:
    return require_together(guests, common_window(guests, RUNTIME), RAMP, RUNTIME).observed


def test_guests_that_started_within_the_ramp() -> None:
    assert together(a_guest(0.0, 4.0), a_guest(0.9, 4.9)) == "all started within 1 s"


def test_guests_that_did_not() -> None:
    with pytest.raises(StateError, match=r"started 1\.50 s apart"):
        together(a_guest(0.0, 4.0), a_guest(1.5, 5.5))


def test_a_guest_whose_threads_did_not_start_together() -> None:
    with pytest.raises(WorkloadError, match="guest 2 of 2: its CPUs are too busy") as error:
        together(a_guest(0.0, 4.0), a_guest(1.5, 4.0))
    assert "1.5 s apart" in str(error.value)
    assert "completed 100 requests a second" in str(error.value)
