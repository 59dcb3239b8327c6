"""Every option of a path in every form: refused, named as a gap or a comment, or read back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.rules import impossible
from vdisklab.path.segments import BUS_OPTIONS, FORMAT_OPTIONS, Bus, CacheMode, ImageFormat
from vdisklab.platforms.dialect import Configuration
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import configure, forms, read_guests
from vdisklab.platforms.request import ExportRequest

VALUES = {
    "aio": ("native", "io_uring"), "write_cache": ("on", "off", "auto"), "discard": ("unmap",),
    "detect_zeroes": ("on", "on:discard=unmap", "unmap:discard=unmap"), "throttle_iops": ("100",),
    "throttle_bps": ("10M",), "cgroup_iops": ("100",), "cgroup_bps": ("10M",), "qemu": ("10.0.2",),
    "guest_scheduler": ("kyber",), "guest_fs": ("xfs",), "guest_mount": ("noatime+commit=60",),
    "guests": ("2",), "iothread": ("on",), "iothreads": ("2", "2:queues=2"),
    "during": ("nothing",), "made": ("reflink",),
    "poll": ("0:iothread=on",), "aio_max_batch": ("4:iothread=on",), "queues": ("1", "2"),
    "queue_size": ("256",), "packed": ("on",), "block_size": ("512", "4096"),
    "werror": ("enospc", "report", "stop", "ignore", "stop:rerror=stop"),
    "rerror": ("stop", "ignore", "ignore:werror=stop", "ignore:werror=ignore"),
    "discard_granularity": ("64k", "64k:block_size=4096"), "msize": ("500k",),
    "preallocation": ("off", "metadata", "falloc"), "cluster_size": ("128k",),
    "lazy_refcounts": ("on",), "compat": ("0.10",), "extended_l2": ("on",),
    "data_file": ("on", "raw"), "backing": ("2",), "overlay": ("20%:backing=1",),
    "compression": ("zlib", "zstd"), "snapshots": ("2",), "bitmaps": ("2",), "l2_cache": ("1M",),
    "refcount_cache": ("512k",), "discard_no_unref": ("on",), "encrypt": ("luks",),
}  # fmt: skip
"""Values other than the default, with what they need."""
CACHES = {Bus.VIRTIOFS: ("always", "none"), Bus.P9: ("loose", "mmap")}
SPELLED = {
    "backing": "-b ", "compression": "compression_type", "snapshots": "snapshot -c",
    "bitmaps": "bitmap", "overlay": "20 %", "encrypt": "luks",
    "l2_cache": "l2-cache-size", "refcount_cache": "refcount-cache-size",
    "discard_no_unref": "discard-no-unref",
}  # fmt: skip
"""How the commands that make an image say an option, unless by its name."""
CLAIM = """---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {volumeMode: Filesystem}
"""


def paths() -> Iterator[DiskPath]:
    for bus in Bus:
        base = bus.value if bus.shares_directory else f"raw/none/{bus.value}"
        for option in BUS_OPTIONS[bus]:
            chosen = CACHES[bus] if option == "cache" else VALUES[option]
            yield from (parse_path(f"{base}:{option}={value}") for value in chosen)
        if not bus.shares_directory:
            yield from (parse_path(f"raw/{mode}/{bus.value}") for mode in CacheMode)
    for form, options in FORMAT_OPTIONS.items():
        values = [value for option in options for value in VALUES[option]]
        names = [option for option in options for _ in VALUES[option]]
        for option, value in zip(names, values, strict=True):
            if (form, value) != (ImageFormat.RAW, "metadata"):
                yield parse_path(f"{form.value}:{option}={value}/none")


PATHS = tuple(path for path in paths() if impossible(path) is None)


@pytest.mark.parametrize("form", sorted(forms()))
def test_no_option_is_lost_without_a_word(form: str) -> None:
    lost = [f"{path}: {name}" for path in PATHS for name in lost_options(path, form)]
    assert lost == []


def lost_options(path: DiskPath, form: str) -> Iterator[str]:
    """The options of which the configuration says nothing, and that it does not give either."""
    source = "claim" if form == "kubevirt" else "/srv/x.img"
    try:
        configuration = configure(ExportRequest(path, source), form)
    except PlanError as refused:
        if not refused.hint:
            yield f"refused without a way out: {refused}"
        return
    read = read_back(configuration.text, form)
    said = sentences(configuration)
    if path.image is not None:
        for option, _ in path.image.options:
            given = read is not None and read.image and read.image.option(option)
            spellings = (f"{option}=", SPELLED.get(option, option))
            if not given and not any(word in line for line in said for word in spellings):
                yield option
    if read is not None:
        yield from lost_settings(path, read, said)


def lost_settings(path: DiskPath, read: DiskPath, said: list[str]) -> Iterator[str]:
    """The cache mode and options of the bus that were not read back, and that nothing names."""
    if path.cache.spelled_out is not read.cache.spelled_out and not same_flags(path, read):
        yield f"cache mode {path.cache}, read as {read.cache}"
    for option in BUS_OPTIONS[path.attachment.bus]:
        asked, seen = path.attachment.option(option), read.attachment.option(option)
        if asked == seen or (option == "write_cache" and same_flags(path, read)):
            continue
        mounted = str(asked).replace("+", ",") if option == "guest_mount" else option
        pattern = rf"\b({option}|{mounted})\b"
        if asked is None or not any(re.search(pattern, line) for line in said):
            yield f"{option}={asked}, read as {seen}"


def same_flags(path: DiskPath, read: DiskPath) -> bool:
    """QEMU's arguments say one setting for two spellings: none with write_cache=off is
    directsync."""
    return (path.cache.direct, path.cache.no_flush, path.offers_write_cache) == (
        read.cache.direct, read.cache.no_flush, read.offers_write_cache
    )  # fmt: skip


def sentences(configuration: Configuration) -> list[str]:
    """The gaps, the requirements and the comments, except for the path itself."""
    lines = configuration.text.splitlines()
    comments = (line for line in lines if line.lstrip().startswith(("# ", "<!-- ")))
    return [
        *map(str, configuration.gaps),
        *configuration.requirements,
        *(line for line in comments if "vdisklab " not in line),
    ]


def read_back(text: str, form: str) -> DiskPath | None:
    """What the audit reads in a configuration without vdisklab's own note."""
    text = text.replace("urn:vdisklab:disk-path:1", "urn:other")
    if form == "libvirt-disk":
        controller = "<controller type='scsi' model='virtio-scsi'/>"  # as its comment says
        text = f"<domain type='kvm'><devices>{controller}{text}</devices></domain>"
    if form == "kubevirt":
        text += CLAIM
    (disk,) = read_guests([GuestText(text, "100.conf")])
    if disk.path is None:  # libvirt's XML does not say how the daemon is started
        assert form == "libvirt"
        assert "another process serves it" in (disk.problem or "")
    return disk.path
