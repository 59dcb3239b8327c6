"""What a guest's disk moves second by second, from counters that QEMU might show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.campaign.attachment import naming_a_full_disk
from vdisklab.campaign.watches import (
    DiskPoint,
    DiskWatch,
    disk_point,
    disk_series,
    longest_stall_of,
    worst_second_of,
)
from vdisklab.errors import HostError, ServerGoneError, StoppedGuestError
from vdisklab.guest.qemu.block_nodes import AttachedNames
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.path.disk_path import parse_path
from vdisklab.progress import Event, Throughput

NONE_SLOW = (0,) * 8
BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def steady(seconds: int, rate: int = 100) -> list[DiskPoint]:
    return [
        DiskPoint(10 + tick / 10, tick * rate, tick, NONE_SLOW) for tick in range(seconds * 10 + 1)
    ]


def found(points: list[DiskPoint]) -> dict[str, float]:
    series = disk_series(points)
    samples = (*worst_second_of(series), *longest_stall_of(series))
    return {sample.metric: sample.value for sample in samples}


def test_a_steady_series() -> None:
    assert found(steady(5)) == {"worst_second": pytest.approx(1000), "longest_stall": 0.0}


def pause(slow: tuple[int, ...]) -> list[DiskPoint]:
    """Two seconds of work, three of nothing, two of work."""
    first = steady(2)
    last = first[-1]
    still = [
        DiskPoint(12 + tick / 10, last.size, last.operations, NONE_SLOW) for tick in range(1, 31)
    ]
    rest = [
        DiskPoint(15 + tick / 10, last.size + tick * 100, last.operations + tick, slow)
        for tick in range(1, 21)
    ]
    return [*first, *still, *rest]


def test_a_request_that_took_as_long_makes_it_a_stall() -> None:
    seen = found(pause((1, 1, 1, 0, 0, 0, 0, 0)))
    assert seen["longest_stall"] == pytest.approx(3.0)
    assert seen["worst_second"] == pytest.approx(0.0, abs=1e-6)


def test_nothing_asked_is_no_stall_and_no_bad_second() -> None:
    seen = found(pause(NONE_SLOW))
    assert seen["longest_stall"] == 0.0
    assert seen["worst_second"] == pytest.approx(1000)


def test_a_second_that_was_idle_but_for_its_edge_is_no_bad_one() -> None:
    """As in bonnie++'s tests of a processor: 390 bytes were the worst second of 23 MB/s."""
    shifted = [
        DiskPoint(p.moment + (0.05 if p.moment > 10 else 0), *rest(p)) for p in pause(NONE_SLOW)
    ]
    seen = found(shifted)
    assert seen["longest_stall"] == 0.0
    assert seen["worst_second"] == pytest.approx(1000, rel=0.1)


def rest(point: DiskPoint) -> tuple[int, int, tuple[int, ...] | None]:
    return point.size, point.operations, point.slow


def test_without_latencies_nothing_is_said_of_stalls() -> None:
    points = [DiskPoint(p.moment, p.size, p.operations, None) for p in steady(5)]
    assert found(points) == {}


def stats(bins: list[int]) -> Mapping[str, Any]:
    counts = {f"{kind}_operations": number for number, kind in enumerate(("rd", "wr", "flush"), 1)}
    histograms = {
        f"{kind}_latency_histogram": {"boundaries": [], "bins": bins}
        for kind in ("rd", "wr", "flush")
    }
    return {"rd_bytes": 1, "wr_bytes": 2, **counts, **histograms}


def test_query_blockstats() -> None:
    point = disk_point(stats([9, 0, 0, 1, 0, 0, 0, 0, 1]), 4.0)
    assert point == DiskPoint(4.0, 3, 6, (6, 6, 6, 3, 3, 3, 3, 3))
    old = {key: value for key, value in stats([]).items() if "histogram" not in key}
    assert disk_point(old, 4.0).slow is None


