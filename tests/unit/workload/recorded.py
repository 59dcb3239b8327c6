"""Outputs of real programs; the version is in the file's name."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[2] / "data"


def recorded(name: str) -> str:
    """The text of a recording."""
    return (DATA / name).read_bytes().decode()
