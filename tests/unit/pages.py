"""Runs a program of bench/, whose neighbours it imports."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"


def bench(name: str) -> dict[str, Any]:
    """The names that a program of bench/ defines."""
    sys.path.insert(0, str(BENCH))
    try:
        return runpy.run_path(str(BENCH / name))
    finally:
        sys.path.remove(str(BENCH))
