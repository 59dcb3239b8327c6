"""`vdisklab rank`: which path is best, and how certain that is."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.hosts import analysis_of
from vdisklab.answers.loading import open_results
from vdisklab.answers.rank import rank_cells, the_best, with_trend
from vdisklab.cli.shell.options import Format, OutputOptions, ProfileOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.profile_choice import of_profile
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.path.needs import UNSAFE_HELP
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import SWITCH, TEXT, WHOLE, Limits
from vdisklab.views import rank as view

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions(ProfileOptions):
    """What to rank by, and what to show of it."""

    metric: str = option(
        TEXT,
        "What to rank by: overall, read, write (the weighted scores), or a measure such as "
        "randread-4k-q1/read/latency_p99.",
        DEFAULT_METRIC,
        metavar="MEASURE",
    )
    baseline: str | None = option(
        TEXT,
        "The path that scores and ratios are relative to.",
        metavar="PATH",
        shown="the campaign's",
    )
    guests: int | None = option(
        WHOLE,
        "Only the paths that `run --guests` measured in so many guests at once, or the disks that "
        "were made so many at once.",
        metavar="N",
        shown="all; of disks the fewest",
        limits=Limits(1),
    )
    unsafe: bool = option(SWITCH, UNSAFE_HELP)
    top: int | None = option(
        WHOLE, "Only the best N cells.", metavar="N", shown="all", limits=Limits(1)
    )
    pareto: str | None = option(
        TEXT,
        "Show which paths no other beats in all of these: overall, read, write, cpu (the host's "
        "CPU time per operation), a metric such as latency_p99 (over all measurements), or single "
        "measures. Separate them by /, or by commas if one is a measure.",
        metavar="MEASURE/MEASURE…",
    )
    bars: bool = option(SWITCH, "Draw the ranked numbers as bars.")


@takes_options()
def rank(request: RankOptions, output: OutputOptions) -> int:
    """Rank the measured cells, with ties if no difference is shown.

    A rank such as 1–3 means one of the first three places; more rounds narrow it down. Cells with
    fewer than three rounds have no rank, and neither have paths known to lose flushed data in a
    power cut, unless you say --unsafe. Where nothing has a rank, as there are fewer than three
    rounds or hosts, it ends with 2, as `recommend` does.

    Examples:

      vdisklab rank

      vdisklab rank --top 10 --bars

      vdisklab rank --metric write --baseline ext4/host

      vdisklab rank --metric randread-4k-q1/read/latency_p99 --format csv

      vdisklab rank --profile postgresql

      vdisklab rank --metric ready --guests 10

      vdisklab rank --pareto read/write/latency_p99/cpu

      vdisklab rank --hosts all --db postgresql://db/vdisklab
    """
    if request.hosts and request.pareto is not None:
        raise PlanError("--hosts ranks by one measure", hint="leave out --pareto")
    if request.pareto is not None:
        ranks = {"--metric": request.metric != DEFAULT_METRIC, "--top": request.top is not None}
        for name in (
            name for name, is_given in (*ranks.items(), ("--bars", request.bars)) if is_given
        ):
            raise PlanError(f"{name} has no effect with --pareto", hint="leave out one of them")
    with open_results(request.db) as results:
        request = of_profile(results, request)
        analysis = analysis_of(
            results,
            request.campaign,
            request.hosts,
            disk=request.disk,
            baseline=request.baseline,
            unsafe=request.unsafe,
            guests=request.guests,
            fewest_disks=True,
        )
        if request.pareto is None and request.metric == DEFAULT_METRIC:
            analysis.require_speed()
        if request.pareto is not None:
            # Imported late: every other ranking does without them.
            from vdisklab.answers.pareto import front  # noqa: PLC0415
            from vdisklab.views import pareto as pareto_view  # noqa: PLC0415

            found = front(analysis, request.pareto)
            print_answer(found, pareto_view.tables(found), output, request)
            return 0
        answer = with_trend(rank_cells(analysis, request.metric), results)
        answer = the_best(answer, request.top)
    tables = (view.bars if request.bars else view.tables)(answer)
    choice = answer.choice
    if output.form is Format.TABLE and choice is not None:
        # Imported late: it is for people alone.
        from vdisklab.cli.shell.next_command import with_export  # noqa: PLC0415

        tables = with_export(tables, choice, choice.cell.name, answer.campaigns)
    print_answer(answer, tables, output, request)
    return PlanError.exit_code if answer.lacks_hosts or answer.lacks_rounds else 0
