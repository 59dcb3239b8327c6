"""A diagnostic: a reason to distrust or qualify a number, which knows its own sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from vdisklab.as_text import Saying
from vdisklab.path.cell import MeasuredCell
from vdisklab.value import HIDDEN, Value

SHOWN_OF_A_KIND = 6
"""Maximum number of listed diagnostics of one kind; the others are counted."""


class Diagnostic(Saying, Value):
    """The base of all kinds; each is a value with its sentence as `__str__`."""

    @property
    def about(self) -> tuple[MeasuredCell, ...]:
        """The cells that it names; none if it is about the machine or the campaign."""
        several, single = getattr(self, "cells", ()), getattr(self, "cell", None)
        cells = several if isinstance(several, tuple) else ()
        return cells if single is None else (*cells, single)


class OfMeasurement(Diagnostic, kw_only=True):
    """A diagnostic that names a measurement. How long it ran changes what its numbers show."""

    runtime: Annotated[float | None, HIDDEN] = None
    """Seconds for which the measurement ran, if that is known."""


def grouped_sentences(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Diagnostics as sentences, by kind; only the first ones if there are many of one kind."""
    groups: dict[type, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        groups.setdefault(type(diagnostic), []).append(diagnostic)
    lines = []
    for group in groups.values():
        lines += [str(diagnostic) for diagnostic in group[:SHOWN_OF_A_KIND]]
        if len(group) > SHOWN_OF_A_KIND:
            lines.append(f"… and {len(group) - SHOWN_OF_A_KIND} more like it.")
    return lines
