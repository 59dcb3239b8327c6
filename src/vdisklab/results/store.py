"""Campaigns and runs in a database; only this package runs SQL on results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import StatementError

from vdisklab.analysis.observations import Observations
from vdisklab.errors import DatabaseError, UnstorableError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results import damage, model, power_cut, queries, rows, schema
from vdisklab.results.database import (
    PATIENCE_SECONDS,
    Database,
    as_unstorable,
    default_url,
    open_database,
    parse_address,
)

__all__ = ["Store", "default_url", "open_store"]

# Runs are read in groups, each in a short transaction: no lock is held while the caller works on
# them or a pager waits.
_RUNS_AT_ONCE = 64
_CANDIDATES_SHOWN = 4
_Answer = TypeVar("_Answer")

_SUMMARY = (schema.metric, schema.host, schema.campaign, schema.run, schema.power_cut)
"""The tables behind lists of campaigns, runs and verdicts; the others hold numbers."""
_HAS_RUNS = sa.exists().where(schema.run.c.campaign == schema.campaign.c.key)


class Store:
    """The results in one database. Every method raises DatabaseError if it fails."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._checked: set[sa.Table] = set()

    @contextmanager
    def _reading(self, *numbers: sa.Table) -> Iterator[sa.Connection]:
        """A view for an answer from campaigns, runs and these tables, which are checked first."""
        tables = (*_SUMMARY, *numbers)
        with self._database.reading() as connection:
            damage.require_sound(connection, dict.fromkeys(tables).keys() - self._checked)
            self._checked.update(tables)
            yield connection

    def _answer(
        self, query: Callable[[sa.Connection, Sequence[int]], _Answer],
        campaign_ids: Collection[str], *numbers: sa.Table,
    ) -> _Answer:  # fmt: skip
        """What `query` says of some campaigns; `numbers` are the tables that it reads."""
        with self._reading(*numbers) as connection:
            return query(connection, self._campaign_keys(connection, campaign_ids))

    def __str__(self) -> str:
        """The address of the database, without its password."""
        return str(self._database.address)

    def add_campaign(self, campaign: model.Campaign) -> None:
        """Stores a campaign without runs, and the facts of its host unless they are stored."""
        with self._database.writing() as connection:
            self._add_campaign(connection, campaign)

    def drop_if_empty(self, campaign_id: str) -> None:
        """Removes a campaign without stored runs; does nothing to any other."""
        table = schema.campaign
        with self._database.writing() as connection:
            connection.execute(sa.delete(table).where(table.c.id == campaign_id, ~_HAS_RUNS))

    def matching(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids of campaigns and of runs that begin with `name`, or the id that equals it alone.

        An imported id can be of any length, so one id may be the beginning of another.
        """
        with self._database.reading() as connection:
            campaigns, runs = (
                tuple(connection.scalars(sa.select(table.c.id).where(_begins(table, name))))
                for table in (schema.campaign, schema.run)
            )
        if name in (*campaigns, *runs):
            return (name,) * (name in campaigns), (name,) * (name in runs)
        return (tuple(sorted(campaigns)), tuple(sorted(runs))) if name else ((), ())

    def delete_campaign(self, campaign_id: str) -> None:
        """Removes a campaign with all its runs. Its room in the database is used again."""
        self._delete(schema.campaign, campaign_id)

    def delete_run(self, run_id: str) -> None:
        """Removes one run; its campaign can measure it again."""
        self._delete(schema.run, run_id)

    def _delete(self, table: sa.Table, identity: str) -> None:
        with self._database.writing() as connection:
            connection.execute(sa.delete(table).where(table.c.id == identity))

    def rename_campaign(self, campaign_id: str, label: str) -> None:
        """Gives a campaign another label."""
        table = schema.campaign
        with self._database.writing() as connection:
            connection.execute(
                sa.update(table).where(table.c.id == campaign_id).values(label=label)
            )

    def rename_runs(self, rounds: Mapping[str, int], cell: MeasuredCell) -> None:
        """Gives runs another cell; each gets the round that `rounds` has for its id."""
        table = schema.run
        values = {"path": cell.name, "page_cache": cell.page_cache, "cell": cell.fingerprint}
        with self._database.writing() as connection:
            for run_id, round in rounds.items():
                renamed = sa.update(table).where(table.c.id == run_id)
                connection.execute(renamed.values(round=round, **values))

    def campaigns(
        self, *, with_runs: bool = False, as_stored: bool = False
    ) -> tuple[model.Campaign, ...]:
        """All campaigns, or only those with stored runs, the newest first; or the last stored."""
        table = schema.campaign
        order = () if as_stored else (table.c.started.desc(),)
        query = sa.select(table).order_by(*order, table.c.key.desc())
        if with_runs:
            query = query.where(_HAS_RUNS)
        with self._reading() as connection:
            return _campaigns(connection, query)

    def newest(self) -> tuple[object, ...]:
        """Changes when a campaign, run or verdict is stored, and when a campaign is deleted."""
        tables = (schema.campaign, schema.run, schema.power_cut)
        keys = [sa.select(sa.func.max(table.c.key)).scalar_subquery() for table in tables]
        count = sa.select(sa.func.count()).select_from(schema.campaign).scalar_subquery()
        with self._database.reading() as connection:
            return tuple(connection.execute(sa.select(*keys, count)).one())

    def holds_path(self, name: str) -> bool:
        """True if a run has this path or free name."""
        query = sa.select(sa.exists().where(schema.run.c.path == name))
        with self._database.reading() as connection:
            return bool(connection.scalar(query))

    def campaign(self, name: str) -> model.Campaign:
        """The campaign with that id, or the only one whose id begins with it."""
        table = schema.campaign
        with self._reading() as connection:
            key = _key_by_name(connection, table, name, "campaign")
            return _campaigns(connection, sa.select(table).where(table.c.key == key))[0]

    def find_campaign(self, fingerprint: str, machine_id: str) -> model.Campaign | None:
        """The newest campaign of that plan on that machine, None if there is none.

        Its `host` has the facts from when it was started. The caller decides whether to
        continue it if they have changed.
        """
        table = schema.campaign
        query = (
            sa.select(table)
            .join(schema.host)
            .where(table.c.fingerprint == fingerprint, schema.host.c.machine_id == machine_id)
            .order_by(table.c.started.desc(), table.c.key.desc())
            .limit(1)
        )
        with self._reading() as connection:
            campaigns = _campaigns(connection, query)
        return campaigns[0] if campaigns else None

    def add_run(self, run: model.Run) -> None:
        """Stores a run with its checks and measurements, or nothing if that fails.

        Raises DatabaseError if its campaign is not stored, its id is taken, its cell already has a
        measured run in this round, a number is not finite, or a metric is unknown.
        """
        with self._database.writing() as connection:
            self._add_run(connection, run)

    def add_together(
        self,
        campaigns: Iterable[model.Campaign],
        runs: Iterable[model.Run],
        power_cuts: Iterable[power_cut.PowerCut] = (),
    ) -> None:
        """Stores everything in one transaction; nothing if any part is refused."""
        with self._database.writing() as connection:
            for campaign in campaigns:
                self._add_campaign(connection, campaign)
            for run in runs:
                self._add_run(connection, run)
            for verdict in power_cuts:
                self._add_power_cut(connection, verdict)

    def _add_campaign(self, connection: sa.Connection, campaign: model.Campaign) -> None:
        if _campaign_key(connection, campaign.id) is not None:
            raise DatabaseError(
                f"the campaign {campaign.id} is in {self} already",
                hint="it was stored before; nothing is lost: choose another --db to store it twice",
            )
        host_key = _stored_host(connection, campaign.host)
        connection.execute(sa.insert(schema.campaign), [rows.campaign_row(campaign, host_key)])

    def _add_run(self, connection: sa.Connection, run: model.Run) -> None:
        try:
            self._insert_run(connection, run)
        except (StatementError, OverflowError, UnstorableError) as error:
            refusal = as_unstorable(error)
            if refusal is None:
                raise
            message = f"run {run.id[:64]!r}: {refusal.message}"
            raise UnstorableError(message, hint=refusal.hint) from error

    def _insert_run(self, connection: sa.Connection, run: model.Run) -> None:
        campaign_key = self._campaign_keys(connection, (run.campaign,))[0]
        self._refuse_double(connection, run, campaign_key)
        _register_metrics(connection, run)
        key = _inserted(connection, schema.run, rows.run_row(run, campaign_key))
        _insert_all(connection, schema.state_check, rows.check_rows(run.checks, key))
        keys = _measurement_keys(connection, run.measurements, key)
        counted, samples, series, groups, members = [], [], [], [], []
        for measurement, parent in zip(run.measurements, keys, strict=True):
            counted += rows.counted_rows(measurement.evidence, parent)
            samples += rows.sample_rows(measurement.samples, parent)
            series += rows.series_rows(measurement.series, parent)
            groups += rows.group_rows(measurement.group, parent)
            members += rows.member_rows(measurement.group, parent)
        _insert_all(connection, schema.counted, counted)
        _insert_all(connection, schema.sample, samples)
        _insert_all(connection, schema.series, series)
        _insert_all(connection, schema.guest_group, groups)
        _insert_all(connection, schema.member, members)

    def _refuse_double(self, connection: sa.Connection, run: model.Run, campaign_key: int) -> None:
        table = schema.run
        if connection.scalar(sa.select(table.c.key).where(table.c.id == run.id)) is not None:
            raise DatabaseError(
                f"the run {run.id} is in {self} already",
                hint="it was stored before; nothing is lost: choose another --db to store it twice",
            )
        measured = sa.select(table.c.id).where(
            table.c.campaign == campaign_key,
            table.c.round == run.round,
            table.c.cell == run.cell,
            table.c.failure_kind.is_(None),
        )
        earlier = connection.scalar(measured) if run.failure is None else None
        if earlier is not None:
            raise DatabaseError(
                f"{run.cell} is measured in round {run.round} already, by run {earlier}",
                hint="another vdisklab may be running the same plan",
            )

    def finished(self, campaign_id: str, *, failed_too: bool = False) -> set[tuple[int, str]]:
        """Round and cell of measured runs; with `failed_too` also of failed ones."""
        table = schema.run
        with self._reading() as connection:
            key = self._campaign_keys(connection, (campaign_id,))[0]
            query = sa.select(table.c.round, table.c.cell).where(table.c.campaign == key)
            if not failed_too:
                query = query.where(table.c.failure_kind.is_(None))
            return {(round, cell) for round, cell in connection.execute(query)}

    def runs(
        self, campaign_id: str | None = None, *, measured_only: bool = False
    ) -> Iterator[model.Run]:
        """The complete runs of one campaign, or of all, in the order they were stored.

        Runs that are stored during the iteration are not included.
        """
        table = schema.run
        query = sa.select(table.c.key).order_by(table.c.key)
        with self._reading(*schema.metadata.sorted_tables) as connection:
            if campaign_id is not None:
                key = self._campaign_keys(connection, (campaign_id,))[0]
                query = query.where(table.c.campaign == key)
            if measured_only:
                query = query.where(table.c.failure_kind.is_(None))
            keys = connection.scalars(query).all()
        return self._runs_by_key(keys)

    def _runs_by_key(self, keys: Sequence[int]) -> Iterator[model.Run]:
        for first in range(0, len(keys), _RUNS_AT_ONCE):
            with self._database.reading() as connection:
                group = queries.whole_runs(connection, keys[first : first + _RUNS_AT_ONCE])
            yield from group

    def ran_under(self, campaign_id: str) -> set[model.RanUnder]:
        """What ran the guests of a campaign's measured runs; empty without guests."""
        table = schema.run
        with self._reading() as connection:
            key = self._campaign_keys(connection, (campaign_id,))[0]
            query = sa.select(table.c.accelerator, table.c.emulated).where(
                table.c.campaign == key,
                table.c.failure_kind.is_(None),
                table.c.accelerator.is_not(None),
            )
            found = connection.execute(query.distinct())
            return {
                model.RanUnder.of(accelerator, emulated=emulated) for accelerator, emulated in found
            }

    def media(self) -> dict[str, str]:
        """By campaign, what its measured runs were on: the media's names, joined by commas."""
        table, campaign = schema.run, schema.campaign
        query = (
            sa.select(campaign.c.id, table.c.medium)
            .select_from(table.join(campaign))
            .where(table.c.medium.is_not(None), table.c.failure_kind.is_(None))
            .distinct()
            .order_by(campaign.c.id, table.c.medium)
        )
        names: dict[str, list[str]] = {}
        with self._reading() as connection:
            for campaign_id, medium in connection.execute(query):
                names.setdefault(campaign_id, []).append(medium)
        return {campaign_id: ", ".join(media) for campaign_id, media in names.items()}

    def run(self, name: str) -> model.Run:
        """The run with that id, or the only one whose id begins with it."""
        with self._reading(*schema.metadata.sorted_tables) as connection:
            key = _key_by_name(connection, schema.run, name, "run")
            return queries.whole_runs(connection, (key,))[0]

    def outlines(self, campaign_ids: Collection[str]) -> tuple[model.RunOutline, ...]:
        """The runs of some campaigns, failed ones too, without numbers and raw output."""
        return self._answer(queries.outlines, campaign_ids)

    def observations(self, campaign_ids: Collection[str]) -> Observations:
        """Every sample of the measured runs of some campaigns, as columns."""
        return self._answer(queries.observations, campaign_ids, schema.measurement, schema.sample)

    def sums(self, campaign_ids: Collection[str]) -> tuple[model.CellSums, ...]:
        """The counters, summed by cell and measurement."""
        return self._answer(queries.sums, campaign_ids, schema.measurement, schema.counted)

    def cpu_of_runs(self, campaign_ids: Collection[str]) -> tuple[model.RunSums, ...]:
        """The host's CPU seconds and the operations of each measured run that has both."""
        return self._answer(queries.cpu_of_runs, campaign_ids, schema.measurement, schema.counted)

    def times(self, campaign_ids: Collection[str]) -> tuple[model.TimedMeasurement, ...]:
        """The measurements with stolen CPU time, or with more seconds counted than passed."""
        return self._answer(queries.times, campaign_ids, schema.measurement)

    def examples(self, campaign_ids: Collection[str]) -> tuple[model.Example, ...]:
        """One measured run of each cell, the last one stored, with its commands and states."""
        return self._answer(queries.examples, campaign_ids, schema.measurement, schema.state_check)

    def gates_not_met(self, campaign_ids: Collection[str]) -> tuple[model.GateCount, ...]:
        """The gates that half of a cell's measured runs or more did not meet."""
        return self._answer(queries.gates_not_met, campaign_ids, schema.state_check)

    def bandwidth_series(
        self, campaign_ids: Collection[str], cells: Collection[str]
    ) -> tuple[model.RunSeries, ...]:
        """The bandwidth over time of the measured runs of some cells, by their fingerprints."""
        with self._reading(schema.measurement, schema.series) as connection:
            keys = self._campaign_keys(connection, campaign_ids)
            return queries.bandwidth_series(connection, keys, cells)

    def add_power_cut(self, verdict: power_cut.PowerCut) -> None:
        """Stores a verdict, and the facts of its host unless they are stored."""
        with self._database.writing() as connection:
            self._add_power_cut(connection, verdict)

    def _add_power_cut(self, connection: sa.Connection, verdict: power_cut.PowerCut) -> None:
        table = schema.power_cut
        if connection.scalar(sa.select(table.c.key).where(table.c.id == verdict.id)) is not None:
            raise DatabaseError(
                f"the verdict {verdict.id} is in {self} already",
                hint="it was stored before; nothing is lost",
            )
        row = rows.power_cut_row(verdict, _stored_host(connection, verdict.host))
        connection.execute(sa.insert(table), [row])

    def power_cuts(self, machine_id: str | None = None) -> tuple[power_cut.PowerCut, ...]:
        """The verdicts on one machine, or all, in the order in which they were stored."""
        table = schema.power_cut
        query = sa.select(table).join(schema.host).order_by(table.c.key)
        if machine_id is not None:
            query = query.where(schema.host.c.machine_id == machine_id)
        with self._reading() as connection:
            verdicts = connection.execute(query).mappings().all()
            host_query = sa.select(schema.host).where(
                schema.host.c.key.in_({row["host"] for row in verdicts})
            )
            hosts = {
                row["key"]: rows.host_facts(row)
                for row in connection.execute(host_query).mappings()
            }
            return tuple(rows.power_cut_value(row, hosts[row["host"]]) for row in verdicts)

    def _campaign_keys(self, connection: sa.Connection, campaign_ids: Collection[str]) -> list[int]:
        keys = {name: _campaign_key(connection, name) for name in campaign_ids}
        for name, key in keys.items():
            if key is None:
                raise DatabaseError(
                    f"the campaign {name} is not in {self}",
                    hint="it was deleted, or never stored; `vdisklab runs` lists the stored ones",
                )
        return [key for key in keys.values() if key is not None]


@contextmanager
def open_store(
    url_or_path: str,
    *,
    create: bool = True,
    read_only: bool = False,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Store]:
    """Opens the results at a file's path, `sqlite:///FILE` or `postgresql://…`.

    A missing file is created unless `create` is False. An older schema is
    upgraded in one transaction, and refused if `read_only`. If another program holds a lock, it
    waits for `patience` seconds.
    Raises DatabaseError if the database is locked, damaged, newer than this version, another
    program's, unreachable or not writable.
    """
    address = parse_address(url_or_path)
    with open_database(address, create=create, patience=patience, read_only=read_only) as database:
        yield Store(database)


def _campaign_key(connection: sa.Connection, campaign_id: str) -> int | None:
    table = schema.campaign
    return connection.scalar(sa.select(table.c.key).where(table.c.id == campaign_id))


def _stored_host(connection: sa.Connection, facts: model.HostFacts) -> int:
    """The key of the row with these facts, which is inserted if it is missing."""
    table = schema.host
    row = rows.host_row(facts)
    query = sa.select(table.c.key).where(table.c.fingerprint == row["fingerprint"])
    key = connection.scalar(query)
    if key is None:
        _insert_unless_there(connection, table, row)
        key = connection.execute(query).scalar_one()
    return int(key)


def _campaigns(connection: sa.Connection, query: sa.Select[Any]) -> tuple[model.Campaign, ...]:
    campaigns = connection.execute(query).mappings().all()
    table = schema.host
    host_query = sa.select(table).where(table.c.key.in_({row["host"] for row in campaigns}))
    hosts = {row["key"]: rows.host_facts(row) for row in connection.execute(host_query).mappings()}
    return tuple(rows.campaign_value(row, hosts[row["host"]]) for row in campaigns)


def _begins(table: sa.Table, name: str) -> sa.ColumnElement[bool]:
    """The rows whose id begins with a name. Not LIKE: SQLite's ignores case."""
    return sa.func.substr(table.c.id, 1, len(name)) == name


def _key_by_name(connection: sa.Connection, table: sa.Table, name: str, kind: str) -> int:
    """The key of the row whose id is `name`, or of the only row whose id begins with it."""
    query = sa.select(table.c.id, table.c.key).where(_begins(table, name)).order_by(table.c.id)
    matches = {row.id: row.key for row in connection.execute(query)} if name else {}
    if name in matches:
        return int(matches[name])
    if not matches:
        raise DatabaseError(
            f"there is no {kind} {name!r}",
            hint=_of_other_kind(connection, name, kind)
            or f"`vdisklab runs{' CAMPAIGN' if kind == 'run' else ''}` lists the {kind}s; the "
            "first letters of an id are enough",
        )
    if len(matches) > 1:
        shown = ", ".join(list(matches)[:_CANDIDATES_SHOWN])
        rest = len(matches) - _CANDIDATES_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        raise DatabaseError(
            f"{name!r} may be any of {len(matches)} {kind}s: {shown}{more}",
            hint="give more letters of the id",
        )
    return int(next(iter(matches.values())))


def _of_other_kind(connection: sa.Connection, name: str, kind: str) -> str | None:
    """The hint for who named a campaign instead of a run, or the other way round; None if nobody
    did."""
    table = schema.campaign if kind == "run" else schema.run
    query = sa.select(table.c.id).where(_begins(table, name)).order_by(table.c.id)
    found = connection.execute(query).scalars().first() if name else None
    if found is None:
        return None
    if kind == "run":
        return f"{found} is a campaign: `vdisklab runs {found}` lists its runs"
    return f"{found} is a run: `vdisklab show {found}`"


def _register_metrics(connection: sa.Connection, run: model.Run) -> None:
    """Stores unit and direction of each of the run's metrics that is not stored yet."""
    table = schema.metric
    registered = {row.name: (row.unit, row.better) for row in connection.execute(sa.select(table))}
    used = {sample.metric for measured in run.measurements for sample in measured.samples}
    used |= {series.metric for measured in run.measurements for series in measured.series}
    for name in sorted(used):
        metric = model.METRICS.get(name)
        if metric is None:
            raise DatabaseError(
                f"the metric {name!r} is unknown, and a number without a unit is not stored",
                hint="a newer vdisklab may know it",
            )
        stored = registered.get(name)
        if stored is None:
            _insert_unless_there(connection, table, rows.metric_row(metric))
        elif stored != (metric.unit, metric.better):
            raise DatabaseError(
                f"the database has {name} in {stored[0]}, where {stored[1]} is better; "
                f"this vdisklab has {metric.unit}, where {metric.better} is better",
                hint="give --db another database",
            )


def _inserted(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> int:
    key = connection.execute(sa.insert(table).returning(table.c.key), row).scalar_one()
    return int(key)


def _measurement_keys(
    connection: sa.Connection, measurements: Sequence[model.Measurement], run_key: int
) -> list[int]:
    """Inserts the measurements of a run at once; returns their keys, in their order."""
    if not measurements:
        return []
    table = schema.measurement
    inserted = connection.execute(
        sa.insert(table).returning(table.c.ordinal, table.c.key),
        [
            rows.measurement_row(measurement, run_key, ordinal)
            for ordinal, measurement in enumerate(measurements)
        ],
    )
    # RETURNING promises no order, neither SQLite's nor PostgreSQL's.
    keys = {row.ordinal: row.key for row in inserted}
    return [keys[ordinal] for ordinal in range(len(measurements))]


def _insert_unless_there(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
    """Inserts a row that another process may be inserting at the same time."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - loaded by its engine only

        connection.execute(postgresql.insert(table).values(row).on_conflict_do_nothing())
    else:
        connection.execute(sqlite.insert(table).values(row).on_conflict_do_nothing())


def _insert_all(connection: sa.Connection, table: sa.Table, new_rows: list[dict[str, Any]]) -> None:
    if new_rows:
        connection.execute(sa.insert(table), new_rows)
