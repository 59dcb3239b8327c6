"""Measurements and measures in the words of a sentence; tables have their keys.

The names are those of the built-in profiles. A name of the user's own stays as it is: its author
knows it, and a guess at its meaning may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vdisklab.analysis.observations import MeasureKey
from vdisklab.errors import PlanError
from vdisklab.results.model import Direction
from vdisklab.units import runtime_text

RUNTIME = (
    "seconds for which each measurement of it ran; null if programs ended when they were done, if "
    "campaigns differ, and for imports"
)
"""What documents say of how long a measure was measured."""

_FIO = re.compile(
    r"(?P<order>seq|rand)(?P<kind>read|write|rw)-(?P<size>\d+[km]?|random)"
    r"(-q(?P<depth>\d+))?(-j(?P<jobs>\d+))?(-(?P<many>\d+)jobs)?"
)
_CRYSTAL = re.compile(r"(?P<order>seq|rnd)(?P<size>\d+[km])-q(?P<depth>\d+)t1-(?P<kind>read|write)")
_ORDERS = {"seq": "sequential", "rand": "random", "rnd": "random"}
_KINDS = {"read": "reads", "write": "writes", "rw": "reads and writes"}
_UNITS = {"": "bytes", "k": "KiB", "m": "MiB"}

_NAMES: Mapping[str, str] = {
    "fsync-4k-q1": "random writes of 4 KiB, each flushed by fsync",
    "fsync-4k": "random writes of 4 KiB, each flushed by fsync",
    "fsync-4k-file": "random writes of 4 KiB to a file, each flushed by fsync",
    "dsync-4k": "random writes of 4 KiB with O_DSYNC",
    "plain-4k": "random writes of 4 KiB without a flush",
    "mixed-4k": "random reads and writes of 4 KiB, 4 at a time",
    "log-8k-fsync": "writes of 8 KiB to a log, each flushed by fsync",
    "etcd-wal": "writes like those of etcd's log",
    "sqlite-wal": "commits of SQLite with a write-ahead log",
    "sqlite-delete": "commits of SQLite with a rollback journal",
    "tpcb-like-c1": "transactions of PostgreSQL like TPC-B with one client",
    "tpcb-like-c8": "transactions of PostgreSQL like TPC-B with 8 clients",
    "tpcb-like-c8-60percent": (
        "transactions of PostgreSQL like TPC-B with 8 clients at 60 % of their speed"
    ),
    "select-only-c4": "queries of PostgreSQL with 4 clients",
    "select-only-c8": "queries of PostgreSQL with 8 clients",
    "oltp-write-only-c1": "writing transactions of MariaDB with one client",
    "oltp-read-write-c8": "transactions of MariaDB with 8 clients",
    "fillsync": "synced writes of RocksDB",
    "readrandom": "random reads of RocksDB",
    "readwhilewriting": "reads of RocksDB while it writes",
    "bulk-write": "sequential writes of 1 MiB, 8 at a time",
}

_STEPS: Mapping[str, str] = {
    "make": "to make the disk",
    "attach": "to attach the disk",
    "first-write": "for the first write and flush",
    "reset": "to reset the disk",
    "delete": "to delete the disk",
}
"""The steps in the life of a disk, by the name of their measurement."""

_RATES = ("bandwidth", "sustained", "iops", "transactions")
"""What the words of a measurement mean unless a sentence says otherwise: how fast it is."""

_METRICS: Mapping[str, str] = {
    "latency_mean": "the mean latency of",
    "latency_p50": "the median latency of",
    "latency_p95": "the p95 latency of",
    "latency_p99": "the p99 latency of",
    "latency_p99.9": "the p99.9 latency of",
    "latency_max": "the longest latency of",
    "sync_mean": "the mean time of a flush in",
    "sync_p99": "the p99 of flushes in",
    "sync_max": "the longest flush in",
    "worst_second": "the worst second of",
    "longest_stall": "the longest stall in",
    "duration": "the duration of",
}


def measurement_words(name: str) -> str:
    """`random writes of 4 KiB, one at a time` of `randwrite-4k-q1`; another's name as it is."""
    match = _FIO.fullmatch(name) or _CRYSTAL.fullmatch(name)
    if match is None:
        return _NAMES.get(name, name)
    found = match.groupdict()
    text = f"{_ORDERS[found['order']]} {_KINDS[found['kind']]} of {_size(found['size'])}"
    jobs = found.get("jobs") or found.get("many")
    if found["depth"] is not None:
        at_once = "one" if found["depth"] == "1" else found["depth"]
        text += f", {at_once} at a time"
    return text if jobs is None else f"{text} by each of {jobs} jobs"


def _size(text: str) -> str:
    if text == "random":
        return "random sizes"
    number, unit = re.fullmatch(r"(\d+)([km]?)", text).groups()  # type: ignore[union-attr]
    return f"{number} {_UNITS[unit]}"


def measure_words(measure: MeasureKey, *, rate: str = "", seconds: float | None = None) -> str:
    """`the p99 latency of random reads of 4 KiB, one at a time`; a rate after the words `rate`, if
    any, a score as `overall ratio`, and another measure as its key.

    Of a measurement that ran for `seconds`: `0.5 s of random reads of 4 KiB, one at a time`.
    """
    if measure.name == "score":
        return measure.metric.replace("_", " ")
    if measure.metric == "duration" and measure.name in _STEPS:
        return f"the time {_STEPS[measure.name]}"
    phrase = measurement_words(measure.name)
    if phrase == measure.name:
        return str(measure)
    if " and " in phrase and measure.direction is not Direction.NONE:
        phrase = f"the {measure.direction}s among {phrase}"
    if seconds is not None:
        is_burst = is_burst_of_writes(measure)
        phrase = f"{'a burst of ' if is_burst else ''}{runtime_text(seconds)} of {phrase}"
    if measure.metric in _RATES:
        return f"{rate} {phrase}".lstrip()
    of = _METRICS.get(measure.metric)
    return str(measure) if of is None else f"{of} {phrase}"


def is_burst_of_writes(measure: MeasureKey) -> bool:
    """True of a rate of writes as the program saw it, some of which may be in memory: `sustained`
    is the rate at which they reach the disk. Names of the user's own may flush their writes."""
    named = _FIO.fullmatch(measure.name) or _CRYSTAL.fullmatch(measure.name)
    is_seen = measure.metric == "bandwidth" and measure.direction is Direction.WRITE
    return is_seen and named is not None


def key_words(text: str, *, rate: str = "", seconds: float | None = None) -> str:
    """The words for a measure's key or a measurement's name; `rate` and `seconds` as above."""
    try:
        return measure_words(MeasureKey.parse(text), rate=rate, seconds=seconds)
    except PlanError:
        phrase = measurement_words(text)
        is_name = seconds is None or phrase == text
        return phrase if is_name else f"{runtime_text(seconds or 0)} of {phrase}"
