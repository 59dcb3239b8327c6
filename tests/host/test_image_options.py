"""Image options from headers, against what `qemu-img info` says of the same real images."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from vdisklab.audit.configured_disk import ConfiguredDisk, DiskContext
from vdisklab.host.command import LocalHost
from vdisklab.path.disk_path import Image, parse_path
from vdisklab.path.segments import ImageFormat
from vdisklab.services.disk_context import read_contexts

HOST = LocalHost()
SIZE = 8 << 20


def context(image: Path, form: str) -> DiskContext:
    (read,) = read_contexts([ConfiguredDisk("d", "vda", str(image), parse_path(f"{form}/none"))])
    return read


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("", "qcow2:preallocation=off"),
        ("compat=0.10", "qcow2:preallocation=off:compat=0.10"),
        ("cluster_size=2M,lazy_refcounts=on",
         "qcow2:preallocation=off:cluster_size=2M:lazy_refcounts=on"),
        ("extended_l2=on,cluster_size=128k",
         "qcow2:preallocation=off:cluster_size=128k:extended_l2=on"),
        ("compression_type=zstd,refcount_bits=1", "qcow2:preallocation=off"),
        ("data_file=DATA", "qcow2:preallocation=off:data_file=on"),
        ("data_file=DATA,data_file_raw=on", "qcow2:preallocation=off:data_file=raw"),
        ("preallocation=full", "qcow2"),
    ],
)  # fmt: skip
def test_the_options_of_a_qcow2_are_those_that_qemu_reads(
    options: str, path: str, tmp_path: Path
) -> None:
    image = tmp_path / "a.qcow2"
    options = options.replace("DATA", str(tmp_path / "data"))
    words = ("-o", options) if options else ()
    HOST.run("qemu-img", "create", "-q", "-f", "qcow2", *words, image, str(SIZE))
    info = json.loads(HOST.run("qemu-img", "info", "--output=json", image).stdout)
    read = context(image, "qcow2")
    assert read.virtual_size == info["virtual-size"] == SIZE
    assert read.image is not None
    assert replace(parse_path("none"), image=read.image) == parse_path(f"{path}/none")


def test_a_chain_with_snapshots_and_bitmaps_is_read(tmp_path: Path) -> None:
    base, image = tmp_path / "base.qcow2", tmp_path / "top.qcow2"
    HOST.run("qemu-img", "create", "-q", "-f", "qcow2", base, str(SIZE))
    HOST.run("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", image)
    for number in range(2):
        HOST.run("qemu-img", "snapshot", "-c", f"s{number}", image)
    HOST.run("qemu-img", "bitmap", "--add", image, "b")
    read = context(image, "qcow2").image
    assert read is not None
    assert (read.backing, read.snapshots, read.bitmaps) == (1, 2, 1)


@pytest.mark.parametrize("form", ["raw", "vmdk", "vdi", "qed", "vhdx"])
def test_the_size_of_any_format_is_qemus_or_unknown(form: str, tmp_path: Path) -> None:
    image = tmp_path / "a"
    HOST.run("qemu-img", "create", "-q", "-f", form, image, str(SIZE))
    read = context(image, form)
    assert read.header is ImageFormat(form)
    assert read.virtual_size == (None if form == "vhdx" else SIZE)
    assert (read.image is not None) is (form == "raw")


@pytest.mark.parametrize("content", [b"", b"QFI\xfb", bytes(4096), b"QFI\xfb" + b"\xff" * 4092])
def test_a_header_is_never_read_as_another_format(content: bytes, tmp_path: Path) -> None:
    image = tmp_path / "a"
    image.write_bytes(content)
    assert context(image, "qcow2").image is None
    raw = context(image, "raw")
    assert raw.virtual_size == len(content)
    assert raw.image in (
        Image(ImageFormat.RAW),
        Image(ImageFormat.RAW, (("preallocation", "off"),)),
    )


def test_an_encrypted_raw_image_stays_one(tmp_path: Path) -> None:
    image = tmp_path / "a"
    image.touch()
    os.truncate(image, SIZE)
    disk = ConfiguredDisk("d", "vda", str(image), parse_path("raw:encrypt=luks/none"))
    (read,) = read_contexts([disk])
    assert read.image is not None
    assert read.image.encrypted
