"""`vdisklab compare`: two paths in every measure."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.analysis.published import builtin_publications, find_series
from vdisklab.answers.compare import compare_pairs, compare_published, having_both
from vdisklab.answers.hosts import analysis_of
from vdisklab.answers.loading import open_results
from vdisklab.cli.shell.options import Format, HostsOptions, OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError, SeparateCampaignsError
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import SWITCH, TEXT
from vdisklab.views import compare as view

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(HostsOptions):
    """What to compare, and in which measures."""

    a: str | None = argument(
        TEXT, "A disk path, a cell such as PATH (warm), or qemu=NAME.", "A", default=None
    )
    b: str | None = argument(TEXT, "What to compare it with.", "B", default=None)
    published: str | None = option(
        TEXT,
        "Instead of A and B: compare the ratios in an article's numbers, such as debatty-2024, "
        "with yours.",
        metavar="NAME",
    )
    everything: bool = option(
        SWITCH, "Every measure, not only the score and the main ones.", flag="--all"
    )


@takes_options()
def compare(request: CompareOptions, output: OutputOptions) -> None:
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
    if request.published is not None:
        if request.hosts:
            raise PlanError("--published compares one host", hint="leave out --hosts")
        if request.a is not None:
            raise PlanError("--published takes no paths", hint="leave out A and B")
        publications = builtin_publications()
        find_series(request.published, publications)  # before a database is looked for
        with open_results(request.db) as results:
            found = compare_published(results, request.published, publications, request.campaign)
        print_answer(found, view.published_tables(found), output, request)
        return
    if request.a is None or request.b is None:
        raise PlanError(
            "compare takes exactly two paths",
            hint="write both, such as ext4/raw/none ext4/qcow2/none",
        )
    whole = request.everything or output.form is not Format.TABLE
    with open_results(request.db) as results:
        try:
            analysis = analysis_of(results, request.campaign, request.hosts)
        except SeparateCampaignsError as error:
            raise having_both(results, error, request.a, request.b) from None
        answer = compare_pairs(analysis, request.a, request.b)
    print_answer(answer, view.tables(answer, everything=whole), output, request)
