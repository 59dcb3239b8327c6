"""device-mapper's own log of writes as the logged disk, where the kernel has it.

The target is `log-writes` (Documentation/admin-guide/device-mapper/log-writes.rst): it stands on a
disk and writes what happens to it onto a second one. It logs a write some time after it was
answered, and one that no flush has followed only when one does; so the length of its log says
nothing while it grows. A position is therefore a mark, which goes into the same queue as what was
answered before it; marks are turned into places when the log is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind
from vdisklab.host.syscalls import attach_loop
from vdisklab.powercut.recording.log import Log, LogError, mark_text
from vdisklab.powercut.recording.trace import Trace
from vdisklab.storage.loop import read_direct_io, require_flushes
from vdisklab.storage.site import Site, Target
from vdisklab.units import GIB

TARGET = "log-writes"
_LOG_BYTES = 16 * GIB
"""The log is sparse: only what is written takes memory."""

_MARK = "vdisklab-"


@dataclass(slots=True)
class MarkTail:
    """Positions as marks, numbered from 0; `resolved` makes places of them."""

    host: Host
    device: str
    _next: int = 0

    def position(self) -> int:
        """Sends a mark and returns its number."""
        number, self._next = self._next, self._next + 1
        self.host.run("dmsetup", "message", self.device, "0", "mark", f"{_MARK}{number}")
        return number


def table(size: int, disk: str, log: str) -> str:
    """The one line of the device: from sector 0, so many sectors, the target, the two disks."""
    return f"0 {size // 512} {TARGET} {disk} {log}"


def require_log_writes(host: Host) -> str:
    """The target with its version: `log-writes v1.1.0`. Raises HostError where device-mapper or the
    target is missing."""
    if host.which("dmsetup") is None:
        raise HostError("dmsetup is not installed", hint="apt-get install dmsetup")
    if host.which("modprobe") is not None:
        host.run("modprobe", "--quiet", "dm-log-writes", allowed=range(256))
    listed = host.run("dmsetup", "targets", allowed=range(256))
    for line in listed.stdout.splitlines() if listed.status == 0 else ():
        words = line.split()
        if words and words[0] == TARGET:
            return " ".join(words)
    raise HostError(
        f"this kernel's device-mapper has no target {TARGET}",
        hint="leave --logged-by out: the disk is then logged through FUSE",
    )


def _require_mapped(host: Host, device: str) -> None:
    """Reads the table back. Raises HostError where something else answers under that name."""
    read = host.run("dmsetup", "table", device).stdout.split()
    if read[2:3] != [TARGET]:
        raise HostError(
            f"{device} is no device of {TARGET} although dmsetup made it: {' '.join(read)!r}",
            hint="something else made a device of that name: run the same command again",
        )


DISK_LOG = "disk.log"
"""Key of the target and its version among what was seen of a recording's disk."""


@contextmanager
def mapped_disk(site: Site, name: str, size: int, log: Path) -> Iterator[tuple[Target, MarkTail]]:
    """A device that is logged into the file `log`, which is whole when the block ends."""
    target = require_log_writes(site.host)
    content, device = site.directory / f"{name}.content", site.unique(name)
    with site.tracked(Kind.FILE, content):
        for file, length in ((content, size), (log, _LOG_BYTES)):
            with file.open("wb") as made:
                made.truncate(length)
        with site.tracked(Kind.LOOP, content), site.tracked(Kind.LOOP, log):
            disks = [attach_loop(file) for file in (content, log)]
            for disk in disks:
                require_flushes(Path(disk))
            with site.tracked(Kind.MAPPED, device):
                site.host.run("dmsetup", "create", device, "--table", table(size, *disks))
                _require_mapped(site.host, device)
                direct = _on(read_direct_io(site.host, Path(disks[0])))
                seen = {"loop.direct_io": direct, DISK_LOG: target}
                yield Target(Path("/dev/mapper") / device, True, seen), MarkTail(site.host, device)


def _on(direct: bool) -> str:
    return "on" if direct else "off"


def places(log: Log) -> Mapping[int, int]:
    """The place of each of our marks among the entries, by its number."""
    found: dict[int, int] = {}
    for at, entry in enumerate(log.entries):
        text = mark_text(log, entry)
        if text is not None and text.startswith(_MARK) and text.removeprefix(_MARK).isdigit():
            found[int(text.removeprefix(_MARK))] = at
    return found


def resolved(trace: Trace, log: Log) -> Trace:
    """The trace with places of the log instead of marks. Raises LogError when a mark is missing."""
    known = places(log)

    def place(mark: int) -> int:
        if mark not in known:
            raise LogError(f"the log {log.path} lacks the mark {_MARK}{mark}")
        return known[mark]

    return replace(
        trace,
        begin=place(trace.begin),
        end=place(trace.end),
        writes=tuple(
            replace(
                write,
                submitted=place(write.submitted),
                acked=None if write.acked is None else place(write.acked),
                promised=None if write.promised is None else place(write.promised),
            )
            for write in trace.writes
        ),
        flushes=tuple((place(first), place(last)) for first, last in trace.flushes),
    )
