"""IDE and SATA: a place is the port of an AHCI controller, or the state of an IDE disk (hw/ide).

Queued commands (NCQ) are numbered by their tag. Of the others a disk has one at a time: a flush
and a read or write of old. Their end is logged by an AHCI controller, not by PIIX's. The places of
a TRIM are not logged.
"""

from __future__ import annotations

import re

from vdisklab.loads.load import IoKind
from vdisklab.loads.requests import Requests
from vdisklab.units import SECTOR

QUEUED, QUEUED_FORCED, QUEUED_END = (
    b"process_ncq_command",
    b"process_ncq_command_fua",
    b"ncq_finish",
)
COMMAND, TRANSFER, COMMAND_END = b"ide_exec_cmd", b"ide_dma_cb", b"ahci_cmd_done"

_PORT = re.compile(rb"(ahci\(0x[0-9a-f]{1,16}\)\[[0-9]{1,2}\])(?:\[tag:([0-9]{1,2})\])?")
_QUEUED = re.compile(rb".{0,60}: NCQ op 0x(60|61) on sectors \[([0-9]{1,15}),([0-9]{1,15})\]")
_COMMAND = re.compile(rb".{0,60}state (0x[0-9a-f]{1,16}); cmd 0x([0-9a-f]{2})")
_TRANSFER = re.compile(rb"IDEState (0x[0-9a-f]{1,16}); sector_num=(-?[0-9]{1,15}) n=([0-9]{1,8})")

_READS, _WRITES = (0xC8, 0xC9, 0x25), (0xCA, 0xCB, 0x35, 0x3D)
_BY_PROCESSOR = (0x20, 0x21, 0x24, 0x29, 0xC4, 0x30, 0x31, 0x34, 0x39, 0xC5)
_FORCED = 0x3D
_FLUSHES = (0xE7, 0xEA)
_TRIM = 0x06
_ONLY = "command"
"""The number of a request that is not queued: a disk has one at a time."""


class IdeReader:
    """Reads the events of IDE and AHCI."""

    def __init__(self, requests: Requests, logical_block: int) -> None:
        del logical_block  # QEMU's have 512 bytes
        self._requests = requests
        self._forced: set[tuple[str, bytes]] = set()
        self._commands: dict[str, tuple[int, int]] = {}
        self._ports: dict[str, str] = {}

    def line(self, event: bytes, text: bytes, at_us: int) -> bool:
        """One event; False if its text is not as QEMU writes it."""
        if event == COMMAND:
            return self._command(text, at_us)
        if event == TRANSFER:
            return self._transfer(text)
        port = _PORT.match(text)
        if port is None or (event != COMMAND_END) is (port[2] is None):
            return False
        place, tag = port[1].decode(), port[2]
        if event == COMMAND_END:
            self._end_of_command(place, at_us)
        elif event == QUEUED_FORCED:
            self._forced.add((place, tag))
        elif event == QUEUED_END:
            self._requests.end(place, tag, at_us)
        else:
            return self._queued(place, tag, text, at_us)
        return True

    def finish(self) -> None:
        """Joins what a disk did by queued and by other commands."""
        self._requests.rename({state: port for port, state in self._ports.items()})

    def _queued(self, place: str, tag: bytes, text: bytes, at_us: int) -> bool:
        match = _QUEUED.match(text)
        forced = (place, tag) in self._forced
        self._forced.discard((place, tag))
        if match is None:
            return False
        kind = IoKind.READ if match[1] == b"60" else IoKind.WRITE
        first, last = int(match[2]), int(match[3])
        if last < first:
            return False
        self._requests.begin(
            place, tag, at_us, kind,
            offset=first * SECTOR, length=(last - first + 1) * SECTOR,
            forced=forced and kind is IoKind.WRITE,
        )  # fmt: skip
        return True

    def _command(self, text: bytes, at_us: int) -> bool:
        match = _COMMAND.match(text)
        if match is None:
            return False
        state, code = match[1].decode(), int(match[2], 16)
        self._commands[state] = (code, at_us)
        if code in _FLUSHES:
            self._requests.begin(state, _ONLY, at_us, IoKind.FLUSH)
        elif code in _BY_PROCESSOR or code == _TRIM:
            self._requests.tell_not(state)
        return True

    def _transfer(self, text: bytes) -> bool:
        """The first transfer of a command has its place and whole length, later ones the rest."""
        match = _TRANSFER.match(text)
        if match is None:
            return False
        state, sectors = match[1].decode(), int(match[3])
        code, began_us = self._commands.get(state, (0, 0))
        if code in _READS or code in _WRITES:
            self._commands[state] = (0, began_us)
            if int(match[2]) < 0 or not sectors:
                return False
            kind = IoKind.READ if code in _READS else IoKind.WRITE
            self._requests.begin(
                state, _ONLY, began_us, kind,
                offset=int(match[2]) * SECTOR, length=sectors * SECTOR,
                forced=code == _FORCED,
            )  # fmt: skip
        return True

    def _end_of_command(self, port: str, at_us: int) -> None:
        """Ends the command of the port's disk: the only disk that waits, if it is not yet known."""
        if port not in self._ports:
            taken = self._ports.values()
            waiting = [state for state in self._commands if state not in taken]
            if len(waiting) != 1:
                return
            self._ports[port] = waiting[0]
        state = self._ports[port]
        if self._commands.pop(state, None) is not None:
            self._requests.end(state, _ONLY, at_us)
