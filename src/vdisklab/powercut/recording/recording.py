"""Makes one recording: builds the stack, lets a client write, keeps the log and the trace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import PowercutError
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.host.syscalls import write_whole
from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.segments import LayerKind
from vdisklab.powercut.cutting.sparse import stored_ranges
from vdisklab.powercut.judging.recovery import POOL
from vdisklab.powercut.recording.diskserver import Lies
from vdisklab.powercut.recording.dmlog import resolved
from vdisklab.powercut.recording.log import open_tail, read_log
from vdisklab.powercut.recording.logdisk import HONEST, LoggedBy
from vdisklab.powercut.recording.record import Load, PromisingDisk, record
from vdisklab.powercut.recording.stack import RecordedStack, recorded_stack
from vdisklab.powercut.recording.trace import Trace, trace_from_json, trace_to_json
from vdisklab.powercut.sectors import SECTOR
from vdisklab.storage.filesystem import wanted_mount_options
from vdisklab.storage.site import Site
from vdisklab.units import MIB

IMAGE_BYTES = 8 * MIB

_PIECE = 16 * MIB

LOG_NAME, TRACE_NAME = "writes.log", "trace.json"

Access = Callable[[Disk], AbstractContextManager[PromisingDisk]]
"""Opens the disk for a client: through NBD, in a guest, from a boot sector."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run on this machine: a directory with the log and the trace."""

    directory: Path
    trace: Trace

    @property
    def log(self) -> Path:
        """The log of writes, in dm-log-writes' format."""
        return self.directory / LOG_NAME

    def forget(self) -> None:
        """Removes it."""
        shutil.rmtree(self.directory)

    def keep(self, directory: Path) -> Recording:
        """A copy of it in a new directory; holes of the log stay holes.

        Raises PowercutError, and leaves nothing of it, where it cannot be written.
        """
        try:
            directory.mkdir(parents=True)
            _copy_sparse(self.log, directory / LOG_NAME)
            shutil.copyfile(self.directory / TRACE_NAME, directory / TRACE_NAME)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise PowercutError(
                f"the recording cannot be kept for --replay: {error.strerror}",
                hint=f"make room in {directory.parent}, and ask again with --new",
            ) from error
        return Recording(directory, self.trace)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to record."""

    path: DiskPath
    load: Load
    access: str = "nbd"
    size: int = IMAGE_BYTES
    lies: Lies = HONEST
    direct_io: bool = True
    by: LoggedBy = LoggedBy.FUSE


def make_recording(site: Site, asked: Asked, access: Access, directory: Path) -> Recording:
    """Records one run into `directory`, which is new. The stack is gone when it returns."""
    directory.mkdir()
    log = directory / LOG_NAME
    with recorded_stack(
        site, asked.path, asked.size, directory.name,
        log=log, lies=asked.lies, direct_io=asked.direct_io, by=asked.by,
    ) as stack:  # fmt: skip
        disk = _disk(asked, stack, directory.name)
        marks = stack.disk.marks
        with (
            open_tail(log) if marks is None else nullcontext(marks) as tail,
            access(disk) as opened,
        ):
            begin = tail.position()
            recorded = record(opened, tail, asked.load, asked.size // SECTOR)
            end = tail.position()
            seen = {**_seen(stack), **opened.seen}
        trace = Trace(
            path=asked.path.canonical,
            client=asked.load.kind,
            access=asked.access,
            filesystem=stack.layer.kind.value,
            mount_options=_mount_options(stack.layer),
            image=str(stack.image.path.relative_to(stack.mountpoint)),
            image_format=stack.image.format,
            image_size=asked.size,
            disk_size=stack.disk.size,
            filled=stack.filled,
            begin=begin,
            end=end,
            writes=recorded.writes,
            seen=seen,
            flushes=recorded.flushes,
        )
    if marks is not None:
        trace = resolved(trace, read_log(log))
    (directory / TRACE_NAME).write_text(trace_to_json(trace))
    return Recording(directory, trace)


def _mount_options(layer: Layer) -> tuple[str, ...]:
    return () if layer.kind is LayerKind.ZFS else wanted_mount_options(layer)


def _seen(stack: RecordedStack) -> dict[str, str]:
    pool = {} if stack.pool is None else {POOL: stack.pool}
    return {**stack.image.properties, **pool}


def _disk(asked: Asked, stack: RecordedStack, name: str) -> Disk:
    return Disk(
        serial=name[-20:],
        size=asked.size,
        filename=str(stack.image.path),
        is_block=False,
        driver=stack.image.format,
        cache=asked.path.cache,
        attachment=asked.path.attachment,
    )


def open_recording(directory: Path) -> Recording:
    """A recording that was kept; PowercutError when there is none."""
    try:
        content = (directory / TRACE_NAME).read_bytes()
    except OSError as error:
        raise PowercutError(
            f"{directory} holds no recording: {error.strerror}",
            hint="name a case as `vdisklab powercut` printed it; recordings of losses lie "
            "below powercut/ in the state directory",
        ) from error
    return Recording(directory, trace_from_json(content))


def _copy_sparse(source: Path, target: Path) -> None:
    """Copies what is stored, and only that."""
    with source.open("rb") as reading, target.open("xb") as writing:
        os.truncate(writing.fileno(), os.fstat(reading.fileno()).st_size)
        for begin, end in stored_ranges(reading.fileno()):
            for at in range(begin, end, _PIECE):
                data = os.pread(reading.fileno(), min(_PIECE, end - at), at)
                write_whole(writing.fileno(), [data], at)
