"""Parses and formats bytes and durations for users."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vdisklab.errors import PlanError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
SECTOR = 512
"""The unit in which block devices, QEMU and write logs count, in bytes."""

_WHOLE = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_PERCENTAGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,15})?) ?(%?)")
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h)?", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


SHOWN_NAMES = 3
"""Maximum number of things named in a sentence; the others are counted."""


def whole_number(text: str) -> int | None:
    """The number that a text from outside spells; None for anything but 1 to 18 digits.

    str.isdigit accepts digits that int() refuses (`½`, `²`), str.isdecimal those of all scripts,
    and int() also takes signs, blanks and underscores, but no 5,000 digits.
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def decimal_number(text: str) -> float | None:
    """The number that a text from outside spells as `12` or `12.5`; None for anything else, such as
    a sign, an exponent or NaN."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def parse_size(text: str) -> int:
    """The bytes of `4096`, `64k`, `1M`, `2GiB`; suffixes are powers of 1024, as in QEMU and fio.

    Raises PlanError for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"{text!r} is not a size", hint="write it like 4096, 64k, 512M or 2G")
    return int(match[1]) << _SHIFT[match[2].lower()]


def format_size(size: int) -> str:
    """The shortest exact spelling, which `parse_size` accepts: `64k`, `1536M`, `1000`."""
    for suffix, shift in (("T", 40), ("G", 30), ("M", 20), ("k", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


def parse_duration(text: str) -> float:
    """Seconds for `5`, `500ms`, `1.5s`, `30m`, `2h`. Raises PlanError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"{text!r} is not a duration", hint="write it like 5, 500ms, 30m or 2h")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def parse_rate(text: str) -> int:
    """Requests per second for `500iops` or `500`, a whole number. Raises PlanError."""
    match = re.fullmatch(r"([0-9]{1,7}) ?(?:iops)?", text.strip(), re.IGNORECASE)
    if match is None or not 0 < int(match[1]) <= 1_000_000:
        raise PlanError(
            f"{text!r} is not a rate",
            hint="write whole requests per second, such as 500iops, at most 1000000iops",
        )
    return int(match[1])


def parse_percentage(text: str) -> float:
    """Parses `3%` or `0.03` as 0.03. Raises PlanError for 0, more than 100 %, or other text."""
    match = _PERCENTAGE.fullmatch(text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise PlanError(f"{text!r} is not a percentage", hint="write a percentage, such as 3%")
    return share


def runtime_text(seconds: float) -> str:
    """`0.5 s`, `60 s`: how long a measurement ran, in seconds as fio's `runtime`."""
    return f"{seconds:g} s"


def format_duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`: for people, not for parsing."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def time_of_race(at_least: float, usually: float, at_most: float) -> str:
    """`at least 3 min 05 s, usually less than 20 min 00 s, at most 1 h 10 min`."""
    most = f"at most {format_duration(at_most)}"
    usual = f"usually less than {format_duration(usually)}, " if usually < at_most else ""
    if at_least >= at_most:
        return most
    return f"at least {format_duration(at_least)}, {usual}{most}"


def counted(count: int, noun: str) -> str:
    """`1 round`, `3 rounds`; the noun's plural ends in -s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def named(things: Sequence[object], most: int = SHOWN_NAMES) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(str, things[:most]))
    more = len(things) - most
    return f"{shown} and {more} more" if more > 0 else shown


def in_percent(share: float, digits: int = 0) -> str:
    """`12 %` of 0.12; `0.4 %` and `99.6 %` where whole percent would say none or all."""
    percent = 100 * share
    if not digits and 0 < percent < 100 and f"{percent:.0f}" in ("0", "100"):
        least = f"{percent:.1f}"
        return {"0.0": "under 0.1 %", "100.0": "over 99.9 %"}.get(least, f"{least} %")
    return f"{percent:.{digits}f} %"


def format_bytes(size: float) -> str:
    """`1.5 GiB`, `12 MiB`: rounded, for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_throughput(bytes_per_second: float, operations_per_second: float | None) -> str:
    """`12 MB/s, 3000 IOPS`; `0.41 MB/s` without the operations. Only zero is `0`."""
    rate = f"{_few_digits(bytes_per_second / 1e6)} MB/s"
    if operations_per_second is None:
        return rate
    return f"{rate}, {_few_digits(operations_per_second)} IOPS"


def _few_digits(number: float) -> str:
    if 0 < number < 0.01:
        return "<0.01"
    return f"{number:.2g}" if 0 < number < 9.5 else f"{number:.0f}"
