"""elbencho's end results: the CSV of --csvfile and the JSON of --jsonfile.

A row or object is a phase (docs/csv-docs.md; Statistics.cpp, printPhaseResultsToStringVec and
printPhaseResultsAsJSON). The result is `last`: when the slowest thread was done. The CSV has whole
MiB/s, cut off, so its bandwidth is all MiB by the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, Sample
from vdisklab.units import format_size, whole_number
from vdisklab.value import Value
from vdisklab.workload.program import NamedResult, ProgramResult, Report

_HEADER = re.compile(r"^ISO date,label,path type,[^\n]*,operation,", re.MULTILINE)
_OBJECT = re.compile(r'^[ \t]*\{[^\n]*"phase_type"[ \t]*:', re.MULTILINE)
_DATA = re.compile(r"READ(\+s)?|WRITE(\+[sr])*|RWMIX[A-Z]*[0-9]{1,9}(\+[sr])*")
_NO_DATA = ("MKDIRS", "STATDIRS", "RMDIRS", "RMFILES", "STAT", "SYNC", "DROPCACHE")
"""Phases that transfer no data of files: nothing here compares them (Common.h, PHASENAME_*)."""

_PATHS = ("dir", "file", "blockdev", "hdfs", "bucket", "object")
_OF_DISKS = _PATHS[:3]
_MOST_BYTES = 1 << 40  # of one request
_MIXED = "rwmix read "

_Fields = Mapping[str, str]
"""A phase by the CSV's names. Empty: nothing was counted."""


_END = ("last_done",)
_JSON = {
    "operation": ("phase_type",),
    "label": ("label",),
    "version": ("config", "version"),
    "path type": ("config", "path_type"),
    "hosts": ("config", "hosts"),
    "threads": ("config", "threads"),
    "block size": ("config", "block_size"),
    "direct IO": ("config", "direct_io"),
    "random": ("config", "random_offsets"),
    "IO depth": ("config", "io_depth"),
    "time ms [last]": (*_END, "elapsed_time_ms"),
    "IOPS [last]": (*_END, "iops"),
    "bytes/s": (*_END, "bytes/s"),
    "IO lat us [avg]": (*_END, "latency", "IO", "avg_us"),
    "IO lat us [max]": (*_END, "latency", "IO", "max_us"),
    f"{_MIXED}IOPS [last]": (*_END, "rwmix_read", "iops"),
    f"{_MIXED}bytes/s": (*_END, "rwmix_read", "bytes/s"),
    f"{_MIXED}IO lat us [avg]": (*_END, "latency", "IO", "rwmix_read", "avg_us"),
    f"{_MIXED}IO lat us [max]": (*_END, "latency", "IO", "rwmix_read", "max_us"),
}
"""By column of the CSV: where the JSON has the same number."""

_NEEDED = ("operation", "label", "version", "path type", "hosts", "threads", "block size", "random",
           "IO depth", "time ms [last]")  # fmt: skip


def is_elbencho(text: str) -> bool:
    """True for a text with the CSV's heading, or with a phase's JSON."""
    return _HEADER.search(text) is not None or _OBJECT.search(text) is not None


def parse_elbencho(text: str) -> tuple[Report, ...]:
    """One report for each label. Raises WorkloadError for what is not whole, for a phase that is
    not known, and for two results of the same name and label.
    """
    phases = [*(_of_csv(text) if _HEADER.search(text) else _of_json(text))]
    by_label: dict[str, dict[str, NamedResult]] = {}
    for number, fields in phases:
        result = _result(number, fields)
        if result is None:
            continue
        named = by_label.setdefault(fields["label"], {})
        if result.name in named:
            raise WorkloadError(
                f"line {number}: a second result of {result.name}: elbencho appends to its file",
                hint="give each run another --label, or a file of its own",
            )
        named[result.name] = result
    versions = {fields["version"] for _, fields in phases}
    if len(versions) > 1:
        raise WorkloadError(
            f"the file holds results of {len(versions)} versions of elbencho",
            hint="put the results of each version into a separate file",
        )
    if not by_label:
        raise WorkloadError(
            "no phase of elbencho read or wrote data", hint="run elbencho with --read or --write"
        )
    version = next(iter(versions)) or None
    return tuple(
        Report("elbencho", version, label or None, tuple(named.values()))
        for label, named in by_label.items()
    )


