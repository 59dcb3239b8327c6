"""Queries on stored runs: whole runs; and columns, sums and examples for reports on many runs.

Each function reads from the given connection; `keys` are keys of campaigns unless the docstring
says otherwise.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from vdisklab.analysis.observations import Observations, collect
from vdisklab.results import model, rows, schema

Floats = npt.NDArray[np.float64]


def whole_runs(connection: sa.Connection, keys: Sequence[int]) -> list[model.Run]:
    """The runs with these keys, in their order; always nine queries."""
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
    series = _children(connection, schema.series, schema.series.c.measurement, inner)
    groups = _children(connection, schema.guest_group, schema.guest_group.c.measurement, inner)
    members = _children(connection, schema.member, schema.member.c.measurement, inner)
    return [
        rows.run_value(
            by_key[key],
            by_key[key]["campaign_id"],
            (rows.check_value(row) for row in checks[key]),
            (
                rows.measurement_value(
                    row,
                    {
                        counts["observer"]: rows.counted_value(counts)
                        for counts in counted[row["key"]]
                    },
                    (rows.sample_value(number) for number in samples[row["key"]]),
                    (rows.series_value(points) for points in series[row["key"]]),
                    next(
                        (
                            rows.group_value(group, members[row["key"]])
                            for group in groups[row["key"]]
                        ),
                        None,
                    ),
                )
                for row in measurements[key]
            ),
        )
        for key in keys
        if key in by_key  # otherwise the run was deleted while we read
    ]


def outlines(connection: sa.Connection, keys: Sequence[int]) -> tuple[model.RunOutline, ...]:
    """The runs of some campaigns, failed ones too, without numbers and commands."""
    table = schema.run
    columns = [column for column in table.c if column.name != "commands"]  # JSON: slow to read
    query = (
        sa.select(*columns, schema.campaign.c.id.label("campaign_id"))
        .join(schema.campaign)
        .where(table.c.campaign.in_(keys))
        .order_by(table.c.key)
    )
    return tuple(
        rows.outline_value(row, row["campaign_id"]) for row in connection.execute(query).mappings()
    )


def observations(connection: sa.Connection, keys: Sequence[int]) -> Observations:
    """Every sample of the measured runs of some campaigns, as columns."""
    run, measurement, sample = schema.run, schema.measurement, schema.sample
    is_measured = sa.and_(run.c.campaign.in_(keys), run.c.failure_kind.is_(None))
    runs = connection.execute(
        sa.select(run.c.key, schema.campaign.c.id, run.c.path, run.c.page_cache, run.c.round)
        .select_from(run.join(schema.campaign))
        .where(is_measured)
        .order_by(run.c.key)
    ).all()
    measurement_keys = sa.select(measurement.c.key).join(run).where(is_measured)
    names, measurements = _measurements(connection, measurement.c.key.in_(measurement_keys))
    quantities, samples = _samples(connection, sample.c.measurement.in_(measurement_keys))
    return collect([tuple(row) for row in runs], names, measurements, quantities, samples)


def sums(connection: sa.Connection, keys: Sequence[int]) -> tuple[model.CellSums, ...]:
    """The counters, summed by cell and measurement."""
    run, measurement = schema.run, schema.measurement
    counts = _Counts(keys)
    device = counts.device.c

    def transfer(name: str) -> Iterator[sa.ColumnElement[Any]]:
        above = counts.above(name)
        yield _sum_of_integers(sa.case((device[name].is_not(None), above)))
        # What a device counted above a measurement's own bytes was for others, such as writeback
        # of an earlier one: it does not make up for other runs.
        reached = sa.case((device[name] > above, above), else_=device[name])
        yield _sum_of_integers(sa.case((above > 0, reached)))

    growth = measurement.c.allocated_after - measurement.c.allocated_before
    qemu, length = counts.qemu.c, measurement.c.measured_seconds
    busy = qemu.read_seconds + qemu.write_seconds + sa.func.coalesce(qemu.flush_seconds, 0.0)
    query = counts.of(
        run.c.cell,
        measurement.c.name,
        counts.operations,
        _sum_of_integers(counts.above("flush_operations")),
        _sum_of_integers(device.flush_operations),
        _sum_of_integers(counts.above("read_bytes", "write_bytes")),
        _sum_of_integers(device.read_bytes + device.write_bytes),
        sa.func.sum(measurement.c.host_cpu_seconds),
        *transfer("read_bytes"),
        *transfer("write_bytes"),
        sa.func.max(growth),
        sa.func.sum(sa.case((length.is_not(None), busy))),
        sa.func.sum(sa.case((busy.is_not(None), length))),
    ).group_by(run.c.cell, measurement.c.name)
    return tuple(model.CellSums(*row) for row in connection.execute(query))


def cpu_of_runs(connection: sa.Connection, keys: Sequence[int]) -> tuple[model.RunSums, ...]:
    """CPU seconds and operations of each run, over the measurements that have both."""
    run, seconds = schema.run, schema.measurement.c.host_cpu_seconds
    counts = _Counts(keys)
    query = (
        counts.of(schema.campaign.c.id, run.c.round, run.c.cell, sa.func.sum(seconds),
                  counts.operations)
        .where(seconds.is_not(None), counts.above("read_operations").is_not(None))
        .group_by(schema.campaign.c.id, run.c.round, run.c.cell)
    )  # fmt: skip
    return tuple(model.RunSums(*row) for row in connection.execute(query))


class _Counts:
    """The measured runs of some campaigns, each measurement with what its observers counted."""

    def __init__(self, keys: Sequence[int]) -> None:
        counted = schema.counted
        self._keys = keys
        self.qemu, self.guest, self.device = (
            counted.alias(name) for name in ("qemu", "guest", "device")
        )

    def of(self, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
        """The query for these columns."""
        run, measurement = schema.run, schema.measurement
        joined = measurement.join(run).join(schema.campaign)
        for observer in (self.qemu, self.guest, self.device):
            on = sa.and_(
                observer.c.measurement == measurement.c.key, observer.c.observer == observer.name
            )
            joined = joined.outerjoin(observer, on)
        is_measured = sa.and_(run.c.campaign.in_(self._keys), run.c.failure_kind.is_(None))
        return sa.select(*columns).select_from(joined).where(is_measured)

    def above(self, *names: str) -> sa.ColumnElement[Any]:
        """The sum of some counts. If QEMU counted, its counts are used for all of them."""
        qemu, guest = self.qemu.c, self.guest.c
        return sa.case(
            (qemu.read_bytes.is_not(None), sum(qemu[name] for name in names)),
            else_=sum(guest[name] for name in names),
        )

    @property
    def operations(self) -> sa.ColumnElement[int]:
        """The number of reads and writes."""
        return _sum_of_integers(self.above("read_operations", "write_operations"))


def _sum_of_integers(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """The sum as an integer: PostgreSQL's sum of big integers is a decimal number."""
    return sa.cast(sa.func.sum(column), sa.BigInteger)


