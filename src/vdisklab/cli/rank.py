"""`vdisklab rank`: which path is best, and how certain that is."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.answers.analysis import DEFAULT_METRIC
from vdisklab.answers.hosts import analysis_of
from vdisklab.answers.loading import open_results
from vdisklab.answers.pareto import front
from vdisklab.answers.rank import rank_cells, the_best
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import (
    CampaignOption,
    DbOption,
    DiskOption,
    HostsOption,
    OutputOptions,
    takes_output,
)
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.views import pareto as pareto_view
from vdisklab.views import rank as view

PANEL = VerbPanel.LEARN


@takes_output()
def rank(
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="MEASURE",
            help="What to rank by: overall, read, write (the weighted scores), or a measure such "
            "as randread-4k-q1/read/latency_p99.",
        ),
    ] = DEFAULT_METRIC,
    campaign: CampaignOption = None,
    hosts: HostsOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The path that scores and ratios are relative to.",
            show_default="the campaign's",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="Only the best N cells.", show_default="all"
        ),
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option(
            metavar="MEASURE/MEASURE…",
            help="Show which paths no other beats in all of these: overall, read, write, cpu (the "
            "host's CPU time per operation), a metric such as latency_p99 (over all "
            "measurements), or single measures. Separate them by /, or by commas if one is a "
            "measure.",
        ),
    ] = None,
    bars: Annotated[bool, typer.Option("--bars", help="Draw the ranked numbers as bars.")] = False,
    disk: DiskOption = None,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Rank the measured cells, with ties if no difference is shown.

    A rank such as 1–3 means one of the first three places; more rounds narrow it down. Cells with
    fewer than three rounds have no rank.

    Examples:

      vdisklab rank

      vdisklab rank --top 10 --bars

      vdisklab rank --metric write --baseline ext4/host

      vdisklab rank --metric randread-4k-q1/read/latency_p99 --format csv

      vdisklab rank --pareto read/write/latency_p99/cpu

      vdisklab rank --hosts all --db postgresql://db/vdisklab
    """
    named = Named.of(db, campaign)
    if hosts and pareto is not None:
        raise PlanError("--hosts ranks by one measure", hint="leave out --pareto")
    with open_results(db) as results:
        analysis = analysis_of(results, campaign, hosts, disk=disk, baseline=baseline)
        if pareto is not None:
            found = front(analysis, pareto)
            print_answer(found, pareto_view.tables(found), output, named)
            return
        answer = the_best(rank_cells(analysis, metric), top)
    print_answer(answer, (view.bars if bars else view.tables)(answer), output, named)
