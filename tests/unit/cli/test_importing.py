"""`vdisklab import` at the edge: all or nothing, repetitions, and one clear sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from workload.recorded import DATA

from vdisklab.cli.main import main
from vdisklab.result.model import Origin
from vdisklab.result.store import open_store


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
    assert [run.block for run in runs] == [1, 2]
    assert {run.path for run in runs} == {"block storage"}
    assert all(run.origin is Origin.IMPORTED and run.wall_seconds is None for run in runs)


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
    assert [run.block for run in runs] == [1, 2]
    assert runs[1].measurements[0].name == "copy"
    assert campaign in capsys.readouterr().out


def test_a_damaged_file_leaves_nothing(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes((DATA / "fio-3.33-plain.json").read_bytes()[:500])
    assert main(["import", str(DATA / "dd-9.1-4k.txt"), str(bad), "--db", db]) == 6
    assert "bad.json: fio's JSON is damaged at character" in capsys.readouterr().err
    assert not Path(db).exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"caf\xe9", "not text in UTF-8: byte 3 is wrong"),
        (b"4096 bytes\0 copied, 1 s", "is no text: it has a NUL at character 10"),
        (b"\xff\xfe\x00", "not text"),
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
