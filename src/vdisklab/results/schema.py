"""The tables of the database of results; docs/database.md describes them for users.

Rows are joined by small integer keys, which mean nothing outside one database. Users and exports
see the `id` columns.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from vdisklab.errors import UnstorableError
from vdisklab.path.segments import PageCache
from vdisklab.plan.guest import RanUnder
from vdisklab.results.model import Better, Direction, FailureKind, Observer, Origin
from vdisklab.results.stored_plan import plan_error

# PostgreSQL text cannot contain NUL, and UTF-8 has no lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with U+FFFD in place of characters that a database cannot store."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


class _Stored:
    """What the column types have in common."""

    required = False
    """True in a column that has no NULL: SQLite checks that when it writes, not when it reads."""

    def absent(self, value: object, expected: str) -> Any:  # noqa: ANN401 - fits every column
        """None for NULL; raises WrongValueError for any other value, and if one is required."""
        if value is None and not self.required:
            return None
        raise _unlike(value, expected)


class Mapped(_Stored, TypeDecorator[Mapping[str, Any]]):
    """A JSON object."""

    impl = sa.JSON
    cache_ok = True

    def process_result_value(self, value: object, dialect: Dialect) -> Mapping[str, Any] | None:
        """The stored object; raises WrongValueError for any other JSON value."""
        del dialect
        if isinstance(value, dict):
            return value
        self.absent(value, "a JSON object")
        return None


class Planned(Mapped):
    """A campaign's plan."""

    cache_ok = True

    def process_result_value(self, value: object, dialect: Dialect) -> Mapping[str, Any] | None:
        """The stored plan; raises WrongValueError for one that no answer can use."""
        plan = super().process_result_value(value, dialect)
        error = plan_error(plan)
        if error is not None:
            raise WrongValueError(f"cannot be used: {error}")
        return plan


class Listed(_Stored, TypeDecorator[Sequence[Any]]):
    """A JSON array; with `least` one of numbers that are not smaller."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, least: float | None = None) -> None:
        super().__init__()
        self.least = least

    def process_bind_param(
        self, value: Sequence[Any] | None, dialect: Dialect
    ) -> Sequence[Any] | None:
        """The value; raises UnstorableError for a number that is not finite, or too small."""
        del dialect
        if self.least is not None:
            for number in value or ():
                _require(number, self.least)
        return value

    def process_result_value(self, value: object, dialect: Dialect) -> Sequence[Any] | None:
        """The stored array; raises WrongValueError for any other JSON value."""
        del dialect
        if not isinstance(value, list):
            self.absent(value, "a JSON list")
            return None
        if self.least is not None:
            for number in value:
                if type(number) not in (float, int) or not self.least <= number < math.inf:
                    raise _unlike(number, f"a number from {self.least:g}")
        return value


class Words(_Stored, TypeDecorator[str]):
    """Text from outside; a name that is not UTF-8 must not prevent storing a run.

    With `known`, one of these words: SQLite would accept any.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, known: type[StrEnum] | None = None) -> None:
        super().__init__()
        self.known = None if known is None else tuple(word.value for word in known)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[object], str | None]:
        """Returns the stored text; raises WrongValueError for anything else."""
        del dialect, coltype
        # A report reads 700,000 of them: a second call for each costs a tenth of its time.
        if self.known is None:
            return lambda value: value if type(value) is str else self.absent(value, "text")
        known, expected = frozenset(self.known), f"one of {', '.join(self.known)}"
        return lambda value: value if value in known else self.absent(value, expected)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text to store; raises UnstorableError for a word that is not known."""
        del dialect
        if value is not None and self.known is not None and value not in self.known:
            raise UnstorableError(
                f"{value[:40]!r} is none of {', '.join(self.known)}",
                hint="update vdisklab: a newer one may know it",
            )
        return None if value is None else storable(value)


class Finite(_Stored, TypeDecorator[float]):
    """A finite number, not below `least`: SQLite would silently turn NaN into NULL."""

    impl = sa.Double
    cache_ok = True

    def __init__(self, least: float = 0) -> None:
        super().__init__()
        self.least = least

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[object], float | None]:
        """Returns the stored number; raises WrongValueError for anything else."""
        del dialect, coltype
        least, expected = self.least, f"a number from {self.least:g}"
        return lambda value: (
            value
            if isinstance(value, float | int) and least <= value < math.inf
            else self.absent(value, expected)
        )

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """The value; raises UnstorableError for one that no program can have measured."""
        del dialect
        if value is not None:
            _require(value, self.least)
        return value


def _require(value: float, least: float) -> None:
    """Raises UnstorableError for a number that is not finite, or too small to be stored."""
    if not math.isfinite(value):
        raise UnstorableError(
            f"{value} is not a finite number and is not stored",
            hint="a quantity that was not measured has no sample: leave it out of the file",
        )
    if value < least:
        raise UnstorableError(
            f"{value} is below {least:g} and is not stored",
            hint="the program that reported it is probably wrong",
        )


class WrongValueError(ValueError):
    """A stored value of another kind than expected; says so after the column's name."""


