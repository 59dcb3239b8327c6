"""What a form of trace is: how it is known, and how its lines become requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from vdisklab.loads.load import RecordedBy
from vdisklab.loads.requests import Requests
from vdisklab.value import Value

_WHOLE = re.compile(rb"[0-9]{1,19}")


class LineReader(Protocol):
    """Turns the lines of one form into requests."""

    def line(self, line: bytes) -> bool:
        """One line, without its end; False if it is not of this form."""


class TraceForm(Value):
    """A form of trace. `recognises` looks at the first lines of a file.

    `resolution_us` is the smallest difference between two times. `note` says what the form leaves
    out. `epoch_us` is the form's time zero, in microseconds since 1970; None if its times are not
    dates. `wordy`: lines that are not requests may stand between the requests.
    """

    recorded_by: RecordedBy
    title: str
    recognises: Callable[[tuple[bytes, ...]], bool]
    reader: Callable[[Requests], LineReader]
    resolution_us: int = 1
    note: str = ""
    epoch_us: int | None = None
    wordy: bool = False


def number(field: bytes) -> int | None:
    """A whole number of at most 19 ASCII digits; None for anything else."""
    return int(field) if _WHOLE.fullmatch(field) else None


def numbers(*fields: bytes) -> tuple[int, ...] | None:
    """Whole numbers; None if one of the fields is none."""
    return tuple(map(int, fields)) if all(map(_WHOLE.fullmatch, fields)) else None


def disk_name(*fields: bytes) -> str:
    """A disk as a trace names it, made harmless and short."""
    return " ".join(field.decode("ascii", "backslashreplace")[:64] for field in fields)
