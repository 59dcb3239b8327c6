"""A compressed block device in memory (Documentation/admin-guide/blockdev/zram.rst)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.host.facts import available_memory
from vdisklab.host.ledger import Kind
from vdisklab.path.disk_path import Layer
from vdisklab.storage.room import require_memory
from vdisklab.storage.site import NO_PROPERTIES, Site, Target
from vdisklab.storage.undo_members import ZRAM_BLOCK, ZRAM_CONTROL, zram_devices

_PAGE = 4096


@contextmanager
def zram(site: Site, size: int, layer: Layer) -> Iterator[Target]:
    """A zram device of at least `size` bytes. Raises HostError if this kernel has none.

    The kernel numbers devices itself, so the ledger knows this one by its size in bytes, of which a
    few pages are random. What it holds hardly compresses, so it needs that much memory.
    """
    if not ZRAM_CONTROL.is_dir():
        raise HostError(
            "this kernel has no zram devices, or its module is not loaded",
            hint="modprobe zram num_devices=0",
        )
    site.observe(lambda: require_memory(size, available_memory(), "this stack"), planned=None)
    exact = (-(-size // _PAGE) + secrets.randbelow(4096)) * _PAGE
    earlier = site.observe(lambda: " ".join(sorted(zram_devices())), planned="")
    with site.tracked(Kind.ZRAM, str(exact), earlier=earlier):
        number = site.run("cat", ZRAM_CONTROL / "hot_add").stdout.strip() or "N"
        name = f"zram{number}"
        algorithm = layer.option("algorithm")
        if algorithm is not None:
            _choose(site, name, str(algorithm))
        _set(site, name, "disksize", str(exact))
        properties = site.observe(lambda: _read_back(name, exact), planned=NO_PROPERTIES)
        yield Target(Path("/dev") / name, True, properties)


def _choose(site: Site, device: str, algorithm: str) -> None:
    """Sets the compression, which must be one that this kernel was built with."""
    try:
        _set(site, device, "comp_algorithm", algorithm)
    except CommandError as error:
        available = (ZRAM_BLOCK / device / "comp_algorithm").read_text()
        words = available.replace("[", "").replace("]", "").split()
        raise HostError(
            f"this kernel's zram has no algorithm {algorithm}",
            hint=f"it has {', '.join(words)}",
        ) from error


def _set(site: Site, device: str, attribute: str, value: str) -> None:
    site.run("sh", "-c", f"echo {value} > {ZRAM_BLOCK}/{device}/{attribute}")


def _read_back(device: str, size: int) -> Mapping[str, str]:
    """The size and the algorithm, which sysfs shows in brackets."""
    directory = ZRAM_BLOCK / device
    seen = (directory / "disksize").read_text().strip()
    if seen != str(size):
        raise HostError(f"/dev/{device} has {seen} bytes instead of {size}")
    algorithms = (directory / "comp_algorithm").read_text()
    used = algorithms.partition("[")[2].partition("]")[0]
    return {"zram.algorithm": used or algorithms.strip(), "zram.disksize": seen}
