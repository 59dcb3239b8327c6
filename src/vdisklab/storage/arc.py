"""ZFS's own cache in memory (ARC): read, limited on request, restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.deadline import wait_until
from vdisklab.host.kernelfile import read_text
from vdisklab.host.ledger import Kind
from vdisklab.storage.site import Site
from vdisklab.units import format_bytes

PARAMETER = Path("/sys/module/zfs/parameters/zfs_arc_max")
STATISTICS = Path("/proc/spl/kstat/zfs/arcstats")
_SETTLE_SECONDS = 10.0


def parse_arcstats(text: str) -> dict[str, int]:
    """The counters of a kstat table: `name type data` lines after two of header."""
    rows = (line.split() for line in text.splitlines()[2:])
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


def arc_facts() -> dict[str, str]:
    """Size and limit of the cache now, in bytes; empty where the kernel does not tell."""
    text = read_text(STATISTICS)
    if text is None:
        return {}
    counters = parse_arcstats(text)
    return {"arc_size": str(counters["size"]), "arc_limit": str(counters["c_max"])}


@contextmanager
def limited_arc(site: Site, limit: int) -> Iterator[None]:
    """Limits the cache to `limit` bytes for as long as a block lasts.

    Raises HostError where there is no such limit, or ZFS does not follow it.
    """
    before, parameter = arc_facts(), read_text(PARAMETER)
    if not before or parameter is None:
        raise HostError(
            "the size of ZFS's cache cannot be set here: the module is not loaded, or it is not "
            "the kernel's ZFS",
            hint="leave --arc out, or `modprobe zfs`",
        )
    with site.tracked(Kind.ARC, PARAMETER, parameter=parameter, effective=before["arc_limit"]):
        try:
            PARAMETER.write_text(str(limit))
        except OSError as error:
            raise HostError(
                f"{PARAMETER} cannot be written: {error.strerror}",
                hint="leave --arc out, or load the kernel's zfs module: only it has this parameter",
            ) from error
        wait_until(
            lambda: arc_facts()["arc_limit"] == str(limit),
            timeout=_SETTLE_SECONDS,
            what=f"limit of {format_bytes(limit)} on ZFS's cache (the kernel's log says why)",
        )
        yield
