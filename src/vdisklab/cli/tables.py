"""What the verbs that answer from the database share: options, loading, and the three formats."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Protocol

import typer
from rich.console import Console

from vdisklab.analysis.diagnostics.direct import direct_findings
from vdisklab.analysis.diagnostics.doubt import Doubt, FromPageCache, NotDirect
from vdisklab.analysis.diagnostics.findings import Outline
from vdisklab.analysis.diagnostics.witness import evidence_findings
from vdisklab.analysis.evidence import Tally
from vdisklab.analysis.observations import (
    Columns,
    MeasureKey,
    Observations,
    cell_label,
    from_columns,
    split_label,
)
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.host.ledger import state_directory
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.render.document import Json
from vdisklab.render.tables.layout import Table, as_csv, show
from vdisklab.results.address import default_url
from vdisklab.results.model import Campaign, Run, Witnessed
from vdisklab.results.observations import Example, RunCourse
from vdisklab.results.powercut import PowerCut
from vdisklab.results.store import open_store

PIPE_WIDTH = 120
"""Characters in a line where the output is no terminal and COLUMNS says nothing."""


class Format(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


DbOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        envvar="VDISKLAB_DB",
        help="The database of results: a file, sqlite:///FILE or postgresql://…",
        show_default="the file that `vdisklab run` uses",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the answer.")]
CampaignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--campaign",
        metavar="ID",
        help="A campaign's id or its first letters; may be given again to join campaigns of "
        "one machine.",
        show_default="the newest",
    ),
]


class RunOutline(Outline, Protocol):
    """A listed run, with its cell's fingerprint."""

    @property
    def cell(self) -> str:
        """The fingerprint that the columns of observations use."""

    @property
    def wall_seconds(self) -> float | None:
        """How long the run took, everything included; None for an imported one."""


class Results(Protocol):
    """What the verbs need of `result.store.Store`."""

    def campaigns(self, *, with_runs: bool = False) -> Sequence[Campaign]:
        """All campaigns, or those of which a run is stored, the newest first."""

    def campaign(self, name: str, /) -> Campaign:
        """The one whose id begins so."""

    def runs(self, campaign_id: str, /, *, measured_only: bool = False) -> Iterable[Run]:
        """Whole runs, one after another."""

    def run(self, name: str, /) -> Run:
        """The one whose id begins so."""

    def outlines(self, campaign_ids: Sequence[str], /) -> Sequence[RunOutline]:
        """All runs without their numbers, failed ones too."""

    def power_cuts(self, machine_id: str | None = None, /) -> Sequence[PowerCut]:
        """The verdicts of power cuts on one machine."""

    def evidence(self, campaign_ids: Sequence[str], /) -> Iterable[Witnessed]:
        """The evidence of each measurement of measured runs, without numbers and raw output."""

    def observations(self, campaign_ids: Sequence[str], /) -> Columns:
        """All numbers of the measured runs."""

    def tallies(self, campaign_ids: Sequence[str], /) -> Sequence[Tally]:
        """What was counted, summed by cell and measurement."""

    def examples(self, campaign_ids: Sequence[str], /) -> Sequence[Example]:
        """One measured run of each cell."""

    def courses(self, campaign_ids: Sequence[str], cells: Sequence[str], /) -> Sequence[RunCourse]:
        """Bandwidth over time of the measured runs of some cells, by fingerprint."""


def database_url(db: str | None) -> str:
    """What `--db` names, or the default database. Raises DatabaseError for an empty name."""
    if db is None:
        return default_url(state_directory())
    if not db.strip():
        raise DatabaseError("--db names nothing", hint="leave it out for the default database")
    return db


