"""The answer of `table`: as tables, and in the layouts of CrystalDiskMark and bonnie++."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vdisklab import __version__, numbers
from vdisklab.answers import table as answers
from vdisklab.answers.measured_for import seconds_of_measurements
from vdisklab.errors import PlanError
from vdisklab.results.model import METRICS, Direction
from vdisklab.units import MIB, named, runtime_text
from vdisklab.value import replace
from vdisklab.views.durability import losses
from vdisklab.views.layout import NAMES, Column, Row, Table

SECONDS = (
    "worst s: the smallest whole second of a run; stall: the longest time without a completion"
)
_UNITS = {"MiB/s": (MIB, "1,048,576 bytes/s"), "MB/s": (10**6, "1,000,000 bytes/s")}


_FILE = (
    ("per_char", Direction.WRITE), ("bandwidth", Direction.WRITE), ("rewrite", Direction.WRITE),
    ("per_char", Direction.READ), ("bandwidth", Direction.READ), ("seeks", Direction.NONE),
)  # fmt: skip

_SMALL = tuple(
    (f"{order}_{test}", Direction.NONE)
    for order in ("seq", "random")
    for test in ("create", "stat", "delete")
)

_WIDTH = 78
_CRYSTAL_ROWS = (
    ("SEQ    1MiB (Q=  8, T= 1)", "seq1m-q8t1"),
    ("SEQ    1MiB (Q=  1, T= 1)", "seq1m-q1t1"),
    ("RND    4KiB (Q= 32, T= 1)", "rnd4k-q32t1"),
    ("RND    4KiB (Q=  1, T= 1)", "rnd4k-q1t1"),
)


def tables(answer: answers.TableAnswer) -> Iterator[Table[Any]]:
    """Programs, then installations, boots, deletions and flushes.

    Programs may be left out if others have rows.
    """
    others = [make(answer) for make, rows in (
        (_growth, answer.growth), (_boots, answer.boots), (_freed, answer.freed),
        (_flushes, answer.flushes),
    ) if rows]  # fmt: skip
    first = [_measurements(answer)] if answer.measurements or not others else []
    notes = tuple(_notes(answer))
    for place, table in enumerate((*first, *others)):
        intro = () if place else answer.caveats.notes
        yield replace(table, intro=(*table.intro, *intro), notes=(*table.notes, *notes))


def grid(answer: answers.TableAnswer) -> Iterator[Table[answers.TableCell]]:
    """A row for each cell and a column for each bandwidth. Raises PlanError if none was measured.

    The unit is MiB/s if every measuring program reports MiB/s, else MB/s.
    """
    found = {
        (row.cell, row.measurement, row.direction): row.bandwidth
        for row in answer.measurements
        if row.bandwidth is not None
    }
    tests = list(dict.fromkeys((name, direction) for _, name, direction in found))
    if not tests:
        raise PlanError(
            "this campaign has no bandwidths", hint="`vdisklab table` shows what it has"
        )
    directions = Counter(name for name, _ in tests)
    unit = "MiB/s" if directions.keys() <= set(answer.of_sysbench) else "MB/s"
    factor, meaning = _UNITS[unit]

    def column(name: str, direction: Direction) -> Column[answers.TableCell]:
        def show(row: answers.TableCell) -> str:
            value = found.get((row.cell, name, direction))
            return numbers.MISSING if value is None else numbers.digits(value / factor)

        return Column(f"{name} {direction}" if directions[name] > 1 else name, show, right=True)

    columns = (_cell_column(unit), *(column(*test) for test in tests))
    notes = (f"{_medians(answer)}; {unit} = {meaning}", *_notes(answer))
    intro = answer.caveats.notes
    yield Table(f"Bandwidth in {unit}", columns, answer.cells, notes, intro=intro)


def _medians(answer: answers.TableAnswer) -> str:
    seconds = seconds_of_measurements(answer.campaigns)
    each = "" if seconds is None else f", each run of {runtime_text(seconds)}"
    return f"each number is the median of its runs (at most {answer.runs}{each})"


def _notes(answer: answers.TableAnswer) -> Iterator[str]:
    calls = (answers.FsyncCalls, answers.UnknownFsyncCalls)
    paths = (row.cell.cell.path for row in answer.cells)
    if any(path is not None and path.attachment.made for path in paths):
        yield "disks were made from a template: `vdisklab life` shows what each step took"
    yield from (str(finding) for finding in answer.findings if isinstance(finding, calls))
    if answer.places:
        yield "each place was measured separately: their differences are not taken within rounds"
    yield from _losses(answer)
    yield from (str(finding) for finding in answer.findings if not isinstance(finding, calls))


def _losses(answer: answers.TableAnswer) -> Iterator[str]:
    """What loses flushed data, and in which places if it does not in all."""
    said: dict[str, list[str]] = {}
    places = answer.places or ("",)
    for place in places:
        cells = {row.cell.cell: row.power_cut for row in answer.cells if row.cell.place == place}
        for loss in losses(cells, cells):
            said.setdefault(loss, []).append(place)
    for loss, found in said.items():
        yield loss if len(found) == len(places) else f"In {named(found)}, {loss}"


def _cell_column(title: str = "cell") -> Column[Any]:
    return Column(title, lambda row: str(row.cell), folds=NAMES)


def _seconds(value: float | None) -> str:
    return numbers.value(value, "s")


def _number(
    title: str,
    value: Callable[[Row], float | None],
    spare: int = 0,
    show: Callable[[float | None], str] = _seconds,
) -> Column[Row]:
    """A column of numbers, which are seconds unless `show` says otherwise."""
    return Column(title, lambda row: show(value(row)), right=True, spare=spare)


def _mega(value: float | None) -> str:
    return numbers.MISSING if value is None else numbers.digits(value / 1e6)


def _plain(value: float | None) -> str:
    return numbers.MISSING if value is None else numbers.digits(value)


def _count(value: float | None) -> str:
    return numbers.MISSING if value is None else f"{value:.0f}"


def _measurements(answer: answers.TableAnswer) -> Table[answers.MeasurementRow]:
    """Operations, access time, MB/s, the worst second, stalls."""

    def with_value(
        title: str,
        value: Callable[[answers.MeasurementRow], float | None],
        spare: int = 0,
        show: Callable[[float | None], str] = _seconds,
    ) -> list[Column[answers.MeasurementRow]]:
        """The column; empty if no row has a value."""
        filled = any(value(row) is not None for row in answer.measurements)
        return [_number(title, value, spare, show)] if filled else []

    columns: list[Column[answers.MeasurementRow]] = [
        Column("measurement", lambda row: row.measurement),
        Column("", lambda row: "" if row.direction is Direction.NONE else row.direction),
        _cell_column(),
        *with_value("MB/s", lambda row: row.bandwidth, 0, _mega),
        *with_value("sustained", lambda row: row.sustained, 0, _mega),
        *with_value("IOPS", lambda row: row.iops, 0, _plain),
        _number("mean", lambda row: row.latency_mean, 1),
        _number("p50", lambda row: row.latency_p50, 2),
        *with_value("p95", lambda row: row.latency_p95, 2),
        _number("p99", lambda row: row.latency_p99, 1),
        _number("p99.9", lambda row: row.latency_p99_9, 2),
        _number("max", lambda row: row.latency_max, 2),
        *with_value("sync p99", lambda row: row.sync_p99),
        _number("worst s MB/s", lambda row: row.worst_second, 1, _mega),
        _number("stall", lambda row: row.longest_stall, 1),
        _number("trans/s", lambda row: row.transactions, 1, _plain),
    ]
    notes = [f"{_medians(answer)}; MB/s = 1,000,000 bytes/s", SECONDS]
    if any(row.sync_p99 is not None for row in answer.measurements):
        notes.append("sync p99: of the fsync calls alone; the other times are those of writes")
    if any(row.sustained is not None for row in answer.measurements):
        notes.append("sustained: MB/s until all that was written had reached the device")
    return Table(
        "Measurements", columns, answer.measurements, tuple(notes), kind=answers.MeasurementRow
    )


def _growth(answer: answers.TableAnswer) -> Table[answers.GrowthRow]:
    def size(value: float | None) -> str:
        return numbers.value(value, METRICS["allocated"].unit)

    columns: tuple[Column[answers.GrowthRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        _cell_column(),
        _number("time", lambda row: row.seconds),
        _number("allocated", lambda row: row.allocated, show=size),
        _number("mapped", lambda row: row.mapped, 2, size),
        _number(
            "flushes",
            lambda row: row.flushes,
            1,
            _count,
        ),
        _number("worst s MB/s", lambda row: row.worst_second, 2, _mega),
        _number("stall", lambda row: row.longest_stall, 2),
        _number("÷ again", lambda row: row.to_again, 2, numbers.ratio),
        _number("÷ allocated", lambda row: row.to_allocated, 1, numbers.ratio),
        _number("÷ raw", lambda row: row.to_raw, 1, numbers.ratio),
    )
    notes = (
        f"{_medians(answer)}; ratios are of these times",
        "allocated: by how much the image grew on the host's file system (st_blocks); mapped: in "
        "its format's own map; flushes: those that QEMU received",
        f"{SECONDS}; these two, mapped and ÷ again are shown on a wide terminal, and in CSV and "
        "JSON",
        f"÷ again: to {answer.installations[-1]} on the same image; ÷ allocated, ÷ raw: to the "
        "same measurement on that image",
    )
    return Table("Growth", columns, answer.growth, notes, kind=answers.GrowthRow)


def _boots(answer: answers.TableAnswer) -> Table[answers.BootRow]:
    columns: tuple[Column[answers.BootRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        _cell_column(),
        _number("boot", lambda row: row.boot_time),
        _number("worst s MB/s", lambda row: row.worst_second, 1, _mega),
        _number("stall", lambda row: row.longest_stall, 1),
        _number("shutdown", lambda row: row.shutdown_time),
    )
    notes = (
        _medians(answer),
        "boot: from the start of QEMU to the guest agent's first answer; shutdown: from the "
        "shutdown command to the end of QEMU",
        f"{SECONDS}, both of the boot",
    )
    return Table("Boots", columns, answer.boots, notes, kind=answers.BootRow)


def _freed(answer: answers.TableAnswer) -> Table[answers.FreedRow]:
    def size(value: float | None) -> str:
        return numbers.value(value, METRICS["freed_guest"].unit)

    columns: tuple[Column[answers.FreedRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        _cell_column(),
        _number("in the guest", lambda row: row.guest, show=size),
        _number("in the image", lambda row: row.image, show=size),
        _number("on the device", lambda row: row.device, show=size),
    )
    notes = (
        _medians(answer),
        "in the guest: of its file system; in the image: on the host's file system (st_blocks); on "
        "the device: what the host's devices were told to discard, by others too",
    )
    return Table("Given back by deleting", columns, answer.freed, notes, kind=answers.FreedRow)


def _flushes(answer: answers.TableAnswer) -> Table[answers.FlushRow]:
    columns: tuple[Column[answers.FlushRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        _cell_column(),
        _number("writes", lambda row: row.writes, show=_count),
        _number("flushes at QEMU", lambda row: row.qemu_flushes, show=_count),
        _number("fdatasync calls", lambda row: row.host_syncs, show=_count),
        _number("flushes at the device", lambda row: row.device_flushes, show=_count),
    )
    notes = (
        f"{_medians(answer)}; writes: of the program in the guest; fdatasync calls: QEMU's on the "
        "host, counted by the kernel for root; the device's flushes include those of others",
    )
    return Table("What becomes of a write", columns, answer.flushes, notes, kind=answers.FlushRow)


def crystaldiskmark(answer: answers.TableAnswer) -> Iterator[str]:
    """CrystalDiskMark's text for each cell. Raises PlanError without its measurements."""
    if "seq1m-q1t1-read" not in answer.medians.names:
        raise PlanError(
            "this campaign has no measurements of CrystalDiskMark",
            hint="measure them: `vdisklab run PATHS --profile crystaldiskmark`",
        )
    yield from (crystaldiskmark_text(answer, cell) for cell in answer.cells)
    yield from _warning(answer)


