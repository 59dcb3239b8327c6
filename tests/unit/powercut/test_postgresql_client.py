"""PostgreSQL as the client: its transactions and events, and what is said of its tables."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from vdisklab.errors import GuestError, PlanError
from vdisklab.guest.machine import Machine
from vdisklab.path.power_cut_words import AccessKind, ClientKind, StateOutcome
from vdisklab.powercut.client import FIRST_VERSION, Trace, Write
from vdisklab.powercut.controls import POSTGRESQL_CONTROLS, controls_of
from vdisklab.powercut.crash_states import FutureVersionError
from vdisklab.powercut.guest_clients import DueTransactions, GuestProgram
from vdisklab.powercut.postgresql import (
    STATES,
    Event,
    GuestPostgresql,
    disk_size,
    event_of,
    event_windows,
    judge_rows,
    transaction,
)
from vdisklab.powercut.request import PowercutRequest, plan_questions
from vdisklab.units import MIB

FIRST = FIRST_VERSION
LAST = 26
DUE = DueTransactions(LAST, LAST)


def found(last: int = LAST) -> dict[str, Any]:
    """What the tables hold after transaction `last`, as PostgreSQL's JSON, where a table without
    rows is null."""
    versions = range(FIRST, last + 1)
    events = {event: [v for v in versions if event_of(v) is event] for event in Event}
    recent = range(max(events[Event.TRUNCATE], default=FIRST), last + 1)
    return {
        "promise": [[version, True] for version in versions] or None,
        "newest": last if last >= FIRST else 0,
        "recent": {str(version): 1 for version in recent} or None,
        "made": {str(version): 40 for version in events[Event.CREATE]} or None,
        "grown": {str(version): 64 for version in events[Event.GROW]} or None,
    }


def test_each_event_comes_again_and_again() -> None:
    assert [event_of(version) for version in range(16, 24)] == [
        Event.TRUNCATE, None, Event.CREATE, None, Event.GROW, None, Event.SWITCH, None,
    ]  # fmt: skip
    statements = {
        16: "TRUNCATE recent",
        18: "CREATE TABLE made_18",
        20: "INTO grown",
        22: "switch_wal",
    }
    for version, word in statements.items():
        sql = transaction(version)
        assert word in sql
        assert sql.endswith(f"SELECT 'done {version}';\n")
        assert sql.count("\n") == 1, "psql reads it as a whole"
        assert word not in transaction(version + 1)
    assert transaction(22).index("COMMIT") < transaction(22).index("switch_wal")
    assert {"CHECKPOINT" in transaction(version) for version in (6, 14)} == {True, False}


@pytest.mark.parametrize("last", [*range(2, 34)])
def test_every_transaction_with_all_its_effects_is_kept(last: int) -> None:
    assert judge_rows(found(last), FIRST, DueTransactions(last, last)) == (StateOutcome.KEPT, "")
    assert judge_rows(found(last), FIRST, DueTransactions(0, last + 1))[0] is StateOutcome.KEPT


def test_nothing_committed_and_nothing_there_is_kept() -> None:
    assert judge_rows(found(1), FIRST, DueTransactions(0, FIRST))[0] is StateOutcome.KEPT


@pytest.mark.parametrize(
    ("table", "value", "outcome", "said"),
    [
        ("promise", found(25)["promise"], StateOutcome.LOST, "26 was committed, but the last"),
        ("promise", None, StateOutcome.LOST, "the last one in the database is 0"),
        ("newest", 25, StateOutcome.TORN, "half of transaction 26"),
        ("recent", {"24": 1, "25": 1}, StateOutcome.LOST, "recent has 0 of 1 rows of transaction"),
        ("recent", {"16": 1, "24": 1, "25": 1, "26": 1}, StateOutcome.LOST, "has 1 of 0 rows"),
        ("made", {"2": 40, "10": 40, "18": 40}, StateOutcome.LOST, "0 of 40 rows of transaction"),
        ("made", {"2": 40, "10": 1, "18": 40, "26": 40}, StateOutcome.LOST, "made has 1 of 40"),
        ("grown", {"4": 64, "12": 63, "20": 64}, StateOutcome.LOST, "grown has 63 of 64 rows"),
        ("grown", None, StateOutcome.LOST, "grown has 0 of 64 rows of transaction 4"),
        ("promise", [[v, v != 9] for v in range(2, 27)], StateOutcome.GARBAGE, "row 9 does not"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    table: str, value: object, outcome: StateOutcome, said: str
) -> None:
    judged, detail = judge_rows({**found(), table: value}, FIRST, DUE)
    assert (judged, judged.is_loss) == (outcome, True)
    assert said in detail


def test_a_transaction_from_the_future_is_our_bug() -> None:
    with pytest.raises(FutureVersionError, match="transaction 26, which had not begun"):
        judge_rows(found(), FIRST, DueTransactions(20, 25))


def test_the_windows_are_those_of_transactions_with_events() -> None:
    writes = tuple(Write(v, 0, 0, 10 * v, 10 * v + 5, 10 * v + 5) for v in range(2, 10))
    trace = Trace(
        "ext4/raw/none", ClientKind.POSTGRESQL, "guest", "ext4", (), "disk.raw", "raw",
        64 * MIB, 80 * MIB, False, 20, 95, writes, {},
    )  # fmt: skip
    assert event_windows(trace) == ((20, 25), (40, 45), (60, 65), (80, 85))


def test_settings_are_believed_only_as_read_back() -> None:
    near, far = socket.socketpair()
    with near, far:
        program = GuestProgram(cast(Machine, None), near, 1, "psql", "port")
        far.sendall(b"ready\non\non\non\nfdatasync\non\noff\nminimal\n0\n")
        opened = GuestPostgresql(program, {})
        opened.create(synced=True)
        assert opened.observed["guest.postgresql.fsync"] == "on"
        far.sendall(b"ready\noff\n")
        with pytest.raises(GuestError, match="PostgreSQL in the guest said 'off' instead of 'on'"):
            GuestPostgresql(program, {}).create(synced=True)


def test_there_are_fewer_states_and_a_larger_disk() -> None:
    request = PowercutRequest(
        ("ext4/raw/none",), clients=(ClientKind.POSTGRESQL, ClientKind.SQLITE_WAL),
        access=AccessKind.GUEST,
    )  # fmt: skip
    first, second = plan_questions(request).questions
    assert (first.settings.size, first.settings.sampling.states) == (disk_size(80), STATES)
    assert (second.settings.size, second.settings.sampling.states) == (8 * MIB, 1000)
    for settings, states in (({"states": 30}, 30), ({"exhaustive": True}, None)):
        asked = PowercutRequest(
            ("ext4/raw/none",),
            clients=(ClientKind.POSTGRESQL,),
            access=AccessKind.GUEST,
            **settings,
        )
        (question,) = plan_questions(asked).questions
        assert question.settings.sampling.states == states


def test_a_directory_is_no_disk_for_a_server() -> None:
    request = PowercutRequest(
        ("ext4/9p",), clients=(ClientKind.POSTGRESQL,), access=AccessKind.GUEST
    )
    with pytest.raises(PlanError, match="only SQLite in a guest writes to a directory"):
        plan_questions(request)


def test_the_controls_are_a_server_and_a_cache_that_lose_and_an_honest_path() -> None:
    models = {control.model for control in POSTGRESQL_CONTROLS}
    with_it = controls_of(models, clients={ClientKind.POSTGRESQL})
    assert set(POSTGRESQL_CONTROLS) <= set(with_it)
    assert [control.must_lose for control in POSTGRESQL_CONTROLS] == [True, True, False]
    assert [control.spec.load.synced for control in POSTGRESQL_CONTROLS] == [False, True, True]
    assert not set(POSTGRESQL_CONTROLS) & set(controls_of(models, clients={ClientKind.FLUSHES}))