@contextmanager
def open_results(db: str | None) -> Iterator[Results]:
    """The database that `--db` names, or the default one. Raises DatabaseError.

    An answer does not make a database: a file that is missing is an error.
    """
    with open_store(database_url(db), create=False) as results:
        yield results


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The numbers of some campaigns of one machine."""

    campaigns: tuple[Campaign, ...]
    outlines: tuple[RunOutline, ...]
    observations: Observations

    @property
    def blocks(self) -> int:
        """In how many blocks anything was measured."""
        return len({(run.campaign, run.block) for run in self.outlines if run.failure is None})


def load(results: Results, names: Sequence[str] | None) -> Loaded:
    """The named campaigns, or the newest. Raises PlanError for those that cannot be joined."""
    return load_chosen(results, choose_campaigns(results, names))


def load_chosen(results: Results, campaigns: tuple[Campaign, ...]) -> Loaded:
    """The numbers of campaigns that may be joined."""
    ids = [campaign.id for campaign in campaigns]
    outlines = tuple(results.outlines(ids))
    labels = {run.cell: cell_label(run.path, run.page_cache) for run in outlines}
    return Loaded(campaigns, outlines, from_columns(results.observations(ids), labels))


def choose_campaigns(results: Results, names: Sequence[str] | None) -> tuple[Campaign, ...]:
    """The named campaigns without repetition, or the newest one that has runs.

    One without runs has just begun, or was killed before its first cell: the answer that was there
    stays until there is another.
    """
    if names:
        found = {campaign.id: campaign for campaign in map(results.campaign, names)}
        campaigns = tuple(found.values())
        _must_agree(campaigns)
        return campaigns
    newest = results.campaigns(with_runs=True)[:1] or results.campaigns()[:1]
    if not newest:
        raise DatabaseError(
            "the database holds no campaign", hint="measure something: `vdisklab run PATHS…`"
        )
    return tuple(newest)


_SAME_PLAN = ("size_bytes", "runtime", "ramp", "scale", "guest", "directory", "devices", "disks",
              "arc_bytes")  # fmt: skip


_PLACES = ("directory", "devices", "disks")


def disagreement(first: Campaign, other: Campaign, *, places: bool = False) -> PlanError | None:
    """Why the numbers of two campaigns must not stand in one table; None when they may.

    They must be of one machine, and what has the same name must have been measured alike. With
    `places` they may be of several directories or devices: what asks so keeps them apart.
    """
    if other.host.machine_id != first.host.machine_id:
        return PlanError(
            f"campaigns {first.id} and {other.id} were measured on two machines "
            f"({first.host.hostname}, {other.host.hostname})",
            hint="numbers of two machines are not ranked together; name campaigns of one",
        )
    same = [key for key in _SAME_PLAN if not (places and key in _PLACES)]
    different = [key for key in same if first.plan.get(key) != other.plan.get(key)]
    if _differ(first.plan.get("qemu", {}), other.plan.get("qemu", {})):
        different.append("QEMU")
    mine, theirs = _settings(first), _settings(other)
    if _differ(mine, theirs):
        different.append("measurements")
    if different and different[0] in _PLACES:
        return PlanError(
            f"campaigns {first.id} and {other.id} differ in {different[0]}",
            hint="only campaigns that measure alike can be joined; side by side stand those of "
            f"several places in `vdisklab table --campaign {first.id} --campaign {other.id}`",
        )
    if different:
        return PlanError(
            f"campaigns {first.id} and {other.id} differ in {different[0].replace('_', ' ')}",
            hint="only campaigns that measure alike can be joined",
        )
    return None


def _differ(mine: Mapping[str, object], theirs: Mapping[str, object]) -> bool:
    """True when something of the same name is not the same."""
    return any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys())


def _settings(campaign: Campaign) -> dict[str, object]:
    """What each measurement of a campaign was told, by its name."""
    return {each["name"]: each for each in campaign.plan.get("measurements", ())}


def _must_agree(campaigns: Sequence[Campaign]) -> None:
    """Refuses to mix machines, or numbers of the same name that were measured differently."""
    for other in campaigns[1:]:
        error = disagreement(campaigns[0], other)
        if error is not None:
            raise error


def require_numbers(loaded: Loaded) -> None:
    """Raises PlanError where the campaigns hold nothing that was measured."""
    if not len(loaded.observations.value):
        raise PlanError(
            "this campaign holds no numbers: every run failed, or none was made",
            hint=f"see why: `vdisklab runs {loaded.campaigns[0].id}`",
        )


def joinable_campaigns(
    results: Results, names: Sequence[str] | None, first: Campaign | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of the named campaigns, or of the newest with all that may be joined with it.

    Beside them stand the reasons why others were left out. `first` stands in the place of the
    newest. Raises DatabaseError without any.
    """
    if names:
        return tuple(each.id for each in choose_campaigns(results, names)), ()
    if first is None:
        first, *_ = choose_campaigns(results, None)
    kept, left_out = [first.id], []
    for other in results.campaigns(with_runs=True):
        if other.id == first.id:
            continue
        error = disagreement(first, other)
        if error is None:
            kept.append(other.id)
        else:
            left_out.append(str(error))
    return tuple(kept), tuple(left_out)


