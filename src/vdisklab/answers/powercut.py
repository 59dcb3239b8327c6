"""`powercut`: what survived when the power failed, for each path, client and failure model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from vdisklab.answers.loading import judged_without_its_device
from vdisklab.documents import Answer
from vdisklab.path.power_cut_words import ClientKind, DriverSetting
from vdisklab.plan.campaign import Dropped
from vdisklab.results.model import HostFacts
from vdisklab.results.power_cut import (
    STORAGE_FACTS,
    ControlResult,
    Counterexample,
    PowerCut,
    StorageFacts,
    outcome_words,
)
from vdisklab.value import Value, replace

_KEYS = {
    "afterlives": "post_recovery_states",
    "wanted": "sampling",
    "flushes.unasked": "flushes.unrequested",
}
"""Keys of databases with names of before, and their present ones."""


class CrashVerdict(Value, kw_only=True):
    """The verdict on one recorded run: what its client lost in the crash states that were judged.

    docs/database.md explains the fields.
    """

    id: str
    path: str
    client: Annotated[str, "when it expects a write to be durable, as --client says"]
    client_words: Annotated[str, "the same in plain words"]
    access: Annotated[str, "how the client reached the disk"]
    driver: Annotated[str | None, "how the guest changed its disk's write cache; null: not"]
    model: Annotated[str, "what died"]
    during: Annotated[str | None, "what was done to the disk in the middle of the run"]
    started: datetime
    wall_seconds: float
    survives: Annotated[bool | None, "null if no write was acknowledged as durable, or it failed"]
    claim: Annotated[str, "what the judged states show, as a sentence"]
    states: Annotated[int, "judged states"]
    possible: Annotated[float, "states that the failure model allows"]
    exhaustive: Annotated[bool, "true when every possible state was judged"]
    acknowledged: Annotated[int, "writes that the client takes for durable"]
    flushes: Annotated[int, "that reached the disk while the client wrote"]
    leaked_states: int
    repaired_states: int
    post_recovery_states: Annotated[int, "in which QEMU wrote again after the recovery"]
    outcomes: Annotated[Mapping[str, int], "judged states by what became of the data"]
    counterexample: Annotated[Counterexample | None, "the first state with a loss"]
    failure: Annotated[str | None, "why there is no verdict"]
    settings: Mapping[str, Any]
    observed: Annotated[Mapping[str, str], "read back while recording"]
    host: HostFacts
    storage: Annotated[
        StorageFacts | None, "what its runs showed, if the storage failed (storage-…); else null"
    ]
    without_device: Annotated[
        bool, "true if the path's device ignores FUA, and the run did not write through the device"
    ]

    @property
    def flushed_lost(self) -> bool:
        """True if a client lost what it had made durable by a flush, FUA, fsync or COMMIT."""
        return self.survives is False and self.client != ClientKind.NEVER


class PowercutAnswer(Answer):
    """`vdisklab powercut`: one verdict for each path, client and failure model."""

    FORMAT = "vdisklab.powercut/2"

    controls: Annotated[
        tuple[ControlResult, ...], "all passed; none if every verdict came from the database"
    ]
    verdicts: Annotated[tuple[CrashVerdict, ...], "in the order of the questions"]
    interrupted: Annotated[bool, "true when some questions are still open"] = False
    left_out: Annotated[
        tuple[Dropped, ...], "paths that were asked for and cannot be judged as asked"
    ] = ()

    @property
    def any_failed(self) -> bool:
        """True when a path could not be judged."""
        return bool(self.left_out) or any(verdict.failure for verdict in self.verdicts)


def crash_verdict(cut: PowerCut) -> CrashVerdict:
    """A stored verdict, in today's words."""
    first, driver = cut.counterexample, cut.settings.get("driver", DriverSetting.AS_FOUND)
    return CrashVerdict(
        id=cut.id,
        path=cut.path,
        client=cut.client,
        client_words=ClientKind(cut.client).phrase if cut.client in set(ClientKind) else cut.client,
        access=cut.access,
        driver=None if driver == DriverSetting.AS_FOUND else driver,
        model=cut.model,
        during=cut.during,
        started=cut.started,
        wall_seconds=cut.wall_seconds,
        survives=cut.survives,
        claim=cut.claim,
        states=cut.states,
        possible=cut.possible,
        exhaustive=cut.exhaustive,
        acknowledged=cut.acknowledged,
        flushes=cut.flushes,
        leaked_states=cut.leaked_states,
        repaired_states=cut.repaired_states,
        post_recovery_states=cut.post_recovery_states,
        outcomes={outcome_words(outcome): count for outcome, count in cut.outcomes.items()},
        counterexample=first and replace(first, outcome=outcome_words(first.outcome)),
        failure=cut.failure,
        settings=present_keys(cut.settings),
        observed=present_keys(cut.observed),
        host=cut.host,
        storage=StorageFacts.of(cut),
        without_device=judged_without_its_device(cut),
    )


def present_keys(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings or properties under the keys of today."""
    return {_KEYS.get(key, key): value for key, value in stored.items() if key != STORAGE_FACTS}
