"""`vdisklab run`: measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.cli.campaign_options import takes_settings
from vdisklab.cli.live import TerminalProgress
from vdisklab.cli.options import Format
from vdisklab.cli.output import print_overview, print_tables
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, PlanError
from vdisklab.host.waiting import patience
from vdisklab.path.needs import needs_help
from vdisklab.path.segments import HOST
from vdisklab.plan.settings import NO_BASELINE, Panel, Request
from vdisklab.render.wording import search_effort, search_sentence
from vdisklab.results.store import Store, open_store
from vdisklab.services.advice import DEFAULT_METRIC
from vdisklab.services.answers import database_url
from vdisklab.services.find_best import SEARCH_BLOCKS, BestSearch, SearchFor, make_search
from vdisklab.services.measure import Measured, measure, measure_in_turns
from vdisklab.services.places import load_places
from vdisklab.units import counted


@takes_settings()
def run(
    request: Request,
    directory: Annotated[
        list[Path] | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help=(
                "The work directory; with --here it may be given again, to compare several "
                "side by side."
            ),
            show_default="the current directory",
            rich_help_panel=Panel.WHERE,
        ),
    ] = None,
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Measure in this machine itself, on files in --dir: no hypervisor and no root "
            "needed. Takes no PATHS.",
            rich_help_panel=Panel.WHAT,
        ),
    ] = False,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Start a new campaign, even if this plan was measured before.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = False,
    find: Annotated[
        SearchFor | None,
        typer.Option(
            "--find",
            help="Do not measure everything: drop, block by block, paths that cannot be the best.",
            rich_help_panel=Panel.SEARCH,
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="With --find: a path counts as good as the best if it is worse by less than this.",
            show_default="3%",
            rich_help_panel=Panel.SEARCH,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --find: stop after this time, such as 30m.",
            show_default="none",
            rich_help_panel=Panel.SEARCH,
        ),
    ] = None,
    need: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEED",
            help=needs_help("With --find: what the path must be"),
            rich_help_panel=Panel.SEARCH,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="MEASURE",
            help="With --find: the metric to be best at, as in `vdisklab rank`.",
            show_default="overall",
            rich_help_panel=Panel.SEARCH,
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="How to print the answer.", rich_help_panel=Panel.OUTPUT),
    ] = Format.TABLE,
) -> int:
    """Measure disk paths in random blocks, and rank them.

    The same command continues a campaign that was interrupted. Exit status: 0, 8 if cells failed,
    130 if interrupted; finished measurements are always kept.

    Examples:

        vdisklab run '{ext4,xfs}/{raw,qcow2}/{none,writeback}'

        vdisklab run raw/none/{virtio,scsi,nvme} --blocks 10 --dir /srv/images

        vdisklab run '{raw,qcow2}/none' --find best --budget 30m --need durable

        vdisklab run --here --dir /mnt/a --dir /mnt/b --profile sysbench-fileio

        vdisklab run qcow2/none --qemu qemu-system-x86_64 --qemu /opt/qemu-10

        vdisklab run raw/none --guest debian.qcow2

        vdisklab run {none,ext4/raw/none,zvol/none} --on /dev/sdb
    """
    if here:
        request = _here(request)
        _require_one_place(directory, request.devices)
    requests = _requests(request, directory, here=here, searching=find is not None)
    search = make_search(find, within, budget, need, metric)
    if search is not None and request.blocks is None:
        requests = [replace(requests[0], blocks=SEARCH_BLOCKS)]
    console = Console(stderr=True)
    with open_store(database_url(request.db)) as store:
        with TerminalProgress(console, each=patience() > 1) as progress:
            if len(requests) > 1:
                measured = measure_in_turns(store, requests, progress, new=new)
            else:
                measured = (measure(store, requests[0], progress, new=new, search=search),)
        _print_end(console, measured)
        if search is not None:
            _print_search(console, store, measured[0], search, requests[0])
        _print_answer(console, store, measured, form, search)
    if any(campaign.interrupted for campaign in measured):
        return EXIT_INTERRUPTED
    return EXIT_CELLS_FAILED if any(campaign.failed for campaign in measured) else 0


def _here(request: Request) -> Request:
    """The request with the host as its one path. Raises PlanError if it names others."""
    if request.paths or request.baseline is not None:
        raise PlanError(
            "--here measures the directory --dir as it is and takes no PATHS and no --baseline",
            hint="name the directory with --dir, and the run with --label",
        )
    return replace(request, paths=(HOST,), baseline=NO_BASELINE)


def _require_one_place(directories: list[Path] | None, devices: Sequence[Path]) -> None:
    """Raises PlanError for directories and devices at once."""
    if directories and devices:
        raise PlanError(
            "--here measures a directory or devices, but both --dir and --on are given",
            hint="leave out one of them",
        )


def _requests(
    request: Request, directories: list[Path] | None, *, here: bool, searching: bool
) -> list[Request]:
    """The request for each work directory. Raises PlanError for several of guests."""
    places = list(dict.fromkeys(directories or ()))
    if len(places) > 1 and (not here or searching):
        raise PlanError(
            "several directories can be measured side by side only with --here",
            hint="name one --dir, or measure in this machine itself: --here",
        )
    return [replace(request, directory=place) for place in places] or [request]


def _print_end(console: Console, measured: Sequence[Measured]) -> None:
    """Prints that there was nothing to do, or that the campaign was interrupted."""
    if all(campaign.complete_before for campaign in measured):
        console.print("every run of this plan is measured already; --new measures it again")
    if any(campaign.interrupted for campaign in measured):
        runs = sum(campaign.runs for campaign in measured)
        kept_runs = f"{counted(runs, 'run')} kept" if runs else "nothing has been measured yet"
        console.print(f"interrupted: {kept_runs}; the same command continues")


def _print_search(
    console: Console, store: Store, measured: Measured, search: BestSearch, request: Request
) -> None:
    """Prints what a search found, and how much it measured."""
    if measured.campaign is None or measured.interrupted:
        return
    result = search.result(store, measured.campaign, request.blocks or SEARCH_BLOCKS)
    if result is not None:
        effort = search_effort(result.runs, result.cells, result.blocks)
        for sentence in (search_sentence(result.outcome), effort):
            console.print(sentence, soft_wrap=True, markup=False, highlight=False)


def _print_answer(
    console: Console,
    store: Store,
    measured: Sequence[Measured],
    form: Format,
    search: BestSearch | None,
) -> None:
    """Prints the numbers of several places side by side, or the ranking of a campaign."""
    campaigns = [place.campaign for place in measured if place.campaign is not None]
    if len(measured) > 1 and campaigns:
        print_tables(load_places(store, campaigns), form)
    elif campaigns:
        metric = DEFAULT_METRIC if search is None else search.metric
        print_overview(store, campaigns[0], form, console, metric, measured[0].failed)