def times(connection: sa.Connection, keys: Sequence[int]) -> tuple[model.TimedMeasurement, ...]:
    """The measurements with stolen CPU time, or with more seconds counted than passed."""
    run, measurement = schema.run, schema.measurement.c
    query = (
        sa.select(
            run.c.cell, measurement.name, measurement.wall_seconds, measurement.measured_seconds,
            measurement.steal_seconds,
        )
        .select_from(schema.measurement.join(run))
        .where(
            run.c.campaign.in_(keys),
            run.c.failure_kind.is_(None),
            sa.or_(
                measurement.steal_seconds > 0,
                measurement.measured_seconds > measurement.wall_seconds,
            ),
        )
        .order_by(measurement.key)
    )  # fmt: skip
    return tuple(model.TimedMeasurement(*row) for row in connection.execute(query))


def examples(connection: sa.Connection, keys: Sequence[int]) -> tuple[model.Example, ...]:
    """One measured run of each cell, the last one stored, with its commands and states."""
    run, check, measurement = schema.run, schema.state_check, schema.measurement
    last = (
        sa.select(sa.func.max(run.c.key))
        .where(run.c.campaign.in_(keys), run.c.failure_kind.is_(None))
        .group_by(run.c.cell)
    )
    runs = connection.execute(sa.select(run).where(run.c.key.in_(last))).mappings().all()
    checks: defaultdict[int, list[tuple[str, str | None, str]]] = defaultdict(list)
    query = sa.select(check).where(check.c.run.in_(last))
    for row in connection.execute(query.order_by(check.c.run, check.c.ordinal)):
        checks[row.run].append((row.name, row.requested, row.observed))
    measured: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    columns = (measurement.c.run, measurement.c.name, measurement.c.command)
    details = sa.select(*columns).where(measurement.c.run.in_(last))
    for row in connection.execute(details.order_by(measurement.c.run, measurement.c.ordinal)):
        measured[row.run].append((row.name, row.command))
    return tuple(
        model.Example(
            row["cell"], row["id"], row["round"], row["started"], _ran_under(row),
            row["medium"], rows.commands_of(row), tuple(checks[row["key"]]),
            tuple(measured[row["key"]]),
        )
        for row in runs
    )  # fmt: skip


