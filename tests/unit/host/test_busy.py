"""How busy the host is, from counters as the kernel writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vdisklab.host.counters import BusySnapshot, load_between, snapshot
from vdisklab.results.model import HostLoad


def test_shares_between_two_snapshots() -> None:
    before = BusySnapshot(
        10.0, (0,) * 8, ((0, 0),), {("qemu", 1, "guest 1"): 0, ("IO", 2, "guest 2"): 0}
    )
    after = BusySnapshot(
        20.0,
        (100, 0, 50, 700, 100, 0, 0, 50),
        ((9500, 40_000),),
        {("qemu", 1, "guest 1"): 100, ("IO", 2, "guest 2"): 900, ("new", 3, "guest 2"): 5000},
    )
    load = load_between(before, after)
    assert load.cpu == pytest.approx(0.2)
    assert load.steal == pytest.approx(0.05)
    assert load.device == pytest.approx(0.95)
    assert load.queue == pytest.approx(4.0)
    assert load.thread == "IO of guest 2"
    assert load.thread_cpu == pytest.approx(900 / os.sysconf("SC_CLK_TCK") / 10)


def test_without_counters_nothing_is_known(tmp_path: Path) -> None:
    nothing = snapshot([(8, 0)], {"guest 1": 1}, tmp_path)
    assert load_between(nothing, nothing) == HostLoad()


def test_this_host() -> None:
    before = snapshot([], {"this": os.getpid()})
    end = time.thread_time() + 0.1  # a busy machine gives us less than all of it
    while time.thread_time() < end:
        pass
    load = load_between(before, snapshot([], {"this": os.getpid()}))
    assert load.cpu is None or 0 <= load.cpu <= 1
    assert load.device is None
    assert load.thread is not None
    assert load.thread.endswith("of this")
