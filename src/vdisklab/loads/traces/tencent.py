"""Tencent's CBS traces of 2018: `timestamp,offset,size,type,volume`, seconds and sectors.

The form is that of the SNIA IOTTA repository, trace set 27917 (OSCA, ATC'20). Times are whole
seconds, so the order within a second is the file's. No service times.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind, RecordedBy
from vdisklab.loads.requests import Requests
from vdisklab.loads.traces.trace_form import TraceForm, disk_name, numbers
from vdisklab.units import SECTOR

_LINE = re.compile(rb"1[0-9]{9},[0-9]{1,14},[0-9]{1,8},[01],[0-9]{1,10}")
_HEADING = b"Timestamp,"
_SECOND = 1_000_000


class TencentReader:
    """Reads Tencent's lines."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def line(self, line: bytes) -> bool:
        """See `LineReader`."""
        fields = line.split(b",")
        if len(fields) != 5:
            return False
        found = numbers(*fields[:4])
        if found is None or found[3] > 1 or not found[2]:
            return line.startswith(_HEADING)
        seconds, sector, sectors, writes = found
        self._requests.begin(
            disk_name(fields[4]),
            None,
            seconds * _SECOND,
            IoKind.WRITE if writes else IoKind.READ,
            offset=sector * SECTOR,
            length=sectors * SECTOR,
        )
        return True


FORM = TraceForm(
    RecordedBy.TENCENT,
    "Tencent CBS trace (CSV)",
    lambda lines: any(_LINE.fullmatch(line) for line in lines[:2]),
    TencentReader,
    resolution_us=_SECOND,
    note="the trace has reads and writes only, with times in whole seconds: bursts and depth "
    "cannot be told",
    epoch_us=0,
)
"""What the registry knows of it."""