def _of_csv(text: str) -> Iterator[tuple[int, _Fields]]:
    """Each row by the columns' names: no field has a comma (ProgArgs, Statistics)."""
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _HEADER.match(line):
            names = line.strip().split(",")
        elif line.strip():
            values = line.strip().split(",")
            if not names or len(values) != len(names):
                raise WorkloadError(
                    f"line {number} has {len(values)} fields, and elbencho's heading {len(names)}",
                    hint="import the file as elbencho wrote it with --csvfile",
                )
            yield number, dict.fromkeys(_NEEDED, "") | dict(zip(names, values, strict=True))


def _of_json(text: str) -> Iterator[tuple[int, _Fields]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            phase = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _broken(number) from error
        if not isinstance(phase, dict):
            raise _broken(number)
        yield number, {name: _found(phase, number, *path) for name, path in _JSON.items()}


def _found(phase: object, number: int, *path: str) -> str:
    """The value at a place, as text; empty if nothing is there."""
    for name in path:
        if not isinstance(phase, dict):
            raise _broken(number)
        phase = phase.get(name, "" if name == path[-1] else {})
    if not isinstance(phase, str | int) or isinstance(phase, float):
        raise _broken(number)
    return {"true": "1", "false": "0"}.get(str(phase).lower(), str(phase))


def _broken(number: int) -> WorkloadError:
    return WorkloadError(
        f"line {number} is not a phase's JSON of elbencho",
        hint="import the file as elbencho wrote it with --jsonfile",
    )


class _Phase(Value):
    number: int
    fields: _Fields

    def count(self, name: str) -> int | None:
        """A number; None if nothing was counted. Raises WorkloadError for other text."""
        text = self.fields.get(name, "")
        value = whole_number(text) if text else None
        if text and value is None:
            raise self.wrong(name)
        return value

    def setting(self, name: str) -> int:
        value = self.count(name)
        if value is None:
            raise self.wrong(name)
        return value

    def wrong(self, name: str) -> WorkloadError:
        text = self.fields.get(name, "")
        return WorkloadError(
            f"line {self.number}: {name!r} of elbencho's result is {text[:40]!r}",
            hint="import the file as elbencho wrote it",
        )


def _result(number: int, fields: _Fields) -> NamedResult | None:
    """A phase's result; None for a phase that transfers no data, and for one that counted none."""
    phase, operation = _Phase(number, fields), fields["operation"]
    if operation in _NO_DATA:
        return None
    if fields["path type"] not in _PATHS:
        raise phase.wrong("path type")
    if fields["path type"] not in _OF_DISKS:
        raise WorkloadError(
            f"line {number}: elbencho measured {fields['path type']}, "
            "which is neither a file nor a disk",
            hint="measure a file or a block device",
        )
    if not _DATA.fullmatch(operation):
        raise phase.wrong("operation")
    seconds = phase.setting("time ms [last]") / 1000
    first = Direction.READ if operation.startswith("READ") else Direction.WRITE
    samples = (*_samples(phase, "", first, seconds),
               *_samples(phase, _MIXED, Direction.READ, seconds))  # fmt: skip
    block = phase.setting("block size")
    if not 0 < block <= _MOST_BYTES:
        raise phase.wrong("block size")
    kind = "rnd" if phase.setting("random") else "seq"
    threads = phase.setting("hosts") * phase.setting("threads")
    shape = f"{kind}{format_size(block)}-q{phase.setting('IO depth')}t{threads}"
    name = f"{shape}-{operation.lower()}"
    return NamedResult(name, ProgramResult(samples, None, seconds or None)) if samples else None


def _samples(
    phase: _Phase, before: str, direction: Direction, seconds: float
) -> tuple[Sample, ...]:
    values = {
        "bandwidth": _bandwidth(phase, before, seconds),
        "iops": phase.count(f"{before}IOPS [last]"),
        "latency_mean": _seconds(phase.count(f"{before}IO lat us [avg]")),
        "latency_max": _seconds(phase.count(f"{before}IO lat us [max]")),
    }
    return tuple(Sample(name, direction, float(value)) for name, value in values.items() if value)


def _bandwidth(phase: _Phase, before: str, seconds: float) -> float | None:
    """Bytes per second. MiB and MiB/s are cut off: the larger number is the more exact one."""
    exact = phase.count(f"{before}bytes/s")
    if exact is not None:
        return exact
    rate, transferred = phase.count(f"{before}MiB/s [last]"), phase.count(f"{before}MiB [last]")
    if transferred is not None and seconds >= 1:
        return transferred * (1 << 20) / seconds
    return None if rate is None else rate * (1 << 20)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds * 1e-6
