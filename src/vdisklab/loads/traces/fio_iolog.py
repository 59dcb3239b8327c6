"""fio's logs of requests, versions 2 and 3 (HOWTO, "Trace file format v2" and "v3").

Version 3 has the time of each request in microseconds, as fio 3.33 writes and takes it. Version 2
has only waits, in microseconds: its requests are due as soon as the one before was.
"""

from __future__ import annotations

from vdisklab.loads.load import IoKind, RecordedBy
from vdisklab.loads.requests import Requests
from vdisklab.loads.traces.trace_form import TraceForm, disk_name, number, numbers

_HEADINGS = (b"fio version 2 iolog", b"fio version 3 iolog")
_FILE_ACTIONS = (b"add", b"open", b"close")
_ACCESSES = {b"read": IoKind.READ, b"write": IoKind.WRITE, b"trim": IoKind.DISCARD}
_SYNCS = (b"sync", b"datasync")
_WAIT = b"wait"


class FioIologReader:
    """Reads both versions; the first line says which."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._has_times = False
        self._now_us = 0

    def line(self, line: bytes) -> bool:
        """See `LineReader`."""
        if line in _HEADINGS:
            self._has_times = line == _HEADINGS[1]
            return True
        fields = line.split()
        if self._has_times:
            at_us = number(fields[0]) if fields else None
            if at_us is None:
                return False
            self._now_us, fields = at_us, fields[1:]
        return len(fields) > 1 and self._action(disk_name(fields[0]), fields[1], fields[2:4])

    def _action(self, file: str, action: bytes, place: list[bytes]) -> bool:
        if action in _FILE_ACTIONS:
            return True
        if action in _SYNCS:
            self._requests.begin(file, None, self._now_us, IoKind.FLUSH)
            return True
        found = numbers(*place) or (0,)
        if action == _WAIT:
            self._now_us += found[0]
            return bool(place)
        kind = _ACCESSES.get(action)
        if kind is None or len(found) != 2 or not found[1]:
            return False
        self._requests.begin(file, None, self._now_us, kind, offset=found[0], length=found[1])
        return True


FORM = TraceForm(
    RecordedBy.FIO_IOLOG,
    "fio's iolog, version 2 or 3",
    lambda lines: lines[:1] != () and lines[0] in _HEADINGS,
    FioIologReader,
    note="fio's log has no service times",
)
"""What the registry knows of it."""
