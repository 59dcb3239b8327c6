"""dd: writes or reads one whole file, with the real program."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, IoCounters, Sample, Series
from vdisklab.units import parse_size
from vdisklab.value import Value
from vdisklab.workload import program

_TIMEOUT = 4 * 3600.0

# GNU coreutils: "67108864 bytes (67 MB, 64 MiB) copied, 0.503305 s, 133 MB/s". Bytes and seconds
# are exact; the rate, which is rounded, only has to fit them.
_LINE = re.compile(
    r"(?<![0-9])([0-9]{1,19}) bytes?(?: \(([^()\r\n]*)\))? copied, "
    r"([0-9]{1,19}(?:[.,][0-9]{1,19})?(?:e[+-]?[0-9]{1,3})?) s"
    r"(?:, (?:([0-9]{1,19}(?:[.,][0-9]{1,19})?) ([kMGTP]?)B|(Infinity) [A-Z]?B)/s)?"
    r"[ \t]*(?=[\r\n]|$)"
)
# macOS, the BSDs and coreutils before 5.1: "1048576 bytes transferred in 0.5 secs (2097152
# bytes/sec)"; busybox: "1048576 bytes (1.0MB) copied, 0.500000 seconds, 2.0MB/s".
_OTHER_LINE = re.compile(
    r"(?<![0-9])([0-9]{1,19}) bytes (?:transferred in|\([0-9.]{1,9}[KMGT]?B\) copied,) "
    r"([0-9]{1,19}(?:\.[0-9]{1,19})?) sec(?:ond)?s\b"
)
ENDS = (" copied, ", " bytes transferred in ")
"""The English words in the last line of every dd."""
# The text in brackets: `67 MB, 64 MiB`.
_SIZE = re.compile(r"([0-9]+(?:[.,][0-9]+)?) ([kKMGTPE]?)(i?)B(?=,|$)")
_POWERS = {unit: power for power, unit in enumerate(["", "k", "M", "G", "T", "P", "E"])}
_RECORDS = re.compile(r"^([0-9]{1,19})\+([0-9]{1,19}) records out$", re.MULTILINE)


class DdSettings(program.Settings):
    """Settings of a dd measurement: dd's own operands, and the direction."""

    direction: Literal["write", "read"] = "write"
    bs: str
    count: Annotated[int, Field(ge=1)]
    direct: bool = True


class Copied(Value):
    """The figures that dd prints at its end; `records` counts full and partial blocks written."""

    size: int
    seconds: float
    records: int | None


