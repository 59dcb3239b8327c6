"""A daemon that dies ends the measurement with a sentence."""

from __future__ import annotations

import os

import pytest

from vdisklab.campaign.watches import DaemonWatch
from vdisklab.errors import GuestError
from vdisklab.progress import Event, Throughput


def test_the_daemons_traffic_is_a_series() -> None:
    events: list[Event] = []
    watch = DaemonWatch("virtiofsd", os.getpid(), lambda: True, events.append)
    watch.begin()
    watch()
    series = watch.end()
    assert len(series.moved) == 3
    assert series.stalls is None
    assert all(isinstance(event, Throughput) for event in events)


def test_a_daemon_that_ended_is_named() -> None:
    living = [True]
    watch = DaemonWatch("virtiofsd", os.getpid(), lambda: living[0], lambda event: None)
    watch.begin()
    living.clear()
    living.append(False)
    with pytest.raises(GuestError, match="virtiofsd, which serves the guest, has ended"):
        watch()
