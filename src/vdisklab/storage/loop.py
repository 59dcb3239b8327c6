"""The block devices below stacks: slices of the work directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device

_WRITE_BACK = "write back"

# A file system that cannot reserve blocks writes zeros instead.
_RESERVE_SECONDS = 3600.0


@contextmanager
def loop_device(site: Site, name: str, size: int, *, allocate: bool = True) -> Iterator[Device]:
    """A loop device of `size` bytes on a new file in the site's directory.

    Requests direct I/O, so that the file below is not cached twice; `loop.direct_io` says whether
    the kernel agreed. `allocate` reserves the file's blocks, so that a measurement cannot run out
    of room.
    """
    file = site.directory / f"{name}.slice"
    with site.tracked(Kind.FILE, file):
        _make_file(site, file, size, allocate=allocate)
        with site.tracked(Kind.LOOP, file):
            shown = site.run("losetup", "--find", "--show", "--direct-io=on", file).stdout.strip()
            device = site.observe(lambda: Path(shown), planned=Path(f"/dev/loop-{name}"))
            direct = site.observe(partial(_confirm, site.host, device), planned=True)
            below = () if direct else (file,)
            yield Device(device, {"loop.direct_io": "on" if direct else "off"}, below)


def _confirm(host: Host, device: Path) -> bool:
    require_flushes(device)
    return read_direct_io(host, device)


def side_by_side(slices: Sequence[Device]) -> Device:
    """Several slices as the bottom of one stack; a property that differs becomes `mixed`."""
    first = slices[0]
    if len(slices) == 1:
        return first
    properties = {
        name: value if all(member.properties[name] == value for member in slices) else "mixed"
        for name, value in first.properties.items()
    }
    cached = tuple(file for member in slices for file in member.cached_below)
    return Device(first.path, properties, cached, tuple(member.path for member in slices))


def require_flushes(device: Path, block: Path = Path("/sys/block")) -> None:
    """Ensures that the kernel passes flushes to the file below a loop device.

    A device whose queue/write_cache was once set to "write through" keeps that when it is attached
    to another file (observed with Linux 6.18): every flush to it is dropped, so a guest's flushes
    have no cost and no effect. Raises HostError if it cannot be reset.
    """
    setting = block / device.name / "queue" / "write_cache"
    try:
        if setting.read_text().strip() != _WRITE_BACK:
            setting.write_text(_WRITE_BACK)
        mode = setting.read_text().strip()
    except FileNotFoundError:
        return  # kernels before 4.7 do not have this setting
    except OSError as error:
        raise HostError(
            f"{setting} cannot be set: {error.strerror}",
            hint="another program may use the loop device (`losetup -l`), or this kernel "
            "does not allow it",
        ) from error
    if mode != _WRITE_BACK:
        raise HostError(
            f"the kernel drops flushes to {device}: its write cache is `{mode}`",
            hint=f"echo {_WRITE_BACK} > {setting}",
        )


def read_direct_io(host: Host, device: Path) -> bool:
    """True if a loop device bypasses the page cache of the file below, according to the kernel."""
    text = host.run("losetup", "--json", "--list", "--output", "NAME,DIO", device).stdout
    (row,) = json.loads(text)["loopdevices"]
    return str(row["dio"]).lower() in ("1", "true")


def _make_file(site: Site, file: Path, size: int, *, allocate: bool) -> None:
    reserve = ("fallocate", "--posix", "--length") if allocate else ("truncate", "--size")
    try:
        site.run(*reserve, str(size), file, timeout=_RESERVE_SECONDS)
    except CommandError as error:
        raise HostError(
            f"{file} cannot be created: {error}",
            hint="choose a smaller --size, fewer paths, or another --dir",
        ) from error