def _unlike(value: object, expected: str) -> WrongValueError:
    shown = "NULL" if value is None else f"{value!r:.40}"
    return WrongValueError(f"is {shown} instead of {expected}")


class Whole(_Stored, TypeDecorator[int]):
    """An integer, not below `least`, with a limited number of bits.

    Neither Python nor SQLite enforces them.
    """

    impl = sa.BigInteger
    cache_ok = True

    def __init__(self, bits: int, least: int = 0) -> None:
        super().__init__()
        self.bits, self.least = bits, least

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[object], int | None]:
        """Returns the stored integer; raises WrongValueError for anything else."""
        del dialect, coltype
        least, end, expected = self.least, 1 << self.bits - 1, f"a whole number from {self.least}"
        return lambda value: (
            value if type(value) is int and least <= value < end else self.absent(value, expected)
        )

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """What the column is called in every database."""
        narrow: TypeEngine[Any] = sa.Integer()
        return dialect.type_descriptor(narrow if self.bits <= 32 else sa.BigInteger())

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        """The value; raises UnstorableError for one that does not fit."""
        del dialect
        if value is not None:
            _require(value, self.least)
            if value >= 1 << self.bits - 1:
                raise UnstorableError(
                    f"{value} is too large a number and is not stored",
                    hint="the program that reported it is probably wrong: "
                    "`vdisklab show RUN --raw`",
                )
        return value


class YesOrNo(_Stored, TypeDecorator[bool]):
    """True or False; SQLite has 1 and 0, and would take anything else for true."""

    impl = sa.Boolean
    cache_ok = True

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[object], bool | None]:
        """Returns the stored answer; raises WrongValueError for anything else."""
        del dialect, coltype
        return lambda value: bool(value) if value in (0, 1) else self.absent(value, "0 or 1")


class Packed(_Stored, TypeDecorator[str]):
    """A program's output: UTF-8 compressed by zlib, a tenth of fio's JSON.

    Lone surrogates, which Python uses for invalid bytes, are preserved.
    """

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """The compressed text."""
        del dialect
        return None if value is None else zlib.compress(value.encode(errors="surrogatepass"))

    def process_result_value(self, value: object, dialect: Dialect) -> str | None:
        """The text as the program wrote it; raises WrongValueError for anything else."""
        del dialect
        try:
            if isinstance(value, bytes):
                return zlib.decompress(value).decode(errors="surrogatepass")
        except (zlib.error, UnicodeDecodeError) as error:
            raise _unlike(value, "compressed text") from error
        self.absent(value, "compressed text")
        return None


