"""The image that disks are made from: looked at, and copied in the form that a way takes.

The user's own file is only read: every disk is made from a copy on the measured storage.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vdisklab.campaign.clones import Clones
from vdisklab.errors import (
    CommandError,
    CommandTimeoutError,
    DirtyHostError,
    HostError,
    PlanError,
)
from vdisklab.host import ledger, pagecache
from vdisklab.host.command import Host, not_installed
from vdisklab.host.image_file import format_of, header_format, seen_file, state_of
from vdisklab.host.loops import attached_loops
from vdisklab.host.whereabouts import inode_of
from vdisklab.operations.making import PACKED, NewDisk, Template, TemplateForm, Way
from vdisklab.path.segments import ImageFormat
from vdisklab.results.model import NO_DATA
from vdisklab.storage.site import Site
from vdisklab.units import KIB, MIB, SECTOR, format_bytes
from vdisklab.workload.life import BLOCK, CLUSTER, LEAST_DISK, written_at

PIECE, _BEGINNING, _SPREAD = 256 * KIB, 4 * MIB, 63
"""The sample of a device that is a template: pieces of so many bytes, all those of its beginning,
where partitions and most file systems have their tables, and so many over the whole device."""

TEMPLATE = "template"
"""The name of a template's file, or of the subvolume that it lies in."""

_TIMEOUT = 4 * 3600.0
CHECK_SECONDS = 60.0
"""For all tables of a template: `qemu-img check` reads no data."""

_ENDS_EARLY = ("exceeding the end of the file", "points after EOF", "points after end of file")
"""What the block drivers of qcow2, vmdk and vhdx say of a table that leads behind the end."""

_NO_CHECK = 63
"""qemu-img(1): the format has no consistency check."""

NO_SPACE = ("No space left on device", "Disk quota exceeded")
"""What programs print of ENOSPC and EDQUOT."""

_AGAIN = "copy it again from where it came, and compare the checksums"

_LEAKS = 3
"""qemu-img(1): clusters that nobody uses; the data are whole."""

_MISMATCH = re.compile(r"Content mismatch at offset ([0-9]{1,20})!")
"""qemu-img(1): compare, with exit status 1."""

_LOCKED = "Failed to get"
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


@dataclass(frozen=True, slots=True)
class GivenImage:
    """An image that the user names: QEMU's driver, and the size that a guest sees, in bytes.

    `packed` is True for a raw image that xz compressed. `state` changes when the file does; that of
    a device only if the sample of its data does.
    """

    file: Path
    driver: str
    size: int
    packed: bool = False
    state: str = ""


def inspect_template(host: Host, file: Path) -> GivenImage:
    """The image that disks are made from, as its header describes it.

    Raises HostError if the image is missing or in use, PlanError if it needs other files or a key.
    """
    with seen_file(file) as seen:
        first = None if seen is None else seen.first(_FIRST_BYTES)
        form = format_of(seen)
        # `qemu-img info` takes no lock on a raw image, as it reads none of it.
        is_written = seen is not None and seen.is_written_by_qemu
        # A VHD of a fixed size has its header in the last sector (block/vpc.c).
        last = None if seen is None else seen.last(SECTOR)
    if first is None or form is None:
        raise HostError(f"the template {file} {_kind_of(file)}", hint="name an image file: --from")
    if is_written:
        raise _in_use(file)
    if (loop := _writable_loop(file)) is not None:
        raise HostError(
            f"the template {file} is in use: {loop} is attached to it and may write to it",
            hint=f"unmount it and detach {loop}, or name a copy of the image",
        )
    if file.suffix == PACKED:
        if not first.startswith(_XZ):
            raise PlanError(f"the template {file} is not packed by xz", hint="rename the file")
        unpacked = _unpacked_size(host, file)
        _require_sectors(file, unpacked)
        return GivenImage(file, "raw", unpacked, packed=True, state=_state(file))
    if first.startswith(_DESCRIPTOR):
        raise PlanError(
            f"the template {file} is a list of other files",
            hint=f"make one file of it: qemu-img convert -O qcow2 {file} template.qcow2",
        )
    if form is ImageFormat.RAW:
        _require_raw(file, first, last or b"")
    if host.which("qemu-img") is None:
        raise not_installed("qemu-img")
    # A name may begin with a dash.
    info_of = ("qemu-img", "info", "--output=json", "-f", form.value, file.absolute())
    try:
        answer = host.run(*info_of).stdout
    except CommandError as error:
        if _LOCKED in error.stderr:
            raise _in_use(file) from error
        if any(early in error.stderr for early in _ENDS_EARLY):
            raise HostError(
                f"the template {file} is cut short: {_first_line(error)}",
                hint=_AGAIN,
            ) from error
        raise HostError(
            f"the template {file} is no {form} image that qemu-img can read: {error}",
            hint="check it with `qemu-img check`",
        ) from error
    info = json.loads(answer)
    _require_alone(file, info, is_luks=form is ImageFormat.RAW and first.startswith(_LUKS))
    if form is ImageFormat.RAW and file.is_file():
        _require_sectors(file, file.stat().st_size)
    return GivenImage(file, form.value, int(info["virtual-size"]), state=_state(file))


