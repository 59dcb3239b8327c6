"""Whether a disk returns what was written to it: a sample of blocks is read back past every cache.

A server that flips bits or drops writes is as fast as any other, or faster. So after an image was
filled, blocks all over it are compared with the source of the filling; and after the last
measurement of a cell, blocks are written anew and read back. Both take some hundredths of a second,
outside of all measurements. Of a fault in 5 % of the requests, at most one check in 18,000 sees
nothing.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.host import ledger, pagecache, syscalls
from vdisklab.host.direct_alignment import LEAST_BLOCK, direct_block_of
from vdisklab.host.machine import page_size
from vdisklab.storage.image_commands import ImagePlace, opened
from vdisklab.storage.server_url import Url
from vdisklab.storage.site import Site
from vdisklab.units import counted
from vdisklab.value import Value

BLOCKS = 192
_LOOK = "do not trust this storage: look at its log and its memory, and at `dmesg`"
_SECONDS = 120.0
_WITHOUT_DIRECT = "O_DIRECT"
_DUMPED = re.compile(r"\b([0-9a-f]{8,}):  ((?:[0-9a-f]{2} ){16})")
_WRONG = re.compile(r"Pattern verification failed at offset (\d+)")


def sampled(size: int, block: int) -> tuple[int, ...]:
    """The offsets of the sampled blocks: one in each of equal parts of the disk, ascending."""
    blocks = size // block
    parts = min(BLOCKS, blocks)
    chosen = random.SystemRandom()
    bounds = [blocks * part // parts for part in range(parts + 1)] if parts else []
    return tuple(chosen.randrange(low, high) * block for low, high in itertools.pairwise(bounds))


class SampledDisk(Value):
    """An image or a whole disk as QEMU opens it, and the files of the host's page cache for it."""

    place: ImagePlace
    driver: str = "raw"
    key: Path | None = None
    caches: tuple[Path, ...] = ()

    @property
    def plain(self) -> Path | None:
        """The file or device that holds the disk's own bytes; None for any other."""
        return self.place if self.driver == "raw" and isinstance(self.place, Path) else None

    def block(self) -> int:
        """Bytes of a sampled block. QEMU aligns its own requests. Raises HostError."""
        if self.plain is None:
            return LEAST_BLOCK
        try:
            return direct_block_of(self.plain, page_size())
        except OSError as error:
            raise _unreadable(self.plain, error) from error


def require_filled(site: Site, disk: SampledDisk, source: Path, size: int) -> None:
    """Raises HostError unless sampled blocks of a disk hold the bytes of `source`."""
    block = disk.block()
    offsets = sampled(min(size, source.stat().st_size), block)
    pagecache.evict(*disk.caches)
    found = _read(site, disk, offsets, block)
    with syscalls.opened(source, os.O_RDONLY) as descriptor:
        expected = {offset: os.pread(descriptor, block, offset) for offset in offsets}
    wrong = [offset for offset in offsets if found[offset] != expected[offset]]
    _require_none(disk, wrong, len(offsets), "after filling")


def require_returned(site: Site, disk: SampledDisk, size: int) -> None:
    """Writes sampled blocks of a disk, and raises HostError unless they are read back.

    Each block holds a random byte of its own, so that one that was not written, or written
    elsewhere, is seen.
    """
    block = disk.block()
    content = {offset: 1 + secrets.randbelow(255) for offset in sampled(size, block)}
    if disk.plain is not None:
        _write_plain(disk.plain, content, block)
        pagecache.evict(disk.plain, *disk.caches)
        found = _read_plain(disk.plain, tuple(content), block)
        wrong = [
            offset for offset, byte in content.items() if found[offset] != bytes([byte]) * block
        ]
    else:
        write = [f"aio_write -q -P {byte} {offset} {block}" for offset, byte in content.items()]
        _qemu_io(site, disk, [*write, "aio_flush", "flush"])
        pagecache.evict(*disk.caches)
        said = _qemu_io(
            site, disk, [f"read -P {byte} {offset} {block}" for offset, byte in content.items()]
        )
        wrong = [int(offset) for offset in _WRONG.findall(said)]
        if said.count(f"read {block}/{block} bytes") < len(content):
            raise HostError(
                f"blocks of {_shown(disk)} cannot be read back: {said.strip().splitlines()[-1:]}",
                hint=_LOOK,
            )
    _require_none(disk, wrong, len(content), "after the last measurement")


