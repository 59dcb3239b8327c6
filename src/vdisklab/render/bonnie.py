"""bonnie++'s classic table, of medians."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.analysis.observations import Observations
from vdisklab.render.articles import MEDIANS, Medians
from vdisklab.results.model import Direction

_FILE = (
    ("per_char", Direction.WRITE), ("bandwidth", Direction.WRITE), ("rewrite", Direction.WRITE),
    ("per_char", Direction.READ), ("bandwidth", Direction.READ), ("seeks", Direction.NONE),
)  # fmt: skip
_SMALL = tuple(
    (f"{order}_{test}", Direction.NONE)
    for order in ("seq", "random")
    for test in ("create", "stat", "delete")
)


def bonnie_text(found: Medians, name: str) -> str:
    """bonnie++'s classic table of one measurement, a line for each cell, K = 1024 bytes.

    `+++++` stands for a test that was too short to be measured, as in bonnie++ itself, and `+++`
    for its %CP: the percentage of a processor's time.
    """
    width = max(14, *(len(cell) for cell in found.cells))
    pad = " " * width
    lines = [
        f"{name}: {MEDIANS} (at most {found.runs})",
        f"{pad} ------Sequential Output------ --Sequential Input- --Random-",
        f"{pad} -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--",
        f"{'':{width}} K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP",
        *(_line(found, cell, name, _FILE, width) for cell in found.cells),
        "",
        f"{pad} ------Sequential Create------ --------Random Create--------",
        f"{pad} -Create-- ---Stat-- -Delete-- -Create-- ---Stat-- -Delete--",
        f"{'':{width}}  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP",
        *(_line(found, cell, name, _SMALL, width) for cell in found.cells),
        "",
    ]
    return "\n".join(lines)


def _line(
    found: Medians, cell: str, name: str, tests: Sequence[tuple[str, Direction]], width: int
) -> str:
    pairs = []
    for metric, direction in tests:
        unit = 1024 if direction is not Direction.NONE else 1
        rate = found.get(cell, name, direction, metric)
        cpu = found.get(cell, name, direction, f"{metric}_cpu")
        places = 1 if metric == "seeks" else 0
        pairs.append(f"{_rate(rate, unit, places):>5} {_percent(cpu):>3}")
    return f"{cell:{width}} " + " ".join(pairs)


def _rate(value: float | None, unit: int, places: int) -> str:
    return "+++++" if value is None else f"{value / unit:.{places}f}"


def _percent(share: float | None) -> str:
    return "+++" if share is None else f"{share * 100:.0f}"


def bonnie_measurements(observations: Observations) -> list[str]:
    """The measurements that have a number that only bonnie++ gives."""
    own = {metric for metric, _ in (*_FILE, *_SMALL)} - {"bandwidth"}
    return sorted({each.name for each in observations.measures if each.metric in own})
