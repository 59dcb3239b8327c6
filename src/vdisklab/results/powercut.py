"""What is stored of a power cut: one verdict on one path and one kind of client. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from vdisklab.results.model import HostFacts


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The first state that broke a promise. `case` rebuilds it: `vdisklab powercut --replay`."""

    case: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The verdict over one recorded run, or why there is none (`failure`).

    `client` says when the client takes a write for durable, `access` through what it writes.
    `survives` is None when nothing was promised. `possible` counts the states that the disk model
    allows, `states` those that were judged; `exhaustive` when they are all. `flushes` reached the
    disk while the client wrote. Equal `fingerprint`s asked for the same on any machine.
    """

    id: str
    fingerprint: str
    path: str
    client: str
    access: str
    host: HostFacts
    started: datetime
    wall_seconds: float
    survives: bool | None
    claim: str
    states: int
    possible: float
    exhaustive: bool
    promises: int
    flushes: int
    leaked_states: int
    repaired_states: int
    afterlives: int
    outcomes: Mapping[str, int]
    settings: Mapping[str, Any]
    seen: Mapping[str, str]
    counterexample: Counterexample | None = None
    failure: str | None = None
