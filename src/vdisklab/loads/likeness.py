"""What a load is like in one sentence, and the shipped profile that is nearest to it.

Four figures decide: the share of writes, the median sizes, the shares of sequential requests and
the flushes after a write. Those of the profiles were recorded in a guest, as a load is. The profile
is a first guess for who has no recording; a recording itself is always nearer.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import resources
from typing import NamedTuple

from vdisklab.loads.characteristics import KindSummary, LoadCharacteristics
from vdisklab.loads.load import IoKind
from vdisklab.units import KIB, MIB, in_percent
from vdisklab.value import Value

_EVEN = 2.0
"""The busiest second has less than so many times the mean: no bursts worth telling."""

_FAR = 0.9
"""A load farther than this from every profile has no nearest profile."""

_MIXED = 0.3
"""From this share on both reads and writes are told."""


LIKE = {
    "backup-stream": "a backup or its restore",
    "bulk-write": "a bulk writer",
    "database": "a database with a log beside it",
    "etcd": "etcd's or another synced log",
    "fileserver": "a file server",
    "mail": "a mail server",
    "mixed": "many small requests at random",
    "postgresql": "PostgreSQL",
    "sync-heavy": "small transactions, each synced",
    "vdi-boot": "a system that boots",
}
"""What the load of a profile is like. Profiles that compare settings are like no guest, and those
of an open load measure groups of guests."""


class LoadShape(NamedTuple):
    """What loads are compared by: shares of 1, and bytes; None without a read or a write.

    `syncs` is how many flushes there are after a write, or which share of the writes is forced.
    """

    write_share: float
    read_size: int | None
    read_sequential: float | None
    write_size: int | None
    write_sequential: float | None
    syncs: float


class ProfileShape(NamedTuple):
    """The shape of a profile's measurement, as recorded in a guest (bench/shapes.py)."""

    profile: str
    measurement: str
    shape: LoadShape


@cache
def profile_shapes() -> tuple[ProfileShape, ...]:
    """The shapes of the profiles in LIKE."""
    text = (resources.files("vdisklab.loads") / "profile_shapes.json").read_text("utf-8")
    return tuple(
        ProfileShape(row.pop("profile"), row.pop("measurement"), LoadShape(**row))
        for row in json.loads(text)
    )


def shape_of(found: LoadCharacteristics) -> LoadShape:
    """What a load is compared by. Raises ValueError for a load that moves nothing."""
    if found.write_share is None:
        raise ValueError("the load moves nothing")
    reads, writes = found.of(IoKind.READ), found.of(IoKind.WRITE)
    flushes = found.of(IoKind.FLUSH).count / writes.count if writes.count else 0.0
    return LoadShape(
        round(found.write_share, 3),
        reads.size_median,
        _rounded(reads.sequential_share),
        writes.size_median,
        _rounded(writes.sequential_share),
        round(min(1.0, max(flushes, found.forced_share or 0.0)), 3),
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)


class Likeness(Value):
    """A sentence about a load, and its nearest profile; None for a load that moves nothing, or is
    like no profile."""

    sentence: str
    nearest: str | None


def likeness_of(found: LoadCharacteristics) -> Likeness:
    """The load in one sentence."""
    if found.write_share is None:
        return Likeness("nothing was read or written", None)
    shape = shape_of(found)
    nearest = min(profile_shapes(), key=lambda recorded: _distance(shape, recorded.shape))
    what = ", ".join([_main(found), *_syncs(found), _rate(found)])
    if _distance(shape, nearest.shape) > _FAR:
        return Likeness(f"{what}: like no profile that comes with vdisklab", None)
    return Likeness(
        f"{what}: like {LIKE[nearest.profile]}; nearest profile: {nearest.profile}",
        nearest.profile,
    )


def _main(found: LoadCharacteristics) -> str:
    share = found.write_share or 0.0
    reads, writes = found.of(IoKind.READ), found.of(IoKind.WRITE)
    if _MIXED <= share <= 1 - _MIXED:
        return (
            f"{in_percent(share)} writes of {sizes(writes)} and {in_percent(1 - share)} reads of "
            f"{sizes(reads)}"
        )
    kind, name = (writes, "writes") if share > 0.5 else (reads, "reads")
    return f"{in_percent(max(share, 1 - share))} {_order(kind)}{name} of {sizes(kind)}"


def _order(kind: KindSummary) -> str:
    share = kind.sequential_share or 0.0
    return "sequential " if share > 0.8 else "random " if share < 0.2 else ""


def sizes(kind: KindSummary) -> str:
    """`4–16 KiB`: the sizes of nine in ten requests, or one size."""
    if kind.size_low is None or kind.size_high is None:
        return "–"
    low, high = kind.size_low, kind.size_high
    unit, name = (MIB, "MiB") if low >= MIB else (KIB, "KiB") if low >= KIB else (1, "bytes")
    return f"{_short(low / unit)} {name}" if low == high else (
        f"{_short(low / unit)}–{_short(high / unit)} {name}"
    )  # fmt: skip


def _syncs(found: LoadCharacteristics) -> list[str]:
    if found.of(IoKind.WRITE).count == 0:
        return []
    forced = found.forced_share or 0.0
    said = [f"{in_percent(forced)} of the writes forced"] if forced >= 0.005 else []
    if found.writes_per_flush is not None:
        every = _short(found.writes_per_flush)
        return [*said, f"a flush after every {every} writes" if every != "1" else
                "a flush after every write"]  # fmt: skip
    return said or ["no flush"]


def _rate(found: LoadCharacteristics) -> str:
    mean = f"{_count(found.per_second)}/s"
    if found.seconds < 2 or found.burst < _EVEN * found.per_second:
        return mean
    return f"{mean} with bursts of {found.burst:,}"


def _distance(shape: LoadShape, recorded: LoadShape) -> float:
    """Each figure counts the same: shares as they are, a size by the tenfold. What is of reads
    counts by the share of reads in both loads, what is of writes by the share of writes."""
    write_weight = (shape.write_share + recorded.write_share) / 2
    return math.sqrt(
        (shape.write_share - recorded.write_share) ** 2
        + (1 - write_weight)
        * (
            _apart(shape.read_size, recorded.read_size)
            + _differ(shape.read_sequential, recorded.read_sequential)
        )
        + write_weight
        * (
            (shape.syncs - recorded.syncs) ** 2
            + _apart(shape.write_size, recorded.write_size)
            + _differ(shape.write_sequential, recorded.write_sequential)
        )
    )


def _apart(size: int | None, recorded: int | None) -> float:
    return math.log10(size / recorded) ** 2 if size and recorded else 1.0


def _differ(share: float | None, recorded: float | None) -> float:
    return 1.0 if share is None or recorded is None else (share - recorded) ** 2


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else _short(number)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == round(number) else f"{number:.2g}"
