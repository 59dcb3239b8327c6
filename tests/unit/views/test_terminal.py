from __future__ import annotations

import csv
import io
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from vdisklab import numbers
from vdisklab.documents import as_csv
from vdisklab.sanitise import sanitise, sanitise_line
from vdisklab.value import Value
from vdisklab.views.layout import NAMES, WORDS, Column, Table
from vdisklab.views.terminal import _WORDS, lines_of, show, wrap


class Row(Value):
    key: str | float | int | bool | None


def made(value: str | float | bool | None) -> Table[Row]:
    columns = (Column[Row]("Title", lambda row: str(row.key), folds=20),)
    return Table("title", columns, (Row(value),), kind=Row)


def csv_of(value: str | float | bool | None) -> str:
    return as_csv(made(value).rows, Row)


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(outside: str) -> None:
    for char in sanitise(outside):
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    assert "\n" not in sanitise_line(outside)


def test_what_was_hidden_is_seen() -> None:
    assert sanitise("a\x1b[2Jb\u202ec\x9b") == r"a\x1b[2Jb\u202ec\x9b"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", " =", "\t"])
def test_formulas_are_defused_in_csv(start: str) -> None:
    (_, (cell,)) = csv.reader(io.StringIO(csv_of(f"{start}HYPERLINK(1)")))
    assert cell.startswith("'")


@pytest.mark.parametrize(
    ("raw", "written"), [(-1.5, "-1.5"), (None, ""), (True, "true"), (False, "false"), (3, "3")]
)
def test_other_values_in_csv(raw: float | bool | None, written: str) -> None:
    assert csv_of(raw).splitlines()[1] in (written, f'"{written}"')


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"])))
def test_harmless_text_survives_csv(outside: str) -> None:
    rows = list(csv.reader(io.StringIO(csv_of("x" + outside), newline="")))
    assert rows[1] == ["x" + outside]


def printed(table: Table[Any], width: int = 80, *, wide: bool = False, verb: str = "") -> str:
    sink = io.StringIO()
    show(table, Console(file=sink, width=width, markup=True), wide=wide, verb=verb)
    return sink.getvalue()


def test_markup_is_text() -> None:
    assert "[red]x[/red]" in printed(made("[red]x[/red]"))


@pytest.mark.parametrize(
    "path", ["{raw,qcow2}/{none,writeback}", "{}", "{0}", "{", "}", "%s", "%(x)d", r"\1", "[red]"]
)
def test_a_command_is_text_in_the_notes_on_what_is_hidden(path: str) -> None:
    verb = f"vdisklab plan '{path}'"
    column = Column[str]("path", str, folds=20)
    table = Table("t", [column], ["raw/none" * 20], ("a note " * 12,) * 9)
    text = printed(table, 40, verb=verb)
    assert re.search(rf"more notes?: `{re.escape(verb)} --why`", text)
    assert f"`{verb} --wide` shows whole texts" in " ".join(text.split())


def test_lines_that_a_note_introduces_follow_it_at_once() -> None:
    column = Column[str]("path", str, folds=20, note="of the column")
    notes = (*["a note " * 9] * 9, "To measure the rest:")
    table = Table("t", [column], ["raw/none" * 20], notes, verbatim=("vdisklab run raw/none",))
    lines = printed(table, 40, verb="vdisklab claims").splitlines()
    place = lines.index("* To measure the rest:")
    assert lines[place + 1] == "vdisklab run raw/none"
    assert any("--wide" in line for line in lines[:place])
    assert any("--why" in line for line in lines[:place])


def test_spare_columns_go_first_and_are_named() -> None:
    columns = (
        Column[str]("path", str, folds=20),
        Column[str]("MB/s", lambda _: "1" * 20, right=True),
        Column[str]("later", lambda _: "goes later", spare=1),
        Column[str]("first", lambda _: "goes first", spare=2),
        Column[str]("empty", lambda _: "–", spare=1),
    )
    table = Table("t", columns, ["raw/none"], ("a note",))
    assert "empty" in printed(table, 80)
    assert "* --wide shows first." in printed(table, 48)
    assert "goes later" in printed(table, 48)
    assert "* --wide shows later, first." in printed(table, 34)
    for width in (34, 48, 80):
        assert "1" * 20 in printed(table, width)
        assert "* a note" in printed(table, width)
        assert {"goes later", "goes first"} <= set(
            re.findall(r"goes \w+", printed(table, width, wide=True))
        )


