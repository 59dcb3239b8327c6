"""Image options from headers, against what `qemu-img info` says of the same real images."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.inspection.existing_guests import read_disks
from vdisklab.path.disk_path import Image, parse_path
from vdisklab.path.segments import ImageFormat
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import DiskContext, disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.registry import configure
from vdisklab.platforms.request import ExportRequest
from vdisklab.value import replace

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
        ("compression_type=zstd,refcount_bits=1", "qcow2:compression=zstd"),
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
    arguments = ("-o", options) if options else ()
    HOST.run("qemu-img", "create", "-q", "-f", "qcow2", *arguments, image, str(SIZE))
    info = json.loads(HOST.run("qemu-img", "info", "--output=json", image).stdout)
    read = context(image, "qcow2")
    assert read.virtual_size == info["virtual-size"] == SIZE
    assert read.image is not None
    assert replace(parse_path("none"), image=read.image) == parse_path(f"{path}/none")


def test_a_chain_with_snapshots_and_bitmaps_is_read(tmp_path: Path) -> None:
    base, middle, image = (tmp_path / f"{name}.qcow2" for name in ("base", "middle", "top"))
    HOST.run("qemu-img", "create", "-q", "-f", "qcow2", base, str(SIZE))
    for below, above in ((base, middle), (middle, image)):
        HOST.run("qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", "qcow2", above)
    for number in range(2):
        HOST.run("qemu-img", "snapshot", "-c", f"s{number}", image)
    HOST.run("qemu-img", "bitmap", "--add", image, "b")
    read = context(image, "qcow2").image
    assert read is not None
    assert (read.backing, read.snapshots, read.bitmaps) == (1, 2, 1)


def test_a_backing_file_that_only_the_header_names_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest may have written that header; QEMU's own probe of formats had that fault."""
    image, secret = tmp_path / "a.qcow2", tmp_path / "shadow"
    secret.write_bytes(b"root:x")
    arguments = ("-b", secret, "-F", "raw", image, str(SIZE))
    HOST.run("qemu-img", "create", "-q", "-f", "qcow2", *arguments)
    opened = list[str]()

    def recorded(real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: object, *more: object, **options: object) -> object:
            opened.append(str(file))
            return real(file, *more, **options)

        return opening

    monkeypatch.setattr("io.open", recorded(io.open))
    monkeypatch.setattr("os.open", recorded(os.open))
    disk = ConfiguredDisk("d", "vda", str(image), parse_path("qcow2/none"))
    (read,) = read_contexts([disk])
    monkeypatch.undo()
    assert str(image) in opened
    assert str(secret) not in opened
    assert read.image is not None
    assert read.image.backing == 1
    (said,) = (str(risk) for risk in risks(disk, read) if risk.short == "backing not followed")
    assert f"names the backing file {secret}, which was not opened" in said
    stated = replace(disk, path=parse_path("qcow2:backing=2/none"))
    (read,) = read_contexts([stated])
    assert read.not_followed is None
    assert read.image is not None
    assert read.image.backing == 2


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


def test_what_header_and_configuration_say_alike_is_said_once(tmp_path: Path) -> None:
    image, key = tmp_path / "a.qcow2", tmp_path / "key"
    key.write_text("secret")
    secret = (
        "--object",
        f"secret,id=k,file={key}",
        "-o",
        "encrypt.format=luks,encrypt.key-secret=k",
    )
    # On a busy machine QEMU may see no CPU time pass while it chooses the rounds of its key.
    create = ("qemu-img", "create", "-q", "-f", "qcow2", *secret, image, str(SIZE))
    assert 0 in (subprocess.run(create, check=False, timeout=60).returncode for _ in range(5))
    stated = parse_path("qcow2:encrypt=luks:backing=2/none")
    (read,) = read_contexts([ConfiguredDisk("d", "vda", str(image), stated)])
    assert str(read.image) == "qcow2:backing=2:encrypt=luks:preallocation=off"


@pytest.mark.parametrize("platform", ["qemu", "proxmox"])
@pytest.mark.parametrize(
    "path",
    [
        "qcow2:backing=1/none", "qcow2:cluster_size=16k:extended_l2=on/none",
        "qcow2:l2_cache=1M:refcount_cache=256k/none", "qcow2:data_file=raw/none",
        "qcow2:compression=zstd/none", "qcow2:bitmaps=2:snapshots=2/none",
        "raw/none/virtio:detect_zeroes=unmap:discard=unmap:throttle_bps=4M:throttle_iops=500",
    ],
)  # fmt: skip
def test_an_image_made_as_exported_is_audited_to_its_path(
    path: str, platform: str, tmp_path: Path
) -> None:
    """The commands in the comments are run; the guest opens the last image of a chain."""
    wanted = parse_path(path)
    image = tmp_path / f"images/100/vm-100-disk-0.{wanted.image.driver if wanted.image else 'raw'}"
    image.parent.mkdir(parents=True)
    source = str(image) if platform == "qemu" else f"local:100/{image.name}"
    made = configure(ExportRequest(wanted, source, size=SIZE), platform)
    for line in made.text.replace("# if it does not exist yet: ", "# ").splitlines():
        if line.startswith("# qemu-img "):
            arguments = shlex.split(line.removeprefix("# "))
            HOST.run(*(word.replace("FILE", str(image)) for word in arguments))
    (tmp_path / "storage.cfg").write_text(f"dir: local\n\tpath {tmp_path}\n\tcontent images\n")
    (tmp_path / ("run.cmdline" if platform == "qemu" else "100.conf")).write_text(made.text)
    (disk,) = read_disks(HOST, [tmp_path], None).disks
    (seen,) = read_contexts([disk])
    audited = disk_path(disk, seen)
    assert audited is not None
    lost = [gap.option for gap in made.gaps]
    if lost:
        assert lost == ["l2-cache-size=1M", "refcount-cache-size=256k"]
        wanted = parse_path("qcow2/none")
    if wanted.image is not None and wanted.image.format is ImageFormat.QCOW2:
        assert audited.image == wanted.image
    assert audited.guest_side == wanted.guest_side
