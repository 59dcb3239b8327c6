"""Every verb that prints numbers says where they do not measure speed: in the lab, in an emulated
host, and under emulation."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, under
from tests.unit.stored import Database
from vdisklab.analysis.diagnostics.caveats import EMULATION, IN_LAB, UNDER_EMULATED_KVM
from vdisklab.cli.shell.main import main
from vdisklab.plan.accelerator import Accelerator
from vdisklab.results.model import Origin, RanUnder, Run
from vdisklab.value import replace

ANSWERS = [
    ("rank",),
    ("rank", "--bars"),
    ("rank", "--metric", "randread-4k-q1/read/latency_p99"),
    ("compare", "raw/none", "raw/writeback"),
    ("compare", "--published", "debatty-2024"),
    ("claims",),
    ("recommend",),
    ("recommend", "--need", "durable"),
    ("rank", "--pareto", "read/write"),
    ("show", "0104"),
    ("table",),
]


def _in_lab(run: Run) -> Run:
    return replace(run, origin=Origin.LAB)


def _under(ran_under: RanUnder) -> Callable[[Run], Run]:
    def moved(run: Run) -> Run:
        return run if run.accelerator is None else under(ran_under, run)

    return moved


@dataclass(frozen=True)
class Caveat:
    """A caveat: its key in JSON, its sentence, and the runs that have it."""

    key: str
    sentence: str
    of: Callable[[Run], Run]


CAVEATS = (
    Caveat("lab", IN_LAB, _in_lab),
    Caveat("emulated_host", UNDER_EMULATED_KVM, _under(RanUnder(Accelerator.KVM, emulated=True))),
    Caveat("emulation", EMULATION, _under(RanUnder(Accelerator.TCG))),
)
IN_JSON: dict[str, tuple[str, object]] = {
    "lab": ("lab", True),
    "emulated_host": ("emulated_host", True),
    "emulation": ("accelerator", "tcg"),
}
"""The caveats' keys and values in the documents."""
each = pytest.mark.parametrize("caveat", CAVEATS, ids=lambda row: row.key)
of_each_verb = pytest.mark.parametrize(
    ("arguments", "caveat"),
    [
        # Each commit tries each verb with the middle one, and each caveat with `rank`.
        pytest.param(
            arguments,
            caveat,
            id=f"{' '.join(arguments)}-{caveat.key}",
            marks=() if arguments == ("rank",) or caveat is CAVEATS[1] else pytest.mark.nightly,
        )
        for arguments in ANSWERS
        for caveat in CAVEATS
    ],
)


Stored = Callable[[Caveat], None]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Caveat], Path]:
    """A database of the campaign with a caveat, written once and only copied."""

    @cache
    def write(caveat: Caveat) -> Path:
        database = Database(tmp_path_factory.mktemp(caveat.key) / "results.sqlite")
        database.write(map(caveat.of, campaign_runs()))
        return database.file

    return write


@pytest.fixture
def stored(database: Database, written: Callable[[Caveat], Path]) -> Stored:
    def copy(caveat: Caveat) -> None:
        shutil.copy(written(caveat), database.file)

    return copy


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(list(arguments))
    return capsys.readouterr().out


@of_each_verb
def test_in_words(
    stored: Stored,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    caveat: Caveat,
) -> None:
    stored(caveat)
    monkeypatch.setenv("COLUMNS", "400")
    text = " ".join(said(capsys, *arguments).split())
    said_of = [other.sentence for other in CAVEATS if other.sentence in text]
    assert said_of == [caveat.sentence], "the most serious one, and no other"


@of_each_verb
def test_in_json(
    stored: Stored, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], caveat: Caveat
) -> None:
    stored(caveat)
    assert states(json.loads(said(capsys, *arguments, "--format", "json")), caveat) is True


def states(document: dict[str, Any], caveat: Caveat) -> bool:
    """Whether a document says that its numbers have the caveat."""
    key, value = IN_JSON[caveat.key]
    return bool(document["caveats"][key] == value)


def test_in_the_list_of_runs(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    stored(CAVEATS[0])
    assert "in the lab" in said(capsys, "runs", CAMPAIGN.id)
    found = json.loads(said(capsys, "runs", CAMPAIGN.id, "--format", "json"))
    assert {run["origin"] for run in found["runs"]} == {"lab"}


@each
def test_no_claim_is_decided_by_an_emulated_host(
    stored: Stored, capsys: pytest.CaptureFixture[str], tmp_path: Path, caveat: Caveat
) -> None:
    """A claim of path against path is decided under emulation and in a lab, as in JUnit's file."""
    stored(caveat)
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'article = "mine"\ntitle = "Mine"\n[[claim]]\nname = "slower"\n'
        'sentence = "raw/none is not a thousand times slower than raw/writeback."\n'
        'left = ["raw/none"]\nright = ["raw/writeback"]\n'
        'measures = ["randread-4k-q1/read/iops"]\nlow = 0.001\n'
    )
    junit = tmp_path / "out.xml"
    arguments = ("claims", "--file", str(mine), "--only", "slower")
    (claim,) = json.loads(said(capsys, *arguments, "--format", "json"))["claims"]
    said(capsys, *arguments, "--junit", str(junit))
    void = caveat.key == "emulated_host"
    assert claim["status"] == ("void" if void else "holds")
    assert ("<skipped" in junit.read_text()) is void


@each
def test_in_an_audit(
    stored: Stored, capsys: pytest.CaptureFixture[str], tmp_path: Path, caveat: Caveat
) -> None:
    stored(caveat)
    domain = tmp_path / "guest.xml"
    domain.write_text(said(capsys, "export", "raw/none", "--to", "libvirt"))
    assert caveat.sentence in " ".join(said(capsys, "audit", str(domain)).split())
    assert states(json.loads(said(capsys, "audit", str(domain), "--format", "json")), caveat)


@each
@pytest.mark.parametrize("form", ["html", "md", "json", "csv"])
def test_in_a_report(
    stored: Stored,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    form: str,
    caveat: Caveat,
) -> None:
    stored(caveat)
    file = tmp_path / f"report.{form}"
    said(capsys, "report", "--format", form, "--output", str(file))
    text = file.read_text()
    if form == "csv":
        key, value = IN_JSON[caveat.key]
        said_of = "true" if value is True else value
        column = key.removesuffix("_host")  # one column for every kind of emulation
        assert said_of in {row[column] for row in csv.DictReader(io.StringIO(text))}
    elif form == "json":
        assert states(json.loads(text)["ranked"], caveat)
    else:
        assert caveat.sentence in text.replace("\\", ""), "Markdown escapes its own characters"


def test_numbers_of_no_lab_are_not_called_so(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    del database
    assert json.loads(said(capsys, "rank", "--format", "json"))["caveats"]["lab"] is False
    assert not re.search(r"\blab\b", said(capsys, "rank"))