class Monitor:
    """QEMU's monitor, whose disk has done `done` operations."""

    done = 0

    def execute(self, command: str, _arguments: object = None) -> Any:  # noqa: ANN401
        if command != "query-blockstats":
            return {}
        return [{"qdev": "/machine/vdl-dev/x", "stats": {**stats([]), "rd_operations": self.done}}]


def test_before_the_first_request_no_throughput_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it would be zero, which is said of a disk that stands still later."""
    now, told, monitor = [100.0], list[Event](), Monitor()
    monkeypatch.setattr("vdisklab.campaign.watches.time.monotonic", lambda: now[0])
    watch = DiskWatch(cast("Channel", monitor), AttachedNames("vdl"), told.append)
    for done in ([0, 0, 5, 0], [0, 0, 3]):  # the counters go on in the next measurement
        watch.begin()
        told.clear()
        for more in done:
            now[0] += 1
            monitor.done += more
            watch()
        rates = [each.operations_per_second for each in told if isinstance(each, Throughput)]
        assert rates == done[2:]


@pytest.mark.parametrize("answers", [True, False])
def test_the_server_of_a_disk_that_stands_still_is_asked(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked, monitor = [100.0], [], Monitor()
    monkeypatch.setattr("vdisklab.campaign.watches.time.monotonic", lambda: now[0])

    def unanswered() -> HostError | None:
        asked.append(now[0])
        return None if answers else HostError("the server of t does not answer", hint="start it")

    names, progress = AttachedNames("vdl"), lambda _: None
    watch = DiskWatch(cast("Channel", monitor), names, progress, unanswered)
    watch.begin()
    for second in range(60):
        now[0] += 1
        monitor.done += second < 20
        if not answers and second == 28:
            with pytest.raises(ServerGoneError, match="the server of t") as gone:
                watch()
            assert gone.value.hint == "start it"
            return
        watch()
    assert asked == [129.0, 139.0, 149.0, 159.0]


@pytest.mark.parametrize(("took", "longest"), [(30.0, 30.0), (0.1, 0.0)])
def test_a_qemu_that_stands_still_with_its_disk(took: float, longest: float) -> None:
    """As with ssh: QEMU does not answer during the pause, so no sample shows a standstill."""
    points = steady(2)
    last, slow = points[-1], tuple(int(bound <= took) for bound in BOUNDS)
    points.append(DiskPoint(last.moment + 30.1, last.size + 1, last.operations + 1, slow, 30.0))
    assert found(points)["longest_stall"] == pytest.approx(longest)


@given(
    st.lists(
        st.tuples(st.floats(0.01, 3), st.integers(0, 10), st.integers(0, 1)),
        min_size=2,
        max_size=30,
    )
)
def test_a_stall_is_never_longer_than_the_run(steps: list[tuple[float, int, int]]) -> None:
    points = [DiskPoint(0.0, 0, 0, NONE_SLOW)]
    for seconds, done, late in steps:
        last = points[-1]
        slow = tuple(number + late * done for number in last.slow or ())
        points.append(
            DiskPoint(last.moment + seconds, last.size + done, last.operations + done, slow)
        )
    seen = found(points)
    assert 0 <= seen["longest_stall"] <= points[-1].moment
    assert seen.get("worst_second", 0) >= 0


def test_a_guest_that_qemu_stopped_for_want_of_space() -> None:
    with (
        pytest.raises(HostError, match="no space is left below nbd:at=san/raw/none") as failed,
        naming_a_full_disk(parse_path("nbd:at=san/raw/none")),
    ):
        raise StoppedGuestError("QEMU stopped the guest at a write: No space left on device")
    assert "free some space" in str(failed.value.hint)
    with (
        pytest.raises(HostError, match="left where the copy goes or below raw/none, so"),
        naming_a_full_disk(parse_path("raw/none/virtio:during=backup")),
    ):
        raise StoppedGuestError("QEMU stopped the guest at a write: No space left on device")
