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
from vdisklab.errors import HostError, PlanError
from vdisklab.plan.settings import option
from vdisklab.plan.value_kinds import FILE, one_of
from vdisklab.views.charts.svg import drawing_aside
from vdisklab.views.report import Files, ReportFormat, build

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(AnalysisOptions):
    """The kind of file, and where to write it."""

    form: ReportFormat = option(
        one_of(ReportFormat),
        "The format; png and svg write a directory of files.",
        ReportFormat.HTML,
        flag="--format",
    )
    output: Path | None = option(
        FILE,
        "The file or directory to write; `-` is standard output.",
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

      vdisklab report --format png --output figures/

      vdisklab report --format parquet -o numbers.parquet

      vdisklab report --hosts all -o fleet.html
    """  # fmt: skip
    form, output = request.form, request.output
    if output == STDOUT and form.is_directory:
        raise PlanError(
            f"--format {form} writes several files, which standard output cannot take",
            hint="name a directory: --output figures",
        )
    with drawing_aside() as draw, open_results(request.db) as results:
        analysis = analysis_of(results, request.campaign, request.hosts, disk=request.disk)
        answer = report_on(analysis)
        files = build(answer, form, draw)
    if not files:
        raise PlanError("no measurement can be drawn as a chart", hint="`vdisklab run PATHS… host`")
    named = Named.by(request).on_targets_of(analysis.campaigns)
    files = _complete(files, form, named)
    place = output or Path(f"report-{form}" if form.is_directory else f"report.{form}")
    _write(files, place, directory=form.is_directory)


def _complete(files: Files, form: ReportFormat, named: Named) -> Files:
    """The files with complete commands, for formats that have commands."""
    if form is ReportFormat.HTML:
        return {name: named.in_html(data.decode()).encode() for name, data in files.items()}
    if form is ReportFormat.MARKDOWN:
        return {name: named.in_text(data.decode()).encode() for name, data in files.items()}
    return files


def _write(files: Files, place: Path, *, directory: bool) -> None:
    if directory:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"{place} cannot be written: {error.strerror}", hint="choose another --output"
            ) from error
    for name, data in files.items():
        target = place / name if directory else place
        with output_file(target) as stream:
            stream.write(data)
        if target != STDOUT:
            print(target)
