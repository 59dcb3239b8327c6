"""`vdisklab recommend`: the path to use, why, and what each need costs."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.answers import recommend as answers
from vdisklab.answers.density import (
    carrying,
    measured_at_once,
    searched_capacity,
    stored_density,
)
from vdisklab.answers.during import newest_of_speed, stored_stalls_of_all
from vdisklab.answers.hosts import HostsAnalysis, analysis_of
from vdisklab.answers.loading import newest_campaign, open_results
from vdisklab.cli.shell.options import (
    NEEDS,
    Format,
    OutputOptions,
    ProfileOptions,
    takes_options,
)
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.profile_choice import of_profile
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.path.needs import UNSAFE_HELP, Need, needs_help, with_default
from vdisklab.path.stalls import DEFAULT_STALL
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import SECONDS, SWITCH, TEXT, WHOLE, Limits
from vdisklab.results.store import Store
from vdisklab.views import recommend as view
from vdisklab.views.density import tables as density_tables

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions(ProfileOptions):
    """What the path must meet, and what decides between those that do."""

    need: tuple[Need, ...] = option(
        NEEDS, needs_help("A need that the path must meet, besides durable"), metavar="NEED"
    )
    unsafe: bool = option(SWITCH, UNSAFE_HELP)
    weights: str | None = option(
        TEXT,
        "The weights of the decision: of read and write (the scores), or of measures such as "
        "randread-4k-q1/read/iops.",
        metavar="MEASURE=W,…",
        shown="the overall score",
    )
    stall: float = option(
        SECONDS,
        "The longest time in which a backup or a snapshot may hold all requests of the guest, or "
        "all its writes: for --need backup and --need snapshots, of what `run --during` measured.",
        metavar="TIME",
        default=DEFAULT_STALL,
        limits=Limits(0, above=True),
    )
    guests: int | None = option(
        WHOLE,
        "Only the paths that `run --guests` measured in so many guests at once, or the disks that "
        "were made so many at once; or those that carry so many, if the newest such campaign is "
        "one of `vdisklab density`.",
        metavar="N",
        shown="all; of disks the fewest",
        limits=Limits(1),
    )


@takes_options()
def recommend(request: RecommendOptions, output: OutputOptions) -> None:
    """Recommend a disk path from the measurements on this host, and say why.

    Paths known to lose flushed data in a power cut are left out, unless you say --unsafe. If
    several may be the best, it says so and names the leader, or a simpler path shown to be within
    10 % of it. The answer is for a new disk: of a disk that a guest has, `vdisklab advise` says
    what to keep and what to change.

    Examples:

      vdisklab recommend --need format=qcow2 --need snapshots

      vdisklab recommend --weights read=3,write=1 --format json

      vdisklab recommend --need backup --stall 500ms

      vdisklab recommend --profile postgresql

      vdisklab recommend --guests 10

      vdisklab recommend --need disposable --guests 10

      vdisklab recommend --hosts all --hosts medium="Samsung SSD 840"
    """
    needs = with_default(request.need, unsafe=request.unsafe)
    if request.stall != DEFAULT_STALL and not any(need.goes_by_stalls for need in needs):
        raise PlanError(
            "--stall has no effect without --need backup or --need snapshots",
            hint="add --need backup",
        )
    with open_results(request.db) as results:
        request = of_profile(results, request)
        names = request.campaign
        if request.guests is not None and not request.hosts:
            at_once = _measured_at_once(results, request, request.guests)
            if at_once is None:
                searched = _only_search(request)
                carried = carrying(stored_density(results, searched), request.guests)
                print_answer(carried, density_tables(carried), output)
                return
            names = at_once
        if not names and not request.hosts and (speed := newest_of_speed(results)) is not None:
            names = (speed.id,)
        analysis = analysis_of(
            results,
            names,
            request.hosts,
            disk=request.disk,
            guests=request.guests,
            fewest_disks=True,
        )
        if any(need.goes_by_stalls for need in needs):
            host_of = analysis.host_of if isinstance(analysis, HostsAnalysis) else {}
            analysis.stalls = stored_stalls_of_all(
                results, analysis.campaigns, request.stall, host_of
            )
        answer = answers.recommend(analysis, needs, request.weights)
    tables = view.tables(answer)
    if output.form is Format.TABLE:
        # Imported late: it knows all platforms, and is for people alone.
        from vdisklab.cli.shell.next_command import with_export  # noqa: PLC0415

        tables = with_export(tables, answer.choice, answer.path, answer.campaigns)
    print_answer(answer, tables, output, request)


def _measured_at_once(
    results: Store, request: RecommendOptions, guests: int
) -> tuple[str, ...] | None:
    """The campaigns of `run --guests` that answer, empty for the newest; None if a search for a
    capacity does: the named campaign, or the newest that knows of so many guests."""
    if request.campaign:
        first = results.campaign(request.campaign[0])
        return None if searched_capacity(first.plan) else request.campaign
    of_speed = bool(request.need or request.weights or request.unsafe)
    found = newest_campaign(
        results,
        lambda each: (
            measured_at_once(each, guests) or (searched_capacity(each.plan) and not of_speed)
        ),
    )
    if found is None:
        return () if of_speed else None
    return None if searched_capacity(found.plan) else (found.id,)


def _only_search(request: RecommendOptions) -> str | None:
    """The density search that the user named. Raises PlanError for options that it ignores."""
    ignored = request.need or request.unsafe or request.weights or request.hosts
    if ignored or request.stall != DEFAULT_STALL or len(request.campaign) > 1:
        raise PlanError(
            "--guests answers only from one search of `vdisklab density`",
            hint="leave out all other options except --campaign (once), --db and --format",
        )
    return request.campaign[0] if request.campaign else None
