"""The image that disks are made from, as it is looked at: the user's own file is only read."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import stat
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vdisklab.errors import (
    CommandError,
    CommandTimeoutError,
    DirtyHostError,
    HostError,
    PlanError,
)
from vdisklab.host.command import Host, not_installed
from vdisklab.host.image_file import format_of, header_format, seen_file, state_of
from vdisklab.host.loops import attached_loops
from vdisklab.host.whereabouts import inode_of
from vdisklab.operations.making import PACKED
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.settings import Request
from vdisklab.results.model import NO_DATA
from vdisklab.units import KIB, MIB, SECTOR, format_bytes
from vdisklab.value import Value, replace
from vdisklab.workload.life import BLOCK, CLUSTER, LEAST_DISK, written_at

PIECE, _BEGINNING, _SPREAD = 256 * KIB, 4 * MIB, 63
"""The sample of a device that is a template: pieces of so many bytes, all those of its beginning,
where partitions and most file systems have their tables, and so many over the whole device."""

WHOLE_IMAGE_SECONDS = 4 * 3600.0
"""For programs that read or write all of an image."""

CHECK_SECONDS = 60.0
"""For all tables of a template: `qemu-img check` reads no data."""

_ENDS_EARLY = ("exceeding the end of the file", "points after EOF", "points after end of file")
"""What the block drivers of qcow2, vmdk and vhdx say of a table that leads behind the end."""

_NO_CHECK = 63
"""qemu-img(1): the format has no consistency check."""

_AGAIN = "copy it again from where it came, and compare the checksums"

_LEAKS = 3
"""qemu-img(1): clusters that nobody uses; the data are whole."""

_MISMATCH = re.compile(r"Content mismatch at offset ([0-9]{1,20})!")
"""qemu-img(1): compare, with exit status 1."""

_LOCKED = "Failed to get"
_IN_USE = "is in use: a guest has it open for writing"
_SHUT = "shut the guest down, or name a copy of the image"

_ONE_FILE = "make one file of it: qemu-img convert -O qcow2 {file} template.qcow2"
_ENCRYPTED = (
    "is encrypted, and each copy would have the same key",
    "name an image without encryption",
)

_DESCRIPTOR = b"# Disk DescriptorFile"

_XZ = b"\xfd7zXZ\0"

_LUKS = b"LUKS\xba\xbe"

_VDI_HEADER = 0x188

_FIRST_BYTES = 512

_CONVERT = "convert it: qemu-img convert -f {} -O qcow2 {{file}} template.qcow2"

_NOT_RAW = (
    (0, b"conectix", "an image of Virtual PC (VHD)", _CONVERT.format("vpc")),
    (0, b"WithoutFreeSpace", "an image of Parallels", _CONVERT.format("parallels")),
    (0, b"WithouFreSpacExt", "an image of Parallels", _CONVERT.format("parallels")),
    (0, b"\x1f\x8b\x08", "packed by gzip", "unpack it: gunzip {file}"),
    (0, b"\x28\xb5\x2f\xfd", "packed by zstd", "unpack it: zstd -d {file}"),
    (0, b"BZh", "packed by bzip2", "unpack it: bunzip2 {file}"),
    (0, b"\x04\x22\x4d\x18", "packed by lz4", "unpack it: lz4 -d {file}"),
    (0, _XZ, f"packed by xz, and its name does not end in {PACKED}", "rename it"),
    (0, b"PK\x03\x04", "a ZIP archive", "unpack it, and name the image in it"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it, and name the image in it"),
    (257, b"ustar", "a tar archive, as OVA files are", "unpack it, and name the image in it"),
)
"""Offset and magic number of files that qemu-img would take as raw disks when told to, and that are
none; from block/vpc.c and block/parallels.c of QEMU, and from file(1)."""


class GivenImage(Value):
    """An image that the user names: QEMU's driver, and the size that a guest sees, in bytes.

    `packed` is True for a raw image that xz compressed. `state` changes when the file does; that of
    a device only if the sample of its data does.
    """

    file: Path
    driver: str
    size: int
    packed: bool = False
    state: str = ""


def requested_template(host: Host, request: Request) -> GivenImage | None:
    """The image that a request names, None if it names none.

    Raises the errors of `inspect_template`, `require_whole` and `require_fits`.
    """
    if request.template is None:
        return None
    given = inspect_template(host, request.template)
    require_whole(host, given)
    require_fits(given, given.size if request.size_bytes is None else request.size_bytes)
    return given


def inspect_template(host: Host, file: Path) -> GivenImage:
    """The image that disks are made from, as its header describes it.

    Raises HostError if the image is missing or in use, PlanError if it needs other files or a key.
    """
    header = _header_of(file)
    problem, form, info = header.problem, header.form, {}
    if problem is None and header.is_packed:
        try:
            listed = host.run("xz", "--robot", "--list", "--", header.file).stdout.splitlines()
        except CommandError as error:
            raise HostError(
                f"the template {header.file} is cut short or damaged: {error}",
                hint=_AGAIN,
            ) from error
        totals = next(line.split("\t") for line in listed if line.startswith("totals"))
        info = {"virtual-size": totals[4]}
        problem = _no_sectors(int(totals[4]))
    elif problem is None:
        if host.which("qemu-img") is None:
            raise not_installed("qemu-img")
        # A name may begin with a dash.
        absolute = header.file.absolute()
        try:
            answer = host.run("qemu-img", "info", "--output=json", "-f", form.value, absolute)
        except CommandError as error:
            if _LOCKED in error.stderr:
                raise HostError(f"the template {header.file} {_IN_USE}", hint=_SHUT) from error
            if any(early in error.stderr for early in _ENDS_EARLY):
                raise HostError(
                    f"the template {header.file} is cut short: {_first_line(error)}",
                    hint=_AGAIN,
                ) from error
            raise HostError(
                f"the template {header.file} is no {form} image that qemu-img can read: {error}",
                hint="check it with `qemu-img check`",
            ) from error
        info = json.loads(answer.stdout)
        problem = _not_alone(info) or header.bad_size
    if problem is not None:
        what, way = problem
        raise PlanError(f"the template {header.file} {what}", hint=way.format(file=header.file))
    return GivenImage(
        header.file,
        form.value,
        int(info["virtual-size"]),
        header.is_packed,
        header.state or _state(header.file),
    )


_Problem = tuple[str, str]
"""What is wrong with an image, as a predicate, and the way out, in which {file} is its name."""


class _Header(Value):
    """What a file shows of the image in it before a program reads it.

    `last` is the last sector of a regular file, else empty; `size` and `state` are those of a
    regular file, None of a device.
    """

    file: Path
    form: ImageFormat
    first: bytes
    last: bytes
    size: int | None
    state: str | None

    @property
    def is_packed(self) -> bool:
        """True for a raw image that xz compressed, by its name."""
        return self.file.suffix == PACKED

    @property
    def problem(self) -> _Problem | None:
        """Why disks cannot be made from the file, by its first and last bytes."""
        if self.is_packed:
            return (
                None if self.first.startswith(_XZ) else ("is not packed by xz", "rename the file")
            )
        if self.first.startswith(_DESCRIPTOR):
            return "is a list of other files", _ONE_FILE
        if self.form is not ImageFormat.RAW:
            return None
        if self.first.startswith(_LUKS):
            return _ENCRYPTED
        for offset, magic, what, way in _NOT_RAW:
            if any(part.startswith(magic, offset) for part in (self.first, self.last)):
                return f"is {what}", way
        return None

    @property
    def bad_size(self) -> _Problem | None:
        """Why a raw file of this size cannot be a disk."""
        if self.form is not ImageFormat.RAW or self.size is None:
            return None
        return _no_sectors(self.size)


def _header_of(file: Path) -> _Header:
    """The header of the user's image. Raises HostError for a file that is none, or is in use."""
    kind = None
    try:
        mode = file.stat().st_mode
        kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a named pipe (FIFO)"),
                 (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a character device"))  # fmt: skip
        kind = next((f"is {name}, not an image" for is_kind, name in kinds if is_kind(mode)), None)
    except FileNotFoundError:
        kind = "does not exist"
    except OSError as error:
        kind = f"cannot be read: {error.strerror}"
    loop = None if kind is not None else _writable_loop(file)
    with seen_file(file) as seen:
        first = None if seen is None else seen.first(_FIRST_BYTES)
        form = format_of(seen)
        # `qemu-img info` takes no lock on a raw image, as it reads none of it.
        is_written = seen is not None and seen.is_written_by_qemu
        # A VHD of a fixed size has its header in the last sector (block/vpc.c).
        last = None if seen is None else seen.last(SECTOR)
        is_regular = seen is not None and seen.is_regular
        size = seen.status.st_size if seen is not None and is_regular else None
        state = seen.state if seen is not None and is_regular else None
    if first is None or form is None:
        kind = "cannot be read" if kind is None else kind
        raise HostError(f"the template {file} {kind}", hint="name an image file: --from")
    if is_written:
        raise HostError(f"the template {file} {_IN_USE}", hint=_SHUT)
    if loop is not None:
        raise HostError(
            f"the template {file} is in use: {loop} is attached to it and may write to it",
            hint=f"unmount it and detach {loop}, or name a copy of the image",
        )
    return _Header(file, form, first, last or b"", size, state)


def _not_alone(info: Mapping[str, Any]) -> _Problem | None:
    """Why an image needs other files, or a key, by what qemu-img says of it."""
    below = info.get("backing-filename")
    if below:
        # qemu-img was given an absolute name, so this one is absolute, too, or a URL.
        place = str(info.get("full-backing-filename") or below)
        is_file = not place.startswith("json:") and "://" not in place
        if is_file and not Path(place.removeprefix("file:")).exists():
            way = "put the backing file back, or name an image that needs no other file"
            return f"needs the backing file {below}, which is not there", way
        return f"has the backing file {below}, which is not copied with it", _ONE_FILE
    if info.get("encrypted"):
        return _ENCRYPTED
    data = info.get("format-specific", {}).get("data", {}).get("data-file")
    return (f"has its data in {data}, which is not copied", _ONE_FILE) if data else None


def _no_sectors(size: int) -> _Problem | None:
    """Why a size is not one of a raw disk: qemu-img would fill up its last sector."""
    if size > 0 and size % SECTOR == 0:
        return None
    what = "is empty" if size <= 0 else f"has {size} bytes, not a multiple of 512"
    return what, "name a raw, qcow2, vmdk, vhdx or vdi image, or a raw image packed by xz"


def _state(file: Path) -> str:
    """What changes when a template is written to: the time of change that a file has. Of a device,
    whose node has none, the size and a checksum of a sample: its beginning, and pieces at even
    distances, the last bytes among them; all of a small one. Raises HostError."""
    if file.is_file():
        return state_of(file)
    checksum = hashlib.sha256()
    try:
        with file.open("rb", buffering=0) as opened:
            size = opened.seek(0, os.SEEK_END)
            # Another host may have written to shared storage: this host's memory knows nothing.
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for offset in sampled(size):
                checksum.update(os.pread(opened.fileno(), PIECE, offset))
    except OSError as error:
        raise HostError(
            f"the template {file} cannot be read: {error.strerror}", hint="name another image"
        ) from error
    return f"{size} bytes, sample {checksum.hexdigest()}"


def sampled(size: int) -> tuple[int, ...]:
    """Where the pieces of a sample of `size` bytes begin."""
    last = max(0, size - PIECE)
    beginning = range(0, min(_BEGINNING, last + 1), PIECE)
    spread = (last * number // _SPREAD for number in range(_SPREAD + 1))
    return tuple(sorted({*beginning, *spread}))


def _writable_loop(file: Path) -> str | None:
    """The loop device that may write to a file: what is mounted from it changes the file."""
    if not file.is_file():
        return None
    inode, place = inode_of(file.stat()), file.resolve()
    try:
        loops = attached_loops()
    except DirtyHostError:
        return None  # this container hides the loop devices of the host
    same = (
        loop for loop in loops if loop.inode == inode or (not loop.inode and loop.file == place)
    )
    return next((loop.device for loop in same if loop.writable), None)


def require_whole(host: Host, given: GivenImage) -> None:
    """Raises HostError for a template that is cut short or damaged, as far as its tables say.

    No table shows a cut within the last cluster, and a raw image has no tables. If the tables are
    not read within a minute, the template is taken as it is.
    """
    if given.driver == ImageFormat.VDI:
        short = _is_short_vdi(given.file)
        damage = "blocks of its table lie after the end of the file" if short else ""
    elif given.driver == ImageFormat.RAW:
        return
    else:
        damage, short = _damage(host, given)
    if damage:
        what = "is cut short" if short else "is damaged"
        raise HostError(
            f"the template {given.file} {what}: {damage}",
            hint=_AGAIN,
        )


def _damage(host: Host, given: GivenImage) -> tuple[str, bool]:
    """What qemu-img's check finds, and whether the file ends early; empty if it finds nothing."""
    check = ("qemu-img", "check", "-q", "-f", given.driver, given.file.absolute())
    fine = (0, _LEAKS, _NO_CHECK)
    try:
        host.run(*check, timeout=CHECK_SECONDS, allowed=fine)
    except CommandTimeoutError:
        return "", False
    except CommandError as error:
        return _first_line(error), any(said in error.stderr for said in _ENDS_EARLY)
    return "", False


def _first_line(error: CommandError) -> str:
    lines = error.stderr.strip().splitlines() or ["`qemu-img check` finds errors"]
    return lines[0].removeprefix("qemu-img: ").removeprefix("ERROR: ")


def _is_short_vdi(file: Path) -> bool:
    """True if the blocks that a header of VDI counts do not fit into the file: qemu-img does not
    look (block/vdi.c: VdiHeader)."""
    with seen_file(file) as seen:
        header = None if seen is None else seen.first(_VDI_HEADER)
    if seen is None or not seen.is_regular or header is None or len(header) < _VDI_HEADER:
        return False
    (data,) = struct.unpack_from("<I", header, 0x158)
    block, extra, _blocks, allocated = struct.unpack_from("<4I", header, 0x178)
    return seen.status.st_size < int(data) + int(allocated) * (int(block) + int(extra))


def as_named(file: Path, size: int) -> GivenImage:
    """An image of which only the name and the header are looked at: for commands that are only
    shown."""
    packed = file.suffix == PACKED
    form = ImageFormat.RAW if packed else header_format(file) or ImageFormat.RAW
    return GivenImage(file, form.value, size, packed=packed)


class FirstWrite(Value):
    """Where the first write of a disk goes, and whether the template has data there."""

    offset: int
    on_data: bool

    @property
    def seen(self) -> str:
        """What the template has there, as it is stored with a run."""
        return "data" if self.on_data else NO_DATA


def find_first_write(host: Host, given: GivenImage) -> FirstWrite:
    """The first block of the template with data, from a quarter of it on, else from its beginning.

    A block at the beginning of a cluster is not taken if the next one has data, too. What is all
    zeros counts as none: copies have holes there. Raises HostError for a file that cannot be read.
    """
    start = written_at(given.size)
    if given.packed:
        found = _data_in_packed(given.file, start)
    else:
        found = _data_from(host, given, start, given.size)
        if found is None:
            found = _data_from(host, given, 0, given.size)
    if found is None:
        return FirstWrite(start, on_data=False)
    offset = found // BLOCK * BLOCK
    beside = offset + BLOCK
    if not given.packed and offset % CLUSTER == 0 and beside + BLOCK <= given.size:
        offset = offset if _data_from(host, given, beside, beside + BLOCK) is None else beside
    return FirstWrite(offset, on_data=True)


def _data_from(host: Host, given: GivenImage, start: int, end: int) -> int | None:
    """The first byte within a range of a template that may not be zero; None if all are zero.

    qemu-img knows each format's zeros, and reads what is none: it compares with an empty file,
    beyond whose end it expects zeros. Raises HostError for an image that cannot be read.
    """
    if start >= end:
        return None
    size = end - start
    file = str(given.file).replace(",", ",,")
    part = f"driver=raw,offset={start},size={size},file.driver={given.driver}"
    driver = "host_device" if given.file.is_block_device() else "file"
    part = f"{part},file.file.driver={driver},file.file.filename={file}"
    with tempfile.NamedTemporaryFile() as empty:
        zeros = f"driver=raw,file.driver=file,file.filename={empty.name.replace(',', ',,')}"
        compare = ("qemu-img", "compare", "--force-share", "--image-opts", part, zeros)
        try:
            answer = host.run(*compare, timeout=WHOLE_IMAGE_SECONDS, allowed=(0, 1)).stdout
        except CommandError as error:
            raise HostError(
                f"the template {given.file} cannot be read: {error}",
                hint="check it with `qemu-img check`",
            ) from error
    mismatch = _MISMATCH.search(answer)
    return None if mismatch is None else start + int(mismatch[1])


def _data_in_packed(file: Path, start: int) -> int | None:
    """The same of an image that xz packed, at or after `start`, else of what lies before it."""
    first: int | None = None
    read = 0
    try:
        with lzma.open(file) as opened:
            while chunk := opened.read(MIB):
                beginning = max(0, start - read)
                for part in dict.fromkeys((0, beginning)):
                    zeros = len(chunk[part:]) - len(chunk[part:].lstrip(b"\0"))
                    if part + zeros < len(chunk):
                        found = read + part + zeros
                        first = found if first is None else first
                        if found >= start:
                            return found
                read += len(chunk)
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise HostError(
            f"the template {file} cannot be unpacked: {error}",
            hint=_AGAIN,
        ) from error
    return first


def seen_again(given: GivenImage) -> GivenImage:
    """The same image with its present state; of the default template nothing is looked at."""
    return replace(given, state=_state(given.file)) if given.state else given


def require_unchanged(given: GivenImage, state: str) -> None:
    """Raises HostError for a template that was changed since its campaign was planned."""
    if state and given.state != state:
        raise HostError(
            f"the template {given.file} changed during the campaign",
            hint="stop the program that writes to it, and run the same command again",
        )


def require_fits(given: GivenImage, size: int) -> None:
    """Raises PlanError for a template that is larger than the disks that are made from it."""
    if given.size > size:
        raise PlanError(
            f"the template {given.file} has {format_bytes(given.size)}, and a disk of "
            f"{format_bytes(size)} cannot hold it",
            hint="leave out --size: the disks are then as large as the template",
        )


def disk_size_for(given: GivenImage) -> int:
    """The size of disks for a template: its own, as whole MiB, and at least the least disk's."""
    return max(LEAST_DISK, -(-given.size // MIB) * MIB)
