"""Real databases of made-up campaigns for tests: SQLite files, written in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from vdisklab.results import rows, schema
from vdisklab.results.model import METRICS, Campaign, Run
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.store import Store, open_store

GOLDEN = Path(__file__).parents[1] / "golden"


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
        self.file.write_bytes(_empty())
        with open_store(self.url) as store:
            for campaign in reversed(campaigns):
                store.add_campaign(campaign)
        self.add(campaign_runs() if runs is None else runs)
        self.add_power_cuts(power_cuts)

    def add(self, runs: Iterable[Run]) -> None:
        """Adds runs of stored campaigns; an id that is taken gets a suffix."""
        engine = sa.create_engine(f"sqlite:///{self.file}")
        with engine.begin() as connection:
            _insert(connection, _unique(connection, runs))
        engine.dispose()

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


@cache
def _empty() -> bytes:
    """A database without campaigns; to make its tables takes longer than to fill them."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "empty.sqlite"
        with open_store(str(file)):
            pass
        return file.read_bytes()


def _unique(connection: sa.Connection, runs: Iterable[Run]) -> Iterator[Run]:
    taken = set(connection.scalars(sa.select(schema.run.c.id)))
    for run in runs:
        suffix = next(text for text in ("", "2", "3", "4") if run.id + text not in taken)
        taken.add(run.id + suffix)
        yield replace(run, id=run.id + suffix)


def _insert(connection: sa.Connection, runs: Iterable[Run]) -> None:
    """As `Store.add_run` does, but with one statement for each table."""
    campaigns: dict[str, int] = {
        row.id: row.key
        for row in connection.execute(sa.select(schema.campaign.c.id, schema.campaign.c.key))
    }
    last_run, last_measurement = (
        connection.scalar(sa.select(sa.func.max(table.c.key))) or 0
        for table in (schema.run, schema.measurement)
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
    names = set(connection.scalars(sa.select(schema.metric.c.name)))
    new = [METRICS[name] for name in sorted(metrics - names)]
    waiting = {
        schema.metric: [{"name": m.name, "unit": m.unit, "better": m.better} for m in new],
        **waiting,
    }
    for table, found in waiting.items():
        if found:
            connection.execute(sa.insert(table), found)