NAMES_OF_DISKS = st.lists(
    st.text(st.sampled_from("ab/:=磁"), min_size=1, max_size=60),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(NAMES_OF_DISKS, st.text(st.sampled_from("ab c"), max_size=90), st.integers(40, 100))
def test_a_row_is_one_line_and_names_stay_different(
    names: list[str], sentence: str, width: int
) -> None:
    columns = (
        Column[str]("disk", str, folds=NAMES),
        Column[str]("n", lambda _: "12", right=True, spare=1),
        Column[str]("why", lambda _: sentence, folds=WORDS),
    )
    table = Table("t", columns, names)
    _, _, *lines = printed(table, width).split("\n\n")[1].splitlines()
    assert len(lines) == len(names)
    assert len({line.split("  ")[0] for line in lines}) == len(names)
    assert all(cell_len(line) <= width for line in lines)
    whole = printed(table, width, wide=True)
    assert all(name in whole for name in names)
    assert set(sentence.split()) <= set(whole.split())


def test_shortened_texts_are_said() -> None:
    columns = (Column[str]("why", str, folds=WORDS),)
    assert "* --wide shows whole texts." in printed(Table("t", columns, ["word " * 20]), 60)
    assert "--wide" not in printed(Table("t", columns, ["word"]), 60)
    assert printed(Table("t", columns, ["word " * 20]), 60, wide=True).count("word") == 20


def test_what_all_long_names_begin_with_is_left_out_and_said() -> None:
    start = "xfs/qcow2:cluster_size=64k:preallocation=off/none/virtio:"
    ends = [f"queues={q}:iothread={on}/x:aio=native" for q in (1, 4) for on in ("on", "off")]
    columns = (
        Column[str]("path", str, folds=NAMES),
        Column[str]("other", lambda _: "x" * 30),
    )
    table = Table("t", columns, [*(f"{start}{end}" for end in ends), "host"])
    text = printed(table, 74)
    assert [line.split()[0] for line in text.splitlines() if "xxx" in line] == [
        *(f"…{end}" for end in ends),
        "host",
    ]
    assert f"--wide shows whole texts (… at the start of a path is {start})." in " ".join(
        text.split()
    )
    assert "at the start of a path" not in printed(table, 130)


def test_rows_are_stacked_where_even_the_name_does_not_fit() -> None:
    name = "ext4/qcow2:cluster_size=64k/writeback/virtio:iothread=on"
    columns = (
        Column[str]("path", str, folds=NAMES),
        Column[str]("95 %\ninterval", lambda _: "1.10–1.30"),
        Column[str]("spare", lambda _: "a spare column", spare=1),
        Column[str]("blank", lambda _: "", spare=1),
    )
    others = " 95 % interval  1.10–1.30\n spare          a spare column\n\n"
    assert printed(Table("t", columns, [name, "raw"]), 60, wide=True) == (
        f"t\n\n path           {name}\n{others} path           raw\n{others}"
    )
    assert f" {name}  1.10–1.30\n" in printed(Table("t", columns, [name]), 70)
    assert "…" in printed(Table("t", columns, [name]), 60)


def test_wide_characters_take_two_columns() -> None:
    columns = (Column[str]("name", str, folds=20), Column[str]("n", lambda _: "1", right=True))
    lines = printed(Table("t", columns, ["磁盘/块设备", "raw"]), 80).splitlines()
    assert lines[4] == " 磁盘/块设备  1"
    assert lines[5] == " raw          1"


@given(st.text(), st.integers(1, 60))
def test_wrapping_breaks_no_word(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert " ".join(lines).split() == text.split()
    for line in lines:
        assert cell_len(line) <= width or len(_WORDS.findall(line.removeprefix("* "))) == 1


@pytest.mark.parametrize(
    "whole",
    [
        "`.venv/bin/vdisklab rank --db m.sqlite`",
        "`sudo usermod --append -G kvm $USER`",
        "`kubectl get vm,pvc,dv,pv -A -o yaml > guests.yaml`",
        "(95 %)",
    ],
)
def test_no_line_ends_within_a_command_or_a_percentage(whole: str) -> None:
    text = f"Before you go on, run {whole}, which takes a while, and then look again."
    for width in range(10, 60):
        assert any(whole in line for line in wrap(text, width))
        assert "*" not in wrap(f"* {whole} shows more", width)


def test_commands_are_not_wrapped() -> None:
    command = "qemu-system-x86_64 " + "-device x " * 30
    assert command.strip() in printed(Table("t", (), (), verbatim=(command.strip(),)), 80)


def test_csv_has_the_fields_of_the_rows() -> None:
    assert csv_of("2") == "key\r\n2\r\n"
    assert as_csv((), Row) == "key\r\n"


def test_an_empty_table_is_its_title() -> None:
    assert (
        printed(Table("nothing here", (Column[Row]("A", lambda row: str(row.key)),), ())).strip()
        == "nothing here"
    )


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_bar_shrinks_before_a_name_is_shortened(width: int) -> None:
    """It shrinks to FEWEST, and --wide is not offered for it: a bar has no more to show."""
    columns = (
        Column[str]("name", str, folds=NAMES),
        Column[str]("", lambda _: "█" * 40, fit=lambda _, width: "█" * width),
    )
    name = "raw/writeback (cold)"
    lines = [line.plain for line in lines_of(Table("T", columns, [name]), width)]
    (row,) = (line for line in lines if "█" in line)
    assert row.startswith(f" {name}  ") is (width >= 31)
    assert row.count("█") == {30: 8, 40: 17, 80: 40}[width]
    assert len(row) <= width
    assert not any("whole texts" in line for line in lines), "the page cache wraps"


GROWING = "qcow2:preallocation=off/default (cold)"


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        ([GROWING], 38, [GROWING]),
        ([GROWING, "raw/none"], 30, ["qcow2:…/default (cold)", "raw/none"]),
        ([GROWING, "raw/writeback (cold)"], 16, ["qcow2:…/default", "raw/writeback"]),
        # Only as many options as must, the longest first.
        (
            ["ext4/qcow2:preallocation=off/none/virtio:queues=4"],
            40,
            ["ext4/qcow2:…/none/virtio:queues=4"],
        ),
        # The options are what differs.
        (
            ["qcow2:cluster_size=64k/none/virtio", "qcow2:cluster_size=2M/none/virtio"],
            26,
            ["qcow2:…64k/none/virtio", "qcow2:…2M/none/virtio"],
        ),
    ],
)
def test_a_path_is_shortened_by_its_options_first(
    names: list[str], width: int, shown: list[str]
) -> None:
    """Format and cache mode stay; what does not fit beside them, the page cache, wraps."""
    table = Table("T", (Column[str]("name", str, folds=NAMES),), names)
    rows = [line.plain for line in lines_of(table, width + 1)][4 : -1 - (width < 38)]
    firsts = [row.strip() for row in rows if row.strip() not in ("", "(cold)")]
    assert firsts[: len(shown)] == shown
    assert ("(cold)" in [row.strip() for row in rows]) is (width == 16)


def test_a_card_has_no_line_for_what_a_row_lacks() -> None:
    """The wide form of many rows would be twice as long, of dashes."""
    rows = [("a-name-of-a-disk", "7", numbers.MISSING), ("another-name-of-a-disk", "", "")]
    columns = tuple(
        Column[tuple[str, str, str]](title, lambda row, place=place: row[place])  # type: ignore[misc]
        for place, title in enumerate(("disk", "gain", "better"))
    )
    shown = [line.plain.split() for line in lines_of(Table("t", columns, rows), 20, wide=True)]
    assert ["gain", "7"] in shown
    assert not any("better" in line for line in shown)
    assert sum("gain" in line for line in shown) == 1
