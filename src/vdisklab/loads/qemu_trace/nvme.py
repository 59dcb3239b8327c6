"""NVMe: all controllers of a guest are one place, because QEMU logs no name (hw/nvme).

`pci_nvme_io_cmd` begins a request, numbered by queue and command, `pci_nvme_read` and
`pci_nvme_write` say where, `pci_nvme_enqueue_req_completion` ends it. The completion names its
completion queue; Linux and Windows give each submission queue one of the same number. Whether a
write is forced is not logged.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind
from vdisklab.loads.requests import Requests

BEGIN, END = b"pci_nvme_io_cmd", b"pci_nvme_enqueue_req_completion"
READ, WRITE, DISCARD = b"pci_nvme_read", b"pci_nvme_write", b"pci_nvme_dsm_deallocate"
PLACE = "nvme"

_BEGIN = re.compile(
    rb"cid ([0-9]{1,5}) nsid 0x[0-9a-f]{1,8} sqid ([0-9]{1,5}) opc 0x([0-9a-f]{1,2})"
)
_END = re.compile(rb"cid ([0-9]{1,5}) cqid ([0-9]{1,5})")
_ACCESS = re.compile(
    rb"cid ([0-9]{1,5}) (?:opname '\w{1,40}' )?nsid [0-9]{1,10} nlb ([0-9]{1,10})"
    rb" count ([0-9]{1,12}) lba 0x([0-9a-f]{1,16})"
)
_RANGE = re.compile(rb"slba ([0-9]{1,20}) nlb ([0-9]{1,10})")
_FLUSH, _WRITE_ZEROES, _DSM = 0x00, 0x08, 0x09


class NvmeReader:
    """Reads the events of NVMe controllers."""

    def __init__(self, requests: Requests, logical_block: int) -> None:
        self._requests = requests
        self._block = logical_block
        self._begun: tuple[tuple[bytes, bytes], int, int] = ((b"", b""), -1, 0)

    def line(self, event: bytes, text: bytes, at_us: int) -> bool:
        """One event; False if its text is not as QEMU writes it."""
        if event == BEGIN:
            begin = _BEGIN.match(text)
            if begin is None:
                return False
            code = int(begin[3], 16)
            number = (begin[2], begin[1])
            self._begun = (number, code, at_us)
            if code == _FLUSH:
                self._requests.begin(PLACE, number, at_us, IoKind.FLUSH)
            return True
        if event == END:
            end = _END.match(text)
            if end is None:
                return False
            self._requests.end(PLACE, (end[2], end[1]), at_us)  # also of the admin queue's commands
            return True
        return self._place(event, text)

    def finish(self) -> None:
        """Nothing is left to do."""

    def _place(self, event: bytes, text: bytes) -> bool:
        """Where the request is that began last: QEMU logs it at once."""
        number, code, began_us = self._begun
        if event == DISCARD:
            match = _RANGE.match(text)
            if match is None or code != _DSM:
                return False
            offset, length = (int(part) * self._block for part in match.groups())
            if length:
                self._requests.begin(
                    PLACE,
                    number,
                    began_us,
                    IoKind.DISCARD,
                    offset=offset,
                    length=length,
                    joins=True,
                )
            return True
        access = _ACCESS.match(text)
        if access is None or access[1] != number[1] or not int(access[2]):
            return False
        length = int(access[3])
        size = length // int(access[2])
        kind = IoKind.READ if event == READ else IoKind.WRITE
        if code == _WRITE_ZEROES:
            kind = IoKind.WRITE_ZEROES
        if not size:
            return False
        self._requests.begin(
            PLACE, number, began_us, kind, offset=int(access[4], 16) * size, length=length
        )
        return True
