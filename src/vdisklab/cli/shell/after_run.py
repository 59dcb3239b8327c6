"""What `run` and `lab` print of a campaign that has been measured, and while it is."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.loading import load, require_numbers
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.recommend import RecommendAnswer, TooFewRoundsError, recommend
from vdisklab.answers.table import TableAnswer, overview
from vdisklab.cli.shell.named import NOTHING_NAMED, Named
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.cli.shell.output import completed, console, print_answer
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import DURABLE, Need
from vdisklab.results.store import Store
from vdisklab.units import counted
from vdisklab.value import replace
from vdisklab.views import rank, table
from vdisklab.views.layout import Table
from vdisklab.views.recommend import verdict_table
from vdisklab.views.terminal import show


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
    return completed(rank.provisional(answer), named) if isinstance(answer, RankAnswer) else None


def _say_why(messages: Console, error: PlanError, named: Named) -> None:
    messages.print(Text(f"no ranking: {error}"), soft_wrap=True)
    messages.print(Text(f"hint: {named.in_text(error.hint or '')}"), soft_wrap=True)


def print_verdict(
    analysis: Analysis,
    form: Format,
    messages: Console,
    named: Named = NOTHING_NAMED,
    needs: tuple[Need, ...] = (DURABLE,),
    again: str | None = None,
) -> RecommendAnswer | None:
    """Prints the recommendation in a few sentences, unless the format is for programs.

    If there is none, explains it on `messages`. `again` is the user's own command that continues
    the race: two commands that do the same would be a riddle.
    """
    try:
        answer = recommend(analysis, needs)
    except PlanError as error:
        said = f"no recommendation yet: {error}; {error.hint}"
        if isinstance(error, TooFewRoundsError):
            said = f"{str(error)[0].upper()}{str(error)[1:]}: {error.hint}."
        sentence = named.in_text(said)
        messages.print(Text(sentence), soft_wrap=True)
        return None
    surer = answer.choice.surer
    if again is not None and surer is not None and not surer.paths:
        choice = replace(answer.choice, surer=replace(surer, command=again, on=None))
        answer = replace(answer, choice=choice)
    if form is Format.TABLE:
        show(completed(verdict_table(answer), named), console())
    return answer
