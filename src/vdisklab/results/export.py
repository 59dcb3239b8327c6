"""Results outside a database: JSON that can be imported again, and samples as CSV.

The JSON is made of the fields of `result.model`, under their names: a field is never renamed or
removed within one `format`, and readers must pass over those they do not know.

    {"format": "vdisklab/1",
     "metrics": [{"name": "iops", "unit": "1/s", "better": "higher"}, ...],
     "power_cuts": [{"id": ..., "host": {...}, "path": ..., "survives": ..., ...}, ...],
     "campaigns": [{"id": ..., "host": {...}, ..., "runs": [{"id": ..., ...}, ...]}, ...]}

`power_cuts` are the verdicts on the machines of these campaigns.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pydantic import TypeAdapter, ValidationError

from vdisklab.errors import DatabaseError
from vdisklab.results.model import METRICS, Campaign, Run
from vdisklab.results.powercut import PowerCut
from vdisklab.results.store import Store

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = "vdisklab/1"

CSV_COLUMNS = (
    "campaign",
    "run",
    "cell",
    "path",
    "page_cache",
    "block",
    "position",
    "origin",
    "accelerator",
    "medium",
    "started",
    "measurement",
    "program",
    "direction",
    "metric",
    "value",
    "unit",
    "failure",
)

_CAMPAIGN = TypeAdapter(Campaign)
_RUNS = TypeAdapter(list[Run])
_POWER_CUTS = TypeAdapter(list[PowerCut])

# What makes a spreadsheet take a text for a formula, also when a line break or a full-width
# form comes first.
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class TextSink(Protocol):
    """Whatever text can be written to."""

    def write(self, text: str, /) -> object:
        """Takes a piece of the text."""


def campaign_to_json(campaign: Campaign) -> dict[str, Any]:
    """A campaign as plain JSON values, without its runs."""
    return _fields(campaign)


def run_to_json(run: Run) -> dict[str, Any]:
    """A run as plain JSON values, with its measurements, evidence and raw output."""
    return _fields(run)


def to_json(store: Store, campaign_ids: Collection[str]) -> dict[str, Any]:
    """The whole export of some campaigns as one value; `write_json` needs less memory."""
    campaigns = [
        campaign_to_json(store.campaign(name))
        | {"runs": [run_to_json(run) for run in store.runs(name)]}
        for name in campaign_ids
    ]
    return _head(store, campaign_ids) | {"campaigns": campaigns}


def write_json(sink: TextSink, store: Store, campaign_ids: Collection[str]) -> None:
    """Writes the same document run by run, one run on a line."""
    head = json.dumps(_head(store, campaign_ids))
    sink.write(f'{head[:-1]}, "campaigns": [')
    for number, name in enumerate(campaign_ids):
        campaign = json.dumps(campaign_to_json(store.campaign(name)))
        sink.write(f'{"," if number else ""}\n{campaign[:-1]}, "runs": [')
        for place, run in enumerate(store.runs(name)):
            sink.write(f"{',' if place else ''}\n{json.dumps(run_to_json(run))}")
        sink.write("]}")
    sink.write("]}\n")


def _fields(value: DataclassInstance) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> object:
    """The value as JSON knows it. Pydantic would refuse bytes of a name that are no UTF-8."""
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, StrEnum) else value


def _head(store: Store, campaign_ids: Collection[str]) -> dict[str, Any]:
    machines = {store.campaign(name).host.machine_id for name in campaign_ids}
    return {
        "format": FORMAT,
        "metrics": [asdict(metric) for metric in METRICS.values()],
        "power_cuts": [
            _fields(found) for found in store.power_cuts() if found.host.machine_id in machines
        ],
    }


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought; what the database held already is counted as `known_runs`."""

    campaigns: int
    runs: int
    known_runs: int
    power_cuts: int = 0


def import_json(store: Store, document: object, *, name: str = "the file") -> Imported:
    """Stores the campaigns and runs of an export that the database does not hold yet.

    The document is parsed as a whole before anything is stored. Each run is stored on its own,
    so after an interruption the same import goes on. Raises DatabaseError, which calls the
    document `name`, for one that is no export of ours, or of a newer format, and for a campaign
    whose id stands for another one here.
    """
    parsed = read_export(document, name=name)
    cuts = read_power_cuts(document, name=name)
    known = {campaign.id: campaign for campaign in store.campaigns()}
    added = 0
    for campaign, _ in parsed:
        if campaign.id not in known:
            store.add_campaign(campaign)
            added += 1
        elif known[campaign.id] != campaign:
            raise DatabaseError(
                f"campaign {campaign.id} of {name} is another than the one in {store}",
                hint="import it into a database of its own",
            )
    stored, skipped = 0, 0
    for campaign, runs in parsed:
        here = {outline.id for outline in store.outlines([campaign.id])}
        for run in runs:
            if run.id in here:
                skipped += 1
            else:
                store.add_run(run)
                stored += 1
    judged = _store_power_cuts(store, cuts)
    return Imported(campaigns=added, runs=stored, known_runs=skipped, power_cuts=judged)


