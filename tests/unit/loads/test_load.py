"""What a load is: its columns, its parts, and what no disk can have done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loads.loads import SECOND, load, loads
from vdisklab.errors import LoadError
from vdisklab.loads.load import NOT_TIMED, IoKind, RecordedLoad

READ, WRITE, FLUSH = IoKind.READ, IoKind.WRITE, IoKind.FLUSH


def test_requests_in_flight_are_counted_at_each_beginning() -> None:
    requests = [(0, READ, 0, 512, 10), (5, READ, 0, 512, 2), (7, READ, 0, 512, 9)]
    found = load(*requests, (10, WRITE, 0, 512, NOT_TIMED), (12, READ, 0, 512, 1)).outstanding()
    # A request that ends in the microsecond in which another begins is over.
    assert found.tolist() == [0, 1, 1, 1, 1]


@given(loads())
def test_in_flight_is_what_counting_one_by_one_gives(made: RecordedLoad) -> None:
    spans = [
        (begin, begin + max(service, 1))
        for begin, service in zip(made.due_us.tolist(), made.service_us.tolist(), strict=True)
    ]
    counted = [
        sum(
            service != NOT_TIMED and end > begin
            for (_, end), service in zip(spans[:index], made.service_us[:index], strict=True)
        )
        for index, (begin, _) in enumerate(spans)
    ]
    assert made.outstanding().tolist() == counted


@given(loads(), st.integers(0, SECOND), st.integers(1, SECOND))
def test_parts_have_all_requests_once(made: RecordedLoad, start: int, length: int) -> None:
    parts = [
        made.part(begin, end)
        for begin, end in ((0, start), (start, start + length), (start + length, 1 << 60))
        if begin < min(end, made.source.span_us)
    ]
    joined = np.concatenate([part.offset for part in parts])
    assert joined.tolist() == made.offset.tolist()
    assert sum(part.source.span_us for part in parts) == made.source.span_us


def test_a_part_counts_its_times_from_its_start() -> None:
    made = load((1 * SECOND, READ, 0, 512), (3 * SECOND, WRITE, 512, 512), span_us=4 * SECOND)
    part = made.part(2 * SECOND, 9 * SECOND)
    assert part.due_us.tolist() == [SECOND]
    assert part.source.span_us == 2 * SECOND


def test_columns_cannot_be_written_to() -> None:
    made = load((0, READ, 0, 512))
    with pytest.raises(ValueError, match="read-only"):
        made.due_us[0] = 7


@pytest.mark.parametrize(
    ("requests", "fields", "said"),
    [
        ([(5, READ, 0, 512), (4, READ, 0, 512)], {}, "times run backwards (request 2 of 2)"),
        ([(-1, READ, 0, 512)], {}, "a request begins before the recording (request 1 of 1)"),
        ([(9, READ, 0, 512)], {"span_us": 8},
         "a request begins after the recording (request 1 of 1)"),
        ([(0, 5, 0, 512)], {}, "a request is of an unknown kind (request 1 of 1)"),
        ([(0, READ, -512, 512)], {}, "a request has a negative place or length (request 1 of 1)"),
        ([(0, READ, 512, 512)], {"disk_bytes": 1023},
         "a request ends beyond the disk (request 1 of 1)"),
        ([(0, READ, 1 << 62, 1 << 62)], {}, "a request ends beyond the disk (request 1 of 1)"),
        ([(0, FLUSH, 0, 512)], {}, "a flush has a place or a length (request 1 of 1)"),
        ([(0, WRITE, 0, 0)], {}, "a request moves no bytes (request 1 of 1)"),
        ([(0, READ, 0, 512, 1, True)], {}, "a request that is no write is forced (request 1 of 1)"),
        ([(0, READ, 0, 512, -2)], {}, "a request takes a negative time (request 1 of 1)"),
        ([], {"span_us": 0}, "the load spans no time, or more than 31 days"),
        ([], {"logical_block": 520}, "520 bytes is not a logical block size"),
    ],
)  # fmt: skip
def test_what_no_disk_can_have_done_is_refused(
    requests: list[tuple[Any, ...]], fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(LoadError) as refused:
        load(*requests, **fields)
    assert refused.value.message == said
