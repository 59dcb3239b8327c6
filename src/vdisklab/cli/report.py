"""`vdisklab report`: the results as a file to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vdisklab.actions.output_file import STDOUT, output_file
from vdisklab.answers.hosts import analysis_of
from vdisklab.answers.loading import open_results
from vdisklab.answers.report import report_on
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import AnalysisOptions, takes_options
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import FILE, one_of
from vdisklab.views.report_files import ReportFormat, build

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(AnalysisOptions):
    """The kind of file, and where to write it."""

    form: ReportFormat = option(
        one_of(ReportFormat),
        "The format of the report.",
        ReportFormat.HTML,
        flag="--format",
    )
    output: Path | None = option(
        FILE,
        "The file to write; `-` is standard output.",
        flag="--output -o",
        metavar="PATH",
        shown="report.FORMAT in the current directory",
    )


@takes_options()
def report(request: ReportOptions) -> None:
    """Write a report: the recommendation, charts, all cells, and warnings about the numbers.

    The HTML file needs no network and no other file.

    Examples:

      vdisklab report

      vdisklab report --format parquet -o numbers.parquet

      vdisklab report --hosts all -o fleet.html
    """  # fmt: skip
    with open_results(request.db) as results:
        analysis = analysis_of(results, request.campaign, request.hosts, disk=request.disk)
        data = build(report_on(analysis), request.form)
    named = Named.by(request).on_targets_of(analysis.campaigns)
    if request.form is ReportFormat.HTML:
        data = named.in_html(data.decode()).encode()
    elif request.form is ReportFormat.MARKDOWN:
        data = named.in_text(data.decode()).encode()
    target = request.output or Path(f"report.{request.form}")
    with output_file(target) as stream:
        stream.write(data)
    if target != STDOUT:
        print(target)
