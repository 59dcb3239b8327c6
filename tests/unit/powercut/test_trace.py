"""Flushes that nobody asked for are told from those that a client's requests may have caused."""

from __future__ import annotations

import json

import pytest

from vdisklab.errors import PowercutError
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.client import (
    Images,
    ImageSwitch,
    Trace,
    Write,
    count_flushes,
    trace_from_json,
    trace_to_json,
    unrequested_flushes,
)
from vdisklab.storage.write_log import Flag, LogEntry
from vdisklab.value import replace

WRITE, FLUSH = LogEntry(0, 512, Flag(0), 0), LogEntry(0, 0, Flag.FLUSH, 0)

#          0      1      2      3      4      5      6
ENTRIES = [FLUSH, WRITE, FLUSH, WRITE, FLUSH, WRITE, FLUSH]

TRACE = Trace(
    path="ext4/raw/none", client=ClientKind.FLUSHES, access="nbd", filesystem="ext4",
    mount_options=(), image="disk.raw", image_format="raw", image_size=1 << 20, disk_size=1 << 21,
    filled=False, begin=1, end=7, observed={}, flushes=((4, 5),),
    writes=(Write(2, 0, 1, 1, 3, 5), Write(3, 8, 1, 5, 6)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("client", "writes_flush", "unasked"),
    [
        (ClientKind.FLUSHES, False, 2),  # at 2, while a write was under way, and at 6
        (ClientKind.FLUSHES, True, 1),  # the one at 6, after the last answer
        (ClientKind.FUA, False, 1),
        (ClientKind.NEVER, False, 2),
        (ClientKind.NEVER, True, 1),
    ],
)
def test_what_nobody_asked_for(client: ClientKind, writes_flush: bool, unasked: int) -> None:
    trace = replace(TRACE, client=client)
    assert unrequested_flushes(trace, ENTRIES, writes_flush=writes_flush) == unasked
    assert count_flushes(trace, ENTRIES) == 3


def test_a_recording_of_an_older_version_has_no_flushes() -> None:
    assert trace_from_json(trace_to_json(TRACE)) == TRACE
    older = json.loads(trace_to_json(TRACE))
    del older["flushes"]
    assert trace_from_json(json.dumps(older)) == replace(TRACE, flushes=())


def test_a_guest_starts_with_the_new_images_once_its_host_was_told() -> None:
    after = Images("disk.qcow2.snapshot", ("disk.qcow2",))
    trace = replace(TRACE, image="disk.qcow2", switch=ImageSwitch(4, after))
    assert [trace.images_at(number).image for number in (0, 4, 5)] == ["disk.qcow2"] * 2 + [
        after.image
    ]
    assert (TRACE.images_at(9), TRACE.stops, trace.stops) == (Images("disk.raw"), (), (4,))
    assert trace_from_json(trace_to_json(trace)) == trace
    outside = replace(trace, switch=ImageSwitch(4, Images("disk.qcow2", ("../../etc/shadow",))))
    with pytest.raises(PowercutError, match="outside its file system"):
        trace_from_json(trace_to_json(outside))


def test_a_new_size_is_known_after_the_answer_and_due_after_a_later_flush() -> None:
    writes = (Write(2, 0, 1, 1, 3, 4), Write(3, 8, 1, 3, 3, 4), Write(4, 9, 1, 5, 6, 7))
    switch = ImageSwitch(3, Images("disk.raw"), 2 << 20)
    trace = replace(TRACE, writes=writes, switch=switch)
    assert [trace.size_at(number) >> 20 for number in (0, 3, 4, 9)] == [1, 1, 2, 2]
    assert [trace.due_size(number) >> 20 for number in (3, 4, 6, 7)] == [1, 1, 1, 2]
    assert (trace.last_size >> 20, TRACE.last_size >> 20, TRACE.due_size(9) >> 20) == (2, 1, 1)
    assert trace_from_json(trace_to_json(trace)) == trace
    with pytest.raises(PowercutError, match="its disk has no size"):
        trace_from_json(trace_to_json(replace(trace, switch=replace(switch, size=-1))))
