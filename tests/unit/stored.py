"""Real databases of made-up campaigns for tests: SQLite files, written in bulk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from vdisklab.results import rows, schema
from vdisklab.results.model import METRICS, Campaign, Run
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace

GOLDEN = Path(__file__).parents[1] / "golden"
_SQLITE = sqlite.dialect(paramstyle="qmark")


class Database:
    """The database of a test; `write` replaces all that is in it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def url(self) -> str:
        return str(self.file)

    def write(
        self,
        runs: Iterable[Run] | None = None,
        *,
        campaigns: Sequence[Campaign] = (CAMPAIGN,),
        power_cuts: Iterable[PowerCut] = (),
    ) -> None:
        """Stores the campaigns, newest first, with these runs: the made-up ones by default."""
        self.file.write_bytes(_without_runs(campaigns))
        self.add(campaign_runs() if runs is None else runs)
        if cuts := list(power_cuts):
            self.add_power_cuts(cuts)

    def add(self, runs: Iterable[Run]) -> None:
        """Adds runs of stored campaigns; an id that is taken gets a suffix."""
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # no test cuts the power
            with connection:
                _insert(connection, _unique(connection, runs))

    def add_power_cuts(self, power_cuts: Iterable[PowerCut]) -> None:
        with open_store(self.url) as store:
            for cut in power_cuts:
                store.add_power_cut(cut)

    @contextmanager
    def open(self) -> Iterator[Store]:
        with open_store(self.url, create=False) as store:
            yield store


@contextmanager
def stored(
    runs: Iterable[Run] | None = None,
    *,
    campaigns: Sequence[Campaign] = (CAMPAIGN,),
    power_cuts: Iterable[PowerCut] = (),
) -> Iterator[Store]:
    """A store with these campaigns and runs in a file of its own."""
    with TemporaryDirectory() as directory:
        database = Database(Path(directory) / "results.sqlite")
        database.write(runs, campaigns=campaigns, power_cuts=power_cuts)
        with database.open() as store:
            yield store


_MADE: dict[str, bytes] = {}
"""Databases without runs, by the text of their campaigns: many tests have the same ones."""


def _without_runs(campaigns: Sequence[Campaign]) -> bytes:
    """A database with campaigns alone; to make it takes longer than to fill it."""
    key = repr(tuple(campaigns))
    if key not in _MADE:
        with TemporaryDirectory() as directory:
            file = Path(directory) / "made.sqlite"
            if campaigns:
                file.write_bytes(_without_runs(()))
            with open_store(str(file)) as store:
                for campaign in reversed(campaigns):
                    store.add_campaign(campaign)
            _MADE[key] = file.read_bytes()
    return _MADE[key]


def _unique(connection: sqlite3.Connection, runs: Iterable[Run]) -> Iterator[Run]:
    taken = {name for (name,) in connection.execute("select id from run")}
    for run in runs:
        suffix = next(text for text in ("", "2", "3", "4") if run.id + text not in taken)
        taken.add(run.id + suffix)
        yield replace(run, id=run.id + suffix) if suffix else run


def _insert(connection: sqlite3.Connection, runs: Iterable[Run]) -> None:
    """As `Store.add_run` does, but with one statement for each table."""
    campaigns: dict[str, int] = dict(connection.execute("select id, key from campaign"))
    last_run, last_measurement = (
        connection.execute(f"select max(key) from {table}").fetchone()[0] or 0  # noqa: S608
        for table in ("run", "measurement")
    )
    tables = (schema.run, schema.state_check, schema.measurement, schema.counted, schema.sample,
              schema.series)  # fmt: skip
    waiting: dict[sa.Table, list[dict[str, Any]]] = {table: [] for table in tables}
    metrics: set[str] = set()
    for key, run in enumerate(runs, last_run + 1):
        row = rows.run_row(run, campaigns[run.campaign])
        waiting[schema.run].append({"key": key, **row})
        waiting[schema.state_check] += rows.check_rows(run.checks, key)
        for ordinal, measured in enumerate(run.measurements):
            last_measurement += 1
            row = rows.measurement_row(measured, key, ordinal)
            waiting[schema.measurement].append({"key": last_measurement, **row})
            waiting[schema.counted] += rows.counted_rows(measured.evidence, last_measurement)
            waiting[schema.sample] += rows.sample_rows(measured.samples, last_measurement)
            waiting[schema.series] += rows.series_rows(measured.series, last_measurement)
            metrics |= {sample.metric for sample in measured.samples}
            metrics |= {series.metric for series in measured.series}
    names = {name for (name,) in connection.execute("select name from metric")}
    new = [METRICS[name] for name in sorted(metrics - names)]
    waiting = {
        schema.metric: [{"name": m.name, "unit": m.unit, "better": m.better} for m in new],
        **waiting,
    }
    for table, found in waiting.items():
        if found:
            statement = _statement(table, tuple(found[0]))
            connection.executemany(statement.text, map(statement.parameters, found))


class _Statement(NamedTuple):
    """An INSERT as SQLAlchemy writes it, and how each column's type makes a value ready for it."""

    text: str
    values: Callable[[dict[str, Any]], Sequence[Any]]
    ready: tuple[tuple[int, Callable[[Any], Any]], ...]

    def parameters(self, row: dict[str, Any]) -> Sequence[Any]:
        values = self.values(row)
        if self.ready:
            values = list(values)
            for place, make in self.ready:
                values[place] = make(values[place])
        return values


@cache
def _statement(table: sa.Table, names: tuple[str, ...]) -> _Statement:
    """Compiled once: a new engine would compile it again for each database."""
    written = sa.insert(table).compile(dialect=_SQLITE, column_keys=list(names))
    order = written.positiontup or []
    assert set(order) == set(names)
    types = (table.c[name].type.dialect_impl(_SQLITE) for name in order)
    makes = [type_.bind_processor(_SQLITE) for type_ in types]
    ready = tuple((place, make) for place, make in enumerate(makes) if make is not None)
    return _Statement(str(written), itemgetter(*order), ready)
