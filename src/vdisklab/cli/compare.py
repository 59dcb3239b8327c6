"""`vdisklab compare`: two paths in every measure."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.analysis.published import builtin_publications, find_series
from vdisklab.answers.compare import compare_pairs, compare_published
from vdisklab.answers.hosts import analysis_of
from vdisklab.answers.loading import open_results
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import (
    CampaignOption,
    DbOption,
    Format,
    HostsOption,
    OutputOptions,
    takes_output,
)
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.views import compare as view

PANEL = VerbPanel.LEARN


@takes_output()
def compare(
    a: Annotated[
        str | None,
        typer.Argument(metavar="A", help="A disk path, a cell such as PATH (warm), or qemu=NAME."),
    ] = None,
    b: Annotated[str | None, typer.Argument(metavar="B", help="What to compare it with.")] = None,
    published: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of A and B: compare the ratios in an article's numbers, such as "
            "debatty-2024, with yours.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Every measure, not only the score and the main ones."),
    ] = False,
    campaign: CampaignOption = None,
    hosts: HostsOption = None,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Compare two paths round by round: the ratio in each measure, and whether it is significant.

    A path means all its page-cache states; equal states are compared with each other. qemu=NAME
    means all cells measured with that QEMU.

    Examples:

      vdisklab compare ext4/raw/none ext4/qcow2/none

      vdisklab compare "raw/writeback (warm)" "raw/writeback (cold)" --format json

      vdisklab compare qemu=7.2.22 qemu=10.0.2

      vdisklab compare --published debatty-2024

      vdisklab compare raw/none qcow2/none --hosts all
    """
    named = Named.of(db, campaign)
    if published is not None:
        if hosts:
            raise PlanError("--published compares one host", hint="leave out --hosts")
        if a is not None:
            raise PlanError("--published takes no paths", hint="leave out A and B")
        publications = builtin_publications()
        find_series(published, publications)  # before a database is looked for
        with open_results(db) as results:
            found = compare_published(results, published, publications, campaign)
        print_answer(found, view.published_tables(found), output, named)
        return
    if a is None or b is None:
        raise PlanError(
            "compare takes exactly two paths",
            hint="write both, such as ext4/raw/none ext4/qcow2/none",
        )
    whole = everything or output.form is not Format.TABLE
    with open_results(db) as results:
        answer = compare_pairs(analysis_of(results, campaign, hosts), a, b)
    print_answer(answer, view.tables(answer, everything=whole), output, named)