def evidence_doubts(results: Results, loaded: Loaded) -> tuple[Doubt, ...]:
    """What the evidence beside the campaigns' numbers gives away."""
    witnessed = results.evidence([campaign.id for campaign in loaded.campaigns])
    return evidence_findings(witnessed, loaded.campaigns[0].host.cpus or 1)


def direct_doubts(results: Results, loaded: Loaded) -> tuple[NotDirect, ...]:
    """The cells that were to bypass caches on a ZFS that does not; nothing is read without ZFS."""
    labels = {run.cell: cell_label(run.path, run.page_cache) for run in loaded.outlines}
    if not any("zfs" in label for label in labels.values()):
        return ()
    return direct_findings(results.examples([each.id for each in loaded.campaigns]), labels)


def cache_findings(results: Results, loaded: Loaded) -> tuple[FromPageCache, ...]:
    """What of the campaigns' numbers came from the page cache."""
    found = evidence_doubts(results, loaded)
    return tuple(each for each in found if isinstance(each, FromPageCache))


def find_cells(observations: Observations, name: str) -> tuple[str, ...]:
    """The labels that a user's disk path or label means, all page-cache states of a path.

    Raises PlanError when nothing of it was measured.
    """
    if name in observations.cells:
        return (name,)
    path, state = split_label(name)
    try:
        path = parse_path(path).canonical
    except PlanError as error:
        raise PlanError(f"{name!r} was not measured, and {error}", hint=error.hint) from None
    bypassed = state == PageCache.BYPASSED
    found = [
        cell
        for cell in observations.cells
        if split_label(cell)[0] == path and (bypassed or split_label(cell)[1] == state)
    ]
    if not found:
        near = difflib.get_close_matches(name, observations.cells, n=3, cutoff=0.3)
        raise PlanError(
            f"{name!r} was not measured in this campaign",
            hint=f"measured were {', '.join(near)} …" if near else "see `vdisklab rank`",
        )
    order = [state.value for state in (PageCache.BYPASSED, PageCache.COLD, PageCache.WARM)]
    return tuple(sorted(found, key=lambda cell: order.index(split_label(cell)[1])))


def find_measure(observations: Observations, name: str) -> MeasureKey:
    """The measure that is spelled so, or the only one with that text in it. Raises PlanError."""
    spelled = {str(measure): measure for measure in sorted(observations.measures)}
    if name in spelled:
        return spelled[name]
    found = [text for text in spelled if name in text]
    if len(found) == 1:
        return spelled[found[0]]
    near = found or difflib.get_close_matches(name, spelled, n=6, cutoff=0.3) or list(spelled)
    shown = ", ".join(near[:8]) + (" …" if len(near) > 8 else "")
    problem = "may be any of several measures" if found else "was not measured"
    raise PlanError(f"{name!r} {problem}", hint=f"write one of {shown}")


def emit(form: Format, tables: Sequence[Table], document: Callable[[], Json]) -> None:
    """Prints tables for people, one JSON document, or CSV: tables with equal columns are one,
    others stand below each other, each after an empty line and with its own heading."""
    if form is Format.JSON:
        print(dumps(document()))
    elif form is Format.CSV:
        for place, table in enumerate(tables):
            heading, newline, rows = as_csv(table).partition("\r\n")
            if place == 0:
                sys.stdout.write(heading + newline)
            elif table.columns != tables[place - 1].columns:
                sys.stdout.write(newline + heading + newline)
            sys.stdout.write(rows)
    else:
        screen = console()
        for table in tables:
            show(table, screen)


def dumps(value: Json) -> str:
    """JSON in UTF-8 with all control characters escaped; NaN is a bug, not a value."""
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False)


def console() -> Console:
    """Standard output, as wide as the terminal, without any reading of markup."""
    width = None
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        width = PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)
