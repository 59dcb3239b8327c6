"""When the flushes of a virtio disk began."""

from __future__ import annotations

from vdisklab.loads.load import NOT_TIMED, IoKind, LoadSource, RecordedBy, RecordedLoad
from vdisklab.loads.qemu_trace.trace_log import TRACED, read_trace

BEGUN = b"7@1.000100:virtqueue_pop vq 0x7f10 elem 0x7f20 in_num 1 out_num 1\n"
OTHERS = b"7@1.000200:virtqueue_pop vq 0x7f11 elem 0x7f30 in_num 1 out_num 1\n"
ENDED = b"7@1.004100:virtio_blk_req_complete vdev 0x7f40 req 0x7f20 status 0\n"
WRITE = (
    b"7@1.005000:virtqueue_pop vq 0x7f10 elem 0x7f20 in_num 1 out_num 2\n",
    b"7@1.005001:virtio_blk_handle_write vdev 0x7f40 req 0x7f20 sector 8 nsectors 8\n",
    b"7@1.005101:virtio_blk_req_complete vdev 0x7f40 req 0x7f20 status 0\n",
)


def loaded(*lines: bytes) -> RecordedLoad:
    (virtio,) = (bus for bus in TRACED if bus.name == "virtio")
    log = read_trace(lines, virtio, 512)
    assert (log.strange, log.requests.lost) == (0, 0)
    source = LoadSource("x", RecordedBy.QEMU_TRACE, 1_000_000)
    return log.requests.places["0x7f40"].load(source, 1_000_000, timed=True)


def test_a_flush_began_when_its_element_was_taken() -> None:
    load = loaded(BEGUN, OTHERS, ENDED, *WRITE)
    assert load.kind.tolist() == [IoKind.FLUSH, IoKind.WRITE]
    assert load.due_us.tolist() == [100, 5001]
    assert load.service_us.tolist() == [4000, 100]


def test_a_discard_or_a_query_is_no_flush() -> None:
    (virtio,) = (bus for bus in TRACED if bus.name == "virtio")
    discard = BEGUN.replace(b"out_num 1", b"out_num 2")
    query = BEGUN.replace(b"in_num 1", b"in_num 2")
    place = read_trace((discard, ENDED, query, ENDED), virtio, 512).requests.places["0x7f40"]
    assert (len(place), place.untold) == (0, 2)


def test_without_that_event_only_its_end_is_known() -> None:
    load = loaded(ENDED, *WRITE[1:])
    assert load.due_us.tolist() == [4100, 5001]
    assert load.service_us.tolist() == [NOT_TIMED, 100]


def test_elements_of_other_devices_take_bounded_memory() -> None:
    others = [
        b"7@1.000000:virtqueue_pop vq 0x7f11 elem %#x in_num 1 out_num 1\n" % (16 * number)
        for number in range(100_000)
    ]
    assert loaded(BEGUN, *others, ENDED).service_us.tolist() == [NOT_TIMED]
    assert loaded(*others, BEGUN, ENDED).service_us.tolist() == [4000]
