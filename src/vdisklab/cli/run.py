"""`vdisklab run`: measure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from vdisklab.campaign.context import CampaignContext, open_campaign
from vdisklab.campaign.estimate import campaign_seconds
from vdisklab.campaign.runner import RunTag, campaign_runs, chosen_runs
from vdisklab.campaign.schedule import schedule
from vdisklab.cli import output
from vdisklab.cli.campaign_options import takes_settings
from vdisklab.cli.keeping import keep_run
from vdisklab.cli.live import TerminalProgress
from vdisklab.cli.options import Format
from vdisklab.cli.output import print_tables
from vdisklab.cli.plan import print_dropped, print_warnings
from vdisklab.cli.search import (
    SEARCH_BLOCKS,
    BestSearch,
    Wanted,
    durable_basis,
    make_search,
)
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, PlanError
from vdisklab.guest.factory import GuestContext
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.deadline import patience
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import cache_directory, open_ledger
from vdisklab.host.medium import describe_device, medium_of
from vdisklab.path.needs import needs_help
from vdisklab.path.segments import HOST
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.settings import NO_BASELINE, Panel, Request
from vdisklab.progress import CampaignStarted, Note, Progress
from vdisklab.render.wording import search_effort, search_sentence
from vdisklab.results.model import Campaign, HostFacts, Run
from vdisklab.results.store import Store, open_store
from vdisklab.services.advice import DEFAULT_METRIC
from vdisklab.services.answers import database_url, open_results, stored_verdicts
from vdisklab.services.places import Places, load_places, overview
from vdisklab.services.planning import blocks_of, make_plan
from vdisklab.units import counted


@takes_settings()
def run(
    request: Request,
    directory: Annotated[
        list[Path] | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="The work directory; with --here it may be given again, to see several side by "
            "side.",
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
            help="Begin again, although this plan was measured before.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = False,
    find: Annotated[
        Wanted | None,
        typer.Option(
            "--find",
            help="Do not measure everything: leave out, block by block, what cannot be the best.",
            rich_help_panel=Panel.SEARCH,
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="With --find: a path that is worse than the best by less than this is as good.",
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
            help="With --find: what to be best at, as in `vdisklab rank`.",
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

    The same command continues a campaign that was interrupted. Ends with 0, with 8 when cells
    failed, with 130 when interrupted; what is measured is kept in each case.

    Examples:

        vdisklab run '{ext4,xfs}/{raw,qcow2}/{none,writeback}'

        vdisklab run raw/none/{virtio,scsi,nvme} --blocks 10 --dir /srv/images

        vdisklab run '{raw,qcow2}/{none,writeback}' --find best --budget 30m --need durable

        vdisklab run --here --dir /mnt/local --dir /mnt/block-storage --profile sysbench-fileio

        vdisklab run qcow2/{none,writeback} --qemu qemu-system-x86_64 --qemu /opt/qemu-10

        vdisklab run raw/none --guest debian.qcow2

        vdisklab run {none,ext4/raw/none,zvol/none} --on /dev/sdb
    """
    if here:
        request = _here(request)
        _require_one_place(directory, request.devices)
    directories = _directories(directory, here=here, finding=find is not None)
    if directories[0] is not None:
        request = replace(request, directory=directories[0])
    search = make_search(find, within, budget, need, metric)
    if search is not None and request.blocks is None:
        request = replace(request, blocks=SEARCH_BLOCKS)
    console = Console(stderr=True)
    url = database_url(request.db)
    if len(directories) > 1:
        return _side_by_side(url, request, directories, console, form, new=new)
    with open_store(url) as store:
        campaign, failed, interrupted = measure(store, request, console, new=new, search=search)
        if search is not None and campaign is not None and not interrupted:
            _tell_outcome(console, store, campaign, search, request.blocks or SEARCH_BLOCKS)
    if campaign is not None:
        metric = DEFAULT_METRIC if search is None else search.metric
        print_ranking(console, campaign, url, form, failed, metric)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CELLS_FAILED if failed else 0


