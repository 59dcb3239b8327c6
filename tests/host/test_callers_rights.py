"""As root for a caller of sudo who changes names all the time: root can do no more in the caller's
directories than the caller could, and what root obeys lies where the caller can change nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.caller_of_sudo import EVE, Prize
from tests.unit.results.super_journal import lay_trap
from tests.unit.results.values import a_campaign, a_run
from vdisklab.actions.export_data import stream_of_runs
from vdisklab.actions.output_file import output_file
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, HostError, VdisklabError
from vdisklab.fleet.certificates import make_certificates
from vdisklab.guest.image.cache import kept_or_built
from vdisklab.host.ledger import open_ledger
from vdisklab.host.pagecache import try_o_direct
from vdisklab.host.writing import acting, own_temporary_directory, writable
from vdisklab.results.store import open_store

pytestmark = pytest.mark.host

TRIES = 30
ENOUGH = 5
"""So often the work must be done under Eve's hands."""
SECONDS = 120.0
NAMES = ("out", "new", "a.sqlite", "a.sqlite-journal", "a.sqlite-wal", "root.pem", "ledger")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Eve's home, which she can reach; she called sudo."""
    above = Path(tempfile.mkdtemp(prefix="callers-rights-"))
    above.chmod(0o755)
    home = above / "home"
    (home / "place").mkdir(parents=True)
    for each in (home, home / "place"):
        os.chown(each, EVE, EVE)
    monkeypatch.setenv("SUDO_UID", str(EVE))
    yield home
    shutil.rmtree(above)


@pytest.fixture
def prize(home: Path) -> Prize:
    """Files of root's under every name that is used here, which Eve could not change herself."""
    directory = home.parent / "roots"
    directory.mkdir()
    for name in NAMES:
        (directory / name).write_text("precious\n")
    with closing(sqlite3.connect(directory / "b.sqlite")) as database:
        database.execute("CREATE TABLE roots (own)")
    return Prize(directory)


@contextmanager
def restless(home: Path, prize: Prize, *names: str) -> Iterator[Path]:
    """While open, Eve swaps her directory and the files `names` in it for links to root's.

    The context is the file in which she counts what she did.
    """
    tally = home.parent / "swaps"
    tally.touch()
    tally.chmod(0o666)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(EVE, EVE, EVE)
            os.setresuid(EVE, EVE, EVE)
            _swap(home, prize.directory, names, tally)
        finally:
            os._exit(1)
    try:
        yield tally
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _swap(home: Path, prize: Path, names: tuple[str, ...], tally: Path) -> None:
    place, kept, number = home / "place", home / "kept-0", 0
    chance = random.Random(os.getpid())  # noqa: S311 - no secret
    with tally.open("ab", buffering=0) as counted:
        while True:
            if kept.exists():  # root has made a new place meanwhile
                number += 1
                kept = home / f"kept-{number}"
            with suppress(OSError):
                place.rename(kept)
                place.symlink_to(prize)
                counted.write(b"x")
            time.sleep(chance.choice((0, 0, 0.0005, 0.003)))
            with suppress(OSError):
                place.unlink()
                kept.rename(place)
            for name in names:
                with suppress(OSError):
                    link = home / f".{name}"
                    link.symlink_to(prize / name)
                    link.rename(place / name)
            time.sleep(chance.choice((0, 0.0005, 0.003, 0.01, 0.01, 0.3)))
            for name in names:
                with suppress(OSError):
                    if (place / name).is_symlink():
                        (place / name).unlink()


def tried(work: Callable[[Path], object], home: Path, tally: Path) -> None:
    """Does the work many times; each refusal is a sentence."""
    done, end = 0, time.monotonic() + SECONDS
    number = 0
    while number < TRIES or done < ENOUGH or tally.stat().st_size < TRIES:
        with suppress(VdisklabError):
            work(home / "place")
            done += 1
        number += 1
        assert time.monotonic() < end, f"{done} of {number} were done"


def write_output(place: Path) -> None:
    with output_file(place / "out") as stream:
        stream.write(b"root's\n")
        stream.close()


def append_to_stream(place: Path) -> None:
    campaign = a_campaign()
    with stream_of_runs(place / "out") as append:
        append(campaign, a_run(campaign))


def store_a_campaign(place: Path) -> None:
    with open_store(str(place / "a.sqlite")) as store:
        store.add_campaign(a_campaign())


def store_twice(place: Path) -> None:
    """In the database that Eve damages, and in a new one."""
    with suppress(VdisklabError):
        store_a_campaign(place)
    with open_store(str(place / f"{time.monotonic_ns()}.sqlite")) as store:
        store.add_campaign(a_campaign())


def make_keys(place: Path) -> None:
    make_certificates(place / f"keys-{time.monotonic_ns()}", datetime.now(UTC))


@pytest.mark.parametrize(
    ("work", "names"),
    [
        (write_output, ("out",)),
        (append_to_stream, ("out",)),
        (store_twice, ("a.sqlite", "a.sqlite-journal", "a.sqlite-wal")),
        (make_keys, ()),
    ],
    ids=["output", "stream", "database", "certificates"],
)
def test_no_swap_leads_root_out(
    home: Path, prize: Prize, work: Callable[[Path], object], names: tuple[str, ...]
) -> None:
    before = prize.seen()
    with restless(home, prize, *names) as tally:
        tried(work, home, tally)
    assert prize.seen() == before


