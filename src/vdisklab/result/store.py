"""Campaigns and runs in a database: the only place where SQL is run on results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from vdisklab.errors import DatabaseError
from vdisklab.result import rows, schema
from vdisklab.result.address import default_url, parse_address
from vdisklab.result.database import PATIENCE_SECONDS, Database, open_database
from vdisklab.result.model import METRICS, Campaign, HostFacts, Origin, Run, Witnessed
from vdisklab.result.observations import (
    CellTally,
    Example,
    Observations,
    RunOutline,
    collect,
)
from vdisklab.result.powercut import PowerCut

__all__ = ["Observations", "RunOutline", "Store", "default_url", "open_store"]

# Runs are read in groups, each in its own short transaction: no lock is held while the caller
# works on them, however long a report takes or a pager waits.
_RUNS_AT_ONCE = 64
_SAMPLES_AT_ONCE = 50_000
_MEASUREMENTS_AT_ONCE = 500
_CANDIDATES_SHOWN = 4


class Store:
    """The results in one database. Every method raises DatabaseError when it cannot be done."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __str__(self) -> str:
        """Where it is, without any password."""
        return str(self._database.address)

    def add_campaign(self, campaign: Campaign) -> None:
        """Stores a campaign without runs, and the facts of its host unless they are known."""
        with self._database.writing() as connection:
            if _campaign_key(connection, campaign.id) is not None:
                raise DatabaseError(f"the campaign {campaign.id} is in {self} already")
            host_key = _stored_host(connection, campaign.host)
            connection.execute(sa.insert(schema.campaign), [rows.campaign_row(campaign, host_key)])

    def campaigns(self) -> tuple[Campaign, ...]:
        """All campaigns, the newest first."""
        newest = (schema.campaign.c.started.desc(), schema.campaign.c.key.desc())
        with self._database.reading() as connection:
            return _campaigns(connection, sa.select(schema.campaign).order_by(*newest))

    def campaign(self, name: str) -> Campaign:
        """The campaign with that id, or whose id alone begins so."""
        table = schema.campaign
        with self._database.reading() as connection:
            key = _key_by_name(connection, table, name, "campaign")
            return _campaigns(connection, sa.select(table).where(table.c.key == key))[0]

    def find_campaign(self, fingerprint: str, machine_id: str) -> Campaign | None:
        """The newest campaign of that plan on that machine, None when there is none.

        Its `host` holds the facts of the day it was started: whether they still are the same,
        and whether it may be continued when they are not, is for the caller to say.
        """
        table = schema.campaign
        query = (
            sa.select(table)
            .join(schema.host)
            .where(table.c.fingerprint == fingerprint, schema.host.c.machine_id == machine_id)
            .order_by(table.c.started.desc(), table.c.key.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            found = _campaigns(connection, query)
        return found[0] if found else None

    def add_run(self, run: Run) -> None:
        """Stores a run and all that hangs on it, or, when that fails, nothing.

        Refused are a run whose campaign is not stored, an id that is, a second measured run of
        a cell in its block, a number that is not finite and a metric that METRICS lacks.
        """
        with self._database.writing() as connection:
            campaign_key = self._campaign_keys(connection, (run.campaign,))[0]
            self._refuse_double(connection, run, campaign_key)
            _register_metrics(connection, run)
            key = _inserted(connection, schema.run, rows.run_row(run, campaign_key))
            _insert_all(connection, schema.state_check, rows.check_rows(run.checks, key))
            for ordinal, measurement in enumerate(run.measurements):
                row = rows.measurement_row(measurement, key, ordinal)
                parent = _inserted(connection, schema.measurement, row)
                counted = rows.counted_rows(measurement.evidence, parent)
                _insert_all(connection, schema.counted, counted)
                samples = rows.sample_rows(measurement.samples, parent)
                _insert_all(connection, schema.sample, samples)

    def _refuse_double(self, connection: sa.Connection, run: Run, campaign_key: int) -> None:
        table = schema.run
        if connection.scalar(sa.select(table.c.key).where(table.c.id == run.id)) is not None:
            raise DatabaseError(f"the run {run.id} is in {self} already")
        measured = sa.select(table.c.id).where(
            table.c.campaign == campaign_key,
            table.c.block == run.block,
            table.c.cell == run.cell,
            table.c.failure_kind.is_(None),
        )
        earlier = connection.scalar(measured) if run.failure is None else None
        if earlier is not None:
            raise DatabaseError(
                f"{run.cell} is measured in block {run.block} already, by run {earlier}",
                hint="is another vdisklab running the same plan?",
            )

    def finished(self, campaign_id: str, *, failed_too: bool = False) -> set[tuple[int, str]]:
        """Block and cell of what is measured; with `failed_too` also of what was only tried."""
        table = schema.run
        with self._database.reading() as connection:
            key = self._campaign_keys(connection, (campaign_id,))[0]
            query = sa.select(table.c.block, table.c.cell).where(table.c.campaign == key)
            if not failed_too:
                query = query.where(table.c.failure_kind.is_(None))
            return {(block, cell) for block, cell in connection.execute(query)}

    def runs(self, campaign_id: str | None = None, *, measured_only: bool = False) -> Iterator[Run]:
        """The runs of one campaign, or of all, whole and in the order they were stored.

        Runs that are stored while the iteration goes on are not in it.
        """
        table = schema.run
        query = sa.select(table.c.key).order_by(table.c.key)
        with self._database.reading() as connection:
            if campaign_id is not None:
                key = self._campaign_keys(connection, (campaign_id,))[0]
                query = query.where(table.c.campaign == key)
            if measured_only:
                query = query.where(table.c.failure_kind.is_(None))
            keys = connection.scalars(query).all()
        return self._runs_by_key(keys)

    def _runs_by_key(self, keys: Sequence[int]) -> Iterator[Run]:
        for first in range(0, len(keys), _RUNS_AT_ONCE):
            with self._database.reading() as connection:
                group = _whole_runs(connection, keys[first : first + _RUNS_AT_ONCE])
            yield from group

    def run(self, name: str) -> Run:
        """The run with that id, or whose id alone begins so."""
        with self._database.reading() as connection:
            key = _key_by_name(connection, schema.run, name, "run")
            return _whole_runs(connection, (key,))[0]

    def outlines(self, campaign_ids: Collection[str]) -> tuple[RunOutline, ...]:
        """The runs of some campaigns, failed ones too, without numbers and raw output."""
        table = schema.run
        with self._database.reading() as connection:
            keys = self._campaign_keys(connection, campaign_ids)
            query = (
                sa.select(table, schema.campaign.c.id.label("campaign_id"))
                .join(schema.campaign)
                .where(table.c.campaign.in_(keys))
                .order_by(table.c.key)
            )
            return tuple(_outline(row) for row in connection.execute(query).mappings())

    def observations(self, campaign_ids: Collection[str]) -> Observations:
        """Every sample of the measured runs of some campaigns, as columns."""
        run, measurement, sample = schema.run, schema.measurement, schema.sample
        with self._database.reading() as connection:
            keys = self._campaign_keys(connection, campaign_ids)
            wanted = sa.and_(run.c.campaign.in_(keys), run.c.failure_kind.is_(None))
            measurements = connection.execute(
                sa.select(
                    measurement.c.key,
                    measurement.c.name,
                    run.c.id,
                    schema.campaign.c.id,
                    run.c.cell,
                    run.c.block,
                    run.c.position,
                )
                .select_from(measurement.join(run).join(schema.campaign))
                .where(wanted)
                .order_by(measurement.c.key)
            ).all()
            samples = connection.execution_options(stream_results=True).execute(
                sa.select(sample.c.measurement, sample.c.metric, sample.c.direction, sample.c.value)
                .select_from(sample.join(measurement).join(run))
                .where(wanted)
                .order_by(sample.c.measurement, sample.c.ordinal)
            )
            return collect(measurements, samples.partitions(_SAMPLES_AT_ONCE))

    def evidence(self, campaign_ids: Collection[str]) -> Iterator[Witnessed]:
        """The evidence beside each measurement of measured runs, without numbers and raw output.

        Read in groups, each in its own short transaction.
        """
        run, measurement = schema.run, schema.measurement
        with self._database.reading() as connection:
            keys = self._campaign_keys(connection, campaign_ids)
            query = (
                sa.select(measurement.c.key)
                .join(run)
                .where(run.c.campaign.in_(keys), run.c.failure_kind.is_(None))
                .order_by(measurement.c.key)
            )
            found = connection.scalars(query).all()
        return self._evidence_by_key(found)

    def _evidence_by_key(self, keys: Sequence[int]) -> Iterator[Witnessed]:
        for first in range(0, len(keys), _MEASUREMENTS_AT_ONCE):
            with self._database.reading() as connection:
                group = _witnessed(connection, keys[first : first + _MEASUREMENTS_AT_ONCE])
            yield from group

    def tallies(self, campaign_ids: Collection[str]) -> tuple[CellTally, ...]:
        """What was counted, summed by cell and measurement: for reports on many cells."""
        run, measurement, counted = schema.run, schema.measurement, schema.counted
        qemu, guest, device = (counted.alias(name) for name in ("qemu", "guest", "device"))
        joined = measurement.join(run)
        for seen in (qemu, guest, device):
            on = sa.and_(seen.c.measurement == measurement.c.key, seen.c.observer == seen.name)
            joined = joined.outerjoin(seen, on)

        def above(*names: str) -> sa.ColumnElement[Any]:
            # Where QEMU counted its word counts, for all columns alike.
            total = sa.case(
                (qemu.c.read_bytes.is_not(None), sum(qemu.c[name] for name in names)),
                else_=sum(guest.c[name] for name in names),
            )
            return sa.func.sum(total)

        query = (
            sa.select(
                run.c.cell,
                measurement.c.name,
                above("read_operations", "write_operations"),
                above("flush_operations"),
                sa.func.sum(device.c.flush_operations),
                above("read_bytes", "write_bytes"),
                sa.func.sum(device.c.read_bytes + device.c.write_bytes),
                sa.func.sum(measurement.c.host_cpu_seconds),
            )
            .select_from(joined)
            .group_by(run.c.cell, measurement.c.name)
        )
        with self._database.reading() as connection:
            keys = self._campaign_keys(connection, campaign_ids)
            wanted = sa.and_(run.c.campaign.in_(keys), run.c.failure_kind.is_(None))
            found = connection.execute(query.where(wanted)).all()
        return tuple(_tally(row) for row in found)

    def examples(self, campaign_ids: Collection[str]) -> tuple[Example, ...]:
        """One measured run of each cell, the last one stored, with its commands and states."""
        run, check, measurement = schema.run, schema.state_check, schema.measurement
        with self._database.reading() as connection:
            keys = self._campaign_keys(connection, campaign_ids)
            last = (
                sa.select(sa.func.max(run.c.key))
                .where(run.c.campaign.in_(keys), run.c.failure_kind.is_(None))
                .group_by(run.c.cell)
            )
            runs = connection.execute(sa.select(run).where(run.c.key.in_(last))).mappings().all()
            checks: defaultdict[int, list[tuple[str, str | None, str]]] = defaultdict(list)
            query = sa.select(check).where(check.c.run.in_(last))
            for row in connection.execute(query.order_by(check.c.run, check.c.ordinal)):
                checks[row.run].append((row.name, row.asked, row.seen))
            measured: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
            columns = (measurement.c.run, measurement.c.name, measurement.c.command)
            told = sa.select(*columns).where(measurement.c.run.in_(last))
            for row in connection.execute(told.order_by(measurement.c.run, measurement.c.ordinal)):
                measured[row.run].append((row.name, row.command))
        return tuple(
            Example(
                row["cell"], row["id"], row["block"], row["started"], row["accelerator"],
                row["medium"], tuple(row["commands"]), tuple(checks[row["key"]]),
                tuple(measured[row["key"]]),
            )
            for row in runs
        )  # fmt: skip

    def add_power_cut(self, found: PowerCut) -> None:
        """Stores a verdict, and the facts of its host unless they are known."""
        table = schema.power_cut
        with self._database.writing() as connection:
            if connection.scalar(sa.select(table.c.key).where(table.c.id == found.id)) is not None:
                raise DatabaseError(f"the verdict {found.id} is in {self} already")
            row = rows.power_cut_row(found, _stored_host(connection, found.host))
            connection.execute(sa.insert(table), [row])

    def power_cuts(self, machine_id: str | None = None) -> tuple[PowerCut, ...]:
        """The verdicts on one machine, or all, in the order in which they were stored."""
        table = schema.power_cut
        query = sa.select(table).join(schema.host).order_by(table.c.key)
        if machine_id is not None:
            query = query.where(schema.host.c.machine_id == machine_id)
        with self._database.reading() as connection:
            found = connection.execute(query).mappings().all()
            wanted = sa.select(schema.host).where(
                schema.host.c.key.in_({row["host"] for row in found})
            )
            hosts = {
                row["key"]: rows.host_facts(row) for row in connection.execute(wanted).mappings()
            }
        return tuple(rows.power_cut_value(row, hosts[row["host"]]) for row in found)

    def _campaign_keys(self, connection: sa.Connection, campaign_ids: Collection[str]) -> list[int]:
        keys = {name: _campaign_key(connection, name) for name in campaign_ids}
        for name, key in keys.items():
            if key is None:
                raise DatabaseError(f"the campaign {name} is not in {self}")
        return [key for key in keys.values() if key is not None]


@contextmanager
def open_store(
    url_or_path: str, *, create: bool = True, patience: float = PATIENCE_SECONDS
) -> Iterator[Store]:
    """The results at a file's path, `sqlite:///FILE` or `postgresql://…`, until the block ends.

    A missing file is made, with its directory, unless `create` is False. An older schema is
    brought up to date in one transaction. A lock that others hold is awaited for `patience`
    seconds. Raises DatabaseError when the database is locked, damaged, newer than this version,
    another program's, out of reach or not to be written.
    """
    address = parse_address(url_or_path)
    with open_database(address, create=create, patience=patience) as database:
        yield Store(database)


def _campaign_key(connection: sa.Connection, campaign_id: str) -> int | None:
    table = schema.campaign
    return connection.scalar(sa.select(table.c.key).where(table.c.id == campaign_id))


def _stored_host(connection: sa.Connection, facts: HostFacts) -> int:
    """The key of the row with these facts, which is made when there is none."""
    table = schema.host
    row = rows.host_row(facts)
    query = sa.select(table.c.key).where(table.c.fingerprint == row["fingerprint"])
    key = connection.scalar(query)
    if key is None:
        _insert_unless_there(connection, table, row)
        key = connection.execute(query).scalar_one()
    return int(key)


def _campaigns(connection: sa.Connection, query: sa.Select[Any]) -> tuple[Campaign, ...]:
    found = connection.execute(query).mappings().all()
    table = schema.host
    wanted = sa.select(table).where(table.c.key.in_({row["host"] for row in found}))
    hosts = {row["key"]: rows.host_facts(row) for row in connection.execute(wanted).mappings()}
    return tuple(rows.campaign_value(row, hosts[row["host"]]) for row in found)


def _key_by_name(connection: sa.Connection, table: sa.Table, name: str, kind: str) -> int:
    """The key of the row whose id is `name`, or is the only one to begin with it."""
    # Not LIKE: SQLite's does not tell capitals from small letters.
    begins = sa.func.substr(table.c.id, 1, len(name)) == name
    query = sa.select(table.c.id, table.c.key).where(begins).order_by(table.c.id)
    found = {row.id: row.key for row in connection.execute(query)} if name else {}
    if name in found:
        return int(found[name])
    if not found:
        raise DatabaseError(
            f"there is no {kind} {name!r}", hint=f"the first letters of a {kind}'s id are enough"
        )
    if len(found) > 1:
        shown = ", ".join(list(found)[:_CANDIDATES_SHOWN])
        rest = len(found) - _CANDIDATES_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        raise DatabaseError(
            f"{name!r} may be any of {len(found)} {kind}s: {shown}{more}",
            hint="give more letters of the id",
        )
    return int(next(iter(found.values())))


def _register_metrics(connection: sa.Connection, run: Run) -> None:
    """Stores unit and direction of the run's metrics, the first time that each is used."""
    table = schema.metric
    known = {row.name: (row.unit, row.better) for row in connection.execute(sa.select(table))}
    used = {sample.metric for measured in run.measurements for sample in measured.samples}
    for name in sorted(used):
        metric = METRICS.get(name)
        if metric is None:
            raise DatabaseError(
                f"the metric {name!r} is not known, and a number without a unit is not stored",
                hint="a newer vdisklab may know it",
            )
        stored = known.get(name)
        if stored is None:
            _insert_unless_there(connection, table, asdict(metric))
        elif stored != (metric.unit, metric.better):
            raise DatabaseError(
                f"the database holds {name} in {stored[0]} with {stored[1]} as the better; "
                f"this vdisklab has {metric.unit} and {metric.better}",
                hint="give --db another database",
            )


def _inserted(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> int:
    key = connection.execute(sa.insert(table).returning(table.c.key), row).scalar_one()
    return int(key)


def _insert_unless_there(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
    """Inserts a row that another process may be inserting at this moment, too."""
    if connection.dialect.name == "postgresql":
        connection.execute(postgresql.insert(table).values(row).on_conflict_do_nothing())
    else:
        connection.execute(sqlite.insert(table).values(row).on_conflict_do_nothing())


def _insert_all(connection: sa.Connection, table: sa.Table, found: list[dict[str, Any]]) -> None:
    if found:
        connection.execute(sa.insert(table), found)


def _whole_runs(connection: sa.Connection, keys: Sequence[int]) -> list[Run]:
    """The runs with these keys, in their order; six queries, however many they are."""
    run, measurement = schema.run, schema.measurement
    query = (
        sa.select(run, schema.campaign.c.id.label("campaign_id"))
        .join(schema.campaign)
        .where(run.c.key.in_(keys))
    )
    by_key = {row["key"]: row for row in connection.execute(query).mappings()}
    checks = _children(connection, schema.state_check, schema.state_check.c.run, keys)
    measurements = _children(connection, measurement, measurement.c.run, keys)
    inner = [row["key"] for group in measurements.values() for row in group]
    counted = _children(connection, schema.counted, schema.counted.c.measurement, inner)
    samples = _children(connection, schema.sample, schema.sample.c.measurement, inner)
    return [
        rows.run_value(
            by_key[key],
            by_key[key]["campaign_id"],
            (rows.check_value(row) for row in checks[key]),
            (
                rows.measurement_value(
                    row,
                    {seen["observer"]: rows.counted_value(seen) for seen in counted[row["key"]]},
                    (rows.sample_value(number) for number in samples[row["key"]]),
                )
                for row in measurements[key]
            ),
        )
        for key in keys
        if key in by_key  # else someone deleted it while we read
    ]


def _witnessed(connection: sa.Connection, keys: Sequence[int]) -> list[Witnessed]:
    """The evidence of the measurements with these keys; three queries, however many they are."""
    run, measurement, sample = schema.run, schema.measurement, schema.sample
    columns = [column for column in measurement.c if column.name != "raw"]
    query = (
        sa.select(*columns, run.c.path, run.c.page_cache)
        .join(run)
        .where(measurement.c.key.in_(keys))
        .order_by(measurement.c.key)
    )
    counted = _children(connection, schema.counted, schema.counted.c.measurement, keys)
    pairs = sa.select(sample.c.measurement, sample.c.direction).distinct()
    directions: defaultdict[int, list[str]] = defaultdict(list)
    for key, direction in connection.execute(pairs.where(sample.c.measurement.in_(keys))):
        directions[key].append(direction)
    return [
        rows.witnessed_value(
            row,
            {seen["observer"]: rows.counted_value(seen) for seen in counted[row["key"]]},
            directions[row["key"]],
        )
        for row in connection.execute(query).mappings()
    ]


def _children(
    connection: sa.Connection, table: sa.Table, parent: sa.Column[Any], keys: Sequence[int]
) -> defaultdict[int, list[rows.Row]]:
    """The rows that hang on each of the keys, in their order."""
    order = [table.c.ordinal] if "ordinal" in table.c else []
    found: defaultdict[int, list[rows.Row]] = defaultdict(list)
    query = sa.select(table).where(parent.in_(keys)).order_by(parent, *order)
    for row in connection.execute(query).mappings():
        found[row[parent.name]].append(row)
    return found


def _tally(row: Sequence[Any]) -> CellTally:
    cell, name, *counts, cpu = row
    operations, flushes, device_flushes, asked, device = (
        None if count is None else int(count) for count in counts
    )
    seconds = None if cpu is None else float(cpu)
    return CellTally(cell, name, operations, flushes, device_flushes, asked, device, seconds)


def _outline(row: rows.Row) -> RunOutline:
    return RunOutline(
        id=row["id"],
        campaign=row["campaign_id"],
        cell=row["cell"],
        path=row["path"],
        page_cache=row["page_cache"],
        block=row["block"],
        position=row["position"],
        origin=Origin(row["origin"]),
        started=row["started"],
        accelerator=row["accelerator"],
        medium=row["medium"],
        failure=rows.failure_value(row),
        wall_seconds=row["wall_seconds"],
    )