def require_shared_returned(site: Site, directory: Path) -> None:
    """Requires that a directory that a guest mounts returns what is written: a new file in it."""
    file = directory / f"vdisklab-{secrets.token_hex(4)}.check"
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        size = BLOCKS * SampledDisk(file).block()
        os.truncate(file, size)
        require_returned(site, SampledDisk(file), size)


def _require_none(disk: SampledDisk, wrong: Sequence[int], asked: int, when: str) -> None:
    if wrong:
        raise HostError(
            f"{_shown(disk)} returns wrong data: {when}, {len(wrong)} of {counted(asked, 'block')} "
            f"that were read back did not hold what was written, the first at byte {min(wrong)}",
            hint=_LOOK,
        )


def _shown(disk: SampledDisk) -> str:
    return disk.place.text if isinstance(disk.place, Url) else str(disk.place)


def _read(site: Site, disk: SampledDisk, offsets: Sequence[int], block: int) -> Mapping[int, bytes]:
    if disk.plain is not None:
        return _read_plain(disk.plain, offsets, block)
    text = _qemu_io(site, disk, [f"read -v {offset} {block}" for offset in offsets])
    lines = {int(offset, 16): bytes.fromhex(content) for offset, content in _DUMPED.findall(text)}
    return {
        offset: b"".join(lines.get(line, b"") for line in range(offset, offset + block, 16))
        for offset in offsets
    }


def _qemu_io(site: Site, disk: SampledDisk, orders: Sequence[str]) -> str:
    """What qemu-io says of orders; a wrong pattern makes it end with status 1."""
    options = opened(disk.driver, disk.place, disk.key)
    given = "".join(f"{order}\n" for order in orders)

    def run(cache: str) -> str:
        command = ("qemu-io", "-t", cache, *options)
        ended = site.host.run(*command, allowed=(0, 1), timeout=_SECONDS, stdin=given)
        if ended.status and not _WRONG.search(ended.stdout):
            raise CommandError(ended.argv, ended.status, ended.stderr or ended.stdout)
        return ended.stdout

    try:
        return run("none")
    except CommandError as error:
        if _WITHOUT_DIRECT not in error.stderr:
            raise
    return run("writeback")  # tmpfs; the page cache was emptied before


@contextmanager
def _direct(place: Path, flags: int, block: int) -> Iterator[tuple[int, mmap.mmap]]:
    """A descriptor past the page cache, where the file system has such a way, and a buffer."""
    with mmap.mmap(-1, block) as buffer:
        try:
            descriptor = os.open(place, flags | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:
            descriptor = os.open(place, flags | os.O_CLOEXEC)
        try:
            yield descriptor, buffer
        finally:
            os.close(descriptor)


def _write_plain(place: Path, content: Mapping[int, int], block: int) -> None:
    def write() -> None:
        with _direct(place, os.O_WRONLY, block) as (descriptor, buffer):
            for offset, byte in content.items():
                buffer[:] = bytes([byte]) * block
                os.pwritev(descriptor, [buffer], offset)
            os.fsync(descriptor)

    _said_of(place, write)


def _read_plain(place: Path, offsets: Sequence[int], block: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}

    def read() -> None:
        with _direct(place, os.O_RDONLY, block) as (descriptor, buffer):
            for offset in offsets:
                length = os.preadv(descriptor, [buffer], offset)
                found[offset] = buffer[:length]

    _said_of(place, read)
    return found


def _said_of(place: Path, work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        raise _unreadable(place, error) from error


def _unreadable(place: Path, error: OSError) -> HostError:
    return HostError(
        f"blocks of {place} cannot be read back: {error.strerror}",
        hint="look at `dmesg` for errors of the disk below",
    )