class Dd(program.Workload):
    """The copying program of GNU coreutils."""

    needs_directory = True

    def leaves_writes(self, plan: MeasurementPlan) -> bool:
        """True if it writes with O_DIRECT; what it leaves in a guest's cache, no host can see."""
        settings = program.read_settings(plan, DdSettings)
        return settings.direction == "write" and settings.direct

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """Writes a new file of zeroes, or reads a file that was written before."""
        settings = program.read_settings(plan, DdSettings)
        count = max(1, round(settings.count * timing.scale))
        size = parse_size(settings.bs) * count
        program.require_room(plan, size, subject.room_for_files)
        file = f"{subject.path}/{plan.name}.dd"
        writing = ("dd", "if=/dev/zero", f"of={file}", f"bs={settings.bs}", f"count={count}")
        reading = ("dd", f"if={file}", "of=/dev/null", f"bs={settings.bs}", f"count={count}")
        remove = program.SideCommand(("rm", "-f", file), 300)
        if settings.direction == "read":
            blocks = -(-size // (1 << 20))
            fill = ("dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={blocks}", "conv=fsync")
            flags = ("iflag=direct",) if settings.direct else ()
            command = (*reading, *flags, "status=progress")
            return program.Script(
                command, 0.0, _TIMEOUT, None, (program.SideCommand(fill, _TIMEOUT),), (remove,)
            )
        flags = ("oflag=direct",) if settings.direct else ()
        return program.Script(
            (*writing, *flags, "status=progress"), 0.0, _TIMEOUT, conclude=(remove,)
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Bandwidth, operations per second, and bandwidth over time from dd's progress."""
        settings = program.read_settings(plan, DdSettings)
        direction = Direction(settings.direction)
        copied = parse_line(output.stderr)
        series, log_samples = _bandwidth_over_time(direction, output.stderr, copied)
        writing = direction is Direction.WRITE
        records = copied.records or 0
        counted = IoCounters(
            0 if writing else copied.size,
            copied.size if writing else 0,
            0 if writing else records,
            records if writing else 0,
        )
        return program.ProgramResult(
            (*samples_of(direction, copied), *log_samples),
            counted if copied.records is not None else None,
            copied.seconds,
            series,
        )


def parse_line(text: str) -> Copied:
    """dd's last line. Raises WorkloadError if it is missing or contradicts itself."""
    matches = list(_LINE.finditer(text))
    if not matches and (other := _OTHER_LINE.search(text)) is not None:
        return _copied(int(other[1]), float(other[2]), text)
    if not matches:
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise WorkloadError(
            f"dd's line `N bytes … copied, S s` is missing; it printed {last[:120]!r}"
        )
    if len(matches) > 1 and " records out" not in text:
        raise WorkloadError(
            "dd's output ends with a progress line: the line `records out` is missing"
        )
    copied = _copied(int(matches[-1][1]), _decimal(matches[-1][3]), text)
    if not (_size_fits(copied.size, matches[-1][2] or "") and _rate_fits(copied.size, matches[-1])):
        raise WorkloadError(f"dd's line contradicts itself: {matches[-1][0][:120]!r}")
    return copied


def _copied(size: int, seconds: float, text: str) -> Copied:
    if size == 0:
        raise WorkloadError("dd copied nothing")
    if seconds <= 0:
        raise WorkloadError("dd printed 0 s, so its speed is unknown")
    records = _RECORDS.findall(text)
    count = int(records[-1][0]) + int(records[-1][1]) if records else None
    if count == 0:
        raise WorkloadError(
            f"dd wrote {size} bytes but no whole record: it failed, such as on a full disk",
            hint="a run that failed measured nothing; import one that did not",
        )
    return Copied(size, seconds, count)


def _rate_fits(size: int, line: re.Match[str]) -> bool:
    """True if the printed rate fits bytes and seconds within rounding.

    dd computes the rate from the exact time, even if it prints whole seconds.
    """
    if line[4] is None:
        return line[6] is None
    seconds, rate = _decimal(line[3]), _decimal(line[4])
    unit = 1000.0 ** _POWERS[line[5]]
    shortest = max(seconds - _last_digit(line[3]), 1e-9)
    longest = seconds + _last_digit(line[3])
    least, most = rate - _last_digit(line[4]), rate + _last_digit(line[4])
    return size / longest <= most * unit and least * unit <= size / shortest


def _size_fits(size: int, shown: str) -> bool:
    """True if the sizes in brackets fit the number of bytes within rounding."""
    return all(
        abs(_decimal(number) * unit - size) <= _last_digit(number) * unit
        for number, prefix, binary in _SIZE.findall(shown)
        for unit in [(1024.0 if binary else 1000.0) ** _POWERS[prefix.replace("K", "k")]]
    )


def _decimal(text: str) -> float:
    return float(text.replace(",", "."))


def _last_digit(text: str) -> float:
    """The value of the last printed digit: 0.001 for `0.503`."""
    digits, _, exponent = text.partition("e")
    places = len(digits.replace(",", ".").partition(".")[2])
    return float(f"1e{int(exponent or 0) - places}")


def samples_of(direction: Direction, copied: Copied) -> Iterator[Sample]:
    """Bandwidth, duration, and operations per second if dd counted them."""
    yield Sample("bandwidth", direction, copied.size / copied.seconds)
    yield Sample("duration", direction, copied.seconds)
    if copied.records is not None:
        yield Sample("iops", direction, copied.records / copied.seconds)


def _bandwidth_over_time(
    direction: Direction, text: str, copied: Copied
) -> tuple[tuple[Series, ...], tuple[Sample, ...]]:
    """Bandwidth over time from dd's progress lines.

    dd prints a line after the first write of each second, in whole seconds; a second without a line
    was spent in one long write.
    """
    shown = [(int(m[1]), _decimal(m[3])) for m in _LINE.finditer(text)]
    # After a stall several lines have the same second; the last one has all its bytes.
    seconds = {
        seconds_shown: size for size, seconds_shown in shown[:-1] if seconds_shown.is_integer()
    }
    ticks = [(0, 0.0), *((size, moment) for moment, size in seconds.items()), shown[-1]]
    moved = [
        program.Moved(begin, end, size - before)
        for (before, begin), (size, end) in itertools.pairwise(ticks)
        if end > begin
    ]
    series = program.series_of(direction, moved, copied.seconds)
    if series is None or len(moved) < 2:
        return (), ()
    stalls = [math.floor(piece.end - piece.begin - 1) for piece in moved]
    stall = Sample("longest_stall", direction, float(max(0, *stalls)))
    return (series,), (program.worst_second(series), stall)
