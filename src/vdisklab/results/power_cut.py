"""The stored verdict of a power cut: on one path and one kind of client. Pure values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from msgspec import to_builtins

from vdisklab.path.durability import FailureModel
from vdisklab.results.model import HostFacts
from vdisklab.value import Value, field

MODEL = "model"
"""Key in `PowerCut.settings`: the failure model; without it the model is `power`."""

DURING = "during"
"""Key in `PowerCut.settings`: what was done to the disk in the middle of the run, if anything."""

FAILING_SECONDS = "failing_seconds"
"""Key in `PowerCut.settings`: how long the storage failed, if not as long as is usual."""

FAILING_REQUESTS = "failing_requests"
"""Key in `PowerCut.settings`: how many requests failed at most, if there was a limit."""

STORAGE_FACTS = "storage_failure"
"""Key in `PowerCut.observed`: the `StorageFacts` as JSON."""

_SHOWN = {"corrupt in the afterlife": "corrupted by later writes"}
"""Stored outcomes that are shown in other words."""


def outcome_words(outcome: str) -> str:
    """A stored outcome as users read it."""
    return _SHOWN.get(outcome, outcome)


class ControlResult(Value):
    """The result of a control: a run that is known to lose acknowledged writes, or to keep them."""

    name: str
    must_lose: bool
    states: int
    losses: int
    note: str = ""

    @property
    def passed(self) -> bool:
        """True when the verdict is the known answer."""
        return (self.losses > 0) == self.must_lose and self.states > 0


class Counterexample(Value):
    """The first state with a loss. `case` rebuilds it: `vdisklab powercut --replay`."""

    case: str
    outcome: str
    detail: str


class StorageFacts(Value, kw_only=True):
    """What several runs with failing storage showed, in sums over all runs; seconds are medians,
    from the first request that failed."""

    worst: Annotated[str, "what became of the guest in the worst run"]
    acknowledged: Annotated[int, "files that the guest's program was told are durable"]
    lost: Annotated[int, "those of them that are gone or damaged"]
    told: Annotated[int, "files of which the program was told that they failed"]
    failed: Annotated[int, "QEMU's requests that the storage did not answer as usual"]
    failed_flushes: Annotated[int, "flushes among them"]
    paused_runs: Annotated[int, "runs in which QEMU paused the guest"]
    paused_after: Annotated[float | None, "seconds until it did; null: never"]
    told_runs: Annotated[int, "runs in which the program was told an error"]
    told_after: Annotated[float | None, "seconds until it was; null: never"]
    again: Annotated[int, "files whose fsync failed and then, called again, succeeded"]
    again_lost: Annotated[int, "those of them that are gone or damaged"]
    error: Annotated[str, "the commonest first error of the program: `fsync: EIO`"]
    kernel: Annotated[Mapping[str, int], "runs by what the guest's kernel logged"]
    detail: Annotated[str, "more about the worst run"]

    def as_stored(self) -> dict[str, str]:
        """The facts as properties of a verdict."""
        return {STORAGE_FACTS: json.dumps(to_builtins(self))}

    @classmethod
    def of(cls, cut: PowerCut) -> StorageFacts | None:
        """The facts of a verdict; None if no storage failed, or another version stored them."""
        text = cut.observed.get(STORAGE_FACTS)
        if text is None:
            return None
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None


class PowerCut(Value):
    """The verdict on one recorded run, or the reason why there is none (`failure`)."""

    id: str
    fingerprint: str
    """Equal ones mean the same test, on any machine."""
    path: str
    client: str
    """When the client takes a write for durable."""
    access: str
    """How the client reaches the disk."""
    host: HostFacts
    started: datetime
    wall_seconds: float
    """Verdicts from one recording share its seconds in equal parts."""
    survives: bool | None = None
    """None when no write was acknowledged as durable."""
    claim: str = ""
    states: int = 0
    """How many states were judged."""
    possible: float = 0.0
    """How many states the disk model allows."""
    exhaustive: bool = False
    """True if all of these were judged."""
    acknowledged: int = 0
    """Writes that the client took for durable."""
    flushes: int = 0
    """Flushes that reached the disk while the client wrote."""
    leaked_states: int = 0
    repaired_states: int = 0
    post_recovery_states: int = 0
    """States in which QEMU wrote again after the recovery."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    observed: Mapping[str, str] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    failure: str | None = None

    @property
    def model(self) -> str:
        """What died: a `FailureModel`, or a model of a later version."""
        return str(self.settings.get(MODEL, FailureModel.POWER.value))

    @property
    def during(self) -> str | None:
        """What was done to the disk in the middle of the run; None if nothing was."""
        operation = self.settings.get(DURING)
        return None if operation is None else str(operation)

    def applies_to(self, host: HostFacts) -> bool:
        """True for the same machine, kernel and QEMU; others may lose different data."""
        tested_on = self.host
        return (tested_on.machine_id, tested_on.kernel, tested_on.qemu) == (
            host.machine_id, host.kernel, host.qemu,
        )  # fmt: skip


def failure_words(model: str, settings: Mapping[str, Any]) -> str:
    """How storage failed, with its length if that was asked for: `storage-error (3 requests)`."""
    seconds, requests = settings.get(FAILING_SECONDS), settings.get(FAILING_REQUESTS)
    parts = [] if seconds is None else [f"{seconds:g} s"]
    parts += [] if requests is None else [f"{requests} request{'' if requests == 1 else 's'}"]
    return f"{model} ({', '.join(parts)})" if parts else model


class ReplayedState(Value):
    """A rebuilt state; `mountpoint` is None when it does not recover, or has no file system."""

    path: str
    client: str
    expects: str
    outcome: str
    detail: str
    device: str
    mountpoint: Path | None = None
    image: Path | None = None
    has_filesystem: bool = True
    failure: str = ""
    """How the storage failed, if nothing died."""
