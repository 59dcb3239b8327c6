"""The ledger survives everything that a run does not."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host.ledger import Entry, leftovers, open_ledger, pending

HOLDER = """
import sys
from pathlib import Path
from vdisklab.host.ledger import open_ledger
with open_ledger(Path(sys.argv[1])) as ledger:
    with ledger.entry("loop", "/dev/loop7", image="/x"), ledger.entry("file", "/gone"):
        pass
    with ledger.entry("directory", "/d"), ledger.entry("mount", "/d/m"):
        print("held", flush=True)
        sys.stdin.readline()
"""


def holder(state: Path) -> subprocess.Popen[str]:
    """A process that holds two entries until it is told to go on, or killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kinds(state: Path) -> list[list[str]]:
    with leftovers(state) as found:
        return [[entry.kind for entry in leftover.entries] for leftover in found]


def test_a_block_that_ends_well_leaves_no_ledger(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        with ledger.entry("loop", "/dev/loop7", image="/x"):
            assert pending(ledger.path) == [Entry(0, "loop", "/dev/loop7", {"image": "/x"})]
        assert pending(ledger.path) == []
    assert list((tmp_path / "ledger").iterdir()) == []


def test_an_error_that_was_cleaned_up_after_leaves_no_entry(tmp_path: Path) -> None:
    with pytest.raises(HostError), open_ledger(tmp_path) as ledger, ledger.entry("file", "/x"):
        raise HostError("no room")
    assert not ledger.path.exists()


def test_what_could_not_be_taken_down_stays_for_clean(tmp_path: Path) -> None:
    with (
        pytest.raises(DirtyHostError),
        open_ledger(tmp_path) as ledger,
        ledger.entry("loop", "/dev/loop7"),
        ledger.entry("mount", "/m"),
    ):
        raise DirtyHostError("/m is busy")
    assert kinds(tmp_path) == [["mount", "loop"]]


def test_sigkill_leaves_what_was_held_newest_first(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
    assert kinds(tmp_path) == [["mount", "directory"]]


def test_the_ledger_of_a_living_process_is_not_touched(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert kinds(tmp_path) == []
        process.communicate("go on\n")
    assert process.returncode == 0
    assert list((tmp_path / "ledger").iterdir()) == []


def test_leftovers_are_locked_against_a_second_clean(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
    with leftovers(tmp_path) as found:
        assert len(found) == 1
        assert kinds(tmp_path) == []


def test_a_last_line_cut_short_was_never_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger/0.jsonl"
    path.parent.mkdir()
    whole = '{"add": 0, "kind": "loop", "name": "/dev/loop7", "detail": {}}\n'
    path.write_text(whole + '{"add": 1, "kind": "mou')
    assert kinds(tmp_path) == [["loop"]]


def test_striking_after_a_cut_line_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger/0.jsonl"
    path.parent.mkdir()
    whole = '{"add": 0, "kind": "loop", "name": "/dev/loop7", "detail": {}}\n'
    path.write_text(whole + '{"add": 1, "kind": "mou')
    with leftovers(tmp_path) as (leftover,):
        leftover.strike(leftover.entries[0])
    assert pending(path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("a file where the directory should be")
    with pytest.raises(HostError, match="ledger"), open_ledger(tmp_path):
        pytest.fail("not reached")


def test_a_full_file_system_is_one_sentence_and_half_a_line_is_taken_back(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_ledger(tmp_path) as ledger:
        kept = ledger.add("file", "/a")
        resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.path.stat().st_size + 10, hard))
        try:
            with pytest.raises(HostError, match=r"ledger .* cannot be written: No space") as caught:
                ledger.add("file", "/b")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "VDISKLAB_STATE" in str(caught.value.hint)
        later = ledger.add("file", "/c")
        assert pending(ledger.path) == [later, kept]
        ledger.strike(later)
        ledger.strike(kept)
