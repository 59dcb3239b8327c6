"""Findings as sentences: what is the matter, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from vdisklab.analysis.compare import Ratio, Verdict
from vdisklab.analysis.findings import (
    Emulated,
    FailedCell,
    Finding,
    FromPageCache,
    Inconclusive,
    NoBaseline,
    NoCommonBlock,
    NothingToCompare,
    TooFewBlocks,
)
from vdisklab.analysis.score import NoScore
from vdisklab.result.model import Direction

EMULATION = "under emulation (TCG): good for comparing host-side choices, no measure of a KVM guest"

SHOWN_NAMES = 3
"""So many cells are named in a sentence; the rest is counted."""


def sentence(finding: Finding) -> str:  # noqa: PLR0911 - one case per kind
    """One finding in one or two sentences."""
    match finding:
        case TooFewBlocks(cells, have, want):
            return (
                f"{_names(cells)}: {_blocks(have)} of {want} that a rank needs; "
                f"no ranking is made from them. Continue with --blocks {want} or more."
            )
        case NoCommonBlock(cells):
            return (
                f"{_names(cells)}: never measured in the same block as the others, so drift "
                "cannot be told from the difference. Measure them in one campaign."
            )
        case NothingToCompare(cell):
            return f"{cell} is alone: a rank needs a second path."
        case Inconclusive(cells):
            return (
                f"Inconclusive: none of the {cells} cells is shown to differ from another. "
                "More blocks (--blocks) or longer measurements (--runtime) may tell."
            )
        case Emulated():
            return f"Measured {EMULATION}."
        case FromPageCache(cell, measurement, direction, share):
            return _from_page_cache(cell, measurement, direction, share)
        case FailedCell(cell, blocks, kind, reason):
            return f"{cell}: failed in {_blocks(blocks)} ({kind}): {reason}"
        case NoBaseline(baseline):
            return (
                f"No scores: the baseline {baseline} has no numbers. "
                "Measure it, or name another one with --baseline."
            )
        case NoScore():
            return _no_score(finding)
        case _:
            assert_never(finding)


def verdict(found: Verdict, ratio: Ratio, names: tuple[str, str] = ("A", "B")) -> str:
    """A comparison's outcome: `A faster`, `no difference shown (12 blocks may tell)`."""
    match found:
        case Verdict.A_BETTER:
            return f"{names[0]} faster"
        case Verdict.B_BETTER:
            return f"{names[1]} faster"
        case Verdict.TOO_FEW:
            return f"too few blocks ({ratio.pairs})"
        case Verdict.NONE_SHOWN:
            needed = ratio.blocks_needed
            if needed is not None and needed > ratio.pairs:
                return f"no difference shown (about {needed} blocks may)"
            return "no difference shown"
        case _:
            assert_never(found)


def _from_page_cache(cell: str, measurement: str, direction: Direction, share: float) -> str:
    if direction is Direction.WRITE:
        return (
            f"{cell}, {measurement}: into the host's page cache; {share:.0%} of the bytes "
            "reached the device while it was measured."
        )
    return (
        f"{cell}, {measurement}: from the host's page cache; {share:.0%} of the bytes "
        "came from the device."
    )


def _no_score(finding: NoScore) -> str:
    name = finding.score.value.replace("_", " ")
    if finding.baseline_lacking:
        lacking = ", ".join(finding.baseline_lacking)
        return f"{finding.cell}: no {name}, as the baseline lacks {lacking}."
    if finding.lacking:
        return f"{finding.cell}: no {name}, as it lacks {', '.join(finding.lacking)}."
    return f"{finding.cell}: no {name}, as no block holds all of it and of the baseline."


def _names(cells: Sequence[str]) -> str:
    shown = ", ".join(cells[:SHOWN_NAMES])
    more = len(cells) - SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
