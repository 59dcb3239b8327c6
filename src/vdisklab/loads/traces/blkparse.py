"""blkparse's text: what a block device was given (D) and when it was done (C); blkparse(1).

      8,0    3       12     0.000119234   697  D  WS 223490 + 8 [kjournald]

The letters (RWBS) are those of blk_fill_rwbs() in kernel/trace/blktrace.c: F before the operation
is a flush before it, F behind it a forced write.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind, RecordedBy
from vdisklab.loads.requests import Requests
from vdisklab.loads.traces.trace_form import TraceForm
from vdisklab.units import SECTOR

_EVENT = re.compile(
    rb"\s*([0-9]{1,4},[0-9]{1,7})\s+[0-9]{1,5}\s+[0-9]{1,12}\s+([0-9]{1,8})\.([0-9]{9})\s+"
    rb"[0-9]{1,8}\s+(D|C)\s+([A-Z]{1,8})(?:\s+([0-9]{1,16})(?: \+ ([0-9]{1,10}))?)?(?:\s|$)"
)
_ANY_EVENT = re.compile(
    rb"\s*[0-9]{1,4},[0-9]{1,7}\s+[0-9]{1,5}\s+[0-9]{1,12}\s+[0-9]{1,8}\.[0-9]{9}\s+[0-9]{1,8}\s+"
    rb"[A-Z]{1,3}\s"
)
_LETTERS = re.compile(rb"(F?)(W|DE|D|R|F|N)?(F?)[A-Z]{0,6}")
_KINDS = {b"R": IoKind.READ, b"W": IoKind.WRITE, b"D": IoKind.DISCARD, b"DE": IoKind.DISCARD}
_FLUSH = "flush"


class BlkparseReader:
    """Reads blkparse's lines."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def line(self, line: bytes) -> bool:
        """See `LineReader`; lines of other actions, and blkparse's sums, are passed over."""
        match = _EVENT.match(line)
        if match is None:
            return _ANY_EVENT.match(line) is not None
        device, seconds, nanoseconds, action, letters, sector, sectors = match.groups()
        at_us = int(seconds) * 1_000_000 + int(nanoseconds) // 1000
        place = device.decode()
        found = _LETTERS.fullmatch(letters)
        if found is None:
            return False
        kind = _KINDS.get(found[2] or b"")
        if kind is None or not sectors or not int(sectors):
            if found[1] or found[2] == b"F":
                self._flush(place, action, at_us)
            return True
        number = (kind, sector)
        if action == b"C":
            self._requests.end(place, number, at_us)
            return True
        if found[1]:
            self._requests.begin(place, None, at_us, IoKind.FLUSH)
        self._requests.begin(
            place,
            number,
            at_us,
            kind,
            offset=int(sector) * SECTOR,
            length=int(sectors) * SECTOR,
            forced=bool(found[3]) and kind is IoKind.WRITE,
        )
        return True

    def _flush(self, place: str, action: bytes, at_us: int) -> None:
        if action == b"C":
            self._requests.end(place, _FLUSH, at_us)
        else:
            self._requests.begin(place, _FLUSH, at_us, IoKind.FLUSH)


FORM = TraceForm(
    RecordedBy.BLKTRACE,
    "blkparse's text",
    lambda lines: any(_ANY_EVENT.match(line) for line in lines[:20]),
    BlkparseReader,
    wordy=True,
)
"""What the registry knows of it."""
