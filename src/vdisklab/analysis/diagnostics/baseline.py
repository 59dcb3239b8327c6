"""Diagnostics of the path that scores relate to: it has no numbers."""

from __future__ import annotations

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.observations import MeasureKey
from vdisklab.path.cell import MeasuredCell


class NoBaseline(Diagnostic):
    """Scores are missing because the baseline has no numbers.

    `instead` is a measure to rank by, set if all numbers are imported: then the baseline cannot be
    measured.
    """

    baseline: MeasuredCell
    instead: MeasureKey | None = None

    def __str__(self) -> str:
        if self.instead is not None:
            return (
                "No scores: they relate to a baseline in the same rounds, which imported numbers "
                f"do not have. Rank one measure: `vdisklab rank --metric {self.instead}`; "
                "`vdisklab table` prints all numbers."
            )
        return (
            f"No scores: the baseline {self.baseline} has no numbers. Measure it, name another one "
            "with --baseline, or rank one measure with --metric."
        )


class MiddleBaseline(Diagnostic):
    """The baseline has no numbers, so scores relate to another path."""

    baseline: MeasuredCell
    cell: MeasuredCell

    def __str__(self) -> str:
        return (
            f"The baseline {self.baseline} has no numbers: scores and ratios relate to "
            f"{self.cell}, the path in the middle. The order of paths does not depend on that."
        )
