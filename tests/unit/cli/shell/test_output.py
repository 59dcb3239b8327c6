"""Several tables in one answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.cli.shell.output import print_answer
from vdisklab.documents import Answer
from vdisklab.views.layout import Column, Table


@dataclass(frozen=True)
class _A:
    a: str


@dataclass(frozen=True)
class _B:
    b: str


class _Said(Answer):
    pass


def table(row: _A | _B) -> Table[_A | _B]:
    return Table("Title", (), (row,), kind=type(row))


def test_csv_of_equal_columns_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(_Said(), [table(_A("1")), table(_A("2"))], OutputOptions(form=Format.CSV))
    assert capsys.readouterr().out == "a\r\n1\r\n2\r\n"


def test_csv_of_other_columns_has_its_own_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(_Said(), [table(_A("1")), table(_B("2"))], OutputOptions(form=Format.CSV))
    assert capsys.readouterr().out == "a\r\n1\r\n\r\nb\r\n2\r\n"


def test_more_notes_are_shown_by_a_whole_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = ["/opt/vdisklab", "recommend", "--need", "backup", "--db", "/srv/a b.sqlite"]
    monkeypatch.setattr(sys, "argv", typed)
    monkeypatch.setenv("SUDO_UID", "0")
    long = [Table[_A]("Title", (), (), tuple("sentence " * 40 for _ in range(9)))]
    print_answer(_Said(), long, OutputOptions())
    said = capsys.readouterr().out
    assert (
        "more notes: `/opt/vdisklab recommend --need backup --db '/srv/a b.sqlite' --why`" in said
    )
    print_answer(_Said(), long, OutputOptions(), verb="vdisklab during")
    assert "more notes: `/opt/vdisklab during --why`" in capsys.readouterr().out


def test_a_command_in_a_row_runs_as_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/vdisklab", "doctor"])
    remedy = Column[_A]("seen", lambda row: f"remedy: `vdisklab {row.a}`")
    print_answer(_Said(), [Table("Host", (remedy,), (_A("run raw/none"),))], OutputOptions())
    assert "/opt/vdisklab run raw/none`" in capsys.readouterr().out
