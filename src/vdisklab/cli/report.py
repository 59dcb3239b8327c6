"""`vdisklab report`: one file that people look at."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vdisklab.cli.options import CampaignOption, DbOption
from vdisklab.errors import HostError, PlanError
from vdisklab.render.charts.svg import drawing_aside
from vdisklab.services.answers import open_results
from vdisklab.services.report_contents import gather

if TYPE_CHECKING:
    from vdisklab.render.page.files import Files


class Written(StrEnum):
    """The formats of `report.files`, named here so that other verbs need not load its charts."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    MARKDOWN = "md"


def report(
    form: Annotated[
        Written, typer.Option("--format", help="How to write it; png and svg are directories.")
    ] = Written.HTML,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Where to write it.",
            show_default="report.FORMAT in the current directory",
        ),
    ] = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
) -> None:
    """Write a report: the answer, the figures, all cells, and what is doubtful.

    The HTML file needs no network and nothing beside it.

    Examples:

      vdisklab report

      vdisklab report --format png --output figures/

      vdisklab report --format parquet -o numbers.parquet
    """  # fmt: skip
    with _everything_kept(), drawing_aside() as draw, open_results(db) as results:
        contents = gather(results, campaign)
        from vdisklab.render.page.files import ReportFormat, build  # noqa: PLC0415 - half a second

        chosen = ReportFormat(form.value)
        files = build(contents, chosen, draw)
    if not files:
        raise PlanError("nothing was measured that could be drawn", hint="vdisklab run PATHS… host")
    place = output or Path(f"report-{chosen}" if chosen.is_directory else f"report.{chosen}")
    for written in write(files, place, directory=chosen.is_directory):
        print(written)


@contextmanager
def _everything_kept() -> Iterator[None]:
    """Without looking for garbage: a report makes a million objects and keeps nearly all.

    To look through them again and again takes a fifth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def write(files: Files, place: Path, *, directory: bool) -> list[Path]:
    """Writes each file whole or not at all; returns where. Raises HostError."""
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
