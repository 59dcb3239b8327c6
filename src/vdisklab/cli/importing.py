"""`vdisklab import`: results that others measured, in the same tables."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from vdisklab.analysis.observations import cell_label
from vdisklab.cli.options import DbOption
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Campaign, Evidence, HostFacts, Measurement, Origin, Run
from vdisklab.results.store import Store, open_store
from vdisklab.services.answers import database_url
from vdisklab.units import counted
from vdisklab.workload.importers.base import Report, printable
from vdisklab.workload.importers.recognise import recognise

# More than any of these programs writes; what is larger is something else.
_LARGEST = 64 << 20

# More than any configuration's name needs.
_LONGEST_NAME = 200
_NAMES_SHOWN = 8

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


@dataclass(frozen=True, slots=True)
class _Source:
    """One report of a file; the file's text stands with its first one alone."""

    file: Path
    text: str
    written: datetime
    report: Report


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="fio JSON or JSON+, bonnie++ CSV or text, sysbench fileio text, CrystalDiskMark "
            "text, DISKSPD XML, or dd's line.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="What was measured, such as `scaleway block storage` or a disk path. Several "
            "files then are repetitions of it.",
            show_default="each file's own name",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="CAMPAIGN",
            help="A campaign to stand in, beside what was measured here.",
            show_default="a new campaign",
        ),
    ] = None,
    measurement: Annotated[
        str | None,
        typer.Option(
            "--measurement",
            metavar="NAME",
            help="The measurement's name, such as randread-4k-q1, for files that hold one.",
            show_default="the file's own",
        ),
    ] = None,
    db: DbOption = None,
) -> None:
    """Import results that were measured elsewhere, or by hand, into the same tables.

    All files are read before anything is stored: a damaged one costs nothing. What a file does
    not say stays unknown.

    Examples:

        vdisklab import result.json --as 'my VM at home'

        vdisklab import run1.csv run2.csv run3.csv --as qcow2/writeback --into 3f2a
    """
    for option, given in (("--as", name), ("--measurement", measurement)):
        _require_name(option, given)
    _require_different(files)
    sources = [source for file in files for source in read_file(file)]
    with open_store(database_url(db)) as store:
        known = None if into is None else store.campaign(into)
        campaign = known or _new_campaign(sources)
        runs = make_runs(sources, campaign.id, name, measurement, taken=_taken(store, known))
        store.add_together(campaign if known is None else None, runs)
    cells = list(dict.fromkeys(cell_label(run.path, run.page_cache) for run in runs))
    rest = len(cells) - _NAMES_SHOWN
    shown = ", ".join(cells[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    print(f"imported into campaign {campaign.id}: {shown} ({counted(len(runs), 'run')})")


def _require_different(files: Sequence[Path]) -> None:
    """Several files are repetitions; the same one twice would be a repetition that never was."""
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise PlanError(f"{file} is given twice", hint="name each result once")
        seen.add(file.resolve())


def read_file(file: Path) -> list[_Source]:
    """What a file holds. Raises PlanError when it cannot be read, WorkloadError naming the file
    and what was expected when it is damaged."""
    if file.is_fifo() and not file.is_relative_to("/dev"):  # as the shell's <( ) gives one
        raise PlanError(f"{file} is a pipe, and nobody may ever write to it", hint="give a file")
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
            changed = os.fstat(opened.fileno()).st_mtime
    except OSError as error:
        raise PlanError(f"{file} cannot be read: {error.strerror}") from error
    written = _moment(file, changed)
    if len(content) > _LARGEST:
        raise WorkloadError(f"{file} is larger than {_LARGEST >> 20} MiB; no result is")
    try:
        text = content.decode(_MARKS.get(content[:2]) or _MARKS.get(content[:3]) or "utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{file} is not text in UTF-8: byte {error.start} is wrong") from error
    if "\0" in text:
        raise WorkloadError(f"{file} is no text: it has a NUL at character {text.index(chr(0))}")
    try:
        reports = recognise(text)
    except WorkloadError as error:
        raise WorkloadError(f"{file}: {error.message}", hint=error.hint) from error
    return [
        _Source(file, "" if place else text, written, report)
        for place, report in enumerate(reports)
    ]


def _moment(file: Path, changed: float) -> datetime:
    """File systems hold moments of which no calendar of ours knows the year."""
    try:
        return datetime.fromtimestamp(changed, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise PlanError(
            f"{file} was last changed at {changed:g} seconds after 1970, which is in no year",
            hint=f"give it a moment: touch {file}",
        ) from error


def _require_name(option: str, name: str | None) -> None:
    """Raises PlanError for a name that no table could show."""
    if name is None:
        return
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise PlanError(
            f"{option} {name[:40]!r} is no name",
            hint=f"write up to {_LONGEST_NAME} letters, digits and signs on one line",
        )


def make_runs(
    sources: Sequence[_Source],
    campaign: str,
    name: str | None,
    measurement: str | None,
    *,
    taken: dict[str, int],
) -> list[Run]:
    """One run for each report; those of one name are repetitions. `taken` holds the blocks that
    a cell has already.

    A file's text is kept once: a thousand lines of CSV would else be kept a thousand times.
    """
    blocks = dict(taken)
    runs: list[Run] = []
    keeper = ""
    for source in sources:
        run_id = secrets.token_hex(8)
        keeper = run_id if source.text else keeper
        path = name or _name(source)
        cell = hashlib.sha256(path.encode()).hexdigest()[:16]
        blocks[cell] = blocks.get(cell, 0) + 1
        runs.append(
            Run(
                id=run_id,
                campaign=campaign,
                cell=cell,
                path=path,
                page_cache=PageCache.BYPASSED.value,
                block=blocks[cell],
                position=len(runs) + 1,
                origin=Origin.IMPORTED,
                started=source.written,
                wall_seconds=None,
                accelerator=None,
                medium=None,
                measurements=_measurements(source, measurement, keeper),
            )
        )
    return runs


def _taken(store: Store, campaign: Campaign | None) -> dict[str, int]:
    if campaign is None:
        return {}
    blocks: dict[str, int] = {}
    for run in store.outlines([campaign.id]):
        blocks[run.cell] = max(run.block, blocks.get(run.cell, 0))
    return blocks


def _name(source: _Source) -> str:
    """The file's name, and the label within it where it holds several."""
    label = source.report.label
    whole = f"{source.file.stem} {label}" if label else source.file.stem
    clean = re.sub(r"[^\w .+/=:-]", "?", whole)
    return clean.strip() or "imported"


def _measurements(source: _Source, name: str | None, keeper: str) -> tuple[Measurement, ...]:
    found = source.report.found
    if name is not None and len(found) != 1:
        raise PlanError(
            f"{source.file} holds {len(found)} measurements: "
            f"{', '.join(each.name for each in found[:8])}",
            hint="leave --measurement out",
        )
    version = f" {source.report.version}" if source.report.version else ""
    file = printable(source.file.name)
    elsewhere = f"# {file} is kept with the first measurement of run {keeper}"
    return tuple(
        Measurement(
            name=name or each.name,
            program=source.report.program,
            command=f"# imported from {file}: {source.report.program}{version}",
            samples=each.outcome.samples,
            evidence=Evidence(guest=each.outcome.counted),
            started=source.written,
            wall_seconds=None,
            measured_seconds=each.outcome.measured_seconds,
            raw=elsewhere if place else source.text or elsewhere,
            series=each.outcome.series,
        )
        for place, each in enumerate(found)
    )


def _new_campaign(sources: Sequence[_Source]) -> Campaign:
    digest = hashlib.sha256("\0".join(source.text for source in sources).encode()).hexdigest()
    names = dict.fromkeys(each.name for source in sources for each in source.report.found)
    return Campaign(
        id=secrets.token_hex(4),
        fingerprint=digest[:16],
        plan={"profile": "imported", "measurements": [{"name": name} for name in names]},
        host=HostFacts("", "", "", "", None, None, None, None),
        started=datetime.now(UTC),
        label="imported",
    )
