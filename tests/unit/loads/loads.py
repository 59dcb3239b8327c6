"""Loads for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from vdisklab.loads.load import NOT_TIMED, IoKind, LoadSource, RecordedBy, RecordedLoad

SECOND = 1_000_000


def source(span_us: int = 10 * SECOND, **fields: Any) -> LoadSource:  # noqa: ANN401 - its fields
    given: dict[str, Any] = {"name": "web01 vda", "recorded_by": RecordedBy.QEMU_TRACE}
    return LoadSource(**given | fields, span_us=span_us)


def load(*requests: tuple[Any, ...], **fields: Any) -> RecordedLoad:  # noqa: ANN401 - its source's
    """A load of (due, kind, offset, length[, service[, forced]])."""
    rows = [(*request, *(NOT_TIMED, False)[len(request) - 4 :]) for request in requests]
    due, kind, offset, length, service, forced = zip(*rows, strict=True) if rows else [()] * 6
    return RecordedLoad(
        source(**fields),
        due_us=np.array(due, np.int64),
        kind=np.array(kind, np.uint8),
        forced=np.array(forced, np.bool_),
        offset=np.array(offset, np.int64),
        length=np.array(length, np.int64),
        service_us=np.array(service, np.int64),
    )


@st.composite
def loads(draw: st.DrawFn) -> RecordedLoad:
    requests = []
    due = 0
    for _ in range(draw(st.integers(0, 40))):
        due += draw(st.integers(0, 1 << draw(st.integers(0, 17))))
        kind = draw(st.sampled_from(IoKind))
        flush = kind is IoKind.FLUSH
        unit = draw(st.sampled_from([1, 512, 4096]))
        requests.append(
            (
                due,
                kind,
                0 if flush else draw(st.integers(0, 1 << draw(st.integers(0, 47)))) * unit,
                0 if flush else draw(st.integers(1, 1 << 20)) * unit,
                draw(st.integers(NOT_TIMED, 1 << 31)),
                kind is IoKind.WRITE and draw(st.booleans()),
            )
        )
    return load(*requests, span_us=due + draw(st.integers(1, SECOND)))
