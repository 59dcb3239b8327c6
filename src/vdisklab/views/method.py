"""The answer of `method` as a table, on the terminal and in docs/method.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vdisklab.answers.method import Explanation, MethodAnswer
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def tables(answer: MethodAnswer) -> Iterator[Table[Explanation]]:
    """One row per kind of number."""
    columns: tuple[Column[Explanation], ...] = (
        Column("number", lambda entry: entry.title, folds=NAMES),
        Column("how it is computed", lambda entry: entry.how, folds=WORDS),
        Column("source", lambda entry: entry.source, folds=WORDS, spare=2),
    )
    note = (
        "Each round measures every cell once, in random order; differences are taken within "
        "rounds. docs/proofs.md has simulated coverage, error rates, power, and literature."
    )
    title = "How the numbers are computed"
    yield Table(title, columns, answer.numbers, (note,), kind=Explanation)


def method_page(page: str, entries: Iterable[Explanation]) -> str:
    """A page with these entries between its two marks (`script/method-page` writes them)."""
    before, start, rest = page.partition("<!-- explanations -->\n")
    _, end, after = rest.partition("<!-- end of explanations -->")
    rows = (f"* **{entry.title}**: {entry.how} ({entry.source})\n" for entry in entries)
    return f"{before}{start}\n{''.join(rows)}\n{end}{after}"
