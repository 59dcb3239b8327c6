"""`show LOAD`: what a recorded guest asks of its disk."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

from vdisklab.documents import Answer, Count
from vdisklab.errors import LoadError
from vdisklab.host.mounts import is_visible_file
from vdisklab.loads.characteristics import (
    IntervalSummary,
    KindSummary,
    characteristics_of,
)
from vdisklab.loads.likeness import likeness_of
from vdisklab.loads.load import RecordedBy, RecordedLoad
from vdisklab.loads.load_file import MAGIC, SUFFIX, read_load
from vdisklab.value import Value

Share = Annotated[float | None, "of 1"]


class LoadKindRow(Value):
    """The requests of one kind; sizes in bytes, times in seconds."""

    kind: str
    count: Count
    share: Annotated[float, "of all requests"]
    per_second: float
    bytes: int
    size_low: Annotated[int | None, "one in ten is smaller"]
    size_median: int | None
    size_high: Annotated[int | None, "one in ten is larger"]
    sequential_share: Annotated[
        float | None, "begin where one of the 16 before them of this kind ended"
    ]
    service_p50: Annotated[float | None, "from a request's beginning to its end"]
    service_p99: float | None
    service_max: float | None


class LoadIntervalRow(Value):
    """What began in one part of the time."""

    start_seconds: float
    seconds: float
    reads: Count
    writes: Count
    flushes: Count
    bytes: Annotated[int, "read and written"]
    busiest: Annotated[int, "the most requests in one of its seconds"]


class LoadSizeRow(Value):
    """How many requests have more than half of so many bytes, and not more than all of them."""

    size_at_most: int
    reads: Count
    writes: Count


class LoadServiceRow(Value):
    """How many requests took more than half of so many seconds, and not more than all of them."""

    service_at_most: float
    reads: Count
    writes: Count
    flushes: Count


class LoadAnswer(Answer):
    """`vdisklab show LOAD`: what a recorded guest asks of its disk."""

    FORMAT = "vdisklab.load/1"

    file: str
    name: Annotated[str, "the guest and its disk, or the file that was imported"]
    sentence: str
    nearest_profile: str | None
    recorded_by: RecordedBy
    recorded_at: datetime | None
    seconds: float
    disk_bytes: int | None
    bus: str | None
    logical_block: int
    qemu: str | None
    lost: Annotated[int | None, "events that the recorder missed; null if unknown"]
    requests: Count
    write_share: Share
    forced_share: Annotated[float | None, "of the writes"]
    writes_per_flush: float | None
    aligned_share: Annotated[float | None, "reads and writes at multiples of 4 KiB"]
    per_second: float
    burst: Annotated[int, "the most requests in one second"]
    quiet_share: Annotated[float, "seconds without a request"]
    depth_mean: Annotated[
        float | None, "requests in flight when a request begins, with the new request"
    ]
    depth_p95: int | None
    depth_max: int | None
    moved_bytes: int
    touched_bytes: Annotated[int, "each byte once: the working set"]
    touched_read: int
    touched_written: int
    reuse: Annotated[float | None, "moved / touched"]
    rewritten_share: Annotated[float | None, "written bytes that were written before"]
    kinds: tuple[LoadKindRow, ...]
    intervals: tuple[LoadIntervalRow, ...]
    sizes: Annotated[tuple[LoadSizeRow, ...], "by powers of two"]
    services: Annotated[tuple[LoadServiceRow, ...], "by powers of two; without unseen ends"]
    notes: Annotated[tuple[str, ...], "what the recorder could not see"]


def load_file_named(text: str) -> Path | None:
    """The load file that a user means; None for the id of a run. Raises LoadError for a file of
    another kind whose name says that it is one, or that does not exist."""
    file = Path(text)
    if "/" in text and not text.endswith(SUFFIX) and not file.exists():
        raise LoadError(
            f"{text} is neither the id of a run nor a load file",
            hint="`vdisklab runs CAMPAIGN` lists the ids, `vdisklab runs` the campaigns",
        )
    if text.endswith(SUFFIX) or "/" in text:
        return file
    if not is_visible_file(file):
        return None
    try:
        with file.open("rb") as stream:
            return file if stream.read(len(MAGIC)) == MAGIC else None
    except OSError as error:
        raise LoadError(f"{file} cannot be read: {error.strerror}", hint="name a load") from error


def answer_load_file(file: Path) -> LoadAnswer:
    """The answer about a load file. Raises LoadError."""
    return answer_load(read_load(file), str(file))


def answer_load(load: RecordedLoad, file: str) -> LoadAnswer:
    """The answer about a load."""
    found = characteristics_of(load)
    said = likeness_of(found)
    source = load.source
    return LoadAnswer(
        file=file,
        name=source.name,
        sentence=said.sentence,
        nearest_profile=said.nearest,
        recorded_by=source.recorded_by,
        recorded_at=source.recorded_at,
        seconds=found.seconds,
        disk_bytes=source.disk_bytes,
        bus=source.bus,
        logical_block=source.logical_block,
        qemu=source.qemu,
        lost=source.lost,
        requests=found.requests,
        kinds=tuple(_kind(kind) for kind in found.kinds if kind.count),
        intervals=tuple(map(_interval, found.intervals)),
        sizes=tuple(LoadSizeRow(each.at_most, each.reads, each.writes) for each in found.sizes),
        services=tuple(
            LoadServiceRow(each.at_most, each.reads, each.writes, each.flushes)
            for each in found.services
        ),
        notes=source.notes,
        write_share=found.write_share,
        forced_share=found.forced_share,
        writes_per_flush=found.writes_per_flush,
        aligned_share=found.aligned_share,
        per_second=found.per_second,
        burst=found.burst,
        quiet_share=found.quiet_share,
        depth_mean=found.depth_mean,
        depth_p95=found.depth_p95,
        depth_max=found.depth_max,
        moved_bytes=found.moved_bytes,
        touched_bytes=found.touched_bytes,
        touched_read=found.touched_read,
        touched_written=found.touched_written,
        reuse=found.reuse,
        rewritten_share=found.rewritten_share,
    )


def _kind(kind: KindSummary) -> LoadKindRow:
    return LoadKindRow(
        kind.kind.name.lower().replace("_", "-"), kind.count, kind.share, kind.per_second,
        kind.bytes, kind.size_low, kind.size_median, kind.size_high, kind.sequential_share,
        kind.service_p50, kind.service_p99, kind.service_max,
    )  # fmt: skip


def _interval(part: IntervalSummary) -> LoadIntervalRow:
    return LoadIntervalRow(
        part.start_seconds, part.seconds, part.reads, part.writes, part.flushes, part.bytes,
        part.busiest,
    )  # fmt: skip
