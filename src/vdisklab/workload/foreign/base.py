"""What a result file of another's making holds."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.workload.base import Outcome


@dataclass(frozen=True, slots=True)
class Found:
    """One measurement of a file: what it is called there, or would be in a profile of ours."""

    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What one machine or configuration reached; `label` is the file's name for it, if any."""

    program: str
    version: str | None
    label: str | None
    found: tuple[Found, ...]