def _store_power_cuts(store: Store, found: Iterable[PowerCut]) -> int:
    """Stores the verdicts that are not known, and returns how many."""
    known = {each.id for each in store.power_cuts()}
    new = [each for each in found if each.id not in known]
    for each in new:
        store.add_power_cut(each)
    return len(new)


def read_export(document: object, *, name: str) -> list[tuple[Campaign, list[Run]]]:
    """The campaigns of an export with their runs, checked. Raises DatabaseError."""
    return [_parsed(campaign, name) for campaign in _campaigns_in(document, name)]


def read_power_cuts(document: object, *, name: str) -> list[PowerCut]:
    """The verdicts of power cuts in an export, checked; none in one of an older vdisklab.

    Raises DatabaseError.
    """
    plain = document.get("power_cuts", []) if isinstance(document, Mapping) else []
    try:
        found = _POWER_CUTS.validate_python(plain)
    except ValidationError as error:
        raise _damaged(error, name, "power_cuts") from error
    if len({each.id for each in found}) < len(found):
        raise DatabaseError(
            f"{name} is damaged: two of its power cuts have the same id",
            hint="export it again from the database that it came from",
        )
    return found


def _damaged(error: ValidationError, name: str, part: str) -> DatabaseError:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or part
    return DatabaseError(
        f"{name} is damaged: {place}: {first['msg']}",
        hint="export it again from the database that it came from, or mend that place by hand",
    )


def _campaigns_in(document: object, name: str) -> list[Any]:
    found = document.get("format") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(found, str):
        raise DatabaseError(
            f"{name} is not an export of vdisklab: it names no format",
            hint=f'an export begins with {{"format": "{FORMAT}"',
        )
    if found != FORMAT:
        raise DatabaseError(
            f"{name} has format {found}; this vdisklab reads {FORMAT}", hint="update vdisklab"
        )
    campaigns = document.get("campaigns")
    if not isinstance(campaigns, list):
        raise DatabaseError(
            f"{name} is damaged: it has no list of campaigns",
            hint="name a file that vdisklab's export wrote, whole",
        )
    return campaigns


def _parsed(plain: object, name: str) -> tuple[Campaign, list[Run]]:
    try:
        campaign = _CAMPAIGN.validate_python(plain)
        found = plain.get("runs") if isinstance(plain, Mapping) else None
        runs = _RUNS.validate_python(found)
    except ValidationError as error:
        raise _damaged(error, name, "a campaign") from error
    for run in runs:
        if run.campaign != campaign.id:
            raise DatabaseError(
                f"{name} is damaged: run {run.id} stands under campaign {campaign.id}, "
                f"but names {run.campaign}",
                hint="export it again from the database that it came from",
            )
    return campaign, runs


def write_samples_csv(stream: TextIO, runs: Iterable[Run]) -> None:
    """Writes one row per sample, under CSV_COLUMNS; a run without samples has no row."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run in runs:
        writer.writerows([csv_field(value) for value in row] for row in _sample_rows(run))


def csv_field(value: object) -> object:
    """The value as a CSV writer takes it; a text that a spreadsheet would run is quoted by `'`.

    Numbers stay as they are: a negative one is no formula.
    """
    if isinstance(value, str) and value.startswith(_FORMULA_SIGNS):
        return f"'{value}"
    return value


def _sample_rows(run: Run) -> Iterator[tuple[object, ...]]:
    place = (
        run.campaign,
        run.id,
        run.cell,
        run.path,
        run.page_cache,
        run.block,
        run.position,
        run.origin.value,
        run.accelerator,
        run.medium,
        run.started.isoformat(),
    )
    for measured in run.measurements:
        for sample in measured.samples:
            yield (
                *place,
                measured.name,
                measured.program,
                sample.direction.value,
                sample.metric,
                sample.value,
                METRICS[sample.metric].unit,
                run.failure.kind.value if run.failure else None,
            )
