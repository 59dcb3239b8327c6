"""`vdisklab import` at the edge: all or nothing, repetitions, and one clear sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.unit.workload.recorded import DATA
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError
from vdisklab.results.model import Origin, Run
from vdisklab.results.store import Store, open_store


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "results.sqlite")


def test_several_files_of_one_name_are_repetitions(db: str) -> None:
    files = [str(DATA / f"sysbench-1.0.20-{mode}.txt") for mode in ("rndrd", "rndwr")]
    assert main(["import", *files, "--as", "block storage", "--db", db]) == 0
    with open_store(db) as store:
        (campaign,) = store.campaigns()
        runs = list(store.runs(campaign.id))
    assert campaign.host.cpus is None
    assert [run.round for run in runs] == [1, 2]
    assert {run.path for run in runs} == {"block storage"}
    assert all(run.origin is Origin.IMPORTED and run.wall_seconds is None for run in runs)


def test_no_run_is_advised_to_continue_an_import(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rank` said "continue with --rounds 3 or more", which no command does for these results."""
    file = str(DATA / "fio-3.33-frozen.json")
    assert main(["import", file, "--as", "qcow2/none", "--db", db]) == 0
    with open_store(db) as store:
        (campaign,) = store.campaigns()
    capsys.readouterr()
    for flags in ([], ["--why"]):
        assert main(["rank", "--metric", "frozen/write/bandwidth", *flags, "--db", db]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"import 3 or more results of each path (import --as PATH --into {campaign.id})" in (
            out
        )
        assert "--rounds" not in out


def test_into_a_campaign_and_under_a_name_of_ours(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(DATA / "fio-3.33-plain.json"), "--as", "a", "--db", db]) == 0
    with open_store(db) as store:
        campaign = store.campaigns()[0].id
    again = ["import", str(DATA / "dd-9.1-4k.txt"), "--as", "a", "--into", campaign, "--db", db]
    assert main([*again, "--measurement", "copy"]) == 0
    with open_store(db) as store:
        runs = list(store.runs(campaign))
    assert [run.round for run in runs] == [1, 2]
    assert runs[1].measurements[0].name == "copy"
    assert campaign in capsys.readouterr().out


