"""Alibaba's block traces of 2020: `device_id,opcode,offset,length,timestamp`, bytes and µs.

The form is that of github.com/alibaba/block-traces, README.md. No service times.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind, RecordedBy
from vdisklab.loads.requests import Requests
from vdisklab.loads.traces.trace_form import TraceForm, disk_name, numbers

_LINE = re.compile(rb"[0-9]{1,10},[RW],[0-9]{1,19},[0-9]{1,12},[0-9]{13,19}")
_HEADING = b"device_id,"


class AlibabaReader:
    """Reads Alibaba's lines."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def line(self, line: bytes) -> bool:
        """See `LineReader`."""
        fields = line.split(b",")
        if len(fields) != 5:
            return False
        found = numbers(*fields[2:])
        if found is None or fields[1] not in (b"R", b"W") or not found[1]:
            return line.startswith(_HEADING)
        offset, length, at_us = found
        kind = IoKind.READ if fields[1] == b"R" else IoKind.WRITE
        self._requests.begin(disk_name(fields[0]), None, at_us, kind, offset=offset, length=length)
        return True


FORM = TraceForm(
    RecordedBy.ALIBABA,
    "Alibaba block trace (CSV)",
    lambda lines: any(_LINE.fullmatch(line) for line in lines[:2]),
    AlibabaReader,
    note="the trace has reads and writes only: no flushes, and no service times",
    epoch_us=0,
)
"""What the registry knows of it."""