def bonnie(answer: answers.TableAnswer) -> Iterator[str]:
    """bonnie++'s table of each measurement. Raises PlanError without its measurements."""
    metrics = {metric for metric, _ in (*_FILE, *_SMALL)} - {"bandwidth"}
    names = sorted({name for _, name, _, metric in answer.medians.values if metric in metrics})
    if not names:
        raise PlanError(
            "this campaign has no measurements of bonnie++",
            hint="measure them: `vdisklab run PATHS --profile bonnie`",
        )
    yield from (bonnie_text(answer, name) for name in names)
    yield from _warning(answer)


def pgbench(answer: answers.TableAnswer) -> Iterator[str]:
    """pgbench's lines of each measurement and cell. Raises PlanError without transactions."""
    rows = [row for row in answer.measurements if row.transactions is not None]
    if not rows:
        raise PlanError(
            "this campaign has no transactions",
            hint="measure them: `vdisklab run PATHS --profile postgresql`",
        )
    for row in rows:
        times = {"average": row.latency_mean, "p50": row.latency_p50, "p95": row.latency_p95,
                 "p99": row.latency_p99}  # fmt: skip
        yield "\n".join((
            f"{row.cell}, {row.measurement}: {_medians(answer)}",
            *(f"latency {name} = {1000 * value:.3f} ms"
              for name, value in times.items() if value is not None),
            f"tps = {row.transactions:.6f} (without initial connection time)\n",
        ))  # fmt: skip
    yield from _warning(answer)


