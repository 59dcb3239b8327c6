"""What `run` does: measures each campaign of a request, and prints what they have shown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from vdisklab.actions.again import repeated
from vdisklab.actions.find_best import make_search
from vdisklab.actions.measure import Measured, Publish, measure, measure_in_turns
from vdisklab.answers.analysis import DEFAULT_METRIC
from vdisklab.answers.during import operations_of
from vdisklab.answers.life import lives_of, measured_lives
from vdisklab.answers.loading import database_url
from vdisklab.answers.race import race_outcome
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.table import answer_table
from vdisklab.cli.shell.after_run import (
    analysed,
    print_overview,
    print_tables,
    print_verdict,
    provisional_ranking,
)
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.cli.shell.output import print_answer
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED
from vdisklab.host.progress_file import CAMPAIGNS_FILE, progress_file
from vdisklab.host.safe_places import open_file
from vdisklab.host.waiting import patience
from vdisklab.host.writing import acting, writable
from vdisklab.path.needs import DURABLE
from vdisklab.plan.run_request import ONLY_MEASURE, RunRequest
from vdisklab.progress import CampaignStarted, Event, Note, Progress
from vdisklab.results.store import Store, open_store
from vdisklab.units import counted
from vdisklab.views.durability import loss_sentences
from vdisklab.views.during import tables as tables_of_operations
from vdisklab.views.life import tables as tables_of_lives
from vdisklab.views.run import (
    left_out_sentences,
    next_step,
    race_effort,
    race_sentences,
    ranking_after_race,
)


def run_campaigns(request: RunRequest, output: OutputOptions) -> int:
    """Measures the campaigns of a request and prints their answers; returns the exit status."""
    campaigns = request.campaigns()
    console = Console(stderr=True)
    is_slow = patience() > 1 or ONLY_MEASURE in os.environ
    create = request.again is None
    with open_store(database_url(request.db, create=create), create=create) as store:
        if request.again is not None:
            request = repeated(store, request)
            campaigns = request.campaigns()
        look = partial(
            provisional_ranking,
            store,
            metric=request.metric or DEFAULT_METRIC,
            disk=request.disk,
            named=Named.by(request),
        )
        with (
            _publishing(request.stream) as publish,
            TerminalProgress(
                console,
                each=is_slow,
                look=look if len(campaigns) == 1 else None,
                whole=Named.by(request).in_text("`vdisklab rank`"),
            ) as shown,
            progress_file(_watchable(shown, request)) as progress,
        ):
            if len(campaigns) > 1:
                measured = measure_in_turns(
                    store, campaigns, progress, new=request.new, publish=publish
                )
            else:
                (campaign,) = campaigns
                search = make_search(request)
                outcome = measure(
                    store, campaign, progress, new=request.new, search=search, publish=publish
                )
                measured = (outcome,)
        _write_ids(measured)
        _print_end(console, measured)
        if any(place.campaign and request.during for place in measured):
            _print_operations(store, measured, output)
        elif any(_made_disks(store, place.campaign) for place in measured):
            _print_lives(store, measured, output)
        else:
            _print_answers(console, store, measured, request, output)
    left_out = dict.fromkeys(cell for place in measured for cell in place.left_out)
    _say(console, left_out_sentences(left_out))
    if any(campaign.interrupted for campaign in measured):
        return EXIT_INTERRUPTED
    failed = any(campaign.failed for campaign in measured)
    return EXIT_CELLS_FAILED if failed or left_out else 0


def _publishing(stream: Path | None) -> AbstractContextManager[Publish | None]:
    """Writes each run to the stream when it ends, if there is one."""
    if stream is None:
        return nullcontext()
    # Imported late: only a stream writes runs as they are exported.
    from vdisklab.actions.export_data import stream_of_runs  # noqa: PLC0415

    return stream_of_runs(stream)


def _watchable(shown: Progress, request: RunRequest) -> Progress:
    """Says how to watch the campaign, when it begins."""
    named = Named.by(request)

    def tell(event: Event, /) -> None:
        shown(event)
        if isinstance(event, CampaignStarted) and ONLY_MEASURE not in os.environ:
            shown(Note(named.in_text("see it in a browser: `vdisklab watch`")))

    return tell


def _write_ids(measured: Sequence[Measured]) -> None:
    """Tells the worker of a fleet which campaigns its command measured, or found complete."""
    file = os.environ.get(CAMPAIGNS_FILE)
    if file is not None:
        ids = [campaign.campaign for campaign in measured if campaign.campaign is not None]
        way = f"set {CAMPAIGNS_FILE} to another one"
        target = writable(Path(file), "the list of campaigns", way)
        with acting(target.rights):
            descriptor = open_file(target.place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(descriptor, "w") as stream:
            stream.write("\n".join(ids))


def _print_end(console: Console, measured: Sequence[Measured]) -> None:
    """Prints that there was nothing to do, or that the campaign was interrupted."""
    if all(campaign.complete_before for campaign in measured):
        console.print("every run of this plan is already measured; --new measures it again")
    if any(campaign.interrupted for campaign in measured):
        runs = sum(campaign.runs for campaign in measured)
        kept_runs = f"{counted(runs, 'run')} kept" if runs else "nothing has been measured yet"
        continues = Caller.of_process().same_command("the same command continues")
        console.print(Text(f"interrupted: {kept_runs}; {continues}"), soft_wrap=True)


def _print_operations(store: Store, measured: Sequence[Measured], output: OutputOptions) -> None:
    """Prints what the operations of `--during` cost."""
    for place in measured:
        if place.campaign is not None:
            answer = operations_of(store, place.campaign)
            print_answer(answer, tables_of_operations(answer), output)


def _made_disks(store: Store, campaign: str | None) -> bool:
    return campaign is not None and measured_lives(store.campaign(campaign))


def _print_lives(store: Store, measured: Sequence[Measured], output: OutputOptions) -> None:
    """Prints what disks made from a template cost."""
    for place in measured:
        if place.campaign is not None:
            answer = lives_of(store, place.campaign)
            print_answer(answer, tables_of_lives(answer), output)


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
            print_tables(answer_table(store, campaigns), output, named)
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
    if has_paths and decides:
        needs = (DURABLE,) if outcome.race is None else outcome.race.needs
        advised = print_verdict(analysis, output.form, console, named, needs, again)
    if race is not None:
        if output.form is not Format.TABLE or advised is None or advised.race is None:
            _say(console, race_sentences(race, again))
            _say(console, loss_sentences((race.best, *race.as_good), analysis.verdicts))
        _say(console, [race_effort(len(store.finished(campaigns[0])), race)])
        if isinstance(answer, RankAnswer):
            _say(console, filter(None, [ranking_after_race(race, answer.ranking)]))
    if not outcome.interrupted:
        newest = store.campaigns(with_runs=True)[0].id
        campaign = None if campaigns[0] == newest else campaigns[0]
        path = None if advised is None else advised.path
        # Imported late: it knows all platforms, and is needed after the last run.
        from vdisklab.answers.export import measured_place  # noqa: PLC0415

        found = path and measured_place(path, analysis.campaigns[0], request.secret)
        where = found.option if found else ()
        _say(console, [named.in_text(next_step(path, campaign, where))])


def _say(console: Console, sentences: Iterable[str]) -> None:
    """Prints each sentence on one line, as it is."""
    for sentence in sentences:
        console.print(Text(sentence), soft_wrap=True)
