"""The JSON that vdisklab prints: what all documents have in common. `docs/json.md` lists them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from vdisklab.analysis.diagnostics.findings import Finding
from vdisklab.path.cell import MeasuredCell
from vdisklab.render.wording import sentence
from vdisklab.results.model import Campaign, HostFacts

Json = dict[str, Any]


def document(name: str, version: int, **content: object) -> Json:
    """A document; `format` changes its number when a key goes or changes its meaning.

    Keys may be added without that: `docs/json.md` tells readers to pass over those unknown.
    """
    return {"format": f"vdisklab.{name}/{version}", **content}


def campaign_json(campaign: Campaign) -> Json:
    """A campaign without its plan."""
    return {
        "id": campaign.id,
        "label": campaign.label,
        "started": campaign.started.isoformat(),
        "host": host_json(campaign.host),
    }


def host_json(host: HostFacts) -> Json:
    """The machine as recorded."""
    return {
        "hostname": host.hostname,
        "machine_id": host.machine_id,
        "kernel": host.kernel,
        "cpu": host.cpu,
        "cpus": host.cpus,
        "memory_bytes": host.memory_bytes,
        "qemu": host.qemu,
        "fio": host.fio,
        "more": dict(host.more),
    }


def finding_json(finding: Finding) -> Json:
    """A finding's kind (`from-page-cache`), its fields and its sentence."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "-", type(finding).__name__).lower()
    return {"kind": kind, "text": sentence(finding), **_fields(finding)}


def findings_json(findings: Iterable[Finding]) -> list[Json]:
    """All findings, in their order. A field called `kind` of the finding itself is `failure`."""
    return [finding_json(finding) for finding in findings]


def _fields(finding: Finding) -> Json:
    names = [field.name for field in dataclasses.fields(finding)]
    return {"failure" if name == "kind" else name: _plain(getattr(finding, name)) for name in names}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.label if isinstance(value, MeasuredCell) else value
