"""virtio-blk: a place is the device's address in QEMU (hw/block/trace-events).

The end of a request whose beginning was not logged is that of a flush, a discard or a query of the
disk's name: QEMU logs no beginning of them (hw/block/virtio-blk.c, virtio_blk_handle_request). They
are taken for flushes, and whoever knows how many flushes there were says how many are not. They
began when their element was taken from the queue (`virtqueue_pop`, which tells of all virtio
devices): a request's address is its element's, its first member (VirtIOBlockReq in virtio-blk.h).
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind
from vdisklab.loads.requests import Requests
from vdisklab.units import SECTOR

BEGIN_READ, BEGIN_WRITE, END = (
    b"virtio_blk_handle_read",
    b"virtio_blk_handle_write",
    b"virtio_blk_req_complete",
)
TAKEN = b"virtqueue_pop"

_MOST_TAKEN = 1 << 16
_TAKES = re.compile(
    rb"vq 0x[0-9a-f]{1,16} elem (0x[0-9a-f]{1,16}) in_num ([0-9]{1,6}) out_num ([0-9]{1,6})"
)
_FLUSH = (1, 1)
"""Buffers that the device writes and reads: a flush has a status and a header and nothing else."""
_TELLS = re.compile(
    rb"(?:vdev (0x[0-9a-f]{1,16}) )?req (0x[0-9a-f]{1,16})"
    rb" (?:sector ([0-9]{1,16}) nsectors ([0-9]{1,10})|status ([0-9]{1,3}))"
)


class VirtioBlkReader:
    """Reads the events of virtio-blk."""

    def __init__(self, requests: Requests, logical_block: int) -> None:
        del logical_block  # its sectors have 512 bytes
        self._requests = requests
        self._taken: dict[bytes, tuple[int, tuple[int, int]]] = {}

    def line(self, event: bytes, text: bytes, at_us: int) -> bool:
        """One event; False if its text is not as QEMU writes it."""
        if event == TAKEN:
            return self._take(text, at_us)
        match = _TELLS.match(text)
        if match is None or (event == END) is (match[5] is None):
            return False
        place, number = (match[1] or b"disk").decode(), match[2]
        taken = self._taken.pop(number, None)
        if event == END:
            if not self._requests.end(place, number, at_us):
                self._end_of_another(place, number, at_us, taken)
            return True
        length = int(match[4]) * SECTOR
        if not length:
            return False
        kind = IoKind.READ if event == BEGIN_READ else IoKind.WRITE
        self._requests.begin(
            place, number, at_us, kind, offset=int(match[3]) * SECTOR, length=length
        )
        return True

    def _end_of_another(
        self, place: str, number: bytes, at_us: int, taken: tuple[int, tuple[int, int]] | None
    ) -> None:
        if taken is None:
            self._requests.begin(place, None, at_us, IoKind.FLUSH)
        elif taken[1] == _FLUSH:
            self._requests.begin(place, number, taken[0], IoKind.FLUSH)
            self._requests.end(place, number, at_us)
        else:  # a discard has a list of ranges, a query a buffer for the name
            self._requests.tell_not(place)

    def _take(self, text: bytes, at_us: int) -> bool:
        match = _TAKES.match(text)
        if match is None:
            return False
        if len(self._taken) >= _MOST_TAKEN:
            # Elements of other devices, whose ends are not told.
            self._taken.pop(next(iter(self._taken)))
        self._taken.pop(match[1], None)
        self._taken[match[1]] = (at_us, (int(match[2]), int(match[3])))
        return True

    def finish(self) -> None:
        """Nothing is left to do."""