def test_a_damaged_file_leaves_nothing(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes((DATA / "fio-3.33-plain.json").read_bytes()[:500])
    assert main(["import", str(DATA / "dd-9.1-4k.txt"), str(bad), "--db", db]) == 6
    assert "bad.json: fio's JSON is damaged in line" in capsys.readouterr().err
    assert not Path(db).exists()


def test_a_damaged_file_has_a_way_out(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text((DATA / "foreign/sysbench-0.4.12.txt").read_text().replace("62.5Mb", "62.5Ib"))
    assert main(["import", str(bad), "--db", db]) == 6
    assert "hint: import everything that the program printed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"SQLite format 3\0 and more", "hint: if vdisklab wrote it, pass it on with: `"),
        (b"caf\xe9", "not UTF-8 text: byte 3 is invalid"),
        (b"4096 bytes\0 copied, 1 s", "is not text: character 10 is NUL"),
        (b"\xff\xfe\x00", "not UTF-16 text: byte 2"),
        (b"\x7fELF\x01\x01", "no known program wrote this"),
    ],
)
def test_what_is_no_result(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    assert main(["import", str(file), "--db", db]) == 6
    assert said in capsys.readouterr().err


def test_windows_writes_utf_16(db: str, tmp_path: Path) -> None:
    text = (DATA / "foreign" / "crystaldiskmark-8.0.0.txt").read_text()
    file = tmp_path / "CDM.txt"
    file.write_text(text, encoding="utf-16")
    assert main(["import", str(file), "--db", db]) == 0


def test_an_enormous_file(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    with file.open("wb") as sink:
        sink.truncate(65 << 20)
    assert main(["import", str(file), "--db", db]) == 6
    assert "is larger than 64 MiB" in capsys.readouterr().err
    assert main(["import", str(tmp_path), "--db", db]) == 2


def test_a_name_that_is_hostile(db: str, tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[31m;rm.txt"
    shutil.copy(DATA / "dd-9.1-4k.txt", file)
    os.utime(file, (0, 0))
    assert main(["import", str(file), "--db", db]) == 0
    with open_store(db) as store:
        (run,) = store.runs()
    assert run.path == "a??31m?rm"
    assert run.started.year == 1970


def test_an_import_that_fails_in_the_middle_leaves_nothing(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Store._add_run

    def second_fails(store: Store, connection: Connection, run: Run) -> None:
        if run.round == 2:
            raise DatabaseError("the disk is full")
        stored(store, connection, run)

    monkeypatch.setattr(Store, "_add_run", second_fails)
    files = [str(DATA / name) for name in ("dd-9.1-4k.txt", "dd-9.1-progress.txt")]
    assert main(["import", *files, "--as", "a", "--db", db]) == 7
    with open_store(db) as store:
        assert store.campaigns() == ()


def test_a_file_of_many_lines_is_kept_once(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = "host{},1G,655,99,281567,32,138431,19,2133,99,484093,32,405.9,17,16" + ",301,10" * 6
    file = tmp_path / "many.csv"
    file.write_text("".join(row.format(number) + "\n" for number in range(20)))
    assert main(["import", str(file), "--db", db]) == 0
    printed = capsys.readouterr().out
    assert "many host7 and 12 more (20 runs)" in printed
    assert "host8" not in printed
    with open_store(db) as store:
        first, *others = [run.measurements[0].raw for run in store.runs()]
        keeper = next(store.runs()).id
    assert first == file.read_text()
    assert set(others) == {f"# many.csv is kept with the first measurement of run {keeper}"}


def test_a_file_of_a_year_that_no_calendar_has(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """tmpfs and btrfs hold such moments; not every file system can be made to."""
    whole = os.fstat

    def far(number: int) -> os.stat_result:
        found = list(whole(number))
        found[8] = 1 << 60
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", far)
    assert main(["import", str(DATA / "dd-9.1-4k.txt"), "--db", db]) == 2
    assert "impossible modification time" in capsys.readouterr().err


def test_a_name_of_bytes_that_are_no_text(db: str, tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"a\xff.txt")
    shutil.copy(DATA / "dd-9.1-4k.txt", file)
    assert main(["import", str(file), "--db", db]) == 0
    with open_store(db) as store:
        (run,) = store.runs()
    assert run.measurements[0].command == "# imported from a?.txt: dd"


@pytest.mark.parametrize("name", ["", " ", "a\x1b[2J", "two\nlines", "x" * 201])
def test_names_that_no_table_could_show_are_refused(
    db: str, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for option in ("--as", "--measurement"):
        assert main(["import", str(DATA / "dd-9.1-4k.txt"), option, name, "--db", db]) == 2
        assert f"{option} {name[:40]!r} is not a usable name" in capsys.readouterr().err
    assert not Path(db).exists()


def test_what_a_hostile_file_says_is_not_obeyed_by_the_terminal(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.json"
    file.write_text('"fio version" \x1b]0;title\x07\x9b2J' + "y" * 10_000)
    assert main(["import", str(file), "--db", db]) == 6
    said = capsys.readouterr().err
    assert "\\x1b]0;title" in said
    assert not {"\x1b", "\x07", "\x9b"} & set(said)
    assert len(said) < 500


def test_crystaldiskmarks_own_numbers_are_not_said_to_be_fios(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(DATA / "foreign" / "crystaldiskmark-8.0.0.txt")
    assert main(["import", file, "--db", db]) == 0
    assert main(["table", "--as", "crystaldiskmark", "--db", db]) == 0
    printed = capsys.readouterr().out
    assert "* each number is the median of its runs (at most 1), imported" in printed
    assert "measured with fio" not in printed


def test_one_file_is_no_repetition_of_itself(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = DATA / "dd-9.1-4k.txt"
    assert main(["import", str(file), str(file.parent / "." / file.name), "--db", db]) == 2
    assert "is given twice" in capsys.readouterr().err
    assert not Path(db).exists()


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["import", str(pipe), "--db", db]) == 2
    assert "is a named pipe" in capsys.readouterr().err


def test_a_pipe_of_the_shell_is_named_as_standard_input(db: str) -> None:
    """The name of `<( )` is only a number."""
    read, write = os.pipe()
    os.write(write, b"1000000 bytes (1.0 MB, 977 KiB) copied, 0.5 s, 2.0 MB/s\n")
    os.close(write)
    assert main(["import", f"/dev/fd/{read}", "--db", db]) == 0
    os.close(read)
    with open_store(db) as store:
        assert [run.path for run in store.runs()] == ["stdin"]


def test_a_file_whose_bytes_cannot_be_read_has_a_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "/proc/self/mem", "--db", str(tmp_path / "a.sqlite")]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: /proc/self/mem cannot be read: Input/output error"
    assert hint == "hint: name another file"
