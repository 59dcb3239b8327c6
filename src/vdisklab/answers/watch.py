"""`watch`: what runs, what is known of it so far, and what ran before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vdisklab.documents import Answer
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store


@dataclass(frozen=True, slots=True)
class WatchAnswer(Answer):
    """What the live page shows."""

    FORMAT = "vdisklab.watch/1"

    campaigns: Annotated[tuple[Campaign, ...], "all stored ones, the newest first"]


def watch(results: Store) -> WatchAnswer:
    """The state of the campaigns in a database."""
    return WatchAnswer(results.campaigns())
