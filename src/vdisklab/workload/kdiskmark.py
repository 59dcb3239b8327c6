"""KDiskMark's text report, of version 1 to 3.

Its MB/s are not those of its heading: they were MiB/s in the first versions, and are 1,000 KiB/s
since (497.0 IOPS of 1 MiB are shown as 508.897 MB/s in the report of its README, 3.0.0). So the
bandwidth is its operations times their size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, Sample
from vdisklab.workload.program import NamedResult, ProgramResult, Report

_TITLE = re.compile(r"^[ \t]*KDiskMark(?: \((?P<version>[0-9][0-9.a-z-]{0,20})\))?:", re.MULTILINE)
_HEADING = re.compile(r"^\[(?P<name>\w+)\](?:\s*Read\s*(?P<reads>\d{1,3})%.*)?\s*$")
_RESULT = re.compile(
    r"^[ \t]*(?P<kind>Sequential|Random)\s+(?P<size>\d{1,6})\s*(?P<unit>KiB|MiB)\s*"
    r"\(Q=\s*(?P<queue>\d{1,5}),\s*T=\s*(?P<threads>\d{1,5})\):\s*(?P<rate>[\d.]{1,15})\s*MB/s\s*"
    r"\[\s*(?P<iops>\d{1,12}(?:\.\d{1,6})?)\s*IOPS\](?:\s*<\s*(?P<latency>\d{1,12}(?:\.\d{1,6})?)\s*us>)?"
)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def is_kdiskmark(text: str) -> bool:
    """True for a text with KDiskMark's title."""
    return _TITLE.search(text) is not None


def parse_kdiskmark(text: str) -> Report:
    """The results in a text. Raises WorkloadError for other text, and for a test that occurs twice.

    A test that shows no operations was not run, and is left out.
    """
    titles = [*_TITLE.finditer(text)]
    if len(titles) != 1:
        what = f"{len(titles)} reports of KDiskMark" if titles else "no title of KDiskMark"
        raise WorkloadError(f"the file holds {what}", hint="put each report into a separate file")
    results: dict[str, NamedResult] = {}
    for name, samples in _results(text):
        if name in results:
            raise WorkloadError(
                f"the file has a second result of {name}", hint="put each report into its own file"
            )
        if samples:
            results[name] = NamedResult(name, ProgramResult(samples, None, None))
    if not results:
        raise WorkloadError("no test of KDiskMark has a result")
    return Report("kdiskmark", titles[0]["version"], None, tuple(results.values()))


def _results(text: str) -> Iterator[tuple[str, tuple[Sample, ...]]]:
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := _HEADING.match(line):
            section = heading["name"].lower() + (heading["reads"] or "")
        elif match := _RESULT.match(line):
            if not re.fullmatch(r"read|write|mix\d*", section):
                raise WorkloadError(f"line {number}: a result below no [Read], [Write] or [Mix]")
            yield _result(match, section)
        elif "MB/s [" in line and not line.startswith("*"):
            raise WorkloadError(
                f"line {number}: {line.strip()[:70]!r} is not a result of KDiskMark"
            )


def _result(match: re.Match[str], section: str) -> tuple[str, tuple[Sample, ...]]:
    kind = "seq" if match["kind"] == "Sequential" else "rnd"
    size, iops = int(match["size"]) * _UNITS[match["unit"]], float(match["iops"])
    unit = match["unit"][0].lower()
    name = f"{kind}{match['size']}{unit}-q{match['queue']}t{match['threads']}-{section}"
    direction = Direction.NONE if section.startswith("mix") else Direction(section)
    values = {"bandwidth": iops * size, "iops": iops}
    if match["latency"] is not None and float(match["latency"]):
        values["latency_mean"] = float(match["latency"]) * 1e-6
    samples = tuple(Sample(metric, direction, value) for metric, value in values.items())
    return name, samples if iops else ()
