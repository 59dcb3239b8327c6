"""DISKSPD in a Windows guest, as similar to a fio measurement as possible, and CrystalDiskMark.

Options are from Microsoft's DISKSPD wiki ("Command line and parameters", "Customizing tests"). It
was never run on Windows here; the XML names are those in its XmlResultParser. CrystalDiskMark, a
front end of it, writes text; versions 3 to 8 are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, IoCounters, Sample, Series
from vdisklab.units import parse_size
from vdisklab.workload.fio import FioSettings, read_fio_settings
from vdisklab.workload.program import (
    NamedResult,
    Outputs,
    ProgramResult,
    Report,
    Script,
    Subject,
    Timing,
    Workload,
)

PROGRAM = "vdisklab-diskspd.exe"

_SLACK_SECONDS = 180.0


_PERCENTILES = {50.0: "latency_p50", 95.0: "latency_p95", 99.0: "latency_p99",
                99.9: "latency_p99.9", 100.0: "latency_max"}  # fmt: skip

_NUMBER = re.compile(r"\s*[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?\s*")
_SIDES = ((Direction.READ, "Read"), (Direction.WRITE, "Write"))
_RXML = "run DISKSPD with -Rxml, and import its XML; or fio's JSON (--output-format=json+)"
_OTHERS = {
    "PhoronixTestSuite": (
        "a result of the Phoronix Test Suite, which is not read",
        "run fio itself with --output-format=json, and import that",
    ),
}
"""By the root of another program's XML: whose it is, and what to import instead."""

_TITLE = re.compile(r"CrystalDiskMark ([0-9]{1,4})\.([0-9.]+)")
_TITLE_LINE = re.compile(r"^\W*CrystalDiskMark [0-9]", re.MULTILINE)
# Every version states it: 1,000,000 byte/s (3), bytes/s (4 and later).
_UNIT = re.compile(r"MB/s = 1,000,000 bytes?/s")

_DECIMAL = r"([0-9]{1,9}\.[0-9]{1,6})"
# Version 3 writes `Random Read 4KB (QD=32) :`, 4 to 6 `Random Read 4KiB (Q= 32,T= 1) :`.
_OLD = re.compile(
    r"\s*(Sequential|Random) (Read|Write)(?: ([0-9]+)K(?:i?)B)?(?: \(([^()]*)\))?\s*:"
    rf"\s*{_DECIMAL} MB/s(?: \[\s*{_DECIMAL} IOPS\])?\s*"
)

# Versions 7 and 8 write this under a heading, [Read], [Write] or `[Mix] Read 70%/Write 30%`.
_NEW = re.compile(
    r"\s*(SEQ|RND|Sequential|Random)\s+([0-9]+)(K|M)iB \(Q=\s*([0-9]+), T=\s*([0-9]+)\):"
    rf"\s*{_DECIMAL} MB/s \[\s*{_DECIMAL} IOPS\](?: <\s*{_DECIMAL} us>)?\s*"
)

_HEADING = re.compile(r"\s*\[(Read|Write|Mix)\](?:\s*Read ([0-9]{1,2})%/Write ([0-9]{1,2})%)?\s*")
_OTHER_HEADING = re.compile(r"\s*\[\w+\]\s*")
_RESULT = re.compile(r"\s*(SEQ|RND|Sequential|Random)\b.*:.*")


class Diskspd(Workload):
    """Microsoft's DISKSPD, on a whole physical disk."""

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """The DISKSPD command nearest to a fio measurement; times are rounded up to seconds.

        -Su is direct I/O like fio's: no system cache, no write-through. Raises PlanError for
        settings that DISKSPD lacks.
        """
        settings = read_fio_settings(plan)
        _require_expressible(plan, settings)
        seconds, warm_up = max(1, math.ceil(timing.runtime)), math.ceil(timing.ramp)
        reads = {"read": 100, "randread": 100, "write": 0, "randwrite": 0}.get(
            settings.rw or "", 50 if settings.rwmixread is None else settings.rwmixread
        )
        block = parse_size(settings.bs or "")
        command = (
            f"{subject.scratch}\\{PROGRAM}",
            f"-b{block}",
            f"-f{subject.size - subject.size % block}",
            f"-d{seconds}",
            f"-W{warm_up}",
            f"-t{settings.numjobs}",
            f"-o{settings.iodepth}",
            *_order(settings, block),
            f"-w{100 - reads}",
            "-Su",
            "-Z1M",
            "-L",
            "-D1000",
            "-Rxml",
            subject.path,
        )
        expected = float(seconds + warm_up)
        return Script(command, expected, expected + _SLACK_SECONDS)

    def parse(self, plan: MeasurementPlan, output: Outputs) -> ProgramResult:
        """The numbers in its XML. Raises WorkloadError for anything else."""
        time_spans = parse_diskspd(output.stdout.lstrip("\ufeff \r\n")).results
        if len(time_spans) != 1:
            raise WorkloadError(
                f"DISKSPD reports {len(time_spans)} time spans of {plan.name}, not one"
            )
        return time_spans[0].outcome


