"""A daemon that dies ends the measurement with a sentence."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import cast

import pytest

from vdisklab.campaign.served_disks import DaemonWatch
from vdisklab.errors import GuestError
from vdisklab.guest.qemu.storage_daemon import StorageDaemon
from vdisklab.progress import Event, Throughput


@dataclass
class FakeDaemon:
    """A daemon with the number of this process, which may have ended."""

    living: bool = True
    pid: int = os.getpid()

    def alive(self) -> bool:
        return self.living


def test_the_daemons_traffic_is_a_series() -> None:
    events: list[Event] = []
    watch = DaemonWatch(cast(StorageDaemon, FakeDaemon()), events.append)
    watch.begin()
    watch()
    series = watch.end()
    assert len(series.moved) == 3
    assert series.stalls is None
    assert all(isinstance(event, Throughput) for event in events)


def test_a_daemon_that_ended_is_named() -> None:
    daemon = FakeDaemon()
    watch = DaemonWatch(cast(StorageDaemon, daemon), lambda event: None)
    watch.begin()
    daemon.living = False
    with pytest.raises(GuestError, match="qemu-storage-daemon, which serves the disk, has ended"):
        watch()
