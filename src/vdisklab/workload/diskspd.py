"""DISKSPD in a Windows guest, configured as similarly to a fio measurement as possible.

Options are from Microsoft's DISKSPD wiki ("Command line and parameters", "Customizing tests"). It
was never run on Windows here; the XML names are those in its XmlResultParser.
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
    Output,
    ProgramResult,
    Report,
    Script,
    Subject,
    Timing,
    Workload,
)

PROGRAM = "vdisklab-diskspd.exe"

_SLACK_SECONDS = 180.0


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

    def parse(self, plan: MeasurementPlan, output: Output) -> ProgramResult:
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


_PERCENTILES = {50.0: "latency_p50", 95.0: "latency_p95", 99.0: "latency_p99",
                99.9: "latency_p99.9", 100.0: "latency_max"}  # fmt: skip
_NUMBER = re.compile(r"\s*[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?\s*")
_SIDES = ((Direction.READ, "Read"), (Direction.WRITE, "Write"))


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
        raise WorkloadError(
            f"the XML is a <{root.tag[:40]}>, and DISKSPD writes <Results>",
            hint="run DISKSPD with -Rxml, and import its XML",
        )
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
