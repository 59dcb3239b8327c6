"""What a QEMU's monitor answers to `probe_qemu`."""

from __future__ import annotations

import json
from collections.abc import Collection

from vdisklab.guest.qemu.probe import DEVICES

ALL_MACHINES = ("pc", "q35")


def monitor_answers(
    lacking: Collection[str] = (),
    *,
    aio: Collection[str] = ("threads", "native", "io_uring"),
    machines: Collection[str] = ALL_MACHINES,
) -> str:
    """The answers of QEMU 7.2 with all devices but those `lacking`."""
    version = {"qemu": {"major": 7, "minor": 2, "micro": 22}, "package": "Debian"}
    answers = {
        "query-version": version,
        "query-target": {"arch": "x86_64"},
        "query-machines": [{"name": f"{name}-7.2", "alias": name} for name in machines],
        "query-qmp-schema": [{"name": "1", "meta-type": "enum", "values": list(aio)}],
        **{f"device {name}": [] for name in DEVICES if name not in lacking},
    }
    return "".join(
        json.dumps({"id": key, "return": value}) + "\n" for key, value in answers.items()
    )
