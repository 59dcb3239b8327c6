"""Whether QEMU emulates this machine, and the reading of the kernel's small files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from vdisklab.path.architecture import ARCHITECTURES

SYSTEM = Path("/")
"""The directory with /proc, /sys and /etc; tests use other directories."""


def read_text(path: Path) -> str | None:
    """A file's text without surrounding blanks; None when it is missing, unreadable or empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def page_size() -> int:
    """Bytes of a page of this kernel's memory, as sysconf(3) says.

    4096 on x86; 4096, 16384 or 65536 on Arm, whose kernel was built for one of them.
    """
    return os.sysconf("SC_PAGE_SIZE")


def cpu_field(root: Path, name: str) -> str | None:
    """A field of the first CPU in /proc/cpuinfo."""
    text = read_text(root / "proc/cpuinfo") or ""
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def is_emulated(root: Path = SYSTEM) -> bool:
    """True if QEMU emulates this machine's CPU (TCG).

    The CPU's fields show it for QEMU's model `max`; with other models TCG is not recognised.
    """
    return any(
        all(mark in (cpu_field(root, name) or "") for name, mark in row.emulated_marks.items())
        for row in ARCHITECTURES
    )
