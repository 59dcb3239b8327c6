from __future__ import annotations

import csv
import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vdisklab.render.tables.layout import (
    Column,
    Table,
    Value,
    as_csv,
    as_records,
    sanitise,
    sanitise_line,
    show,
    text,
)


def one(value: Value) -> Table:
    return Table("title", (Column("key", "Title", folds=True),), ((value,),))


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(outside: str) -> None:
    for char in sanitise(outside):
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    assert "\n" not in sanitise_line(outside)


def test_what_was_hidden_is_seen() -> None:
    assert sanitise("a\x1b[2Jb\u202ec\x9b") == r"a\x1b[2Jb\u202ec\x9b"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", " =", "\t"])
def test_formulas_are_defused_in_csv(start: str) -> None:
    (_, (cell,)) = csv.reader(io.StringIO(as_csv(one(text(f"{start}HYPERLINK(1)")))))
    assert cell.startswith("'")


@pytest.mark.parametrize(
    ("raw", "written"), [(-1.5, "-1.5"), (None, ""), (True, "true"), (False, "false"), (3, "3")]
)
def test_other_values_in_csv(raw: float | bool | None, written: str) -> None:
    assert as_csv(one(Value(raw, "shown"))).splitlines()[1] in (written, f'"{written}"')


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"])))
def test_harmless_text_survives_csv(outside: str) -> None:
    rows = list(csv.reader(io.StringIO(as_csv(one(text("x" + outside))), newline="")))
    assert rows[1] == ["x" + outside]


def test_records_carry_raw_values() -> None:
    assert as_records(one(Value(1.5e9, "1.50 GB/s"))) == [{"key": 1.5e9}]


def printed(table: Table, width: int = 80) -> str:
    sink = io.StringIO()
    show(table, Console(file=sink, width=width, markup=True))
    return sink.getvalue()


def test_markup_is_text() -> None:
    assert "[red]x[/red]" in printed(one(text("[red]x[/red]")))


def test_columns_for_wide_terminals() -> None:
    columns = (Column("a", "A"), Column("b", "B", only_wide=True), Column("c", "C", only_data=True))
    table = Table("t", columns, ((text("one"), text("two"), text("three")),), ("a note",))
    assert "two" not in printed(table, 80)
    assert "two" in printed(table, 120)
    assert "three" not in printed(table, 120)
    assert "* a note" in printed(table)


def test_commands_are_not_wrapped() -> None:
    command = "qemu-system-x86_64 " + "-device x " * 30
    assert command.strip() in printed(Table("t", (), (), verbatim=(command.strip(),)), 80)


def test_what_is_only_shown_is_no_data() -> None:
    table = Table(
        "t", (Column("a", "A", only_shown=True), Column("b", "B")), ((text("1"), text("2")),)
    )
    assert as_records(table) == [{"b": "2"}]
    assert as_csv(table) == "b\r\n2\r\n"


def test_an_empty_table_is_its_title() -> None:
    assert printed(Table("nothing here", (Column("a", "A"),), ())).strip() == "nothing here"
