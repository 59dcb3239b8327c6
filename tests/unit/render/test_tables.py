from __future__ import annotations

import csv
import io
import unicodedata
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vdisklab.render.tables.layout import (
    Column,
    Table,
    as_csv,
    sanitise,
    sanitise_line,
    show,
)


@dataclass(frozen=True)
class Row:
    key: str | float | bool | None


def one(value: str | float | bool | None) -> Table[Row]:
    columns = (Column[Row]("Title", lambda row: str(row.key), folds=True),)
    return Table("title", columns, (Row(value),), kind=Row)


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(outside: str) -> None:
    for char in sanitise(outside):
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    assert "\n" not in sanitise_line(outside)


def test_what_was_hidden_is_seen() -> None:
    assert sanitise("a\x1b[2Jb\u202ec\x9b") == r"a\x1b[2Jb\u202ec\x9b"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", " =", "\t"])
def test_formulas_are_defused_in_csv(start: str) -> None:
    (_, (cell,)) = csv.reader(io.StringIO(as_csv(one(f"{start}HYPERLINK(1)"))))
    assert cell.startswith("'")


@pytest.mark.parametrize(
    ("raw", "written"), [(-1.5, "-1.5"), (None, ""), (True, "true"), (False, "false"), (3, "3")]
)
def test_other_values_in_csv(raw: float | bool | None, written: str) -> None:
    assert as_csv(one(raw)).splitlines()[1] in (written, f'"{written}"')


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"])))
def test_harmless_text_survives_csv(outside: str) -> None:
    rows = list(csv.reader(io.StringIO(as_csv(one("x" + outside)), newline="")))
    assert rows[1] == ["x" + outside]


def printed(table: Table[Any], width: int = 80) -> str:
    sink = io.StringIO()
    show(table, Console(file=sink, width=width, markup=True))
    return sink.getvalue()


def test_markup_is_text() -> None:
    assert "[red]x[/red]" in printed(one("[red]x[/red]"))


def test_columns_for_wide_terminals() -> None:
    columns = (
        Column[Row]("A", lambda _: "one"), Column[Row]("B", lambda _: "two", only_wide=True),
    )  # fmt: skip
    table = Table("t", columns, (Row("three"),), ("a note",))
    assert "two" not in printed(table, 80)
    assert "two" in printed(table, 120)
    assert "three" not in printed(table, 120)
    assert "* a note" in printed(table)


@pytest.mark.parametrize(("width", "spare"), [(60, ""), (80, "a spare column")])
def test_a_cells_name_stays_on_a_narrow_terminal(width: int, spare: str) -> None:
    name = "ext4/qcow2:cluster_size=64k/writeback/virtio:iothread=on"
    columns = (
        Column[str]("path", str, folds=True),
        Column[str]("MB/s", lambda _: "1" * 38),
        Column[str]("spare", lambda _: "a spare column", spare=True),
    )
    lines = printed(Table("t", columns, [name]), width).splitlines()
    folded = "".join(line.split()[0] for line in lines[3:] if line.strip())
    assert folded.endswith(name)
    assert "1" * 38 in "\n".join(lines)
    assert ("a spare column" in "\n".join(lines)) == bool(spare)


def test_commands_are_not_wrapped() -> None:
    command = "qemu-system-x86_64 " + "-device x " * 30
    assert command.strip() in printed(Table("t", (), (), verbatim=(command.strip(),)), 80)


def test_csv_has_the_fields_of_the_rows() -> None:
    shown = Column[Row]("A", lambda _: "shown")
    assert as_csv(Table("t", (shown,), (Row("2"),))) == "key\r\n2\r\n"
    assert as_csv(Table("t", (shown,), (), kind=Row)) == "key\r\n"
    other = Table("t", (shown,), (Row(2),), record=lambda row: {"other": row.key})
    assert as_csv(other) == "other\r\n2\r\n"


def test_an_empty_table_is_its_title() -> None:
    assert (
        printed(Table("nothing here", (Column[Row]("A", lambda row: str(row.key)),), ())).strip()
        == "nothing here"
    )
