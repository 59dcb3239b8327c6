"""CrystalDiskMark's text, versions 3 to 8."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, Sample
from vdisklab.workload.program import NamedResult, ProgramResult, Report

_TITLE = re.compile(r"CrystalDiskMark ([0-9]{1,4})\.([0-9.]+)")
_TITLE_LINE = re.compile(r"^\W*CrystalDiskMark [0-9]", re.MULTILINE)
# Every version states it: 1,000,000 byte/s (3), bytes/s (4 and later).
_UNIT = re.compile(r"MB/s = 1,000,000 bytes?/s")
_NUMBER = r"([0-9]{1,9}\.[0-9]{1,6})"

# Version 3 writes `Random Read 4KB (QD=32) :`, 4 to 6 `Random Read 4KiB (Q= 32,T= 1) :`.
_OLD = re.compile(
    r"\s*(Sequential|Random) (Read|Write)(?: ([0-9]+)K(?:i?)B)?(?: \(([^()]*)\))?\s*:"
    rf"\s*{_NUMBER} MB/s(?: \[\s*{_NUMBER} IOPS\])?\s*"
)
# Versions 7 and 8 write this under a heading, [Read], [Write] or `[Mix] Read 70%/Write 30%`.
_NEW = re.compile(
    r"\s*(SEQ|RND|Sequential|Random)\s+([0-9]+)(K|M)iB \(Q=\s*([0-9]+), T=\s*([0-9]+)\):"
    rf"\s*{_NUMBER} MB/s \[\s*{_NUMBER} IOPS\](?: <\s*{_NUMBER} us>)?\s*"
)
_HEADING = re.compile(r"\s*\[(Read|Write|Mix)\](?:\s*Read ([0-9]{1,2})%/Write ([0-9]{1,2})%)?\s*")
_OTHER_HEADING = re.compile(r"\s*\[\w+\]\s*")
_RESULT = re.compile(r"\s*(SEQ|RND|Sequential|Random)\b.*:.*")


def parse_crystaldiskmark(text: str) -> Report:
    """The results in a text. Raises WorkloadError for other text, and for a test that occurs twice.

    A test that shows 0.000 was not run and is left out. The mixed tests count reads and writes
    together: `seq1m-q8t1-mix70`, of direction `none`.
    """
    title = _TITLE.search(text)
    if title is None or not 3 <= int(title[1]) <= 8:
        raise WorkloadError("the title `CrystalDiskMark` with a version from 3 to 8 is missing")
    reports = max(len(_TITLE_LINE.findall(text)), len(_UNIT.findall(text)))
    if reports > 1:
        raise WorkloadError(
            f"the file holds {reports} reports of CrystalDiskMark",
            hint="put each report into a separate file",
        )
    if _UNIT.search(text) is None:
        raise WorkloadError("the line `MB/s = 1,000,000 bytes/s` is missing, so MB/s is not known")
    results_by_name: dict[str, NamedResult] = {}
    for number, name, samples in _results(text):
        if name in results_by_name:
            raise WorkloadError(
                f"line {number}: a second result of {name}",
                hint="put each report into a separate file",
            )
        if samples:
            results_by_name[name] = NamedResult(name, ProgramResult(samples, None, None))
    if not results_by_name:
        raise WorkloadError("no test of CrystalDiskMark has a result")
    version = f"{title[1]}.{title[2].rstrip('.')}"
    return Report("crystaldiskmark", version, None, tuple(results_by_name.values()))


def _results(text: str) -> Iterator[tuple[int, str, tuple[Sample, ...]]]:
    section: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            section = _section(heading)
        elif _OTHER_HEADING.fullmatch(line) is not None:
            section = None
        elif (new := _NEW.fullmatch(line)) is not None:
            if section is None:
                raise WorkloadError(f"line {number}: a result below no [Read], [Write] or [Mix]")
            yield number, *_new(new, section)
        elif (old := _OLD.fullmatch(line)) is not None:
            yield number, *_old(old)
        elif _RESULT.fullmatch(line) is not None:
            raise WorkloadError(
                f"line {number}: {line.strip()[:70]!r} is not a result of CrystalDiskMark "
                "(`…: 897.182 MB/s [ 855.6 IOPS]`)"
            )


def _section(heading: re.Match[str]) -> str:
    """`read`, `write`, or `mix70` for 70 % reads; `mix` if the share is not stated."""
    return heading[1].lower() + (heading[2] or "")


def _new(match: re.Match[str], section: str) -> tuple[str, tuple[Sample, ...]]:
    pattern, size, unit, queue, threads, bandwidth, iops, latency = match.groups()
    kind = "seq" if pattern.lower().startswith("seq") else "rnd"
    name = f"{kind}{size}{unit.lower()}-q{queue}t{threads}-{section}"
    direction = Direction.NONE if section.startswith("mix") else Direction(section)
    return name, _samples(direction, bandwidth, iops, latency)


def _old(match: re.Match[str]) -> tuple[str, tuple[Sample, ...]]:
    pattern, direction, size, how, bandwidth, iops = match.groups()
    parts = ["seq" if pattern == "Sequential" else f"rnd{size}k" if size else "rnd"]
    settings = dict(re.findall(r"(QD|Q|T)=\s*([0-9]+)", how or ""))
    queue = settings.get("QD") or settings.get("Q")
    depth = (f"q{queue}" if queue else "") + (f"t{settings['T']}" if "T" in settings else "")
    name = "-".join([*parts, *([depth] if depth else []), direction.lower()])
    return name, _samples(Direction(direction.lower()), bandwidth, iops, None)


def _samples(
    direction: Direction, bandwidth: str, iops: str | None, latency: str | None
) -> tuple[Sample, ...]:
    values = {
        "bandwidth": float(bandwidth) * 1e6,
        "iops": float(iops or 0),
        "latency_mean": float(latency or 0) * 1e-6,
    }
    return tuple(Sample(name, direction, value) for name, value in values.items() if value > 0)
