"""zram: a block device in compressed memory."""

from __future__ import annotations

import contextlib
import errno
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, DirtyHostError, HostError
from vdisklab.host import command, facts, ledger, waiting
from vdisklab.host.machine import page_size
from vdisklab.path.disk_path import Layer
from vdisklab.storage import targets, undo
from vdisklab.storage.site import Site, require_memory

ZRAM_CONTROL = Path("/sys/class/zram-control")
ZRAM_BLOCK = Path("/sys/block")
_LOOKING_SECONDS = 5.0
_MOST_EXTRA_PAGES = 4096


@contextmanager
def zram(site: Site, _name: str, size: int, layer: Layer) -> Iterator[targets.Device]:
    """A zram device of at least `size` bytes. Raises HostError if this kernel has none.

    See Documentation/admin-guide/blockdev/zram.rst.

    The kernel chooses the device's number, so the ledger knows the device by its size, made unique
    by a few random pages. The measured data hardly compresses, so the device needs its full size in
    memory.
    """
    if not ZRAM_CONTROL.is_dir():
        raise HostError(
            "this kernel has no zram devices, or its module is not loaded",
            hint="modprobe zram num_devices=0",
        )
    site.check(lambda: require_memory(size, facts.available_memory(), "this stack"))
    exact = unique_size(size, page_size(), secrets.randbelow(_MOST_EXTRA_PAGES))
    earlier = site.observe(lambda: " ".join(sorted(zram_devices())), planned="")
    with site.tracked(ZRAM, str(exact), earlier=earlier):
        number = site.run("cat", ZRAM_CONTROL / "hot_add").stdout.strip() or "N"
        name = f"zram{number}"
        algorithm = layer.option("algorithm")
        if algorithm is not None:
            _choose(site, name, str(algorithm))
        _set(site, name, "disksize", str(exact))
        properties = site.read_back(lambda: _read_back(name, exact))
        yield targets.Device(Path("/dev") / name, properties)


def unique_size(size: int, page: int, extra: int) -> int:
    """At least `size` bytes, and `extra` pages: the kernel rounds a disksize up to whole pages."""
    return (-(-size // page) + extra) * page


def _choose(site: Site, device: str, algorithm: str) -> None:
    """Sets the compression, which must be one that this kernel was built with."""
    try:
        _set(site, device, "comp_algorithm", algorithm)
    except CommandError as error:
        available = (ZRAM_BLOCK / device / "comp_algorithm").read_text()
        algorithms = available.replace("[", "").replace("]", "").split()
        raise HostError(
            f"this kernel's zram has no algorithm {algorithm}",
            hint=f"it has {', '.join(algorithms)}",
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


def zram_devices() -> Iterator[str]:
    """The names of all zram devices."""
    return (path.name for path in ZRAM_BLOCK.glob("zram*"))


def remove_zram(_host: command.Host, entry: ledger.Entry) -> None:
    """Removes the device of that size, and any newer device that has no size yet."""
    undo.require_sysfs()
    earlier = entry.detail.get("earlier", "").split()
    for device in sorted(zram_devices()):
        directory = ZRAM_BLOCK / device
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            size = (directory / "disksize").read_text().strip()
            unused = size == "0" and device not in earlier
            if size != entry.name and not unused:
                continue
            try:
                # udev opens a device whose writer has closed it, to look for a file system.
                _write_when_free(directory / "reset", "1")
                _write_when_free(ZRAM_CONTROL / "hot_remove", device.removeprefix("zram"))
            except OSError as error:
                raise DirtyHostError(
                    f"/dev/{device} cannot be removed: {error.strerror}",
                    hint="something uses it: see `lsof` and `findmnt`, then run `vdisklab clean`",
                ) from error


def _write_when_free(attribute: Path, value: str) -> None:
    """Writes to sysfs. Raises OSError if the device stays busy for a while."""
    deadline = time.monotonic() + _LOOKING_SECONDS * waiting.patience()
    while True:
        try:
            attribute.write_text(value)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


ZRAM = undo.Removable("zram device", remove_zram)