def _tell_outcome(
    console: Console, store: Store, campaign: str, search: BestSearch, most_blocks: int
) -> None:
    """What a search found, and for how much measuring."""
    outcome = search.outcome(store, campaign, most_blocks)
    if outcome is None:
        return
    finished = store.finished(campaign)
    cells = len(store.campaign(campaign).plan["cells"])
    blocks = max((block for block, _ in finished), default=0)
    for said in (search_sentence(outcome), search_effort(len(finished), cells, blocks)):
        console.print(said, soft_wrap=True, markup=False, highlight=False)


def _here(request: Request) -> Request:
    """The request with the host as its one path. Raises PlanError if it names others."""
    if request.paths or request.baseline is not None:
        raise PlanError(
            "--here measures the directory --dir as it is and takes no PATHS and no --baseline",
            hint="name the directory with --dir, and the run with --label",
        )
    return replace(request, paths=(HOST,), baseline=NO_BASELINE)


def _require_one_place(directories: list[Path] | None, devices: Sequence[Path]) -> None:
    """In this machine a directory is measured, or devices; raises PlanError for both."""
    if directories and devices:
        raise PlanError(
            "--here measures a directory or devices, and both --dir and --on are given",
            hint="leave one of them out",
        )


def _directories(asked: list[Path] | None, *, here: bool, finding: bool) -> tuple[Path | None, ...]:
    """The work directories; None for the current one. Raises PlanError for several of guests."""
    found = tuple(dict.fromkeys(asked or ()))
    if len(found) > 1 and (not here or finding):
        raise PlanError(
            "several directories are measured side by side with --here alone",
            hint="name one --dir, or measure in this machine itself: --here",
        )
    return found or (None,)


def _side_by_side(
    url: str,
    request: Request,
    directories: Sequence[Path | None],
    console: Console,
    form: Format,
    *,
    new: bool,
) -> int:
    """Measures several directories in turns, block by block, each as a campaign of its own.

    In turns, because the disk of an hour ago is not the disk of now; as campaigns of their own,
    because a work directory is the ground that all cells of a campaign share.
    """
    wanted = [replace(request, directory=directory) for directory in directories]
    found: list[str | None] = [None] * len(wanted)
    failed, interrupted = 0, False
    with open_store(url) as store:
        for block in range(1, blocks_of(request) + 1):
            for number, each in enumerate(wanted):
                part = replace(each, blocks=block)
                fresh = new and block == 1
                found[number], bad, interrupted = measure(store, part, console, new=fresh)
                failed += bad
                if interrupted:
                    break
            if interrupted:
                break
    campaigns = [campaign for campaign in found if campaign is not None]
    if campaigns:
        with open_results(url) as results:
            places = load_places(results, campaigns)
        print_tables(places, form)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CELLS_FAILED if failed else 0


def print_ranking(
    console: Console,
    campaign: str,
    url: str,
    form: Format,
    failed: int = 0,
    metric: str = DEFAULT_METRIC,
) -> None:
    """Ranks what was measured, by what it was measured for.

    That nothing can be ranked is no failure of measuring.
    """
    try:
        with open_results(url) as results:
            answer = overview(results, campaign, metric)
        if isinstance(answer, Places):
            print_tables(answer, form)
        else:
            output.print_ranking(answer, form)
    except PlanError as error:
        if failed:
            console.print(f"{failed} cells failed; `vdisklab runs {campaign}` lists them")
        console.print(Text(f"no ranking: {error}"), soft_wrap=True)
        console.print(Text(f"hint: {error.hint}"), soft_wrap=True)


