"""Several tables in one answer."""

from __future__ import annotations

import pytest

from vdisklab.cli.shell.options import Format
from vdisklab.cli.shell.output import emit
from vdisklab.views.layout import Column, Table


def table(key: str, value: str) -> Table[dict[str, str]]:
    return Table("Title", (Column(key, lambda row: row[key]),), ({key: value},))


def test_csv_of_equal_columns_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Format.CSV, [table("a", "1"), table("a", "2")], dict)
    assert capsys.readouterr().out == "a\r\n1\r\n2\r\n"


def test_csv_of_other_columns_has_its_own_heading(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Format.CSV, [table("a", "1"), table("b", "2")], dict)
    assert capsys.readouterr().out == "a\r\n1\r\n\r\nb\r\n2\r\n"