def _warning(answer: answers.TableAnswer) -> Iterator[str]:
    yield from (f"* {loss}" for loss in _losses(answer))
    if answer.caveats.warning is not None:
        yield f"* measured {answer.caveats.warning}"


def bonnie_text(answer: answers.TableAnswer, name: str) -> str:
    """bonnie++'s classic table of one measurement, a line for each cell, K = 1024 bytes.

    `+++++` stands for a test that was too short to be measured, as in bonnie++ itself, and `+++`
    for its %CP: the percentage of a processor's time.
    """
    medians = answer.medians
    width = max(14, *(len(str(cell)) for cell in medians.cells))
    pad = " " * width
    lines = [
        f"{name}: {_medians(answer)}",
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
    medians: answers.Medians,
    cell: answers.PlacedCell,
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
        shown = "+++++" if rate is None else f"{rate / unit:.{places}f}"
        pairs.append(f"{shown:>5} {'+++' if cpu is None else f'{cpu * 100:.0f}':>3}")
    return f"{cell!s:{width}} " + " ".join(pairs)


def crystaldiskmark_text(answer: answers.TableAnswer, row: answers.TableCell) -> str:
    """CrystalDiskMark 8's text for one cell, with a dash for what was not measured."""
    line = "-" * _WIDTH
    parts = [
        line,
        f"vdisklab {__version__}, in the layout of CrystalDiskMark 8: {row.cell}",
        line,
        "* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]",
        "* KB = 1000 bytes, KiB = 1024 bytes",
        f"* {_medians(answer)}, {row.source}",
    ]
    medians = answer.medians
    parts += ["", "[Read]", *_crystal_lines(medians, row.cell, "read", Direction.READ)]
    parts += ["", "[Write]", *_crystal_lines(medians, row.cell, "write", Direction.WRITE)]
    for mix in _mixes(medians, row.cell):
        share = int(mix.removeprefix("mix") or 0)
        heading = f"[Mix] Read {share}%/Write {100 - share}%" if share else "[Mix]"
        parts += ["", heading, *_crystal_lines(medians, row.cell, mix, Direction.NONE)]
    return "\n".join([*parts, ""])


def _mixes(medians: answers.Medians, cell: answers.PlacedCell) -> list[str]:
    """The mixed tests of a cell: `mix70` has 70 % reads. Only imported results have any."""
    stems = "|".join(stem for _, stem in _CRYSTAL_ROWS)
    names = [name for where, name, _, _ in medians.values if where == cell]
    matches = [re.fullmatch(rf"(?:{stems})-(mix[0-9]*)", name) for name in names]
    return sorted({match[1] for match in matches if match is not None})


def _crystal_lines(
    medians: answers.Medians, cell: answers.PlacedCell, pattern: str, direction: Direction
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