class UtcTime(_Stored, TypeDecorator[datetime]):
    """A time: `timestamp with time zone`, or in SQLite ISO 8601 text in UTC."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """What the column is called in this database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | datetime | None:
        """The value to store; raises UnstorableError for a time without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise UnstorableError(
                f"the time {value} has no time zone",
                hint="write the time with its zone, such as 2026-08-01T12:00:00+00:00",
            )
        moment = value.astimezone(UTC)
        if dialect.name == "postgresql":
            return moment
        return moment.isoformat(timespec="microseconds")

    def process_result_value(
        self, value: str | datetime | None, dialect: Dialect
    ) -> datetime | None:
        """The stored time, in UTC."""
        del dialect
        if value is None:
            self.absent(value, "a time")
            return None
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            return moment.astimezone(UTC)
        except (ValueError, AttributeError, OverflowError) as error:
            raise _unlike(value, "a time") from error


metadata = sa.MetaData()


def _key() -> sa.Column[int]:
    return sa.Column("key", sa.Integer, primary_key=True)


def _parent(name: str, table: str, *, primary: bool = False) -> sa.Column[int]:
    """The key of the row that this row belongs to; both are deleted together."""
    reference = sa.ForeignKey(f"{table}.key", ondelete="CASCADE")
    return sa.Column(name, sa.Integer, reference, primary_key=primary, nullable=False)


def _words(
    name: str, *, key: str | None = None, optional: bool = False, unique: bool = False
) -> sa.Column[str]:
    return sa.Column(name, Words, key=key, nullable=optional, unique=unique or None)


def _word(name: str, known: type[StrEnum], *, optional: bool = False) -> sa.Column[str]:
    """A column for one of some words."""
    return sa.Column(name, Words(known), nullable=optional)


def _seconds(name: str, *, optional: bool = False) -> sa.Column[float]:
    return sa.Column(name, Finite, nullable=optional)


def _count(name: str, *, optional: bool = False) -> sa.Column[int]:
    return sa.Column(name, Whole(64), nullable=optional)


def _place(
    name: str, *, key: str | None = None, least: int = 1, primary: bool = False
) -> sa.Column[int]:
    """A column for a small number, such as a round's."""
    return sa.Column(name, Whole(32, least), key=key, primary_key=primary, nullable=False)


metric = sa.Table(
    "metric",
    metadata,
    sa.Column("name", Words, primary_key=True),
    _words("unit"),
    _word("better", Better),
)

# One row per distinct content: `fingerprint` is its hash. A host with an upgraded kernel gets
# another row; ten campaigns on an unchanged host share one.
host = sa.Table(
    "host",
    metadata,
    _key(),
    _words("fingerprint", unique=True),
    _words("hostname"),
    _words("machine_id"),
    _words("kernel"),
    _words("cpu"),
    sa.Column("cpus", Whole(32)),
    _count("memory_bytes", optional=True),
    _words("qemu", optional=True),
    _words("fio", optional=True),
    sa.Column("more", Mapped, nullable=False),
)

campaign = sa.Table(
    "campaign",
    metadata,
    _key(),
    _words("id", unique=True),
    _words("fingerprint"),
    sa.Column("plan", Planned, nullable=False),
    sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    _words("label"),
    sa.Index("campaign_by_plan", "fingerprint", "host"),
)

run = sa.Table(
    "run",
    metadata,
    _key(),
    _words("id", unique=True),
    _parent("campaign", "campaign"),
    _words("cell"),
    _words("path"),
    _word("page_cache", PageCache),
    _place("block", key="round"),  # named so when a round was still called a block
    _place("position"),
    _word("origin", Origin),
    sa.Column("started", UtcTime, nullable=False),
    _seconds("wall_seconds", optional=True),
    _word("accelerator", RanUnder, optional=True),
    _words("medium", optional=True),
    sa.Column("commands", Listed, nullable=False),
    _word("failure_kind", FailureKind, optional=True),
    _words("failure_message", optional=True),
    sa.Index("run_by_cell", "campaign", "round", "cell"),
)

# A round measures each cell once: a second measured run would count twice. A failed cell may be
# measured again.
sa.Index(
    "run_measured_once",
    run.c.campaign,
    run.c.round,
    run.c.cell,
    unique=True,
    sqlite_where=run.c.failure_kind.is_(None),
    postgresql_where=run.c.failure_kind.is_(None),
)

# Not `check`, which every query would have to quote.
state_check = sa.Table(
    "state_check",
    metadata,
    _parent("run", "run", primary=True),
    _place("ordinal", least=0, primary=True),
    _words("name"),
    _words("asked", key="requested", optional=True),
    _words("seen", key="observed"),
)

