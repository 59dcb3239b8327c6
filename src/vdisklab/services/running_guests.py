"""The disks of running QEMUs: from their command lines, and from QMP what they are now.

QMP gets one command, `query-block`, which changes nothing.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.guest_texts import GuestText, read_guests
from vdisklab.audit.running_disk import as_running, monitor_of
from vdisklab.path.managers import Manager

DEADLINE = 2.0
"""Seconds for the whole answer: a monitor serves one client, and may have one already."""

_LONGEST_ANSWER = 4 << 20


def running_disks(processes: Path) -> Iterator[ConfiguredDisk]:
    """The disks of running QEMUs; vdisklab's own guests are left out."""
    for file in sorted(processes.glob("[0-9]*/cmdline")):
        try:
            text = file.read_text(errors="replace")
        except OSError:  # it has ended, or belongs to somebody else
            continue
        program = text.partition("\0")[0].rpartition("/")[2]
        own = re.search(r"\0guest=(vdl|vdisklab-lab-)", text)
        if own or not re.fullmatch(r"qemu-system-\w+|qemu-kvm|kvm", program):
            continue
        disks = read_guests([GuestText(text, f"process {file.parent.name}")])
        of_qemu = [disk for disk in disks if disk.manager is Manager.QEMU]
        monitor = monitor_of(text.split("\0")) if of_qemu else None
        answer = None if monitor is None else query_block(file.parent / "cwd" / monitor)
        for disk in of_qemu:
            yield as_running(disk, answer)


def query_block(monitor: Path) -> object:
    """The answer to `query-block`; None without one in time."""
    until = time.monotonic() + DEADLINE
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(DEADLINE)
            channel.connect(str(monitor))
            for number, command in enumerate(("qmp_capabilities", "query-block")):
                line = json.dumps({"execute": command, "id": number})
                channel.sendall(line.encode() + b"\n")
            return _answer(channel, until)
    except (OSError, ValueError, RecursionError):  # RecursionError: nested without end
        return None


def _answer(channel: socket.socket, until: float) -> object:
    """The answer to the second command. Raises ValueError or OSError."""
    received = b""
    while len(received) < _LONGEST_ANSWER:
        channel.settimeout(max(0.01, until - time.monotonic()))
        part = channel.recv(1 << 16)
        if not part or time.monotonic() > until:
            break
        received += part
        *lines, _ = received.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if isinstance(message, dict) and message.get("id") == 1:
                return message.get("return")
    return None
