"""Imports result files of other programs as runs of a campaign."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from vdisklab.actions.input_file import unreadable
from vdisklab.answers.import_ import ImportAnswer
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results import model
from vdisklab.results.database import SQLITE
from vdisklab.results.exchange import ImportedCampaign, refuse_figures
from vdisklab.results.store import open_store
from vdisklab.value import Value
from vdisklab.workload.importing import recognise
from vdisklab.workload.program import Report, printable

_LARGEST_FILE = 64 << 20
_LONGEST_NAME = 200
_WRITE_TEXT = "import the file as the program wrote it, in UTF-8 or UTF-16"
_WHOLE_OUTPUT = "import everything that the program printed, unchanged"
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


class _Source(Value):
    """One report of a file. `text` is the file's whole text, stored with its first report only."""

    file: Path
    text: str
    modified: datetime
    report: Report


def import_files(
    url: str,
    files: Sequence[Path],
    name: str | None = None,
    into: str | None = None,
    measurement: str | None = None,
) -> ImportAnswer:
    """Reads all files, then stores them in one transaction. Files with the same name are
    repetitions.

    `name` replaces the files' own names, `measurement` the measurement's; `into` is the campaign to
    join, None for a new one. Raises PlanError for a file that cannot be read or a bad name,
    WorkloadError for a file that is damaged or from an unknown program.
    """
    for option, value in (("--as", name), ("--measurement", measurement)):
        require_name(option, value)
    _require_different(files)
    sources = [source for file in files for source in read_file(file)]
    with open_store(url) as store:
        existing = None if into is None else store.campaign(into)
        campaign = existing or _new_campaign(sources)
        used = last_rounds(() if existing is None else store.outlines([existing.id]))
        runs = make_runs(sources, campaign.id, name, measurement, used_rounds=used)
        store.add_together((campaign,) if existing is None else (), runs)
    cells = tuple(dict.fromkeys(run.measured_cell.label for run in runs))
    return ImportAnswer((ImportedCampaign(campaign.id, campaign.label, len(runs), 0, cells),))


def _require_different(files: Sequence[Path]) -> None:
    """Raises PlanError for a file given twice, because it would count as a repetition of itself."""
    read_files: set[Path] = set()
    for file in files:
        if file.resolve() in read_files:
            raise PlanError(f"{file} is given twice", hint="name each file once")
        read_files.add(file.resolve())


def require_name(option: str, name: str | None) -> None:
    """Raises PlanError for a name that is empty, too long or not printable."""
    if name is None:
        return
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise PlanError(
            f"{option} {name[:40]!r} is not a usable name",
            hint=f"write up to {_LONGEST_NAME} printable characters on one line",
        )


def read_file(file: Path) -> list[_Source]:
    """The reports in a file. Raises PlanError if it cannot be read, WorkloadError if it is damaged
    or from an unknown program, DatabaseError if it is a record of bench/."""
    if file.is_fifo():
        raise PlanError(f"{file} is a named pipe without a writer", hint="give a file")
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_FILE + 1)
            seconds = os.fstat(opened.fileno()).st_mtime
    except OSError as error:
        raise unreadable(str(file), error) from error
    modified = _date(file, seconds)
    text = _decoded(file, content)
    try:
        reports = recognise(text)
    except WorkloadError as error:
        refuse_figures(text, str(file))
        hint = error.hint or _WHOLE_OUTPUT
        raise WorkloadError(f"{file}: {error.message}", hint=hint) from error
    return [
        _Source(file, "" if place else text, modified, report)
        for place, report in enumerate(reports)
    ]


