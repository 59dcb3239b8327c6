"""The schemas of all answers, as docs/schemas/ has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def committed_schemas() -> dict[str, Any]:
    """The schema of each document, by its format: `vdisklab.rank/3`."""
    found: dict[str, Any] = {}
    for file in sorted(FOLDER.glob("*.json")):
        found |= json.loads(file.read_text())
    return found
