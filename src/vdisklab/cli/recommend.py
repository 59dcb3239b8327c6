"""`vdisklab recommend`: the path to use, why, and what each need costs."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.answers import recommend as answers
from vdisklab.answers.density import carrying, stored_density
from vdisklab.answers.hosts import analysis_of
from vdisklab.answers.loading import open_results
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
from vdisklab.path.needs import UNSAFE_HELP, needs_help, parse_needs, with_default
from vdisklab.views import recommend as view
from vdisklab.views.density import tables as density_tables

PANEL = VerbPanel.LEARN

NeedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--need",
        metavar="NEED",
        help=needs_help("A need that the path must meet, besides durable"),
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="MEASURE=W,…",
        help=(
            "The weights of the decision: of read and write (the scores), or of measures such "
            "as randread-4k-q1/read/iops."
        ),
        show_default="the overall score",
    ),
]


@takes_output()
def recommend(
    need: NeedOption = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help=UNSAFE_HELP)] = False,
    weights: WeightsOption = None,
    guests: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Only the paths that carry this many guests, by the newest `vdisklab density`.",
            show_default="one guest",
        ),
    ] = None,
    campaign: CampaignOption = None,
    hosts: HostsOption = None,
    disk: DiskOption = None,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Recommend a disk path from the measurements on this host, and say why.

    Paths known to lose flushed data in a power cut are left out, unless you say --unsafe. If
    several may be the best, it says so and names the leader, or a simpler path shown to be within
    10 % of it.

    Examples:

      vdisklab recommend --need format=qcow2 --need snapshots

      vdisklab recommend --weights read=3,write=1 --format json

      vdisklab recommend --guests 10

      vdisklab recommend --hosts all --hosts medium="Samsung SSD 840"
    """
    if guests is not None:
        _for_guests(guests, campaign, db, output, ignored=bool(need or unsafe or weights or hosts))
        return
    needs = with_default(parse_needs(need), unsafe=unsafe)
    with open_results(db) as results:
        analysis = analysis_of(results, campaign, hosts, disk=disk)
        answer = answers.recommend(analysis, needs, weights)
    print_answer(answer, view.tables(answer), output, Named.of(db, campaign))


def _for_guests(
    guests: int, campaign: list[str] | None, db: str | None, output: OutputOptions, *, ignored: bool
) -> None:
    """Prints the paths that carry this many guests, the one that carries most first."""
    if ignored or len(campaign or ()) > 1:
        raise PlanError(
            "--guests answers only from one search of `vdisklab density`",
            hint="leave out all other options except --campaign (once), --db and --format",
        )
    with open_results(db) as results:
        answer = carrying(stored_density(results, campaign[0] if campaign else None), guests)
    print_answer(answer, density_tables(answer), output)