def test_no_swap_leads_the_trial_of_direct_io_out(home: Path, prize: Prize) -> None:
    """Whose files have names that no other file has, and are gone at once."""
    before = [each[0] for each in prize.seen()]
    with restless(home, prize) as tally:
        tried(try_o_direct, home, tally)
    assert [each[0] for each in prize.seen()] == before


def test_a_state_that_the_caller_could_change_is_not_used(
    home: Path, prize: Prize, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a ledger, which root would obey, nor a cache, from which root would boot."""
    state = home / "place" / "state"
    (state / "ledger").mkdir(parents=True)
    victim = prize.directory / "out"
    entry = {"add": 0, "kind": "file", "name": str(victim), "detail": {}, "noted": 1}
    (state / "ledger" / "00000000.jsonl").write_text(json.dumps(entry) + "\n")
    for each in (state, state / "ledger", state / "ledger" / "00000000.jsonl"):
        os.chown(each, EVE, EVE)
    monkeypatch.setenv("VDISKLAB_STATE", str(state))
    before = prize.seen()
    assert main(["clean"]) == HostError.exit_code
    said = capsys.readouterr().err
    assert f"root does not write to the state directory {state}/ledger: {home} belongs to" in said
    assert "hint: leave VDISKLAB_STATE out" in said
    with restless(home, prize, "ledger"):
        for _ in range(TRIES):
            with pytest.raises(HostError, match="the state directory"), open_ledger():
                pass
            with pytest.raises(HostError, match="the state directory"):
                kept_or_built(state / "cache", lambda: None, lambda: None, "a thing")
    assert prize.seen() == before


def test_a_journal_of_the_callers_removes_nothing_of_roots(
    home: Path, prize: Prize, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite removes the super-journal that a journal names, which may be any file; here it comes
    after the journal was looked at."""
    monkeypatch.setattr("vdisklab.results.database._require_no_super_journal", lambda _file: None)
    file, victim = home / "place" / "a.sqlite", prize.directory / "out"
    store_a_campaign(file.parent)
    before = prize.seen()
    lay_trap(file, victim, owner=EVE)
    with suppress(DatabaseError), open_store(str(file), create=False) as store:
        store.campaigns()
    assert prize.seen() == before
    control = prize.directory / "b.sqlite"  # as root, it does
    lay_trap(control, victim, owner=EVE)
    with closing(sqlite3.connect(control)) as database:
        database.execute("SELECT * FROM roots").fetchall()
    assert not victim.exists()


def test_what_root_writes_there_is_the_callers(home: Path) -> None:
    place = home / "place"
    write_output(place)
    store_a_campaign(place)
    assert {each.name: each.stat().st_uid for each in place.iterdir()} == {
        "out": EVE,
        "a.sqlite": EVE,
    }
    assert (place / "out").read_text() == "root's\n"


def test_a_database_of_roots_in_the_callers_directory_is_read_and_not_written(home: Path) -> None:
    file = home / "place" / "a.sqlite"
    store_a_campaign(file.parent)
    os.chown(file, 0, 0)
    with open_store(str(file), create=False) as store:
        assert len(store.campaigns()) == 1
    with pytest.raises(DatabaseError, match="root writes there as the user nobody") as raised:
        store_a_campaign(file.parent)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith(f"chown nobody {file}")


def test_a_directory_of_roots_in_the_callers_is_refused_with_a_way_out(home: Path) -> None:
    os.chown(home / "place", 0, 0)
    with pytest.raises(HostError, match="cannot be written: Permission denied") as raised:
        write_output(home / "place")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("root writes there as the user nobody: name a file")


def test_root_has_its_rights_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after an error, and the groups; other threads keep theirs."""
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [EVE, 12, 7])
    target = writable(home / "x", "the file", "no")
    assert target.rights is not None
    before = Path("/proc/thread-self/status").read_text().splitlines()
    seen = []
    with suppress(ZeroDivisionError), acting(target.rights):
        seen = Path("/proc/thread-self/status").read_text().splitlines()
        raise ZeroDivisionError
    said = {line.partition(":")[0]: line.split()[1:] for line in seen}
    assert (said["Uid"][3], said["Gid"][3], said["Groups"]) == (
        str(EVE),
        str(EVE),
        ["7", "12", str(EVE)],
    )
    assert said["Uid"][:3] == ["0", "0", "0"]
    rights = ("Uid", "Gid", "Groups", "Cap")
    after = Path("/proc/thread-self/status").read_text().splitlines()
    assert [line for line in after if line.startswith(rights)] == [
        line for line in before if line.startswith(rights)
    ]


def test_temporary_files_are_not_made_in_the_callers_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = home.parent
    for name, directory in (("TMPDIR", home), ("TMP", home / "no"), ("SQLITE_TMPDIR", roots)):
        monkeypatch.setenv(name, str(directory))
    own_temporary_directory()
    assert ("TMPDIR" in os.environ, "TMP" in os.environ) == (False, False)
    assert os.environ["SQLITE_TMPDIR"] == str(roots)
