"""Prints answers in the format of `--format`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from vdisklab.answers.analysis import DEFAULT_METRIC, Analysis
from vdisklab.answers.loading import load, require_numbers
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.recommend import RecommendAnswer, recommend
from vdisklab.answers.table import TableAnswer, overview
from vdisklab.cli.shell.named import NOTHING_NAMED, Named
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.documents import Answer, document
from vdisklab.documents import as_csv as rows_as_csv
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import DURABLE, Need
from vdisklab.plan.settings import OptionRows
from vdisklab.results.store import Store
from vdisklab.units import counted, whole_number
from vdisklab.views import rank, table
from vdisklab.views.layout import Table
from vdisklab.views.recommend import verdict_table
from vdisklab.views.terminal import show

PIPE_WIDTH = 120
"""Line width if the output is not a terminal and COLUMNS is not set."""


def print_answer(
    answer: Answer,
    tables: Iterable[Table[Any]],
    output: OutputOptions,
    *requests: OptionRows | Named,
    verb: str = "",
) -> None:
    """Prints an answer as tables, as JSON or as CSV; its commands repeat what the requests name.

    `verb` is the command that shows the same with --why and --wide; empty for the present one. In
    CSV, tables with equal columns share one heading; an empty line separates other tables.
    """
    named = Named.by(*requests).on_targets_of(getattr(answer, "campaigns", ()))
    form = output.form
    if form is Format.JSON:
        said = (sentence for table in tables for sentence in table.sentences)
        print(as_json(document(answer, tuple(said)), named))
    elif form is Format.CSV:
        heading = ""
        for table in tables:
            if table.kind is None:
                continue
            last, (heading, newline, rows) = heading, csv_of(table).partition("\r\n")
            if heading != last:
                sys.stdout.write((newline if last else "") + heading + newline)
            sys.stdout.write(rows)
    else:
        screen = console()
        for table in tables:
            show(_complete(table, named), screen, why=output.why, wide=output.wide, verb=verb)


def csv_of(table: Table[Any]) -> str:
    """The rows of a table with columns for all their numbers and texts."""
    assert table.kind is not None  # noqa: S101 - asked by the caller
    return rows_as_csv(table.rows, table.kind)


def as_json(value: object, named: Named = NOTHING_NAMED) -> str:
    """JSON in ASCII. Raises ValueError for NaN, which no document may hold."""
    return json.dumps(named.in_json(value), indent=2, ensure_ascii=True, allow_nan=False)


def _complete(table: Table[Any], named: Named) -> Table[Any]:
    """The table, with the commands above and below its rows completed."""
    return replace(
        table,
        title=named.in_text(table.title),
        intro=tuple(map(named.in_text, table.intro)),
        notes=tuple(map(named.in_text, table.notes)),
        verbatim=tuple(map(named.in_text, table.verbatim)),
        brief=None if table.brief is None else _complete(table.brief, named),
    )


def print_tables(answer: TableAnswer, output: OutputOptions, named: Named) -> None:
    """Prints all medians of one place, or of several places side by side."""
    print_answer(answer, table.tables(answer), output, named, verb="vdisklab table")


def analysed(
    store: Store,
    campaign: str,
    messages: Console,
    *,
    failed: int = 0,
    disk: HostDisk | None = None,
    named: Named = NOTHING_NAMED,
) -> Analysis | None:
    """The analysis of a campaign after measuring; says what to do about cells that failed.

    If it has no numbers, explains it on `messages` and returns None: measuring did not fail.
    """
    if failed:
        ways = f"the same command measures again what failed, `vdisklab runs {campaign}` lists it"
        what = f"{counted(failed, 'cell')} failed; {named.caller.same_command(named.in_text(ways))}"
        messages.print(Text(what), soft_wrap=True)
    try:
        loaded = load(store, [campaign])
        require_numbers(loaded)
    except PlanError as error:
        _say_why(messages, error, named)
        return None
    return Analysis(store, loaded, disk)


def print_overview(
    analysis: Analysis,
    output: OutputOptions,
    messages: Console,
    metric: str = DEFAULT_METRIC,
    named: Named = NOTHING_NAMED,
    *,
    headed: bool = True,
) -> RankAnswer | TableAnswer | None:
    """Prints the answer of a campaign after measuring: its ranking, or all its numbers.

    Unless `headed`, the table has no verdict, as that follows. If nothing can be ranked, explains
    it on `messages` and returns None.
    """
    try:
        answer = overview(analysis, metric)
    except PlanError as error:
        _say_why(messages, error, named)
        return None
    if isinstance(answer, TableAnswer):
        print_tables(answer, output, named)
    else:
        tables = rank.tables(answer, headed=headed)
        print_answer(answer, tables, output, named, verb="vdisklab rank")
    return answer


def provisional_ranking(
    store: Store, campaign: str, metric: str, disk: HostDisk | None, named: Named
) -> Table[Any] | None:
    """What is known of a campaign that is being measured, in the words of `rank`; None if nothing
    can be ranked, or if the database does not answer: a look may not end a run.
    """
    try:
        answer = overview(Analysis.of(store, [campaign], disk=disk), metric)
    except (PlanError, DatabaseError):
        return None
    return _complete(rank.provisional(answer), named) if isinstance(answer, RankAnswer) else None


def _say_why(messages: Console, error: PlanError, named: Named) -> None:
    messages.print(Text(f"no ranking: {error}"), soft_wrap=True)
    messages.print(Text(f"hint: {named.in_text(error.hint or '')}"), soft_wrap=True)


def print_verdict(
    analysis: Analysis,
    form: Format,
    messages: Console,
    named: Named = NOTHING_NAMED,
    needs: tuple[Need, ...] = (DURABLE,),
) -> RecommendAnswer | None:
    """Prints the recommendation in a few sentences, unless the format is for programs.

    If there is none, explains it on `messages`.
    """
    try:
        answer = recommend(analysis, needs)
    except PlanError as error:
        sentence = named.in_text(f"no recommendation: {error}; {error.hint}")
        messages.print(Text(sentence), soft_wrap=True)
        return None
    if form is Format.TABLE:
        show(_complete(verdict_table(answer), named), console())
    return answer


def console() -> Console:
    """Standard output, as wide as the terminal; markup in text is printed literally."""
    columns = os.environ.get("COLUMNS", "")
    # rich takes 0 for a width, at which it prints nothing.
    known = sys.stdout.isatty() or bool(whole_number(columns))
    width = None if known else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)
