"""Who counted what: from recorded answers, this process's /proc, and any two glances."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.guest.fake_qemu import RECORDED, SERIAL, FakeQemu, disk_of, machine_of
from vdisklab.campaign.measured_evidence import (
    Counters,
    LastingWrites,
    Snapshot,
    Sync,
    evidence_between,
)
from vdisklab.errors import GuestError
from vdisklab.guest.qemu.read_back import device_statistics, disk_statistics
from vdisklab.path.segments import Bus
from vdisklab.results.model import Direction, Evidence, IoCounters, Sample


@pytest.mark.parametrize("name", RECORDED)
def test_what_qemu_counted_for_a_real_disk(name: str) -> None:
    """Each was written 1 MiB, flushed and read 4 MiB of; see script/record-qmp."""
    disk = disk_of(name, Path("image"))
    with machine_of(FakeQemu(name)) as machine:
        counted = disk_statistics(machine, disk)
        assert device_statistics(machine, "vdl99999999-dev") is None
    assert counted is not None
    assert counted.write_bytes >= 1 << 20
    assert counted.read_bytes >= 4 << 20
    assert counted.write_operations > 0
    assert counted.read_operations > 0
    if disk.attachment.bus is Bus.NVME:
        assert counted.flush_operations is None, "QEMU counts none, though it flushed"
    else:
        assert counted.flush_operations is not None


@pytest.mark.parametrize("answer", [[{"qdev": f"/m/{SERIAL}-dev", "stats": {}}], [{}], "text"])
def test_an_answer_without_the_numbers_is_no_zero(answer: object) -> None:
    qemu = FakeQemu("virtio", {"query-blockstats": lambda request: [{"return": answer}]})
    with (
        machine_of(qemu) as machine,
        pytest.raises(GuestError, match="query-blockstats is not as expected"),
    ):
        device_statistics(machine, f"{SERIAL}-dev")


def witness(pid: int | None, image: Path | None = None) -> Counters:
    return Counters(lambda: None, (), pid, image)


def test_a_look_at_a_process_and_its_image(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(os.urandom(1 << 20))
    watching = witness(os.getpid(), image)
    before = watching.snapshot()
    busy = os.times().user
    while os.times().user < busy + 0.05:
        sum(range(10_000))
    with image.open("ab") as more:
        more.write(os.urandom(1 << 20))
        os.fsync(more.fileno())
    seen = evidence_between(before, watching.snapshot(), None)
    assert seen.host_cpu_seconds is not None
    assert seen.host_cpu_seconds > 0
    assert seen.resident_before is not None
    assert 0.0 <= seen.resident_before <= 1.0
    assert seen.allocated_before is not None
    assert seen.allocated_after is not None
    assert seen.allocated_after >= seen.allocated_before + (1 << 20)
    assert (seen.qemu, seen.device, seen.guest) == (None, None, None)


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    seen = evidence_between(witness(os.getpid()).snapshot(), witness(ended.pid).snapshot(), None)
    assert seen.host_cpu_seconds is None
    assert (seen.resident_after, seen.allocated_after) == (None, None)


def test_on_the_host_it_is_the_programs_time() -> None:
    watching = witness(None)
    before = watching.snapshot()
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"], check=True)
    seen = evidence_between(before, watching.snapshot(), None)
    assert seen.host_cpu_seconds is not None
    assert seen.host_cpu_seconds > 0


counts = st.integers(0, 2**62)
seconds = st.floats(0, 1e9)
counted = st.builds(IoCounters, counts, counts, counts, counts, st.none() | counts)
devices = st.builds(IoCounters, counts, counts, counts, counts, st.none() | counts)
glances = st.builds(
    Snapshot,
    qemu=st.none() | counted,
    device=st.none() | devices,
    cpu=st.none() | seconds,
    resident=st.none() | st.floats(0, 1),
    allocated=st.none() | counts,
    steal=st.none() | seconds,
)

Numbers = IoCounters


def numbers(of: Numbers) -> tuple[int, int, int, int]:
    return (of.read_bytes, of.write_bytes, of.read_operations, of.write_operations)


def differences(seen: Evidence) -> list[float]:
    """All that was counted between two glances, as far as it is known."""
    found: list[float] = [
        each for each in (seen.host_cpu_seconds, seen.steal_seconds) if each is not None
    ]
    for each in (seen.qemu, seen.device):
        if each is not None:
            found += numbers(each)
            found += [] if each.flush_operations is None else [each.flush_operations]
    return found


def later(before: Snapshot, more: Snapshot) -> Snapshot:
    """A glance in which every counter has grown by what `more` holds."""

    def grown(first: Numbers, other: Numbers) -> tuple[int, int, int, int, int | None]:
        a, b, c, d = (x + y for x, y in zip(numbers(first), numbers(other), strict=True))
        flushes = None
        if first.flush_operations is not None and other.flush_operations is not None:
            flushes = first.flush_operations + other.flush_operations
        return a, b, c, d, flushes

    qemu, device = before.qemu, before.device
    return Snapshot(
        qemu=IoCounters(*grown(qemu, more.qemu)) if qemu and more.qemu else more.qemu,
        device=IoCounters(*grown(device, more.device)) if device and more.device else None,
        cpu=None if before.cpu is None or more.cpu is None else before.cpu + more.cpu,
        resident=more.resident,
        allocated=more.allocated,
        steal=None if before.steal is None or more.steal is None else before.steal + more.steal,
    )


@settings(max_examples=40, deadline=None)
@given(glances, glances)
def test_counters_that_only_grow_never_give_less_than_nothing(
    before: Snapshot, more: Snapshot
) -> None:
    seen = evidence_between(before, later(before, more), None)
    assert all(each >= 0 for each in differences(seen))
    if before.qemu is not None and more.qemu is not None:
        assert seen.qemu is not None
        assert numbers(seen.qemu) == numbers(more.qemu)


@settings(max_examples=40, deadline=None)
@given(glances, glances, st.none() | counted)
def test_what_one_glance_lacks_stays_missing(
    before: Snapshot, after: Snapshot, guest: IoCounters | None
) -> None:
    seen = evidence_between(before, after, guest)
    for name, found in (
        ("qemu", seen.qemu),
        ("device", seen.device),
        ("cpu", seen.host_cpu_seconds),
        ("steal", seen.steal_seconds),
    ):
        first, second = getattr(before, name), getattr(after, name)
        went_back = (
            name in ("cpu", "steal") and first is not None and second is not None and second < first
        )
        assert (found is not None) is (first is not None and second is not None and not went_back)
    for name in ("qemu", "device"):
        found, first, second = (getattr(each, name) for each in (seen, before, after))
        if found is not None:
            both_known = first.flush_operations is not None and second.flush_operations is not None
            assert (found.flush_operations is not None) is both_known
    assert seen.guest is guest
    assert (seen.resident_before, seen.resident_after) == (before.resident, after.resident)
    assert (seen.allocated_before, seen.allocated_after) == (before.allocated, after.allocated)


class TestLastingWrites:
    """Two guests write 100 MB/s together, 500 MB each, of which the device has nothing yet."""

    BURST = (Sample("bandwidth", Direction.WRITE, 100e6),)

    @staticmethod
    def counted(written: int) -> Counters:
        states = iter([IoCounters(0, 0, 0, 0), IoCounters(0, written, 0, 9)])
        return Counters(lambda: next(states), (), None, None)

    def lasting(self, syncs: list[Sync | None]) -> tuple[Sync | None, tuple[Sample, ...]]:
        guests = [self.counted(500_000_000), self.counted(500_000_000)]
        writes = LastingWrites(guests, lambda: IoCounters(0, 0, 0, 0), 1 << 30)
        done = writes.synced([lambda row=sync: row for sync in syncs])  # type: ignore[misc]
        return done, writes.samples(self.BURST, done)

    def test_their_rate_lasts_as_long_as_all_disks_are_synced(self) -> None:
        done, (sample,) = self.lasting([Sync(4.0, 500_000_000), Sync(6.0, 500_000_000)])
        assert done == Sync(10.0, 1_000_000_000)
        assert (sample.metric, sample.direction) == ("sustained", Direction.WRITE)
        assert sample.value == pytest.approx(50e6)

    def test_without_a_sync_of_each_there_is_no_rate(self) -> None:
        assert self.lasting([Sync(4.0, 500_000_000), None]) == (None, ())
        done, (sample,) = self.lasting([Sync(4.0, None), Sync(6.0, 500_000_000)])
        assert done == Sync(10.0, None)
        assert sample.value == pytest.approx(50e6)
