"""Real logs of QEMU's trace events, what fio in the guest did, and logs that are mutilated."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.loads.loads import source
from vdisklab.errors import LoadError
from vdisklab.loads.load import NOT_TIMED, IoKind, RecordedLoad
from vdisklab.loads.qemu_trace.trace_log import (
    TRACED,
    GrowthClock,
    TraceLog,
    bus_of,
    has_times,
    read_trace,
)
from vdisklab.loads.requests import PlaceRequests

DATA = Path(__file__).parents[3] / "data" / "qemu-trace"
BUSES = {bus.name: bus for bus in TRACED}
DISK = 64 << 20

LOGS = {
    "virtio-blk": "virtio",
    "scsi": "scsi",
    "scsi-fua": "scsi",
    "nvme": "nvme",
    "ahci": "sata",
}


def lines_of(name: str) -> list[bytes]:
    return (DATA / f"qemu-7.2.22-{name}.log").read_bytes().splitlines(keepends=True)


def read(name: str) -> TraceLog:
    return read_trace(lines_of(name), BUSES[LOGS[name]], 512)


def only_place(log: TraceLog) -> PlaceRequests:
    (place,) = log.requests.places.values()
    return place


def load_of(place: PlaceRequests) -> RecordedLoad:
    start = min(place.due_us)
    return place.load(source(60_000_000, disk_bytes=DISK), start, timed=True)


@pytest.mark.parametrize("name", LOGS)
def test_newer_qemus_write_the_time_as_a_date(name: str) -> None:
    """As QEMU's own messages have it since qemu_log writes it (util/log.c)."""
    older = lines_of(name)

    def dated(line: bytes) -> bytes:
        stamp, _, event = line.partition(b":")
        moment = datetime.fromtimestamp(int(stamp.partition(b"@")[2].partition(b".")[0]), UTC)
        fraction = stamp[-7:] if stamp[-7:] != b".000000" else b""
        return moment.strftime("%Y-%m-%dT%H:%M:%S").encode() + fraction + b"Z " + event

    newer = [dated(line) for line in older]
    assert has_times(newer[0])
    assert has_times(older[0])
    assert not has_times(older[0].partition(b":")[2])
    was, found = (only_place(read_trace(lines, BUSES[LOGS[name]], 512)) for lines in (older, newer))
    assert (found.due_us, found.service_us) == (was.due_us, was.service_us)
    impossible = newer[0].replace(b"-11-", b"-13-")
    assert read_trace([impossible], BUSES[LOGS[name]], 512).strange == 1


@pytest.mark.parametrize("name", LOGS)
def test_a_log_has_what_fio_in_the_guest_did(name: str) -> None:
    """43 reads and 51 writes with 12 flushes; 16 writes with O_DSYNC; 8 discards of 64 KiB.

    Linux 6.1 sends two flushes for a write with O_DSYNC, or a forced write and a flush.
    """
    log = read(name)
    place = only_place(log)
    assert (log.strange, log.requests.lost, log.timestamps) == (0, 0, True)
    assert place.count_of(IoKind.READ) == 43
    assert place.bytes_of(IoKind.READ) == 1_003_520
    assert place.count_of(IoKind.WRITE) == 51 + 16
    assert place.bytes_of(IoKind.WRITE) == 1_093_632 + 16 * 4096
    fua = name in ("scsi-fua", "nvme")
    flushes = 12 + 16 * (1 if fua else 2)
    discards = 8
    if name == "virtio-blk":  # not told apart
        assert place.count_of(IoKind.FLUSH) == flushes + discards
    else:
        assert place.count_of(IoKind.FLUSH) == flushes
        told = place.count_of(IoKind.DISCARD)
        assert (told, place.untold) == ((discards, 0) if name == "nvme" else (0, discards))
    made = load_of(place)
    assert made.forced.sum() == (16 if name == "scsi-fua" else 0)
    ended = made.is_timed[made.moves_data]
    assert ended.all()
    assert (np.diff(made.due_us) >= 0).all()


def test_service_times_are_those_between_the_two_lines() -> None:
    place = only_place(read("virtio-blk"))
    first = load_of(place)
    # …833.663396 and …833.683409
    assert (first.offset[0], first.length[0], first.service_us[0]) == (240 * 512, 24 * 512, 20_013)


def test_flushes_of_all_buses_but_virtio_are_timed() -> None:
    for name in ("scsi", "nvme", "ahci"):
        made = load_of(only_place(read(name)))
        assert made.is_timed[made.kind == IoKind.FLUSH].all(), name
    made = load_of(only_place(read("virtio-blk")))
    assert not made.is_timed[made.kind == IoKind.FLUSH].any()


def test_two_disks_are_told_apart() -> None:
    first, second = lines_of("scsi"), lines_of("scsi-fua")
    # Addresses of requests are those of one guest's memory, so two disks never share one.
    log = read_trace([*first, *second], BUSES["scsi"], 512)
    counts = {place: len(found) for place, found in log.requests.places.items()}
    assert counts == {"target 0 lun 0": 154, "target 1 lun 0": 138}


