"""Exports and imports whole campaigns as JSON, and writes samples as CSV.

The JSON has the fields of `results.model` under their names. Within one `format` fields may be
added, never renamed or removed; readers skip those they do not know.

    {"format": "vdisklab/2",
     "metrics": [{"name": "iops", "unit": "1/s", "better": "higher"}, ...],
     "power_cuts": [{"id": ..., "host": {...}, "path": ..., "survives": ..., ...}, ...],
     "campaigns": [{"id": ..., "host": {...}, ..., "runs": [{"id": ..., ...}, ...]}, ...]}
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from io import BytesIO
from itertools import islice
from typing import Annotated, Any, NoReturn, TextIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from vdisklab.errors import DatabaseError, UnstorableError
from vdisklab.plan.plan_file import settings_error
from vdisklab.results.database import SQLITE
from vdisklab.results.model import METRICS, Campaign, Origin, Run
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.rows import metric_row, plan_error
from vdisklab.results.store import Store
from vdisklab.validation import first_problem
from vdisklab.value import Value, replace

FORMAT = "vdisklab/2"

LARGEST = 512 << 20
"""Maximum size of the JSON in bytes, about 40,000 runs; for exports and for imports."""

_OF_BENCH = "has figures of vdisklab's own benches (bench/), and no runs to rank"
_BENCH_HINT = (
    "`zcat FILE` or `cat FILE` prints them; docs/proofs.md names the recorded campaigns, which can "
    "be imported"
)
_BENCH_CSV = "measurement,cell,"
"""How a table that a program in bench/ writes begins."""

_MOST_PARTS = 20
"""Parts of each list of a foreign document that are looked at."""

_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_GZIP = b"\x1f\x8b"
_FORMAT_KEY = re.compile(rb'"format"\s*:\s*"vdisklab[/.]')
PEEK = 4096
"""An export names its format within this many bytes of the start or the end of the file."""

CSV_COLUMNS = (
    "campaign", "run", "cell", "path", "page_cache", "round", "position", "origin", "accelerator",
    "emulated", "medium", "started", "measurement", "program", "direction", "metric", "value",
    "unit", "failure",
)  # fmt: skip

# A spreadsheet treats text that starts with one of these, also in full width, as a formula.
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


_Value = TypeVar("_Value")


_CAMPAIGN = TypeAdapter(Campaign)
_RUNS = TypeAdapter(list[Run])
_POWER_CUTS = TypeAdapter(list[PowerCut])


class WholeCampaign(Value):
    """A campaign with all its runs, in the order in which they were stored."""

    campaign: Campaign
    runs: tuple[Run, ...]


class Export(Value):
    """The checked content of an exported file."""

    campaigns: tuple[WholeCampaign, ...]
    power_cuts: tuple[PowerCut, ...]


class ImportedCampaign(Value):
    """Numbers of runs of an imported campaign: new ones, and those already in the database."""

    id: str
    label: str
    runs: Annotated[int, "new ones"]
    known_runs: Annotated[int, "runs of the file that the database held before"]
    cells: Annotated[tuple[str, ...], "the names of a program's results; empty for a campaign"] = ()


class StoredExport(Value):
    """The result of an import."""

    campaigns: tuple[ImportedCampaign, ...]
    power_cuts: int


def write_json(
    sink: TextIO, store: Store, campaigns: Iterable[Campaign], power_cuts: Iterable[PowerCut],
    *, raw: bool = True,
) -> None:  # fmt: skip
    """Writes campaigns and verdicts, one run on a line; without `raw`, no output of programs.

    Raises DatabaseError if the file becomes larger than an import accepts.
    """
    head = {
        "format": FORMAT,
        "metrics": [metric_row(metric) for metric in METRICS.values()],
        "power_cuts": [_fields(verdict) for verdict in power_cuts],
    }
    written = _write(sink, 0, f'{json.dumps(head)[:-1]}, "campaigns": [')
    for number, campaign in enumerate(campaigns):
        start = f'{"," if number else ""}\n{json.dumps(_fields(campaign))[:-1]}, "runs": ['
        written = _write(sink, written, start)
        for place, run in enumerate(store.runs(campaign.id)):
            line = json.dumps(_run_fields(run if raw else without_raw(run)))
            written = _write(sink, written, f"{',' if place else ''}\n{line}")
        written = _write(sink, written, "]}")
    _write(sink, written, "]}\n")


def _write(sink: TextIO, written: int, text: str) -> int:
    """Writes ASCII text and returns the new total."""
    if written + len(text) > LARGEST:
        raise DatabaseError(
            f"these campaigns are more than {LARGEST >> 20} MiB of JSON, which no import accepts",
            hint="export fewer with --campaign, or leave out the programs' output: --without-raw",
        )
    sink.write(text)
    return written + len(text)


def write_run(sink: TextIO, campaign: Campaign, run: Run) -> None:
    """Writes an export of one run on one line."""
    document = {"format": FORMAT, "campaigns": [{**_fields(campaign), "runs": [_run_fields(run)]}]}
    sink.write(f"{json.dumps(document)}\n")


def without_raw(run: Run) -> Run:
    """The run without the output of its programs."""
    return replace(run, measurements=tuple(replace(m, raw="") for m in run.measurements))


def _fields(value: Value) -> dict[str, Any]:
    return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}


def _run_fields(run: Run) -> dict[str, Any]:
    """The run; under TCG it is `emulated`, too, as in the CSV export and in the view `result`."""
    return _fields(run) | {"emulated": run.is_emulated, "emulated_host": run.emulated}


def _as_stored(runs: object) -> object:
    """The runs as a database has them: `emulated` is about the host, as in files from before
    0.1.0."""
    if not isinstance(runs, list):
        return runs
    return [
        {**run, "emulated": run["emulated_host"]}
        if isinstance(run, dict) and "emulated_host" in run
        else run
        for run in runs
    ]


def _plain(value: object) -> object:
    """The value in JSON's types. Pydantic's own conversion refuses names that are not UTF-8."""
    if isinstance(value, Value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, StrEnum) else value


def is_export(content: bytes) -> bool:
    """True for a vdisklab export and for any gzip file: no program writes either."""
    ends = content[:PEEK] + content[-PEEK:]
    return content.startswith(_GZIP) or _FORMAT_KEY.search(ends) is not None


def read_export(content: bytes, *, name: str) -> Export:
    """The checked content of an exported file, plain or gzip.

    Raises DatabaseError for a file that is damaged, not an export, or of another format; the error
    calls the file `name`.
    """
    document = _document(content, name)
    campaigns = tuple(_campaign(plain, name) for plain in document["campaigns"])
    power_cuts = _validated(_POWER_CUTS, document.get("power_cuts", []), name, "power_cuts")
    _require_unique("campaigns", (campaign.campaign.id for campaign in campaigns), name)
    _require_unique("runs", (run.id for campaign in campaigns for run in campaign.runs), name)
    _require_unique("power cuts", (verdict.id for verdict in power_cuts), name)
    return Export(campaigns, tuple(power_cuts))


def _is_of_bench(document: dict[str, Any] | list[Any], depth: int = 3) -> bool:
    """True for a record of a program in bench/: it names the program, or it or a part of it the
    host that it was made on (`bench/machine.py`)."""
    if isinstance(document, dict) and isinstance(document.get("bench"), str):
        return True
    host = document.get("host") if isinstance(document, dict) else None
    if isinstance(host, dict) and {"kernel", "qemu"} <= host.keys():
        return True
    parts = document.values() if isinstance(document, dict) else document
    inside = [part for part in islice(parts, _MOST_PARTS) if isinstance(part, dict | list)]
    return depth > 0 and any(_is_of_bench(part, depth - 1) for part in inside)


def refuse_figures(text: str, name: str) -> None:
    """Raises DatabaseError for a record of a program in bench/, plain JSON or CSV."""
    try:
        document = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return
    if text.startswith(_BENCH_CSV) or (
        isinstance(document, dict | list) and _is_of_bench(document)
    ):
        raise DatabaseError(f"{name} {_OF_BENCH}", hint=_BENCH_HINT)


def _document(content: bytes, name: str) -> Mapping[str, Any]:
    try:
        unpacked = _unpacked(content, name)
        if unpacked.startswith(SQLITE):
            raise DatabaseError(
                f"{name} is a database that gzip packed, not an export",
                hint="unpack it with gunzip, and name it with --db",
            )
        text = unpacked.decode()
        document = json.loads(text, parse_constant=_not_a_number, parse_float=_finite)
    except UnicodeDecodeError as error:
        _refuse(name, f"byte {error.start} is not UTF-8")
    except RecursionError:
        _refuse(name, "its JSON is nested too deeply")
    except json.JSONDecodeError as error:
        _refuse(name, f"its JSON ends or breaks in line {error.lineno}: {error.msg}")
    except ValueError as error:  # NaN, or a number of thousands of digits
        _refuse(name, str(error))
    file_format = document.get("format") if isinstance(document, dict) else None
    if file_format is None and isinstance(document, dict | list) and _is_of_bench(document):
        raise DatabaseError(f"{name} {_OF_BENCH}", hint=_BENCH_HINT)
    if not isinstance(file_format, str):
        raise DatabaseError(
            f"{name} is not an export of vdisklab: it does not name a format",
            hint=f'an export begins with {{"format": "{FORMAT}"',
        )
    if file_format != FORMAT:
        raise DatabaseError(
            f"{name} has format {file_format[:40]!r}; this vdisklab reads {FORMAT}",
            hint="update vdisklab, or write the file with `vdisklab export-data`",
        )
    if not isinstance(document.get("campaigns"), list):
        _refuse(name, "it has no list of campaigns")
    return document  # type: ignore[no-any-return] # a dict, as it has a format


def _unpacked(content: bytes, name: str) -> bytes:
    if content.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=BytesIO(content)) as packed:
                content = packed.read(LARGEST + 1)
        except (OSError, EOFError, zlib.error) as error:
            _refuse(name, f"its compressed data are incomplete: {error}")
    if len(content) > LARGEST:
        raise DatabaseError(
            f"{name} holds more than {LARGEST >> 20} MiB of JSON",
            hint="export fewer campaigns at a time: `vdisklab export-data FILE --campaign ID`",
        )
    return content


def _not_a_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _validated(adapter: TypeAdapter[_Value], plain: object, name: str, part: str) -> _Value:
    try:
        return adapter.validate_python(plain)
    except (ValidationError, OverflowError) as error:
        if isinstance(error, OverflowError):
            _refuse(name, f"{part}: {error}")
        _refuse(name, first_problem(error, part))


def _campaign(plain: object, name: str) -> WholeCampaign:
    """The campaign with its runs. Each must belong to it and its plan, once per cell and round."""
    campaign = _validated(_CAMPAIGN, plain, name, "campaign")
    error = plan_error(campaign.plan) or settings_error(campaign.plan)
    if error is not None:
        _refuse(name, f"the plan of campaign {campaign.id[:64]!r}: {error}")
    plain_runs = _as_stored(plain.get("runs")) if isinstance(plain, dict) else None
    runs = _validated(_RUNS, plain_runs, name, "runs")
    planned = campaign.plan.get("cells")
    measured: set[tuple[str, int]] = set()
    for run in runs:
        where = f"run {run.id[:64]!r} of campaign {campaign.id}"
        label = run.measured_cell.label
        if run.campaign != campaign.id:
            _refuse(name, f"{where} belongs to the campaign {run.campaign[:64]!r}")
        if planned and run.origin is not Origin.IMPORTED and label not in planned:
            _refuse(name, f"{where} is of the cell {label[:80]!r}, which is not in the plan")
        if run.cell != run.measured_cell.fingerprint:
            _refuse(name, f"{where} has the key of another cell than {label[:80]!r}")
        if run.failure is None and (run.cell, run.round) in measured:
            _refuse(name, f"{where} measures {label[:80]!r} in round {run.round} a second time")
        if run.failure is None:
            measured.add((run.cell, run.round))
    return WholeCampaign(campaign, tuple(runs))


def _require_unique(kind: str, ids: Iterable[str], name: str) -> None:
    counts = Counter(ids)
    for identifier, count in counts.items():
        if not _ID.fullmatch(identifier):
            _refuse(name, f"one of its {kind} has the id {identifier[:64]!r}")
        if count > 1:
            _refuse(name, f"{count} of its {kind} have the id {identifier}")


def _refuse(name: str, problem: str) -> NoReturn:
    raise DatabaseError(
        f"{name} is damaged: {problem}", hint="export it again from the database that it came from"
    )


def store_export(store: Store, export: Export, *, name: str) -> StoredExport:
    """Stores everything that is not in the database yet, in one transaction.

    Raises DatabaseError if the database has different content under an id, and for numbers that
    a database cannot store; then nothing is stored.
    """
    stored_campaigns = {campaign.id: campaign for campaign in store.campaigns()}
    new = [
        new_campaign.campaign
        for new_campaign in export.campaigns
        if new_campaign.campaign.id not in stored_campaigns
    ]
    runs: list[Run] = []
    stored = []
    for exported in export.campaigns:
        campaign = exported.campaign
        if stored_campaigns.get(campaign.id, campaign) != campaign:
            raise _other(f"campaign {campaign.id}", store, name)
        stored_runs = (
            {run.id: run for run in store.runs(campaign.id)}
            if campaign.id in stored_campaigns
            else {}
        )
        for run in exported.runs:
            if stored_runs.get(run.id, run) != run:
                raise _other(f"run {run.id}", store, name)
        missing = [run for run in exported.runs if run.id not in stored_runs]
        runs += missing
        stored.append(
            ImportedCampaign(
                campaign.id, campaign.label, len(missing), len(exported.runs) - len(missing)
            )
        )
    judged = {verdict.id for verdict in store.power_cuts()}
    verdicts = [verdict for verdict in export.power_cuts if verdict.id not in judged]
    try:
        store.add_together(new, runs, verdicts)
    except UnstorableError as error:
        _refuse(name, error.message)
    return StoredExport(tuple(stored), len(verdicts))


def _other(item: str, store: Store, name: str) -> DatabaseError:
    return DatabaseError(
        f"{item} in {name} differs from {item} in {store}",
        hint="import the file into a separate database: --db FILE",
    )


def write_samples_csv(sink: TextIO, runs: Iterable[Run]) -> None:
    """Writes one row per sample, under CSV_COLUMNS; a run without samples has no row."""
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run in runs:
        writer.writerows([csv_field(value) for value in row] for row in _sample_rows(run))


def csv_field(value: object) -> object:
    """The value for a CSV writer; text that looks like a formula gets a `'` prefix.

    Numbers are not changed: a negative number is not a formula.
    """
    if isinstance(value, str) and value.startswith(_FORMULA_SIGNS):
        return f"'{value}"
    return value


def _sample_rows(run: Run) -> Iterator[Sequence[object]]:
    of_run = (
        run.campaign, run.id, run.cell, run.path, run.page_cache.value, run.round, run.position,
        run.origin.value, run.accelerator, run.is_emulated,
        run.medium, run.started.isoformat(),
    )  # fmt: skip
    failure = run.failure.kind.value if run.failure else None
    for measured in run.measurements:
        for sample in measured.samples:
            yield (
                *of_run, measured.name, measured.program, sample.direction.value, sample.metric,
                sample.value, METRICS[sample.metric].unit, failure,
            )  # fmt: skip