measurement = sa.Table(
    "measurement",
    metadata,
    _key(),
    _parent("run", "run"),
    _place("ordinal", least=0),
    _words("name"),
    _words("program"),
    _words("command"),
    sa.Column("started", UtcTime, nullable=False),
    _seconds("wall_seconds", optional=True),
    _seconds("measured_seconds", optional=True),
    _seconds("host_cpu_seconds", optional=True),
    _seconds("resident_before", optional=True),
    _seconds("resident_after", optional=True),
    _count("allocated_before", optional=True),
    _count("allocated_after", optional=True),
    _seconds("steal_seconds", optional=True),
    sa.Column("raw", Packed, nullable=False),
    sa.Index("measurement_by_run", "run", "ordinal", unique=True),
)

counted = sa.Table(
    "counted",
    metadata,
    _parent("measurement", "measurement", primary=True),
    sa.Column("observer", Words(Observer), primary_key=True),
    _count("read_bytes"),
    _count("write_bytes"),
    _count("read_operations"),
    _count("write_operations"),
    _count("flush_operations", optional=True),
)

# By far the largest table. In SQLite it is its own index (no row ids), which halves it.
sample = sa.Table(
    "sample",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("ordinal", least=0, primary=True),
    sa.Column("metric", Words, sa.ForeignKey("metric.name"), nullable=False),
    _word("direction", Direction),
    sa.Column("value", Finite, nullable=False),
    sqlite_with_rowid=False,
)

# A metric over time, one row for each direction: `points` holds the mean of each interval.
series = sa.Table(
    "series",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("ordinal", least=0, primary=True),
    sa.Column("metric", Words, sa.ForeignKey("metric.name"), nullable=False),
    _word("direction", Direction),
    _seconds("interval_seconds"),
    sa.Column("points", Listed(least=0), nullable=False),
)

# Guests that were measured at once: how long all of them ran, and how busy the host was.
guest_group = sa.Table(
    "guest_group",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _seconds("seconds"),
    _seconds("cpu", optional=True),
    _seconds("steal", optional=True),
    _seconds("device", optional=True),
    _seconds("queue", optional=True),
    _words("thread", optional=True),
    _seconds("thread_cpu", optional=True),
)

# One row for each guest of a group. `evidence` has what was counted of this guest alone.
member = sa.Table(
    "member",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("number", primary=True),
    _seconds("start"),
    _seconds("iops"),
    _seconds("latency_mean"),
    _seconds("latency_p50"),
    _seconds("latency_p99"),
    _seconds("latency_max"),
    _count("offered", optional=True),
    _count("served"),
    sa.Column("evidence", Mapped, nullable=False),
)

# One row per verdict; `fingerprint` identifies the test, so that it is not repeated.
power_cut = sa.Table(
    "power_cut",
    metadata,
    _key(),
    _words("id", unique=True),
    _words("fingerprint"),
    _words("path"),
    _words("client"),
    _words("access"),
    sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    _seconds("wall_seconds"),
    sa.Column("survives", YesOrNo),
    _words("claim"),
    _count("states"),
    sa.Column("possible", Finite, nullable=False),
    sa.Column("exhaustive", YesOrNo, nullable=False),
    _count("promises"),
    _count("flushes"),
    _count("leaked_states"),
    _count("repaired_states"),
    _count("afterlives"),
    sa.Column("outcomes", Mapped, nullable=False),
    sa.Column("settings", Mapped, nullable=False),
    sa.Column("seen", Mapped, nullable=False),
    _words("bad_case", optional=True),
    _words("bad_outcome", optional=True),
    _words("bad_detail", optional=True),
    _words("failure", optional=True),
    sa.Index("power_cut_by_question", "fingerprint", "host"),
)

SUMMARY = (metric, host, campaign, run, power_cut)
"""The tables of which a list of campaigns, runs or verdicts is made; the others hold numbers."""

for _table in metadata.tables.values():
    for _column in _table.columns:
        if isinstance(_column.type, _Stored):
            _column.type.required = not _column.nullable
