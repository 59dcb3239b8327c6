"""`vdisklab report`: the results as a file to read."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vdisklab.cli.options import CampaignOption, DbOption
from vdisklab.errors import HostError, PlanError
from vdisklab.render.charts.svg import drawing_aside
from vdisklab.render.page.contents import ReportFormat
from vdisklab.services.answers import open_results
from vdisklab.services.report_contents import gather

if TYPE_CHECKING:
    from vdisklab.render.page.files import Files


def report(
    form: Annotated[
        ReportFormat,
        typer.Option("--format", help=("The format; png and svg write a directory of files.")),
    ] = ReportFormat.HTML,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The file or directory to write.",
            show_default="report.FORMAT in the current directory",
        ),
    ] = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
) -> None:
    """Write a report: the recommendation, charts, all cells, and warnings about the numbers.

    The HTML file needs no network and no other file.

    Examples:

      vdisklab report

      vdisklab report --format png --output figures/

      vdisklab report --format parquet -o numbers.parquet
    """  # fmt: skip
    with _without_garbage_collection(), drawing_aside() as draw, open_results(db) as results:
        contents = gather(results, campaign)
        from vdisklab.render.page.files import build  # noqa: PLC0415 - takes half a second

        files = build(contents, form, draw)
    if not files:
        raise PlanError("no measurement can be drawn as a chart", hint="vdisklab run PATHS… host")
    place = output or Path(f"report-{form}" if form.is_directory else f"report.{form}")
    for written in write(files, place, directory=form.is_directory):
        print(written)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disables the garbage collector while the context is open.

    A report creates a million objects and keeps nearly all of them, so garbage collection would
    take a fifth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def write(files: Files, place: Path, *, directory: bool) -> list[Path]:
    """Writes each file atomically; returns the paths. Raises HostError."""
    try:
        if directory:
            place.mkdir(parents=True, exist_ok=True)
        targets = {place / name if directory else place: data for name, data in files.items()}
        for target, data in targets.items():
            _replace(target, data)
    except OSError as error:
        raise HostError(
            f"{place} cannot be written: {error.strerror}", hint="choose another --output"
        ) from error
    return list(targets)


def _replace(target: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.",
                                     delete=False) as sink:  # fmt: skip
        temporary = Path(sink.name)
        try:
            sink.write(data)
            sink.flush()
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
