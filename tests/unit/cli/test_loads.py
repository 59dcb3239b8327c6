"""A trace is imported and shown, as a user does it; what does not fit is a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.loads import loads
from vdisklab.cli.shell.main import main
from vdisklab.loads.load import IoKind
from vdisklab.loads.load_file import encode

TRACE = Path(__file__).parents[2] / "data" / "blkparse-1.2.0.txt"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def load(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["import", str(TRACE), "-o", "disk.load", "--as", "sda"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Imported sda 8,0: 9 requests in 0.0 s\n")
    assert "vdisklab show disk.load" in said
    return here / "disk.load"


def test_an_imported_trace_is_shown(load: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "disk.load"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("sda 8,0: 0.0 s\n80 % random writes of 4–8 KiB, 50 % of the writes")
    for word in ("flush", "discard", "working set", "Over time", "by blktrace"):
        assert word in said


@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_a_load_has_all_forms(load: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "disk.load", "--format", form]) == 0
    said = capsys.readouterr().out
    if form == "json":
        shown = json.loads(said)
        assert (shown["format"], shown["requests"]) == ("vdisklab.load/1", 9)
        assert [kind["kind"] for kind in shown["kinds"]] == ["read", "write", "flush", "discard"]
    else:
        assert "write" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "/etc/passwd"], "/etc/passwd is not a load file"),
        (["show", "gone.load"], "gone.load cannot be read: No such file or directory"),
        (["show", "disk.load", "--raw"], "disk.load is a load, not a run"),
        (["import", "disk.load"], "disk.load is a load already"),
        (["import", str(TRACE), "/etc/passwd"], "some of these files are traces of requests"),
        (["import", str(TRACE), "--into", "3f2a"], "a trace becomes a file"),
        (["import", str(TRACE), "--disk", "8,16"], "has no disk 8,16"),
        (["record"], "name a guest, or a disk of this machine with --here"),
        (["record", "--here", "/dev/null", "--for", "2"], "/dev/null is not a block device"),
        (["record", "nobody-has-this", "--for", "0.1"], "a recording takes from 1 s to 7 days"),
    ],
)
def test_what_does_not_fit_is_a_sentence(
    load: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) != 0
    printed = capsys.readouterr().err
    assert said in printed
    assert "hint: " in printed
    assert "Traceback" not in printed


def test_its_tables_fit_80_columns(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the widest figures of recorded databases."""
    monkeypatch.setenv("COLUMNS", "80")
    requests = [
        (1000 * number, kind, 1 << 20 if size else 0, size, 90_000)
        for number, (kind, size) in enumerate(
            [(IoKind.WRITE, 8 << 10), (IoKind.WRITE, 24 << 10), (IoKind.READ, 128 << 10)] * 400
            + [(IoKind.READ, 4 << 10), (IoKind.FLUSH, 0)] * 1000
        )
    ]
    (here / "db.load").write_bytes(encode(loads.load(*requests)))
    assert main(["show", "db.load"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.split("\n"))) <= 80
    assert "8.0–24.0 KiB (24.0 KiB)" in said


def test_show_names_both_kinds_for_what_is_neither(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "raw/none"]) != 0
    said = capsys.readouterr().err
    assert "raw/none is neither the id of a run nor a load file" in said
    assert "hint: `vdisklab runs CAMPAIGN` lists the ids, `vdisklab runs` the campaigns" in said
