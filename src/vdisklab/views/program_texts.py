"""Medians in the layouts of CrystalDiskMark and bonnie++."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.observations import Observations
from vdisklab.results.model import Direction
from vdisklab.views.medians import MEDIANS, Medians, PlacedCell

_FILE = (
    ("per_char", Direction.WRITE), ("bandwidth", Direction.WRITE), ("rewrite", Direction.WRITE),
    ("per_char", Direction.READ), ("bandwidth", Direction.READ), ("seeks", Direction.NONE),
)  # fmt: skip
_SMALL = tuple(
    (f"{order}_{test}", Direction.NONE)
    for order in ("seq", "random")
    for test in ("create", "stat", "delete")
)


def bonnie_text(medians: Medians, name: str) -> str:
    """bonnie++'s classic table of one measurement, a line for each cell, K = 1024 bytes.

    `+++++` stands for a test that was too short to be measured, as in bonnie++ itself, and `+++`
    for its %CP: the percentage of a processor's time.
    """
    width = max(14, *(len(str(cell)) for cell in medians.cells))
    pad = " " * width
    lines = [
        f"{name}: {MEDIANS} (at most {medians.runs})",
        f"{pad} ------Sequential Output------ --Sequential Input- --Random-",
        f"{pad} -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--",
        f"{'':{width}} K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP",
        *(_line(medians, cell, name, _FILE, width) for cell in medians.cells),
        "",
        f"{pad} ------Sequential Create------ --------Random Create--------",
        f"{pad} -Create-- ---Stat-- -Delete-- -Create-- ---Stat-- -Delete--",
        f"{'':{width}}  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP",
        *(_line(medians, cell, name, _SMALL, width) for cell in medians.cells),
        "",
    ]
    return "\n".join(lines)


def _line(
    medians: Medians,
    cell: PlacedCell,
    name: str,
    tests: Sequence[tuple[str, Direction]],
    width: int,
) -> str:
    pairs = []
    for metric, direction in tests:
        unit = 1024 if direction is not Direction.NONE else 1
        rate = medians.get(cell, name, direction, metric)
        cpu = medians.get(cell, name, direction, f"{metric}_cpu")
        places = 1 if metric == "seeks" else 0
        pairs.append(f"{_rate(rate, unit, places):>5} {_percent(cpu):>3}")
    return f"{cell!s:{width}} " + " ".join(pairs)


def _rate(value: float | None, unit: int, places: int) -> str:
    return "+++++" if value is None else f"{value / unit:.{places}f}"


def _percent(share: float | None) -> str:
    return "+++" if share is None else f"{share * 100:.0f}"


def bonnie_measurements(observations: Observations) -> list[str]:
    """The measurements with a number that only bonnie++ reports."""
    own = {metric for metric, _ in (*_FILE, *_SMALL)} - {"bandwidth"}
    return sorted({key.name for key in observations.measures if key.metric in own})


_WIDTH = 78


_CRYSTAL_ROWS = (
    ("SEQ    1MiB (Q=  8, T= 1)", "seq1m-q8t1"),
    ("SEQ    1MiB (Q=  1, T= 1)", "seq1m-q1t1"),
    ("RND    4KiB (Q= 32, T= 1)", "rnd4k-q32t1"),
    ("RND    4KiB (Q=  1, T= 1)", "rnd4k-q1t1"),
)


def crystaldiskmark_text(medians: Medians, cell: PlacedCell, version: str, how: str) -> str:
    """CrystalDiskMark 8's text for one cell, with a dash for what was not measured.

    `how` names the source of the numbers: `measured with fio`.
    """
    line = "-" * _WIDTH
    parts = [
        line,
        f"vdisklab {version}, in the layout of CrystalDiskMark 8: {cell}",
        line,
        "* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]",
        "* KB = 1000 bytes, KiB = 1024 bytes",
        f"* {MEDIANS} (at most {medians.runs}), {how}",
    ]
    parts += ["", "[Read]", *_crystal_lines(medians, cell, "read", Direction.READ)]
    parts += ["", "[Write]", *_crystal_lines(medians, cell, "write", Direction.WRITE)]
    for mix in _mixes(medians, cell):
        share = int(mix.removeprefix("mix") or 0)
        heading = f"[Mix] Read {share}%/Write {100 - share}%" if share else "[Mix]"
        parts += ["", heading, *_crystal_lines(medians, cell, mix, Direction.NONE)]
    return "\n".join([*parts, ""])


def _mixes(medians: Medians, cell: PlacedCell) -> list[str]:
    """The mixed tests of a cell: `mix70` has 70 % reads. Only imported results have any."""
    stems = "|".join(stem for _, stem in _CRYSTAL_ROWS)
    names = [name for where, name, _, _ in medians.values if where == cell]
    matches = [re.fullmatch(rf"(?:{stems})-(mix[0-9]*)", name) for name in names]
    return sorted({match[1] for match in matches if match is not None})


def _crystal_lines(
    medians: Medians, cell: PlacedCell, pattern: str, direction: Direction
) -> Iterator[str]:
    for title, stem in _CRYSTAL_ROWS:
        name = f"{stem}-{pattern}"
        bandwidth = medians.get(cell, name, direction, "bandwidth")
        iops = medians.get(cell, name, direction, "iops")
        latency = medians.get(cell, name, direction, "latency_mean")
        yield (
            f"  {title}: {_fixed(bandwidth, 1e6, 9, 3)} MB/s [{_fixed(iops, 1, 9, 1)} IOPS] "
            f"<{_fixed(latency, 1e-6, 9, 2)} us>"
        )


def _fixed(value: float | None, unit: float, width: int, places: int) -> str:
    shown = numbers.MISSING if value is None else f"{value / unit:.{places}f}"
    return shown.rjust(width)
