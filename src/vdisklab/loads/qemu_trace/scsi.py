"""SCSI disks behind any adapter of QEMU's, also USB: a place is target and LUN (hw/scsi).

`scsi_req_parsed` begins a request, `scsi_disk_new_request` has its command block, and
`scsi_req_dequeue` ends it. The list of places of an UNMAP is not logged.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind
from vdisklab.loads.requests import Requests
from vdisklab.value import Value

BEGIN, COMMAND, END = b"scsi_req_parsed", b"scsi_disk_new_request", b"scsi_req_dequeue"
_REQUEST = re.compile(
    rb"target (-?[0-9]{1,9}) lun (-?[0-9]{1,9}) tag (-?[0-9]{1,20})"
    rb"(?: command ([0-9]{1,3}) dir [0-9] length ([0-9]{1,12}))?"
)
_COMMAND = re.compile(
    rb"Command: lun=[0-9]{1,9} tag=0x([0-9a-f]{1,16}) data=((?: 0x[0-9a-f]{2}){6,32})"
)
_TAG = 0xFFFFFFFF  # one event writes it signed, the other in hexadecimal


class _Form(Value):
    """Where a command has its place and its count of blocks: bytes of the command block (SBC-4)."""

    kind: IoKind
    place: slice
    count: slice


_LONG = (slice(2, 10), slice(10, 14))
_SHORT = (slice(2, 6), slice(7, 9))
_MIDDLE = (slice(2, 6), slice(6, 10))
_OLD = (slice(1, 4), slice(4, 5))
_FORMS = {
    0x08: _Form(IoKind.READ, *_OLD),
    0x28: _Form(IoKind.READ, *_SHORT),
    0xA8: _Form(IoKind.READ, *_MIDDLE),
    0x88: _Form(IoKind.READ, *_LONG),
    0x0A: _Form(IoKind.WRITE, *_OLD),
    0x2A: _Form(IoKind.WRITE, *_SHORT),
    0xAA: _Form(IoKind.WRITE, *_MIDDLE),
    0x8A: _Form(IoKind.WRITE, *_LONG),
    0x2E: _Form(IoKind.WRITE, *_SHORT),
    0x8E: _Form(IoKind.WRITE, *_LONG),
    0x41: _Form(IoKind.WRITE_ZEROES, *_SHORT),
    0x93: _Form(IoKind.WRITE_ZEROES, *_LONG),
}
_FLUSHES = (0x35, 0x91)
_UNMAP = 0x42
_FUA = UNMAP_BIT = 0x08
"""Bits of byte 1: of a read or write, and of a WRITE SAME."""


class _Begun(Value):
    place: str
    at_us: int
    length: int


class ScsiReader:
    """Reads the events of SCSI disks."""

    def __init__(self, requests: Requests, logical_block: int) -> None:
        self._requests = requests
        self._block = logical_block
        self._begun: dict[int, _Begun] = {}

    def line(self, event: bytes, text: bytes, at_us: int) -> bool:
        """One event; False if its text is not as QEMU writes it."""
        if event == COMMAND:
            command = _COMMAND.match(text)
            return command is not None and self._command(
                int(command[1], 16) & _TAG,
                bytes.fromhex(command[2].replace(b" 0x", b"").decode()),
            )
        match = _REQUEST.match(text)
        if match is None:
            return False
        place, tag = f"target {int(match[1])} lun {int(match[2])}", int(match[3]) & _TAG
        if event == END:
            self._requests.end(place, tag, at_us)  # also of commands that move nothing
            return True
        if match[5] is None:
            return False
        self._begun[tag] = _Begun(place, at_us, int(match[5]))
        return True

    def finish(self) -> None:
        """Nothing is left to do."""

    def _command(self, tag: int, block: bytes) -> bool:
        begun = self._begun.pop(tag, None)
        code = block[0]
        if begun is None:
            return code not in _FORMS
        if code in _FLUSHES:
            self._requests.begin(begun.place, tag, begun.at_us, IoKind.FLUSH)
        elif code == _UNMAP:
            self._requests.tell_not(begun.place)
        elif code in _FORMS:
            return self._access(begun, tag, block, _FORMS[code])
        return True

    def _access(self, begun: _Begun, tag: int, block: bytes, form: _Form) -> bool:
        if len(block) < form.count.stop:
            return False
        place, count = (int.from_bytes(block[part]) for part in (form.place, form.count))
        if form.place == _OLD[0]:
            place, count = place & 0x1FFFFF, count or 256
        if not count:
            return True  # it asks for nothing
        moves = form.kind is not IoKind.WRITE_ZEROES
        size = begun.length // count if moves and begun.length % count == 0 else self._block
        kind = form.kind
        if kind is IoKind.WRITE_ZEROES and block[1] & UNMAP_BIT:
            kind = IoKind.DISCARD
        forced = kind is IoKind.WRITE and form.place != _OLD[0] and bool(block[1] & _FUA)
        length = count * (size or self._block)
        self._requests.begin(
            begun.place, tag, begun.at_us, kind,
            offset=place * (size or self._block), length=length,
            forced=forced,
        )  # fmt: skip
        return True
