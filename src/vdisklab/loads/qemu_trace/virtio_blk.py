"""virtio-blk: a place is the device's address in QEMU (hw/block/trace-events).

The end of a request whose beginning was not logged is that of a flush, a discard or a query of the
disk's name: QEMU logs no beginning of them (hw/block/virtio-blk.c, virtio_blk_handle_request). They
are taken for flushes, and whoever knows how many flushes there were says how many are not.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind
from vdisklab.loads.qemu_trace.requests import Requests
from vdisklab.units import SECTOR

BEGIN_READ, BEGIN_WRITE, END = (
    b"virtio_blk_handle_read",
    b"virtio_blk_handle_write",
    b"virtio_blk_req_complete",
)
_TELLS = re.compile(
    rb"(?:vdev (0x[0-9a-f]{1,16}) )?req (0x[0-9a-f]{1,16})"
    rb" (?:sector ([0-9]{1,16}) nsectors ([0-9]{1,10})|status ([0-9]{1,3}))"
)


class VirtioBlkReader:
    """Reads the events of virtio-blk."""

    def __init__(self, requests: Requests, logical_block: int) -> None:
        del logical_block  # its sectors have 512 bytes
        self._requests = requests

    def line(self, event: bytes, text: bytes, at_us: int) -> bool:
        """One event; False if its text is not as QEMU writes it."""
        match = _TELLS.match(text)
        if match is None or (event == END) is (match[5] is None):
            return False
        place, number = (match[1] or b"disk").decode(), match[2]
        if event == END:
            if not self._requests.end(place, number, at_us):
                self._requests.begin(place, None, at_us, IoKind.FLUSH)
            return True
        length = int(match[4]) * SECTOR
        if not length:
            return False
        kind = IoKind.READ if event == BEGIN_READ else IoKind.WRITE
        self._requests.begin(
            place, number, at_us, kind, offset=int(match[3]) * SECTOR, length=length
        )
        return True

    def finish(self) -> None:
        """Nothing is left to do."""