def _decoded(file: Path, content: bytes) -> str:
    if len(content) > _LARGEST_FILE:
        raise WorkloadError(
            f"{file} is larger than {_LARGEST_FILE >> 20} MiB, more than any result file"
        )
    if content.startswith(SQLITE):
        raise WorkloadError(
            f"{file} is an SQLite database, not a file of results",
            hint=f"if vdisklab wrote it, pass it on with: `vdisklab export-data FILE --db {file}`",
        )
    encoding = _encoding(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        name = encoding.removesuffix("-sig").upper()
        raise WorkloadError(
            f"{file} is not {name} text: byte {error.start} is invalid", hint=_WRITE_TEXT
        ) from error
    if "\0" in text:
        raise WorkloadError(
            f"{file} is not text: character {text.index(chr(0))} is NUL", hint=_WRITE_TEXT
        )
    return text


def _encoding(content: bytes) -> str:
    """By the byte-order mark; without one, UTF-16 has a NUL beside every ASCII character."""
    marked = _BYTE_ORDER_MARKS.get(content[:2]) or _BYTE_ORDER_MARKS.get(content[:3])
    if marked is not None:
        return marked
    pairs = len(content[:4096]) // 2
    if pairs and content[1:4096:2].count(0) > pairs * 0.9:
        return "utf-16-le"
    return "utf-16-be" if pairs and content[0:4096:2].count(0) > pairs * 0.9 else "utf-8"


def _date(file: Path, seconds: float) -> datetime:
    """The modification time. tmpfs and btrfs can hold times outside the range of `datetime`."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise PlanError(
            f"{file} has an impossible modification time: {seconds:g} seconds after 1970",
            hint=f"set the file's modification time: touch {file}",
        ) from error


def make_runs(
    sources: Sequence[_Source],
    campaign: str,
    name: str | None,
    measurement: str | None,
    *,
    used_rounds: dict[str, int],
) -> list[model.Run]:
    """One run for each report; equal names are repetitions, in rounds after the used ones.

    A file's text is stored only with its first run: a CSV may have a thousand lines.
    """
    rounds = dict(used_rounds)
    runs: list[model.Run] = []
    text_run = ""
    for source in sources:
        run_id = secrets.token_hex(8)
        text_run = run_id if source.text else text_run
        named = MeasuredCell.parse(name or _name(source))
        cell = named.fingerprint
        rounds[cell] = rounds.get(cell, 0) + 1
        runs.append(
            model.Run(
                id=run_id,
                campaign=campaign,
                cell=cell,
                path=named.name,
                page_cache=named.page_cache,
                round=rounds[cell],
                position=len(runs) + 1,
                origin=model.Origin.IMPORTED,
                started=source.modified,
                wall_seconds=None,
                accelerator=None,
                medium=None,
                measurements=_measurements(source, measurement, text_run),
            )
        )
    return runs


def last_rounds(runs: Iterable[model.RunOutline]) -> dict[str, int]:
    """The last round of each cell, by its fingerprint."""
    rounds: dict[str, int] = {}
    for run in runs:
        rounds[run.cell] = max(run.round, rounds.get(run.cell, 0))
    return rounds


def _name(source: _Source) -> str:
    """The file's name, with the report's label if there is one."""
    label = source.report.label
    whole = f"{source.file.stem} {label}" if label else source.file.stem
    return re.sub(r"[^\w .+/=:-]", "?", whole).strip() or "imported"


def _measurements(
    source: _Source, name: str | None, text_run: str
) -> tuple[model.Measurement, ...]:
    results = source.report.results
    if name is not None and len(results) != 1:
        raise PlanError(
            f"{source.file} holds {len(results)} measurements: "
            f"{', '.join(result.name for result in results[:8])}",
            hint="leave --measurement out",
        )
    version = f" {source.report.version}" if source.report.version else ""
    file = printable(source.file.name)
    elsewhere = f"# {file} is kept with the first measurement of run {text_run}"
    return tuple(
        model.Measurement(
            name=name or result.name,
            program=source.report.program,
            command=f"# imported from {file}: {source.report.program}{version}",
            samples=result.outcome.samples,
            evidence=model.Evidence(guest=result.outcome.counted),
            started=source.modified,
            wall_seconds=None,
            measured_seconds=result.outcome.measured_seconds,
            raw=elsewhere if place else source.text or elsewhere,
            series=result.outcome.series,
        )
        for place, result in enumerate(results)
    )


def _new_campaign(sources: Sequence[_Source]) -> model.Campaign:
    digest = hashlib.sha256("\0".join(source.text for source in sources).encode()).hexdigest()
    names = dict.fromkeys(result.name for source in sources for result in source.report.results)
    return model.Campaign(
        id=secrets.token_hex(4),
        fingerprint=digest[:16],
        plan={"profile": "imported", "measurements": [{"name": name} for name in names]},
        host=model.HostFacts("", "", "", "", None, None, None, None),
        started=datetime.now(UTC),
        label="imported",
    )
