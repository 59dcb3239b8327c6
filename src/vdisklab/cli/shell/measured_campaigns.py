"""What `run` prints of its campaigns when they have been measured.

Imported after the last run: measuring needs none of what answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from vdisklab.actions.measure import Measured
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.during import operations_of
from vdisklab.answers.life import lives_of, measured_lives
from vdisklab.answers.measured_for import measured_operations
from vdisklab.answers.race import race_outcome
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.recommend import RecommendAnswer
from vdisklab.answers.table import answer_table
from vdisklab.answers.tell_apart import more_rounds_command
from vdisklab.cli.shell.after_run import analysed, print_overview, print_tables, print_verdict
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.cli.shell.output import print_answer
from vdisklab.path.needs import DURABLE
from vdisklab.plan.run_request import ONLY_MEASURE, RunRequest
from vdisklab.progress import PathDropped
from vdisklab.results.store import Store
from vdisklab.views.choice import headline, keeps_what_is_there
from vdisklab.views.durability import loss_sentences
from vdisklab.views.during import tables as tables_of_operations
from vdisklab.views.life import next_step as next_step_of_lives
from vdisklab.views.life import tables as tables_of_lives
from vdisklab.views.run import (
    left_out_sentences,
    next_step,
    race_effort,
    race_sentences,
    ranking_after_race,
)


def print_measured(
    console: Console,
    store: Store,
    measured: Sequence[Measured],
    request: RunRequest,
    output: OutputOptions,
) -> None:
    """Prints what the campaigns of a request have shown."""
    if any(_has_operations(store, place.campaign) for place in measured):
        _print_operations(store, measured, request, output)
    elif any(_made_disks(store, place.campaign) for place in measured):
        _print_lives(console, store, measured, request, output)
    else:
        _print_answers(console, store, measured, request, output)


def print_left_out(console: Console, left_out: Iterable[PathDropped]) -> None:
    """Prints the paths that were asked for and that this host cannot measure."""
    _say(console, left_out_sentences(left_out))


def _print_operations(
    store: Store, measured: Sequence[Measured], request: RunRequest, output: OutputOptions
) -> None:
    """Prints what the operations of `--during` cost."""
    named = Named.by(request)
    for place in measured:
        if place.campaign is not None:
            answer = operations_of(store, place.campaign)
            tables = tables_of_operations(answer)
            print_answer(answer, tables, output, named, verb="vdisklab during")


def _has_operations(store: Store, campaign: str | None) -> bool:
    return campaign is not None and measured_operations(store.campaign(campaign))


def _made_disks(store: Store, campaign: str | None) -> bool:
    return campaign is not None and measured_lives(store.campaign(campaign))


def _print_lives(
    console: Console,
    store: Store,
    measured: Sequence[Measured],
    request: RunRequest,
    output: OutputOptions,
) -> None:
    """Prints what disks made from a template cost, and the next step."""
    named = Named.by(request)
    for place in measured:
        if place.campaign is None:
            continue
        answer = lives_of(store, place.campaign)
        print_answer(answer, tables_of_lives(answer), output, named, verb="vdisklab life")
        if place.race is not None:
            analysis = analysed(store, place.campaign, console, disk=request.disk, named=named)
            if analysis is not None:
                race = race_outcome(analysis.loaded, place.race, analysis.verdicts)
                again = _going_on(request, analysis, named)
                _say(console, () if race is None else race_sentences(race, again))
        if not place.interrupted and ONLY_MEASURE not in os.environ:
            _say(console, map(named.in_text, next_step_of_lives(answer)))


def _print_answers(
    console: Console,
    store: Store,
    measured: Sequence[Measured],
    request: RunRequest,
    output: OutputOptions,
) -> None:
    """Prints the numbers of several places side by side, or what a campaign has shown."""
    named = Named.by(request)
    campaigns = [place.campaign for place in measured if place.campaign is not None]
    if len(measured) > 1:
        if campaigns and ONLY_MEASURE not in os.environ:
            print_tables(answer_table(store, campaigns, request.disk), output, named)
        return
    if not campaigns or (ONLY_MEASURE in os.environ and measured[0].race is None):
        return
    (outcome,) = measured
    analysis = analysed(
        store, campaigns[0], console, failed=outcome.failed, disk=request.disk, named=named
    )
    if analysis is None:
        return
    race = None
    if outcome.race is not None:
        race = race_outcome(analysis.loaded, outcome.race, analysis.verdicts)
    if ONLY_MEASURE in os.environ:
        _say(console, () if race is None else race_sentences(race))
        return
    metric = DEFAULT_METRIC if outcome.race is None else outcome.race.metric
    begins_anew = request.new or request.again is not None
    again = None if begins_anew else Caller.of_process().command
    decides = not request.here and metric == DEFAULT_METRIC
    headed = not decides or output.form is not Format.TABLE
    answer = print_overview(analysis, output, console, metric, named, headed=headed)
    if answer is None:
        return
    advised = None
    has_paths = isinstance(answer, RankAnswer) or answer.has_paths
    if has_paths and decides and (race is None or race.shows_anything):
        needs = (DURABLE,) if outcome.race is None else outcome.race.needs
        advised = print_verdict(analysis, output.form, console, named, needs, again)
    if race is not None:
        goes_on = _going_on(request, analysis, named)
        _say_race(console, race, advised, analysis, output.form, goes_on)
        _say(console, [race_effort(len(store.finished(campaigns[0])), race)])
        if isinstance(answer, RankAnswer):
            _say(console, filter(None, [ranking_after_race(race, answer.ranking)]))
    if not outcome.interrupted:
        newest = store.campaigns(with_runs=True)[0].id
        campaign = None if campaigns[0] == newest else campaigns[0]
        export = None
        if advised is not None:
            # Imported late: it knows all platforms, and is needed after the last run.
            from vdisklab.cli.shell.next_command import export_of  # noqa: PLC0415

            # Of several platforms nobody knows which one runs the guest.
            of = request.platform if len(request.platform) == 1 else ()
            export = export_of(advised.path, analysis.campaigns, of, request.secret)
        keeps = advised is not None and keeps_what_is_there(advised.choice)
        step = next_step(export, campaign, keeps=keeps)
        _say(console, [named.in_text(step)])


def _going_on(request: RunRequest, analysis: Analysis, named: Named) -> str | None:
    """The command that continues the campaign: this process', unless that begins another one."""
    typed = Caller.of_process().command
    if typed is not None and not request.new and request.again is None:
        return typed
    command = more_rounds_command(analysis)
    return None if command is None else named.in_text(f"`{command}`").strip("`")


def _say_race(
    console: Console,
    race: RaceOutcome,
    advised: RecommendAnswer | None,
    analysis: Analysis,
    form: Format,
    again: str | None,
) -> None:
    """What the race has shown, in the words of the answer; a table has said it already."""
    if advised is None:
        _say(console, race_sentences(race, again))
        left = (race.best, *race.as_good) if race.shows_anything else ()
        _say(console, loss_sentences(left, analysis.verdicts))
    elif form is not Format.TABLE:
        _say(console, [f"{headline(advised.choice)}."])


def _say(console: Console, sentences: Iterable[str]) -> None:
    """Prints each sentence on one line, as it is."""
    for sentence in sentences:
        console.print(Text(sentence), soft_wrap=True)
