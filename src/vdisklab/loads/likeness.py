"""What a load is like in one sentence, and the shipped profile that is nearest to it.

Four figures decide: the share of writes, the median size, the share of sequential requests and the
flushes after a write. The profile is a first guess for who has no recording; a recording itself is
always nearer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vdisklab.loads.characteristics import KindSummary, LoadCharacteristics
from vdisklab.loads.load import IoKind
from vdisklab.units import KIB, MIB

_EVEN = 2.0
"""The busiest second has less than so many times the mean: no bursts worth telling."""

_MIXED = 0.3
"""From this share on both reads and writes are told."""


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """A load that a profile makes: its figures, as the profile's description has them."""

    profile: str
    like: str
    write_share: float
    size: int
    sequential_share: float
    flushes_per_write: float


KNOWN = (
    KnownLoad("postgresql", "a database's log", 0.9, 8 * KIB, 0.5, 0.5),
    KnownLoad("etcd", "etcd's or another synced log", 1.0, 4 * KIB, 1.0, 1.0),
    KnownLoad("sync-heavy", "small transactions, each synced", 1.0, 4 * KIB, 0.2, 1.0),
    KnownLoad("quiet-db", "a quiet database without syncs", 1.0, 4 * KIB, 0.0, 0.0),
    KnownLoad("database", "a database that mostly reads", 0.3, 8 * KIB, 0.0, 0.0),
    KnownLoad("mixed", "many small requests at random", 0.3, 4 * KIB, 0.0, 0.0),
    KnownLoad("fileserver", "a file server", 0.2, 4 * KIB, 0.3, 0.05),
    KnownLoad("mail", "a mail server", 0.5, 4 * KIB, 0.2, 0.3),
    KnownLoad("vdi-boot", "a system that boots", 0.05, 16 * KIB, 0.4, 0.0),
    KnownLoad("bulk-write", "a bulk writer", 1.0, 1 * MIB, 1.0, 0.0),
    KnownLoad("backup-stream", "a backup that reads", 0.0, 1 * MIB, 1.0, 0.0),
)


@dataclass(frozen=True, slots=True)
class Likeness:
    """A sentence about a load, and its nearest profile; None for a load that moves nothing."""

    sentence: str
    nearest: str | None


def likeness_of(found: LoadCharacteristics) -> Likeness:
    """The load in one sentence."""
    if found.write_share is None:
        return Likeness("nothing was read or written", None)
    nearest = min(KNOWN, key=lambda published: _distance(found, published))
    parts = [_main(found), *_syncs(found), _rate(found)]
    return Likeness(
        f"{', '.join(parts)}: like {nearest.like}; nearest profile: {nearest.profile}",
        nearest.profile,
    )


def _main(found: LoadCharacteristics) -> str:
    share = found.write_share or 0.0
    reads, writes = found.of(IoKind.READ), found.of(IoKind.WRITE)
    if _MIXED <= share <= 1 - _MIXED:
        return (
            f"{_percent(share)} writes of {sizes(writes)} and {_percent(1 - share)} reads of "
            f"{sizes(reads)}"
        )
    kind, name = (writes, "writes") if share > 0.5 else (reads, "reads")
    return f"{_percent(max(share, 1 - share))} {_order(kind)}{name} of {sizes(kind)}"


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
    said = [f"{_percent(forced)} of the writes forced"] if forced >= 0.005 else []
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


def _distance(found: LoadCharacteristics, published: KnownLoad) -> float:
    """Each figure counts the same: shares as they are, a size by the tenfold."""
    writes, reads = found.of(IoKind.WRITE), found.of(IoKind.READ)
    main = writes if writes.count >= reads.count else reads
    share = found.write_share or 0.0
    flushes = min(1.0, found.of(IoKind.FLUSH).count / writes.count) if writes.count else 0.0
    forced = found.forced_share or 0.0
    return math.hypot(
        share - published.write_share,
        math.log10((main.size_median or 1) / published.size),
        (main.sequential_share or 0.0) - published.sequential_share,
        max(flushes, forced) - published.flushes_per_write,
    )


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent in (0, 100) or 1 <= percent <= 99 else f"{percent:.1f} %"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else _short(number)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == round(number) else f"{number:.2g}"
