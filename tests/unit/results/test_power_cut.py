"""Verdicts of power cuts in every database."""

from __future__ import annotations

import pytest

from vdisklab.errors import DatabaseError
from vdisklab.results.power_cut import Counterexample, PowerCut
from vdisklab.results.store import Store
from vdisklab.value import replace

from .values import HOST, NOON

KEPT = PowerCut(
    id="aa11",
    fingerprint="feedc0de",
    path="ext4/raw/none",
    client="flushes",
    access="nbd",
    host=HOST,
    started=NOON,
    wall_seconds=3.5,
    survives=True,
    claim="for this recorded run …",
    states=681,
    possible=681.0,
    exhaustive=True,
    acknowledged=80,
    flushes=39,
    leaked_states=0,
    repaired_states=0,
    post_recovery_states=20,
    outcomes={"kept": 681},
    settings={"writes": 80, "wanted": {"states": 1000}},
    observed={"loop.direct_io": "on"},
)
LOST = replace(
    KEPT,
    id="bb22",
    path="ext4/raw/unsafe",
    survives=False,
    possible=3e26,
    exhaustive=False,
    outcomes={"kept": 1, "lost": 9},
    counterexample=Counterexample("bb22/0-0", "lost", "9 sectors lost; …"),
)
FAILED = replace(
    KEPT, id="cc33", survives=None, states=0, outcomes={}, exhaustive=False, failure="no room"
)


def test_what_is_stored_is_read_back(store: Store) -> None:
    elsewhere = replace(KEPT, id="dd44", host=replace(HOST, machine_id="another"))
    for each in (KEPT, LOST, FAILED, elsewhere):
        store.add_power_cut(each)
    assert store.power_cuts() == (KEPT, LOST, FAILED, elsewhere)
    assert store.power_cuts(HOST.machine_id) == (KEPT, LOST, FAILED)
    assert store.power_cuts("nobody") == ()


def test_an_id_is_stored_once(store: Store) -> None:
    store.add_power_cut(KEPT)
    with pytest.raises(DatabaseError, match="the verdict aa11 is in"):
        store.add_power_cut(replace(LOST, id="aa11"))
