"""Configuration configurations are run: by a real libvirtd, and by QEMU itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vdisklab.answers.disks import DisksAnswer
from vdisklab.documents import schemas
from vdisklab.path.architecture import AARCH64, X86_64, Architecture
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus
from vdisklab.platforms.disk_context import disk_path
from vdisklab.platforms.libvirt_domain import read_domain
from vdisklab.platforms.qemu import arguments, machine_arguments
from vdisklab.platforms.registry import forms
from vdisklab.platforms.request import ExportRequest
from vdisklab.value import replace

pytestmark = pytest.mark.guest

SCHEMA = "/usr/share/libvirt/schemas/domain.rng"
SESSION = Path(__file__).with_name("libvirt_session.py")
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

PATHS = (
    "raw/default",
    "qcow2/none",
    "qcow2/default",
    "raw/writethrough/scsi:iothread=on:queues=3:write_cache=on",
    "raw/writeback/scsi:write_cache=off",
    "qcow2/unsafe/usb",
    "raw/writeback/ide:write_cache=off",
    "raw/directsync/sata:discard=unmap",
    "raw/none/virtio:aio=native:discard=unmap:iothread=on:queues=2:write_cache=auto",
    "raw/writethrough",
    "raw/writeback/virtio:write_cache=off",
    "raw/default/scsi",
    "qcow2/none/nvme:queues=2",
    "vhdx/writeback",
    "vdi/writeback/ide",
)


@pytest.fixture
def images(tmp_path: Path) -> Mapping[str, Path]:
    found = {}
    for form in ("raw", "qcow2", "vhdx", "vdi"):
        found[form] = tmp_path / f"disk.{form}"
        subprocess.run(
            ("qemu-img", "create", "-q", "-f", form, str(found[form]), "16M"),
            check=True,
            timeout=60,
        )
    return found


def wish_for(
    text: str, images: Mapping[str, Path], number: int, guest: Architecture = X86_64
) -> ExportRequest:
    path = parse_path(text)
    assert path.image is not None
    source = str(images[path.image.format.value])
    return ExportRequest(path, source, f"vdisklab-test-{number}", 16 << 20, "qemu", guest=guest)


def lacking_libvirt() -> list[str]:
    programs = ("libvirtd", "virtlogd", "virsh", "xmllint", "unshare")
    return [name for name in programs if shutil.which(name) is None]


needs_libvirt = pytest.mark.skipif(bool(lacking_libvirt()), reason="libvirt is not installed")


Session = Callable[..., str]
"""(options and files of libvirt_session.py) -> what it prints, once it has ended well."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Each session is a libvirtd of its own; the first one asks each QEMU what it can do."""
    cache = tmp_path_factory.mktemp("libvirt")

    def run(*arguments: str | Path, state: Path | None = None) -> str:
        environment = {} if state is None else {"VDISKLAB_STATE": str(state)}
        done = subprocess.run(
            (*UNSHARE, sys.executable, str(SESSION), *map(str, arguments)),
            capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "LIBVIRT_CACHE": str(cache), **environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


ARM_PATHS = tuple(path for path in PATHS if not re.search("/(ide|sata)", path))
needs_arm = pytest.mark.skipif(
    shutil.which(AARCH64.emulator) is None or not Path(AARCH64.firmware.files[0][0]).exists(),
    reason="QEMU for 64-bit Arm or its firmware is not installed",
)


@needs_libvirt
@pytest.mark.parametrize(
    ("guest", "paths"),
    [
        pytest.param(X86_64, PATHS, id="x86_64"),
        # 6 s. A commit starts QEMU for Arm with the arguments of the same paths, below.
        pytest.param(AARCH64, ARM_PATHS, id="aarch64", marks=[needs_arm, pytest.mark.nightly]),
    ],
)
def test_libvirt_takes_every_setting_over(
    guest: Architecture,
    paths: tuple[str, ...],
    images: Mapping[str, Path],
    tmp_path: Path,
    session: Session,
) -> None:
    wishes = []
    for number, text in enumerate(paths):
        wish = wish_for(text, images, number, guest)
        # Several guests run at once, and QEMU locks the image of each.
        copy = tmp_path / f"{number}.image"
        subprocess.run(("cp", "--sparse=always", str(wish.source), copy), check=True, timeout=60)
        wishes.append(replace(wish, source=str(copy)))
    files = []
    for number, wish in enumerate(wishes):
        files.append(tmp_path / f"{number}.xml")
        files[-1].write_text(forms()["libvirt"].write(wish).text)
    # As virt-xml-validate calls it, but libvirt's schema is read once for all files.
    validated = subprocess.run(
        ("xmllint", "--noout", "--relaxng", SCHEMA, *map(str, files)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert validated.returncode == 0, validated.stderr
    lines = session(*files).splitlines()
    assert len(lines) == len(wishes)
    for wish, line in zip(wishes, lines, strict=True):
        seen = json.loads(line)
        assert_effective(wish, seen)
        (disk,) = read_domain(seen["xml"], "dumpxml")  # as libvirt itself writes it
        assert disk_path(disk) == wish.path
        assert disk.source == wish.source


@needs_libvirt
@pytest.mark.skipif(shutil.which("nbdkit") is None, reason="nbdkit is not installed")
def test_libvirt_opens_a_disk_of_a_real_server(tmp_path: Path, session: Session) -> None:
    sock = tmp_path / "n.sock"
    server = subprocess.Popen(("nbdkit", "-f", "-U", str(sock), "-e", "v", "memory", "16M"))
    try:
        place = f"nbd+unix:///v?socket={sock}"
        paths = ("nbd/raw/none", "nbd/raw/writeback/scsi:discard=unmap", "nbd/raw/directsync")
        files = []
        for number, path in enumerate(paths):
            wish = ExportRequest(parse_path(path), place, f"vdisklab-test-{number}", 0, "qemu")
            files.append(tmp_path / f"{number}.xml")
            files[-1].write_text(forms()["libvirt"].write(wish).text)
        for path, line in zip(paths, session(*files).splitlines(), strict=True):
            seen = json.loads(line)
            caches = [node["cache"]["direct"] for node in seen["nodes"] if node["drv"] == "nbd"]
            assert caches == [parse_path(path).cache.direct]
            (disk,) = read_domain(seen["xml"].replace("urn:vdisklab", "urn:other"), "dumpxml")
            assert (str(disk.path), disk.source) == (path, place)
    finally:
        server.terminate()
        server.wait(10)


RUNNING = """<domain type='qemu'><name>running</name><memory unit='MiB'>64</memory>
<iothreads>1</iothreads><os><type arch='x86_64' machine='pc'>hvm</type></os>
<features><acpi/></features><devices>
<controller type='scsi' model='virtio-scsi'><driver queues='2'/></controller>
</devices></domain>"""
ATTACHED = (
    "qcow2/none/virtio:aio=native:discard=unmap:iothread=on:queues=2",
    "raw/writethrough/scsi:queues=2",
    "raw/unsafe/usb",
)


@needs_libvirt
def test_bare_disks_are_attached_to_a_running_guest(
    images: Mapping[str, Path], tmp_path: Path, session: Session
) -> None:
    wishes = [wish_for(text, images, number) for number, text in enumerate(ATTACHED)]
    files = [tmp_path / f"{number}.xml" for number in range(len(wishes))]
    for file, wish in zip(files, wishes, strict=True):
        file.write_text(forms()["libvirt-disk"].write(wish).text)
    running = tmp_path / "running.xml"
    running.write_text(RUNNING)
    lines = session("--attach", running, *files).splitlines()
    assert len(lines) == len(wishes)
    for wish, line in zip(wishes, lines, strict=True):
        seen = json.loads(line)
        assert_effective(wish, {**seen, "iothreads": [1] * wish.path.attachment.iothread})
        (disk,) = read_domain(seen["xml"], "dumpxml")
        assert disk_path(disk) == wish.path


FOREIGN = """<domain type='qemu'><name>foreign</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='unsafe'/>
<source file='{image}'/><target dev='hda' bus='ide'/></disk>
<disk type='file' device='cdrom'><target dev='hdb' bus='ide'/></disk>
</devices></domain>"""


@needs_libvirt
def test_a_libvirts_guests_are_audited(
    images: Mapping[str, Path], tmp_path: Path, session: Session
) -> None:
    """Configuration, defined, listed by a real libvirtd, and read back as the same paths."""
    wishes = [wish_for(text, images, number) for number, text in enumerate(PATHS)]
    files = [tmp_path / f"{number}.xml" for number in range(len(wishes) + 1)]
    for file, wish in zip(files, wishes, strict=False):
        file.write_text(forms()["libvirt"].write(wish).text)
    # The audit looks at the images: those of the exported paths are full, the foreign one is thin.
    thin = tmp_path / "thin.qcow2"
    images["qcow2"].rename(thin)
    for form in ("raw", "qcow2"):
        create = ("qemu-img", "create", "-q", "-f", form, "-o", "preallocation=full")
        subprocess.run((*create, str(images[form]), "16M"), check=True, timeout=60)
    files[-1].write_text(FOREIGN.format(image=thin))
    found = json.loads(session("--audit", *files, state=tmp_path / "state"))
    schema = schemas([DisksAnswer])[DisksAnswer.FORMAT]
    jsonschema.Draft202012Validator(schema).validate(found)
    disks = {disk["disk"]["domain"]: disk for disk in found["disks"]}
    assert len(disks) == len(wishes) + 1
    for wish in wishes:
        disk = disks[wish.name]
        assert disk["path"] == wish.path.canonical
        assert disk["disk"]["source"] == wish.source
    foreign = disks["foreign"]
    assert foreign["path"].endswith("qcow2:preallocation=off/unsafe/ide")
    kinds = [risk["kind"] for risk in foreign["risks"]]
    assert {"flushes-dropped", "slow-bus", "no-discard"} <= set(kinds)


def assert_effective(wish: ExportRequest, seen: Mapping[str, Any]) -> None:
    """The cache mode as QEMU has it in effect is the one that the path asks for."""
    path = wish.path
    nodes = [node for node in seen["nodes"] if node.get("file") == wish.source]
    assert nodes, wish.path
    mode = path.cache.spelled_out
    for node in nodes:
        assert node["cache"]["direct"] is mode.direct, path
        assert node["cache"]["no-flush"] is mode.no_flush, path
    (device,) = (
        each
        for each in seen["blocks"]
        if str(wish.source) in json.dumps(each.get("inserted", {}).get("image"))  # not the firmware
    )
    assert device["inserted"]["cache"]["writeback"] is path.offers_write_cache, path
    assert len(seen["iothreads"]) == int(path.attachment.iothread), path


@pytest.mark.parametrize(
    ("guest", "text"),
    [
        *((X86_64, path) for path in PATHS),
        *(pytest.param(AARCH64, path, marks=needs_arm) for path in ARM_PATHS),
    ],
)
def test_qemu_starts_with_the_arguments(
    guest: Architecture, text: str, images: Mapping[str, Path]
) -> None:
    wish = wish_for(text, images, 0, guest)
    argv = (
        *machine_arguments(wish), "-nodefaults", "-display", "none", "-S", "-qmp", "stdio",
        *arguments(wish, str(wish.source)),
    )  # fmt: skip
    talk = "".join(
        json.dumps({"execute": command}) + "\n"
        for command in ("qmp_capabilities", "query-named-block-nodes", "query-block",
                        "query-iothreads", "quit")
    )  # fmt: skip
    done = subprocess.run(
        argv, input=talk, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [
        json.loads(line)["return"] for line in done.stdout.splitlines() if '"return"' in line
    ]
    assert_effective(
        wish, {"nodes": answers[1], "blocks": answers[2], "iothreads": answers[3]}
    )  # fmt: skip


def test_the_printed_command_is_these_arguments(images: Mapping[str, Path]) -> None:
    for text in PATHS:
        wish = wish_for(text, images, 0)
        lines = forms()["qemu"].write(wish).text.splitlines()
        command = "\n".join(line for line in lines if not line.startswith("#"))
        command_line = shlex.split(
            command.replace("\\\n", "")
        )  # shlex does not join lines, shells do
        expected = arguments(wish, str(wish.source))
        assert tuple(command_line[-len(expected) :]) == expected
        assert (wish.path.attachment.bus is Bus.IDE) == ("pc" in command_line)
