"""What `run` does: measures each campaign of a request, and prints what they have shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from vdisklab.actions.again import repeated
from vdisklab.actions.find_best import make_search
from vdisklab.actions.measure import Measured, Publish, measure, measure_in_turns
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import OutputOptions
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, DirtyHostError, LeftOnTargetError
from vdisklab.host.ledger import leftovers_sentence
from vdisklab.host.progress_file import CAMPAIGNS_FILE, progress_file
from vdisklab.host.safe_places import open_file
from vdisklab.host.waiting import patience
from vdisklab.host.writing import acting, writable
from vdisklab.plan.run_request import ONLY_MEASURE, RunRequest
from vdisklab.progress import CampaignStarted, Event, Note, Progress
from vdisklab.results.store import Store, open_store
from vdisklab.units import counted
from vdisklab.views.layout import Table


def run_campaigns(request: RunRequest, output: OutputOptions) -> int:
    """Measures the campaigns of a request and prints their answers; returns the exit status."""
    campaigns = request.campaigns()
    console = Console(stderr=True)
    is_slow = patience() > 1 or ONLY_MEASURE in os.environ
    create = request.again is None
    left: list[DirtyHostError] = []
    with open_store(database_url(request.db, create=create), create=create) as store:
        if request.again is not None:
            request = repeated(store, request)
            campaigns = request.campaigns()
        with (
            _publishing(request.stream) as publish,
            TerminalProgress(
                console,
                each=is_slow,
                look=partial(_look, store, request) if len(campaigns) == 1 else None,
                whole=Named.by(request).in_text("`vdisklab rank`"),
            ) as shown,
            progress_file(_watchable(shown, request)) as progress,
        ):
            if len(campaigns) > 1:
                measured = measure_in_turns(
                    store, campaigns, progress, new=request.new, publish=publish, left=left
                )
            else:
                (campaign,) = campaigns
                search = make_search(request)
                outcome = measure(
                    store,
                    campaign,
                    progress,
                    new=request.new,
                    search=search,
                    publish=publish,
                    left=left,
                )
                measured = (outcome,)
        _write_ids(measured)
        _print_end(console, measured, left)
        # Imported late: before the last run nobody needs what answers.
        from vdisklab.cli.shell.measured_campaigns import (  # noqa: PLC0415
            print_left_out,
            print_measured,
        )

        print_measured(console, store, measured, request, output)
    left_out = dict.fromkeys(cell for place in measured for cell in place.left_out)
    print_left_out(console, left_out)
    interrupted = any(campaign.interrupted for campaign in measured)
    failed = bool(left_out) or any(campaign.failed for campaign in measured)
    on_target = all(isinstance(error, LeftOnTargetError) for error in left)
    if left and on_target and (interrupted or failed):
        # This host is clean: the same command continues when the server is back. The exit status
        # says what was asked for and is not there.
        console.print(Text(Named().in_text(f"warning: {left[0]}; {left[0].hint}")), soft_wrap=True)
    elif left:  # said last, below what was measured
        raise left[0]
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CELLS_FAILED if failed else 0


def _look(store: Store, request: RunRequest, campaign: str) -> Table[Any] | None:
    """What is known of a campaign that is being measured; None if nothing can be ranked."""
    # Imported late: after three rounds.
    from vdisklab.cli.shell.after_run import provisional_ranking  # noqa: PLC0415

    metric = request.metric or DEFAULT_METRIC
    return provisional_ranking(store, campaign, metric, request.disk, Named.by(request))


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


def _print_end(
    console: Console, measured: Sequence[Measured], said_last: Sequence[DirtyHostError]
) -> None:
    """Prints that there was nothing to do, or that the campaign was interrupted."""
    if all(campaign.complete_before for campaign in measured):
        console.print("every run of this plan is already measured; --new measures it again")
    if any(campaign.interrupted for campaign in measured):
        runs = sum(campaign.runs for campaign in measured)
        kept_runs = f"{counted(runs, 'run')} kept" if runs else "nothing has been measured yet"
        continues = Caller.of_process().same_command("the same command continues")
        console.print(Text(f"interrupted: {kept_runs}; {continues}"), soft_wrap=True)
        # A server that is gone keeps what lies on it, and the images beside it in use.
        left = leftovers_sentence(whose="this run, or an earlier one,")
        if left is not None and not said_last:
            console.print(Text(Named().in_text(f"warning: {left}")), soft_wrap=True)
