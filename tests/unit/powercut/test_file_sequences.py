"""Sequences of file operations: what each leaves, and what its judge sees."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vdisklab.path.architecture import GUEST
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.powercut.client import FIRST_VERSION
from vdisklab.powercut.controls import FILES_CONTROLS, controls_of
from vdisklab.powercut.crash_states import FutureVersionError
from vdisklab.powercut.file_sequences import (
    ANYTHING,
    SEQUENCES,
    FilesClient,
    FileSequence,
    FileStep,
    Synced,
    content,
    expected,
    judge_sequences,
    sequence_of,
)
from vdisklab.powercut.guest_clients import DueTransactions, guest_script

CREATE, RENAME, LINK, FALLOCATE = FileStep
LAST = FIRST_VERSION + len(SEQUENCES) - 1
ALL = DueTransactions(LAST, LAST)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the guest's script leaves after every sequence, made on this host."""
    if shutil.which("perl") is None:
        pytest.skip("no perl here")
    root = tmp_path_factory.mktemp("sequences")
    client = object.__new__(FilesClient)
    lines = "".join(client.statement(version) for version in range(FIRST_VERSION, LAST + 1))
    calls = GUEST.system_calls
    done = subprocess.run(
        ["perl", "-e", guest_script("files.pl"), str(root), "1", str(calls.fsync),
         str(calls.fallocate), "5000", "9000", "8192"],
        input=f"ready\n{lines}quit\n", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == "ready"
    assert done.stdout.splitlines()[-1] == f"done {LAST}"
    return root


def test_all_sequences_of_one_and_two_steps() -> None:
    assert len(SEQUENCES) == (4 + 4 * 4) * 3
    assert sequence_of(FIRST_VERSION) == sequence_of(FIRST_VERSION + len(SEQUENCES))
    assert str(SEQUENCES[-1]) == "fallocate, fallocate, fsync of both"


def test_what_the_script_in_the_guest_leaves_is_expected(made: Path) -> None:
    assert judge_sequences(made, FIRST_VERSION, ALL) == (StateOutcome.KEPT, "")


def test_a_rename_over_a_file_leaves_one_of_both() -> None:
    sequence = FileSequence((CREATE, RENAME), Synced.FILE)
    names = expected(7, sequence).names
    assert names["old"] == {content(7, "old"), content(7, "new1")}
    assert names["new1"] == {None, content(7, "new1")}
    both = expected(7, FileSequence((CREATE, RENAME), Synced.BOTH)).names
    assert both["old"] == {content(7, "new1")}
    assert both["new1"] == {None}


def test_a_directory_that_was_synced_has_its_names_and_no_content() -> None:
    names = expected(7, FileSequence((CREATE, LINK), Synced.DIRECTORY)).names
    assert names["new1"] == names["link2"] == {ANYTHING}
    assert names["old"] == {content(7, "old")}


def test_a_file_that_grew_may_have_its_old_length_until_it_is_synced() -> None:
    old = content(7, "old")
    loose = expected(7, FileSequence((FALLOCATE, LINK), Synced.DIRECTORY)).names
    assert loose["link2"] == {old, old + bytes(8192)}
    tight = expected(7, FileSequence((FALLOCATE,), Synced.FILE)).names
    assert tight["old"] == {old + bytes(8192)}


@pytest.mark.parametrize(
    ("steps", "synced", "change", "said"),
    [
        ((CREATE,), Synced.BOTH, lambda directory: (directory / "new1").unlink(), "missing"),
        (
            (CREATE,),
            Synced.BOTH,
            lambda directory: (directory / "new1").write_bytes(b""),
            "content",
        ),
        (
            (RENAME,),
            Synced.DIRECTORY,
            lambda directory: (directory / "old").write_bytes(b"x"),
            "is there",
        ),
        ((LINK,), Synced.DIRECTORY, lambda directory: (directory / "link1").unlink(), "missing"),
        (
            (FALLOCATE,),
            Synced.FILE,
            lambda directory: (directory / "old").write_bytes(b"x"),
            "content",
        ),
        ((CREATE, RENAME), Synced.FILE, lambda directory: (directory / "old").unlink(), "missing"),
        ((CREATE,), Synced.FILE, shutil.rmtree, "directory"),
    ],
)
def test_what_is_lost_is_seen(
    made: Path,
    tmp_path: Path,
    steps: tuple[FileStep, ...],
    synced: Synced,
    change: Callable[[Path], object],
    said: str,
) -> None:
    version = FIRST_VERSION + SEQUENCES.index(FileSequence(steps, synced))
    root = tmp_path / "disk"
    shutil.copytree(made, root)
    change(root / f"s{version}")
    outcome, detail = judge_sequences(root, FIRST_VERSION, ALL)
    assert outcome is StateOutcome.LOST
    assert said in detail
    assert f"s{version}" in detail
    before = DueTransactions(version - 1, LAST)
    assert judge_sequences(root, FIRST_VERSION, before)[0] is StateOutcome.KEPT, "not due yet"


def test_what_is_not_synced_may_be_lost(made: Path, tmp_path: Path) -> None:
    version = FIRST_VERSION + SEQUENCES.index(FileSequence((CREATE,), Synced.FILE))
    shutil.copytree(made, tmp_path / "disk")
    (tmp_path / "disk" / f"s{version}" / "new1").unlink()
    assert judge_sequences(tmp_path / "disk", FIRST_VERSION, ALL)[0] is StateOutcome.KEPT


def test_a_sequence_that_had_not_begun_is_no_loss_but_an_error(made: Path) -> None:
    with pytest.raises(FutureVersionError, match="had not begun"):
        judge_sequences(made, FIRST_VERSION, DueTransactions(3, LAST - 1))


def test_its_controls_run_with_it() -> None:
    assert set(FILES_CONTROLS) <= set(controls_of((), clients=(ClientKind.FILES,)))
    assert not controls_of((), clients=(ClientKind.SQLITE_WAL,))
    assert {control.must_lose for control in FILES_CONTROLS} == {True, False}