def _require_raw(file: Path, *parts: bytes) -> None:
    """Raises PlanError for a file that is known to be no raw disk, by its first or last bytes."""
    for offset, magic, what, way in _NOT_RAW:
        if any(part.startswith(magic, offset) for part in parts):
            raise PlanError(f"the template {file} is {what}", hint=way.format(file=file))


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


def _kind_of(file: Path) -> str:
    """Why a file cannot be read as an image, as a predicate: `is a directory, not an image`."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a named pipe (FIFO)"),
             (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a character device"))  # fmt: skip
    kind = next((name for is_kind, name in kinds if is_kind(mode)), None)
    return "cannot be read" if kind is None else f"is {kind}, not an image"


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


def _require_alone(file: Path, info: Mapping[str, Any], *, is_luks: bool) -> None:
    """Raises PlanError for an image that needs other files, or a key."""
    below = info.get("backing-filename")
    if below and not _is_there(file, info):
        raise PlanError(
            f"the template {file} needs the backing file {below}, which is not there",
            hint="put the backing file back, or name an image that needs no other file",
        )
    if below:
        raise PlanError(
            f"the template {file} has the backing file {below}, which is not copied with it",
            hint=f"make one file of it: qemu-img convert -O qcow2 {file} template.qcow2",
        )
    details = info.get("format-specific", {}).get("data", {})
    if info.get("encrypted") or is_luks:
        raise PlanError(
            f"the template {file} is encrypted, and each copy would have the same key",
            hint="name an image without encryption",
        )
    if details.get("data-file"):
        raise PlanError(
            f"the template {file} has its data in {details['data-file']}, which is not copied",
            hint=f"make one file of it: qemu-img convert -O qcow2 {file} template.qcow2",
        )


def _is_there(file: Path, info: Mapping[str, Any]) -> bool:
    """True if an image's backing file exists; also for a backing that is not a file (a URL)."""
    place = str(info.get("full-backing-filename") or info["backing-filename"])
    if place.startswith("json:") or "://" in place:
        return True
    return file.parent.joinpath(place.removeprefix("file:")).exists()


def _in_use(file: Path) -> HostError:
    return HostError(
        f"the template {file} is in use: a guest has it open for writing",
        hint="shut the guest down, or name a copy of the image",
    )


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


def _require_sectors(file: Path, size: int) -> None:
    """Raises PlanError for what cannot be a raw disk: qemu-img would fill up its last sector."""
    if size <= 0 or size % SECTOR:
        what = "is empty" if size <= 0 else f"has {size} bytes, which are no whole sectors"
        raise PlanError(
            f"the template {file} {what}",
            hint="name a raw, qcow2, vmdk, vhdx or vdi image, or a raw image packed by xz",
        )


def as_named(file: Path, size: int) -> GivenImage:
    """An image of which only the name and the header are looked at: for commands that are only
    shown."""
    packed = file.suffix == PACKED
    form = ImageFormat.RAW if packed else header_format(file) or ImageFormat.RAW
    return GivenImage(file, form.value, size, packed=packed)


def _unpacked_size(host: Host, file: Path) -> int:
    try:
        lines = host.run("xz", "--robot", "--list", "--", file).stdout.splitlines()
    except CommandError as error:
        raise HostError(
            f"the template {file} is cut short or damaged: {error}",
            hint=_AGAIN,
        ) from error
    totals = next(line.split("\t") for line in lines if line.startswith("totals"))
    return int(totals[4])


@contextmanager
def default_source(site: Site, random: Path, size: int) -> Iterator[Path]:
    """A raw file of `size` bytes: half of them random, a quarter that compresses to half, a quarter
    zeros that take no place."""
    file = site.directory / "template.source"
    script = (
        'dd if="$1" of="$2" bs=1M count="$3" iflag=fullblock,count_bytes status=none && '
        'basenc --base16 --wrap=0 "$1" | head --bytes="$4" >> "$2" && truncate --size="$5" "$2"'
    )
    half, quarter = size // 2, size // 4
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        arguments = (random, file, str(half), str(quarter), str(size))
        site.run_marked("sh", "-c", script, "sh", *arguments, timeout=_TIMEOUT)
        yield file


