"""Reading the small files in which the kernel tells about itself."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """A file's text without blanks around it; None when it is missing, unreadable or empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
