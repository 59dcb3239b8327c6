"""A slice of the work directory as a block device."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.ledger import Kind
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target


@contextmanager
def loop_device(site: Site, name: str, size: int, *, allocate: bool = True) -> Iterator[Target]:
    """A loop device of `size` bytes on a new file in the site's directory.

    Direct I/O is asked for, so that data are not cached once more in the file below; whether the
    kernel agreed is read back as `loop.direct_io`. `allocate` reserves the file's blocks, so
    that a measurement cannot run out of room.
    """
    file = site.directory / f"{name}.slice"
    with site.made(Kind.FILE, file):
        _make_file(file, size, allocate=allocate)
        with site.made(Kind.LOOP, file):
            shown = site.host.run("losetup", "--find", "--show", "--direct-io=on", file)
            device = Path(shown.stdout.strip())
            direct = read_direct_io(site, device)
            below = () if direct else (file,)
            yield Target(device, True, {"loop.direct_io": "on" if direct else "off"}, below)


def side_by_side(slices: Sequence[Target]) -> Target:
    """Several slices as the bottom of one stack; a property holds for all of them or is `mixed`."""
    first = slices[0]
    if len(slices) == 1:
        return first
    properties = {
        name: value if all(each.properties[name] == value for each in slices) else "mixed"
        for name, value in first.properties.items()
    }
    cached = tuple(file for each in slices for file in each.cached_below)
    return Target(first.path, True, properties, cached, tuple(each.path for each in slices))


def read_direct_io(site: Site, device: Path) -> bool:
    """Whether a loop device bypasses the page cache of the file below, as the kernel says."""
    text = site.host.run("losetup", "--json", "--list", "--output", "NAME,DIO", device).stdout
    (found,) = json.loads(text)["loopdevices"]
    return str(found["dio"]).lower() in ("1", "true")


def _make_file(file: Path, size: int, *, allocate: bool) -> None:
    try:
        with file.open("xb") as made:
            if allocate:
                os.posix_fallocate(made.fileno(), 0, size)
            else:
                made.truncate(size)
    except OSError as error:
        raise HostError(
            f"{file} cannot be made: {error.strerror}",
            hint="choose a smaller --size, fewer paths, or another --dir",
        ) from error