@dataclass(frozen=True, slots=True)
class TemplateOrder:
    """The image from which a disk is made in a way, which decides the template's form."""

    given: GivenImage
    way: Way
    disk: NewDisk

    @property
    def key(self) -> str:
        """Equal for orders that one template serves."""
        kind, settings = self.way.kind, ",".join(self.disk.settings)
        home = kind.clones or ("subvolume" if kind.in_subvolume else "")
        return f"{kind.template}/{self.disk.driver}/{settings}/{home}"


@contextmanager
def placed_template(
    site: Site, directory: Path, order: TemplateOrder, number: int
) -> Iterator[Template]:
    """The template in the form that a way takes it, in the directory that the disks are made in;
    its name has the `number`.

    It is on the disk, and unchanged since, when the context begins. Raises HostError.
    """
    form, disk = order.way.kind.template, order.disk
    if order.way.kind.in_subvolume:
        home = directory / f"{TEMPLATE}-{number}"
        with site.tracked(ledger.Kind.DIRECTORY, home):
            site.run("btrfs", "--quiet", "subvolume", "create", home)
            yield _written(site, home / disk.place.name, order)
        return
    suffix = disk.driver if form is TemplateForm.OF_DISK else order.given.driver
    file = directory / f"{TEMPLATE}-{number}.{suffix}"
    with site.tracked(ledger.Kind.FILE, file):
        yield _written(site, file, order)


@contextmanager
def cloned_template(clones: Clones, order: TemplateOrder, number: int) -> Iterator[Template]:
    """The template as, or in, a volume of its own from which disks are cloned. Raises HostError."""
    site, disk, name = clones.site, order.disk, f"{TEMPLATE}-{number}"
    is_device = clones.layer.gives_device
    made: list[Template] = []

    def fill(place: Path) -> None:
        if is_device:
            _onto_device(site, place, order.given)
            written = Template(place, "raw", disk.size)
        else:
            written = _written(site, place / disk.place.name, order)
        made.append(replace(written, volume=clones.named(name)))

    with clones.template(name, disk.size, fill):
        yield made[0]


def _onto_device(site: Site, device: Path, given: GivenImage) -> None:
    """The template's data on a new volume, of which every byte is zero."""
    if given.packed:
        script = 'xz --decompress --stdout -- "$1" | dd of="$2" conv=sparse,fsync bs=1M status=none'
        _filled(site, "sh", "-c", script, "sh", given.file, device)
        return
    convert = ("qemu-img", "convert", "-q", "-n", "--target-is-zero", "-f", given.driver)
    _filled(site, *convert, "-O", "raw", given.file, device)


def _written(site: Site, file: Path, order: TemplateOrder) -> Template:
    given, form, disk = order.given, order.way.kind.template, order.disk
    if form is TemplateForm.NONE:
        return Template(file, "raw", disk.size)
    if form is TemplateForm.XZ or (form is TemplateForm.GIVEN and not given.packed):
        _filled(site, "cp", "--sparse=auto", "--reflink=never", "--", given.file, file)
        template = Template(file, given.driver, given.size)
    else:
        template = _converted(site, file, given, form, disk)
    site.check(lambda: pagecache.evict(file))
    return template


def _converted(
    site: Site, file: Path, given: GivenImage, form: TemplateForm, disk: NewDisk
) -> Template:
    source, driver = given.file, given.driver
    unpacked = file.with_name(f"{file.name}.unpacked")
    with ExitStack() as opened:
        if given.packed:
            script = 'xz --decompress --stdout -- "$1" | dd of="$2" conv=sparse bs=1M status=none'
            opened.enter_context(site.tracked(ledger.Kind.FILE, unpacked))
            _filled(site, "sh", "-c", script, "sh", given.file, unpacked)
            source = unpacked
        if form is TemplateForm.GIVEN:
            site.run("mv", "--", source, file)
            return Template(file, driver, given.size)
        convert = ("qemu-img", "convert", "-q", "-f", driver, "-O", disk.driver)
        _filled(site, *convert, *disk.format_options, source, file)
    if disk.size != given.size:
        site.run("qemu-img", "resize", "-q", "-f", disk.driver, file, str(disk.size))
    return Template(file, disk.driver, disk.size)


def _filled(site: Site, *command: str | os.PathLike[str]) -> None:
    try:
        site.run_marked(*command, timeout=_TIMEOUT)
    except CommandError as error:
        if any(full in error.stderr for full in NO_SPACE):
            raise HostError(
                f"no space is left for the template's copy in {site.directory}",
                hint="choose another --dir, or a smaller --size",
            ) from error
        raise HostError(
            f"the template cannot be copied to the measured storage: {error}",
            hint="choose another --dir",
        ) from error


@dataclass(frozen=True, slots=True)
class FirstWrite:
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
            answer = host.run(*compare, timeout=_TIMEOUT, allowed=(0, 1)).stdout
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
