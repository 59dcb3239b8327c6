"""MSR Cambridge's traces of 2007: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.

The form is that of the SNIA IOTTA repository, trace set 388 (Write Off-Loading, FAST'08). Times are
Windows' filetime, response times too: units of 100 ns.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind, RecordedBy
from vdisklab.loads.requests import Requests
from vdisklab.loads.traces.trace_form import TraceForm, disk_name, numbers

_LINE = re.compile(
    rb"1[0-9]{17},[\w-]{1,64},[0-9]{1,4},(?:Read|Write),[0-9]{1,15},[0-9]{1,10},[0-9]{1,15}"
)
_HEADING = b"Timestamp,"
_PER_US = 10
_FILETIME_1970 = 11_644_473_600 * 1_000_000
"""Microseconds from 1601, where Windows' filetime begins, to 1970."""


class MsrCambridgeReader:
    """Reads MSR Cambridge's lines."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def line(self, line: bytes) -> bool:
        """See `LineReader`."""
        fields = line.split(b",")
        if len(fields) != 7:
            return False
        found = numbers(fields[0], *fields[4:])
        if found is None or fields[3] not in (b"Read", b"Write") or not found[2]:
            return line.startswith(_HEADING)
        ticks, offset, length, took = found
        self._requests.begin(
            disk_name(fields[1], fields[2]),
            None,
            ticks // _PER_US,
            IoKind.READ if fields[3] == b"Read" else IoKind.WRITE,
            offset=offset,
            length=length,
            service_us=took // _PER_US,
        )
        return True


FORM = TraceForm(
    RecordedBy.MSR_CAMBRIDGE,
    "MSR Cambridge trace (CSV)",
    lambda lines: any(_LINE.fullmatch(line) for line in lines[:2]),
    MsrCambridgeReader,
    note="the trace has reads and writes only: no flushes",
    epoch_us=-_FILETIME_1970,
)
"""What the registry knows of it."""
