"""`--format html` of any verb: its tables as a page, for nothing but the `Table`."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

import pytest

from tests.unit.stored import Database
from vdisklab.cli.shell.main import main
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.cli.shell.output import print_answer
from vdisklab.documents import Answer
from vdisklab.value import replace
from vdisklab.views.charts.columns import rectangles, shown_labels
from vdisklab.views.layout import Column, StackedColumns, Table
from vdisklab.views.page.tables import tables_page


class Toy(Answer):
    """The answer of a toy verb, which knows nothing of HTML."""

    FORMAT = "vdisklab.toy/1"

    names: tuple[str, ...]


class Texts(HTMLParser):
    """The elements of a page, and its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.elements.append(tag)
        if tag in {"td", "th"}:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1] in {"td", "th"}:
            self.cells[-1] += data.strip()


@pytest.mark.parametrize("element", ["style", "script"])
def test_the_policy_allows_its_style_and_its_script(element: str) -> None:
    page = tables_page([Table("Toys", [Column[str]("name", str)], ["plain"])])
    text = page.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert f"{element}-src &#39;sha256-{digest}&#39;" in page


@pytest.mark.parametrize(
    ("title", "heading", "below"),
    [
        ("Use raw/none: it leads; but in some other measure that is long, x is better",
         "Use raw/none: it leads", "But in some other measure that is long, x is better"),
        ("Keep what you have. These 2 tie; qcow2/none was not measured in this campaign yet",
         "Keep what you have. These 2 tie", "qcow2/none was not measured in this campaign yet"),
        ("Take raw/none, or keep what you have if it is one of these: a tie, on 4 hosts; but on "
         "one, x is better",
         "Take raw/none, or keep what you have if it is one of these: a tie, on 4 hosts",
         "But on one, x is better"),
        ("Short; and whole", "Short; and whole", None),
        ("One clause of more than sixty characters that nobody can divide anywhere at all",
         "One clause of more than sixty characters that nobody can divide anywhere at all", None),
    ],
)  # fmt: skip
def test_a_long_title_is_a_short_heading_and_a_sentence(
    title: str, heading: str, below: str | None
) -> None:
    page = tables_page([Table(title, [Column[str]("name", str)], ["plain"])])
    assert f"<h2>{heading}</h2>" in page
    assert (below is not None) is ("<p>" in page)
    assert below is None or f"<p>{below}</p>" in page


def test_a_figure_stands_above_its_table() -> None:
    figure = StackedColumns(
        "Two columns.", ("reads", "writes"), ["a", "<b>"], [(1, 3), (0, 2)], "4 requests"
    )
    assert [(part.part, part.x, part.y, part.height) for part in rectangles(figure)] == [
        (0, "0.000%", "75.00%", "25.00%"),
        (1, "0.000%", "0.00%", "75.00%"),
        (1, "50.000%", "50.00%", "50.00%"),
    ]
    page = tables_page([Table("Toys", [Column[str]("name", str)], ["plain"], figure=figure)])
    assert page.count("<rect") == 3 + 2, "parts, and the legend"
    assert "&lt;b&gt;" in page
    assert 'aria-label="Two columns."' in page


def test_of_many_labels_some_are_shown() -> None:
    figure = StackedColumns("", ("x",), list("abcdefghij"), [(1,)] * 10, "")
    places = [(label.text, label.x, label.anchor) for label in shown_labels(figure)]
    assert places == [
        ("a", "0.000%", "start"), ("d", "30.000%", "start"), ("g", "60.000%", "start"),
        ("j", "98.600%", "end"),
    ]  # fmt: skip
    few = replace(figure, labels=["a"], values=[(1,)])
    assert [(label.text, label.anchor) for label in shown_labels(few)] == [("a", "start")]
    assert not list(shown_labels(replace(figure, labels=[], values=[])))


def test_a_page_draws_the_bars_of_a_terminal_once() -> None:
    columns = [Column[str]("name", str), Column[str]("", lambda _: "████")]
    figure = StackedColumns("", ("x",), ["a"], [(1,)], "")
    assert "████" in tables_page([Table("Toys", columns, ["plain"])])
    assert "████" not in tables_page([Table("Toys", columns, ["plain"], figure=figure)])


def test_a_table_without_headings_has_no_head() -> None:
    assert "<thead" not in tables_page([Table("Toys", [Column[str]("", str)], ["plain"])])


def test_a_toy_verb_has_html_from_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "<script>alert(1)</script>\u202e"
    columns = [Column[str]("name", str), Column[str]("length", lambda name: f"{len(name)}")]
    table = Table(
        "Toys", columns,
        ["plain", evil], notes=("One of them is `evil`.",), verbatim=("paste <me>",),
    )  # fmt: skip
    print_answer(Toy(("plain", evil)), [table], OutputOptions(form=Format.HTML))
    page = capsys.readouterr().out
    read = Texts(page)
    assert read.cells[:4] == ["name", "length", "plain", "5"]
    harmless = Texts(tables_page([Table("Toys", columns, ["plain"])]))
    assert read.elements.count("script") == harmless.elements.count("script"), "the page's own"
    assert "\u202e" not in page
    assert "<code>evil</code>" in page
    assert "paste &lt;me&gt;" in page


@pytest.mark.parametrize("verb", ["rank", "table", "runs", "profiles"])
def test_verbs_print_pages(
    database: Database, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = () if verb == "profiles" else ("--db", database.url)
    assert main([verb, "--format", "html", *where]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!DOCTYPE html>")
    assert "<table" in page
    assert "Content-Security-Policy" in page
