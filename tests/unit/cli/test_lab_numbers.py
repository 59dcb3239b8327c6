"""Every verb that prints numbers says of the lab's that they do not measure speed."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import Database
from vdisklab.cli.main import main
from vdisklab.render.wording import EMULATION, IN_LAB
from vdisklab.results.model import Origin

ANSWERS = [
    ("rank",),
    ("rank", "--bars"),
    ("rank", "--metric", "randread-4k-q1/read/latency_p99"),
    ("compare", "raw/none", "raw/writeback"),
    ("compare", "--published", "debatty-2024"),
    ("claims",),
    ("recommend",),
    ("show", "0104"),
    ("table",),
]


@pytest.fixture
def lab(database: Database) -> Database:
    database.write(replace(run, origin=Origin.LAB) for run in campaign_runs())
    return database


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(list(words))
    return capsys.readouterr().out


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_in_words(
    lab: Database,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = " ".join(said(capsys, *words).split())
    assert IN_LAB in text
    assert EMULATION not in text, "what does not measure speed compares nothing either"


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_in_json(lab: Database, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    found = json.loads(said(capsys, *words, "--format", "json"))
    assert found.get("lab") is True or found["origin"] == "lab"


def test_in_the_list_of_runs(lab: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert "in the lab" in said(capsys, "runs", CAMPAIGN.id)
    found = json.loads(said(capsys, "runs", CAMPAIGN.id, "--format", "json"))
    assert {run["origin"] for run in found["runs"]} == {"lab"}


def test_in_an_audit(lab: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    domain = tmp_path / "guest.xml"
    domain.write_text(said(capsys, "export", "raw/none", "--to", "libvirt"))
    assert IN_LAB in " ".join(said(capsys, "audit", str(domain)).split())
    assert json.loads(said(capsys, "audit", str(domain), "--format", "json"))["lab"] is True


@pytest.mark.parametrize("form", ["html", "md", "json", "csv"])
def test_in_a_report(
    lab: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"report.{form}"
    said(capsys, "report", "--format", form, "--output", str(file))
    text = file.read_text()
    if form == "csv":
        assert {row["lab"] for row in csv.DictReader(io.StringIO(text))} == {"true"}
    elif form == "json":
        assert json.loads(text)["lab"] is True
    else:
        assert IN_LAB in text


def test_numbers_of_no_lab_are_not_called_so(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    del database
    assert json.loads(said(capsys, "rank", "--format", "json"))["lab"] is False
    assert "lab" not in said(capsys, "rank")