def _order(settings: FioSettings, block: int) -> tuple[str, ...]:
    """Options for random blocks, or for sequential blocks shared by all threads."""
    if (settings.rw or "").startswith("rand"):
        return (f"-r{block}",)
    return ("-si",) if settings.numjobs > 1 else ()


def _require_expressible(plan: MeasurementPlan, settings: FioSettings) -> None:
    lacking = {
        "a job file": settings.job is not None,
        "bsrange": settings.bsrange is not None,
        "fsync": settings.fsync is not None,
        "sync": settings.sync is not None,
        "size": settings.size is not None,
        "iodepth_batch": settings.iodepth_batch is not None,
        "every_block_once": settings.every_block_once,
        "time_based = false": not settings.time_based,
    }
    for name, used in lacking.items():
        if used:
            raise PlanError(
                f"measurement {plan.name!r} uses {name}, which DISKSPD does not have",
                hint="leave it out of the profile for a Windows guest",
            )


def parse_diskspd(text: str) -> Report:
    """Each time span as a measurement. Raises WorkloadError for anything but DISKSPD's XML."""
    try:
        root: Element = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise WorkloadError(
            "the XML declares a document type or entities; DISKSPD's has none"
        ) from error
    except (ParseError, ValueError) as error:
        raise WorkloadError(f"damaged XML: {error}") from error
    if root.tag != "Results":
        name, hint = _OTHERS.get(root.tag, (f"a <{root.tag[:40]}>", _RXML))
        raise WorkloadError(f"the XML is {name}, and DISKSPD writes <Results>", hint=hint)
    spans = root.findall("TimeSpan")
    if not spans:
        raise WorkloadError("DISKSPD's <Results> hold no <TimeSpan>: it measured nothing")
    time_spans = tuple(
        NamedResult("diskspd" if len(spans) == 1 else f"diskspd-{number}", _outcome(span, number))
        for number, span in enumerate(spans, 1)
    )
    computer = root.findtext("System/ComputerName")
    return Report("diskspd", root.findtext("System/Tool/Version"), computer or None, time_spans)


def _outcome(span: Element, number: int) -> ProgramResult:
    where = f"time span {number}"
    seconds = _number(span, "TestTimeSeconds", where)
    targets = span.findall("Thread/Target")
    if not targets or seconds <= 0:
        raise WorkloadError(f"{where} of DISKSPD has no <Target> or a duration of 0")
    counts = {
        name: sum(_number(target, name, where) for target in targets)
        for name in ("ReadBytes", "WriteBytes", "ReadCount", "WriteCount")
    }
    samples: list[Sample] = []
    for direction, side in _SIDES:
        if counts[f"{side}Count"] > 0:
            samples.append(Sample("bandwidth", direction, counts[f"{side}Bytes"] / seconds))
            samples.append(Sample("iops", direction, counts[f"{side}Count"] / seconds))
            samples += _latencies(span, side, direction, where)
    if not samples:
        raise WorkloadError(f"{where} of DISKSPD did not complete a single operation")
    counted = IoCounters(*(int(counts[name]) for name in counts))
    used = {sample.direction for sample in samples}
    return ProgramResult(tuple(samples), counted, seconds, tuple(_series(span, used, where)))


def _latencies(span: Element, side: str, direction: Direction, where: str) -> Iterator[Sample]:
    """Latencies, if DISKSPD was run with -L."""
    latency = span.find("Latency")
    if latency is None:
        return
    mean = latency.find(f"Average{side}Milliseconds")
    if mean is not None:
        yield Sample("latency_mean", direction, _value(mean.text, mean.tag, where) / 1000)
    metrics: set[str] = set()
    for bucket in latency.findall("Bucket"):
        metric = _PERCENTILES.get(_number(bucket, "Percentile", where))
        if metric is not None and bucket.find(f"{side}Milliseconds") is not None:
            if metric in metrics:
                raise WorkloadError(f"{where} of DISKSPD has a percentile twice")
            metrics.add(metric)
            yield Sample(metric, direction, _number(bucket, f"{side}Milliseconds", where) / 1000)


def _series(span: Element, used: set[Direction], where: str) -> Iterator[Series]:
    """Operations in each second, if DISKSPD was run with -D1000."""
    buckets = span.findall("Iops/Bucket")
    times = [
        _value(bucket.get("SampleMillisecond"), "SampleMillisecond", where) for bucket in buckets
    ]
    if not times or times != [1000.0 * number for number in range(1, len(times) + 1)]:
        return
    for direction, side in _SIDES:
        if direction in used:
            values = tuple(_value(bucket.get(side), f"Bucket {side}", where) for bucket in buckets)
            yield Series("iops", direction, 1.0, values)


def _number(parent: Element, name: str, where: str) -> float:
    return _value(parent.findtext(name), name, where)


def _value(text: str | None, name: str, where: str) -> float:
    # float() would also accept 1_0 and digits of other scripts.
    value = float(text) if text and _NUMBER.fullmatch(text) else math.nan
    if not 0 <= value < 1e18:
        raise WorkloadError(
            f"{where} of DISKSPD: {name} is {(text or 'missing')[:30]!r}, not a number"
        )
    return value


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
            section = heading[1].lower() + (heading[2] or "")  # `mix70` for 70 % reads
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