def gates_not_met(connection: sa.Connection, keys: Sequence[int]) -> tuple[model.GateCount, ...]:
    """The gates that half of a cell's measured runs or more did not meet."""
    run, check = schema.run, schema.state_check
    lacking = [check.c.observed.startswith(word) for word in (model.MISSED, model.NOT_MET)]
    failing = sa.case((sa.or_(*lacking), 1))
    query = (
        sa.select(run.c.cell, check.c.name, sa.func.count(failing), sa.func.count(),
                  sa.func.max(sa.case((sa.or_(*lacking), check.c.observed))))
        .select_from(check.join(run))
        .where(
            run.c.campaign.in_(keys),
            run.c.failure_kind.is_(None),
            check.c.name.contains(model.GATE, autoescape=True),
        )
        .group_by(run.c.cell, check.c.name)
        .having(sa.func.count(failing) > 0, 2 * sa.func.count(failing) >= sa.func.count())
        .order_by(sa.func.min(check.c.ordinal), check.c.name, run.c.cell)
    )  # fmt: skip
    counts = []
    for cell, name, missed, runs, seen in connection.execute(query):
        measurement, _, gate = name.partition(model.GATE)
        said = seen.startswith(model.NOT_MET)
        value = seen.partition(": ")[2]
        counts.append(model.GateCount(cell, measurement, gate, missed, runs, value, said))
    return tuple(counts)


def bandwidth_series(
    connection: sa.Connection, keys: Sequence[int], cells: Collection[str]
) -> tuple[model.RunSeries, ...]:
    """The bandwidth over time of the measured runs of some cells, by their fingerprints."""
    run, measurement, series = schema.run, schema.measurement, schema.series
    query = (
        sa.select(
            series, schema.campaign.c.id.label("campaign_id"), run.c.cell, run.c.round,
            measurement.c.name,
        )
        .select_from(series.join(measurement).join(run).join(schema.campaign))
        .where(
            run.c.campaign.in_(keys),
            run.c.failure_kind.is_(None),
            run.c.cell.in_(list(cells)),
            series.c.metric == "bandwidth",
        )
        .order_by(run.c.key, measurement.c.ordinal, series.c.ordinal)
    )  # fmt: skip
    return tuple(
        model.RunSeries(
            row["campaign_id"], row["cell"], row["round"], row["name"],
            rows.series_value(row),
        )
        for row in connection.execute(query).mappings()
    )  # fmt: skip


def _ran_under(row: rows.Row) -> model.RanUnder | None:
    """The environment that ran a run's guest, from a row of `run`; None without a guest."""
    if row["accelerator"] is None:
        return None
    return model.RanUnder.of(row["accelerator"], emulated=row["emulated"])


def _children(
    connection: sa.Connection, table: sa.Table, parent: sa.Column[Any], keys: Sequence[int]
) -> defaultdict[int, list[rows.Row]]:
    """The rows that belong to each of the keys, in their order."""
    order = [table.c[name] for name in ("ordinal", "number") if name in table.c]
    children: defaultdict[int, list[rows.Row]] = defaultdict(list)
    query = sa.select(table).where(parent.in_(keys)).order_by(parent, *order)
    for row in connection.execute(query).mappings():
        children[row[parent.name]].append(row)
    return children


def _measurements(
    connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> tuple[Sequence[str], Floats]:
    """Names, and rows: a measurement's key, an index into the names, and the key of its run."""
    table = schema.measurement
    columns = (table.c.key, table.c.name, table.c.run)
    query = sa.select(*columns).where(condition).order_by(table.c.key)
    records = list(_rows(connection, query))
    keys, names, runs = zip(*records, strict=True) if records else ((), (), ())
    places: dict[str, int] = {}
    coded = [places.setdefault(name, len(places)) for name in names]
    return tuple(places), np.array([keys, coded, runs], np.float64).T


def _samples(
    connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> tuple[list[tuple[str, str]], Floats]:
    """Quantities, and rows: a measurement's key, an index into the quantities, and a value."""
    sample = schema.sample
    metrics = connection.scalars(sa.select(schema.metric.c.name).order_by("name")).all()
    if not metrics:
        return [], np.empty((0, 3))
    directions = [direction.value for direction in model.Direction]
    metric, side_index = (
        _place_in(metrics, sample.c.metric),
        _place_in(directions, sample.c.direction),
    )
    query = (
        sa.select(sample.c.measurement, metric * len(directions) + side_index, sample.c.value)
        .where(condition)
        .order_by(sample.c.measurement, sample.c.ordinal)
    )
    numbers = _numbers(connection, query)
    return [(side, name) for name in metrics for side in directions], numbers


def _place_in(names: Sequence[str], column: sa.Column[Any]) -> sa.Case[int]:
    """The SQL expression for the index of a column's text in a list of names."""
    return sa.case(*((column == name, place) for place, name in enumerate(names)))


def _numbers(connection: sa.Connection, query: sa.Select[Any]) -> Floats:
    """The result of a query that returns only numbers, as rows of floats."""
    flat = np.fromiter(itertools.chain.from_iterable(_rows(connection, query)), np.float64)
    return flat.reshape(-1, len(query.selected_columns))


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> Iterable[tuple[Any, ...]]:
    """The rows as the driver's own tuples: there may be millions, so none is converted."""
    cursor: Any = connection.execute(query).cursor
    return cast("Iterable[tuple[Any, ...]]", cursor)
