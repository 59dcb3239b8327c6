"""Every verb that prints numbers says of the lab's that they are worthless as a speed."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.analysis.made import campaign_runs
from tests.unit.cli.fake_store import FakeStore, install
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
def lab(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    fake = FakeStore(all_runs=[replace(run, origin=Origin.LAB) for run in campaign_runs()])
    install(monkeypatch, fake)
    return fake


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(list(words))
    return capsys.readouterr().out


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_in_words(
    lab: FakeStore,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = " ".join(said(capsys, *words).split())
    assert IN_LAB in text
    assert EMULATION not in text, "what is worthless as a speed compares nothing either"


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_in_json(
    lab: FakeStore, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    found = json.loads(said(capsys, *words, "--format", "json"))
    assert found.get("lab") is True or found["origin"] == "lab"


def test_in_the_list_of_runs(lab: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = lab.all_runs[0].campaign
    assert "in the lab" in said(capsys, "runs", campaign)
    found = json.loads(said(capsys, "runs", campaign, "--format", "json"))
    assert {run["origin"] for run in found["runs"]} == {"lab"}


def test_in_an_audit(lab: FakeStore, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    domain = tmp_path / "guest.xml"
    domain.write_text(said(capsys, "export", "raw/none", "--to", "libvirt"))
    assert IN_LAB in " ".join(said(capsys, "audit", str(domain)).split())
    assert json.loads(said(capsys, "audit", str(domain), "--format", "json"))["lab"] is True


@pytest.mark.parametrize("form", ["html", "md", "json", "csv"])
def test_in_a_report(
    lab: FakeStore, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeStore())
    assert json.loads(said(capsys, "rank", "--format", "json"))["lab"] is False
    assert "lab" not in said(capsys, "rank")
