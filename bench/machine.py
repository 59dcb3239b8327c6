"""Facts of the machine that every benchmark records."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from vdisklab import __version__
from vdisklab.host.blockdevice import medium_of
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts


def machine_facts(directory: Path) -> dict[str, Any]:
    """The host's facts, the medium below a directory, and the current time."""
    facts = to_builtins(collect_facts(LocalHost()))
    facts.pop("machine_id")
    return {
        "vdisklab": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": facts,
        "medium": medium_of(directory),
        "load_before": Path("/proc/loadavg").read_text().split()[0],
    }


def print_result(result: dict[str, Any]) -> None:
    """The result as JSON on standard output."""
    json.dump(result, sys.stdout, indent=2)
    print()