def measure(
    store: Store,
    request: Request,
    console: Console,
    *,
    new: bool,
    search: BestSearch | None = None,
    narrow: Callable[[CampaignPlan], CampaignPlan] | None = None,
) -> tuple[str | None, int, bool]:
    """The campaign with anything measured in it, how many cells failed, whether it was cut off.

    With `search` only the cells are measured that may still be the best. `narrow` takes cells out
    of the plan that this host can measure, or raises HostError when nothing is worth measuring.
    """
    host = LocalHost()
    campaign: Campaign | None = None
    done = failed = 0
    try:
        with open_ledger() as ledger, TerminalProgress(console, each=patience() > 1) as progress:
            plan = make_plan(host, ledger, request, progress)
            if narrow is not None:
                plan = narrow(plan)
            if search is not None:
                verdicts = stored_verdicts(store, collect_facts(host))
                matrix = narrow_to_needs(Matrix(plan.cells, plan.dropped), search.needs, verdicts)
                plan = replace(plan, cells=matrix.cells, dropped=matrix.dropped)
                said = durable_basis(plan, search.needs, verdicts)
                if said is not None:
                    progress(Note(said))
                search.require(plan)
            print_dropped(console, plan.dropped)
            print_warnings(console, plan)
            campaign = _campaign(store, plan, host, progress, new=new)
            finished = store.finished(campaign.id)
            slots = tuple(schedule(plan, finished))
            total = len(plan.cells) * plan.blocks
            seconds = campaign_seconds(plan, slots)
            progress(
                CampaignStarted(
                    total, total - len(slots), seconds, plan.label, at_most=search is not None
                )
            )
            done = total - len(slots)
            if not slots and search is None:
                console.print("every run of this plan is measured already; --new begins again")
                return campaign.id, 0, False
            around = GuestContext(host, ledger, cache_directory(), progress)
            identity = RunTag(campaign.id, _medium(plan))
            with (
                open_campaign(around, plan) as bench,
                closing(_runs(bench, identity, finished, store, search)) as runs,
            ):
                for measured in runs:
                    keep_run(store, measured, progress)
                    done += 1
                    failed += measured.failure is not None
    except KeyboardInterrupt:
        kept = f"{counted(done, 'run')} kept" if done else "nothing was measured yet"
        console.print(f"interrupted: {kept}; the same command continues")
        return (campaign.id if campaign and done else None), failed, True
    finally:
        if campaign is not None and not done:
            # Else it would be the newest one, of which every answer is asked.
            store.drop_if_empty(campaign.id)
    return campaign.id, failed, False


def _runs(
    bench: CampaignContext,
    identity: RunTag,
    finished: set[tuple[int, str]],
    store: Store,
    search: BestSearch | None,
) -> Generator[Run, None, None]:
    """Every run that is left, or those that a search asks for."""
    if search is None:
        return campaign_runs(bench, identity, finished)
    choose = search.choosing(store, bench.plan, identity.campaign)
    return chosen_runs(bench, identity, finished, choose)


def _campaign(
    store: Store, plan: CampaignPlan, host: Host, progress: Progress, *, new: bool
) -> Campaign:
    """The campaign that this plan continues, or a new one.

    A host that was changed since (another kernel, QEMU or fio) is another host: its numbers are
    not put beside the old ones as if nothing had happened.
    """
    facts = collect_facts(host)
    found = None if new else store.find_campaign(plan.fingerprint, facts.machine_id)
    changed = [] if found is None else _differences(found.host, facts)
    if found is not None and not changed:
        return found
    if changed:
        progress(Note(f"a new campaign begins, as this host was changed: {', '.join(changed)}"))
    campaign = Campaign(
        id=secrets.token_hex(4),
        fingerprint=plan.fingerprint,
        plan=plan.as_json(),
        host=facts,
        started=datetime.now(UTC),
        label=plan.label,
    )
    store.add_campaign(campaign)
    return campaign


def _differences(before: HostFacts, now: HostFacts) -> list[str]:
    """What decides numbers and is not as it was."""
    keys = ("kernel", "cpu", "cpus", "qemu", "fio")
    pairs = ((key, getattr(before, key), getattr(now, key)) for key in keys)
    return [f"{key} was {old} and is {new}" for key, old, new in pairs if old != new]


def _medium(plan: CampaignPlan) -> str | None:
    """The device below the work directory, or those that stacks stand on instead."""
    if not plan.backing.devices:
        return medium_of(plan.directory)
    known = [describe_device(device) or str(device) for device in plan.backing.devices]
    return " + ".join(known)
