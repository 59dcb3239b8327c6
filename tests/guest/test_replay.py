"""A recorded load, replayed in real guests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab
from tests.unit.loads.loads import SECOND, load
from vdisklab.actions.measure import measure
from vdisklab.loads.load import IoKind
from vdisklab.loads.load_file import encode
from vdisklab.plan.density_request import DensityRequest
from vdisklab.plan.settings import Request
from vdisklab.results.store import open_store
from vdisklab.units import GIB, MIB

pytestmark = pytest.mark.guest

READ, WRITE, FLUSH = IoKind.READ, IoKind.WRITE, IoKind.FLUSH


def recorded(lab: Lab, turns: int = 40) -> Path:
    """A write, a forced write of its neighbour, a flush and a read, every 50 ms, on a disk of
    300 GiB."""
    far = 250 << 30
    requests = [
        (turn * 50_000 + part * 500, (WRITE, WRITE, FLUSH, READ)[part],
         (far + turn * 8192, far + turn * 8192 + 4096, 0, turn << 26)[part],
         (4096, 4096, 0, 65536)[part], 300, part == 1)
        for turn in range(turns)
        for part in range(4)
    ]  # fmt: skip
    file = lab.directory / "web.load"
    file.write_bytes(encode(load(*requests, span_us=turns * SECOND // 20, disk_bytes=300 << 30)))
    return file


def test_a_guest_repeats_every_request(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    request = Request(
        paths=("raw/none", "raw/none/nvme"), profile=str(recorded(lab)), rounds=1, guest_cpus=1,
        size_bytes=64 * MIB, directory=lab.work, baseline="host",
    )  # fmt: skip
    with open_store(f"sqlite:///{lab.database}") as store:
        assert measure(store, request, print).failed == 0
    assert len(lab.runs()) == 3
    for run in lab.runs():
        is_nvme = run.measured_cell.name.endswith("nvme")
        for measurement in run.measurements:
            guest = measurement.evidence.guest
            assert guest is not None
            assert (guest.read_operations, guest.write_operations) == (40, 80)
            qemu = measurement.evidence.qemu
            if qemu is None:
                continue
            # virtio has no FUA, so the guest's kernel follows a forced write by a flush.
            assert guest.flush_operations == (40 if is_nvme else 80)
            assert (qemu.read_operations, qemu.write_operations) == (40, 80)
            assert (qemu.read_bytes, qemu.write_bytes) == (40 * 65536, 80 * 4096)
            if measurement.name == "fast":
                assert qemu.flush_operations == (None if is_nvme else 80)
        seconds = {
            measurement.name: measurement.measured_seconds for measurement in run.measurements
        }
        assert seconds["timed"] is not None
        assert 1.95 <= seconds["timed"] < 3


@pytest.mark.nightly  # 25 s; operations are measured in test_during, and one guest replays above
def test_a_load_beside_an_operation(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    place = lab.directory / "two.load"
    requests = [(20_000 * turn, WRITE, turn % 20 * 8192, 4096, 90) for turn in range(100)]
    place.write_bytes(encode(load(*requests, span_us=2_000_000, disk_bytes=GIB)))
    request = Request(
        paths=("qcow2/none",), during=("backup",), profile=str(place), rounds=1, runtime=2.0,
        ramp=0.5, size_bytes=64 * MIB, guest_memory=192 * MIB, guest_cpus=1, directory=lab.work,
    )  # fmt: skip
    with open_store(f"sqlite:///{lab.database}") as store:
        assert measure(store, request, print).failed == 0
    (run,) = lab.runs()
    assert [measurement.name for measurement in run.measurements] == [
        "timed-before", "timed-during", "timed-after",
    ]  # fmt: skip
    for measurement in run.measurements:
        (iops,) = (sample for sample in measurement.samples if sample.metric == "iops")
        assert 30 <= iops.value <= 60, "50 writes a second, in windows of two seconds and more"


@pytest.mark.nightly  # 38 s; groups are released in test_guest_groups, and one guest replays above
def test_a_load_beside_another(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    file = str(recorded(lab))
    request = DensityRequest(
        paths=("raw/none",), profile=file, neighbour=file, guests=("1", "2"), rounds=1,
        runtime=3.0, ramp=1.0, size_bytes=64 * MIB, guest_memory=192 * MIB, guest_cpus=1,
        directory=lab.work, baseline="none",
    )  # fmt: skip
    with open_store(f"sqlite:///{lab.database}") as store:
        assert measure(store, request, print).failed == 0
    alone, beside = sorted(
        lab.runs(),
        key=lambda run: len(run.measurements[0].group.members),  # type: ignore[union-attr]
    )
    for run, guests in ((alone, 1), (beside, 2)):
        group = run.measurements[0].group
        assert group is not None
        assert len(group.members) == guests
        # 80 requests a second, for three seconds.
        assert all(230 <= (member.offered or 0) <= 250 for member in group.members)