@pytest.mark.parametrize("name", LOGS)
@given(data=st.data())
@settings(max_examples=30)
def test_a_mutilated_log_never_gives_more_than_it_has(name: str, data: st.DataObject) -> None:
    content = bytearray(b"".join(lines_of(name)))
    for _ in range(data.draw(st.integers(1, 30))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position : position + data.draw(st.integers(0, 60))] = data.draw(
            st.binary(max_size=4)
        )
    log = read_trace(bytes(content).splitlines(keepends=True), BUSES[LOGS[name]], 512)
    for place in log.requests.places.values():
        try:
            made = load_of(place) if len(place) else None
        except LoadError:
            continue  # a place beyond the disk, or a time before the recording
        assert made is None or len(made) <= log.lines + 256


def test_a_lost_end_is_counted_and_leaves_no_time() -> None:
    ends = [
        index for index, line in enumerate(lines_of("nvme")) if b"enqueue_req_completion" in line
    ]
    kept = [line for index, line in enumerate(lines_of("nvme")) if index not in ends[:5]]
    made = load_of(only_place(read_trace(kept, BUSES["nvme"], 512)))
    assert (made.service_us == NOT_TIMED).sum() == 5


def test_ends_that_are_logged_later_or_no_more_are_not_lost() -> None:
    """Events are switched on and off one after the other; QEMU uses a request's memory again."""

    def line(second: int, end: bool) -> bytes:
        event = b"virtio_blk_req_complete" if end else b"virtio_blk_handle_read"
        rest = b"status 0" if end else b"sector 0 nsectors 8"
        return b"1@%d.000000:%s vdev 0x1 req 0x2 %s\n" % (second, event, rest)

    begins = [line(second, end=False) for second in (1, 2, 3)]
    pairs = [line(second, end) for second in (4, 5) for end in (False, True)]
    later = [line(second, end=False) for second in (7, 8)]
    whole = [*begins, *pairs, *later]
    assert read_trace(whole, BUSES["virtio"], 512, until_us=6_000_000).requests.lost == 0
    assert read_trace(whole, BUSES["virtio"], 512).requests.lost == 1  # 7 has no end before 8


def test_lines_without_a_time_get_that_of_the_log_s_growth() -> None:
    bare = [line.partition(b":")[2] for line in lines_of("scsi")]
    assert read_trace(bare, BUSES["scsi"], 512).strange == len(bare)
    sizes = np.cumsum([len(line) for line in bare])
    clock = GrowthClock(sizes, np.arange(len(bare)) * 1000)
    log = read_trace(bare, BUSES["scsi"], 512, clock)
    assert not log.timestamps
    place = only_place(log)
    assert place.count_of(IoKind.READ) == 43
    assert place.due_us[0] == 0
    assert place.due_us[-1] >= (len(bare) - 40) * 1000
    assert not place.load(source(), 0, timed=False).is_timed.any()


def test_a_clock_that_is_set_back_leaves_no_service_time() -> None:
    lines = [
        b"1@100.000000:virtio_blk_handle_read vdev 0x1 req 0x2 sector 0 nsectors 8\n",
        b"1@99.000000:virtio_blk_req_complete vdev 0x1 req 0x2 status 0\n",
    ]
    made = load_of(only_place(read_trace(lines, BUSES["virtio"], 512)))
    assert made.service_us.tolist() == [NOT_TIMED]


def test_a_piix_disk_tells_no_ends() -> None:
    """QEMU 7.2's hw/ide/core.c logs `ide_dma_cb` before each transfer."""
    lines = [
        b"1@1.000000:ide_exec_cmd IDE exec cmd: bus 0x10; state 0x20; cmd 0xca\n",
        b"1@1.000010:ide_dma_cb IDEState 0x20; sector_num=64 n=16 cmd=DMA WRITE\n",
        b"1@1.000900:ide_dma_cb IDEState 0x20; sector_num=72 n=8 cmd=DMA WRITE\n",
        b"1@1.002000:ide_exec_cmd IDE exec cmd: bus 0x10; state 0x20; cmd 0xe7\n",
        b"1@1.003000:ide_exec_cmd IDE exec cmd: bus 0x10; state 0x20; cmd 0x3d\n",
        b"1@1.003010:ide_dma_cb IDEState 0x20; sector_num=0 n=8 cmd=DMA WRITE\n",
    ]
    made = load_of(only_place(read_trace(lines, BUSES["sata"], 512)))
    assert made.kind.tolist() == [IoKind.WRITE, IoKind.FLUSH, IoKind.WRITE]
    assert made.length.tolist() == [8192, 0, 4096]
    assert made.forced.tolist() == [False, False, True]
    assert not made.is_timed.any()


def test_every_kind_of_disk_that_is_traced_has_one_row() -> None:
    devices = [device for bus in TRACED for device in bus.devices]
    assert len(devices) == len(set(devices))
    assert bus_of("nvme") is BUSES["nvme"]
    assert bus_of("floppy") is None
