"""An architecture is one row, as docs/design.md says: nothing else in the source has its strings.

A copy of the source gets a second row. A fresh Python then makes the command lines, the packages
and the configurations of its guests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from vdisklab.path.architecture import ARCHITECTURES, CHOICE, Architecture, host_of
from vdisklab.path.segments import Bus
from vdisklab.value import Value

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/vdisklab"
ROW_FILE = "path/architecture.py"

ELSEWHERE = {
    # What each distribution calls its packages, by program. script/install reads it, too.
    ("host/packages.txt", "qemu-system-x86_64"),
    ("host/packages.txt", "qemu-system-x86"),
    ("host/packages.txt", "x86_64"),
    ("host/packages.txt", "OVMF"),
    ("host/packages.txt", "qemu-system-aarch64"),
    ("host/packages.txt", "qemu-system-arm"),
    ("host/packages.txt", "qemu-efi-aarch64"),
    ("host/packages.txt", "aarch64"),
    ("host/packages.txt", "AAVMF"),
    ("host/packages.txt", "aarch64-linux-gnu-gcc"),
    ("host/packages.txt", "x86_64-linux-gnu-gcc"),
    ("host/packages.txt", "arm64"),
    ("host/packages.txt", "amd64"),
    # Names of files in KubeVirt's source, which are cited.
    ("path/platforms.py", "amd64"),
    ("platforms/kubevirt.py", "amd64"),
    # And in those of edk2, libvirt and KubeVirt.
    ("platforms/machine_buses.py", "aarch64"),
    ("platforms/machine_buses.py", "arm64"),
}
"""The strings in other files that are no fact about the architecture, by file."""


def strings(value: object) -> Iterator[str]:
    """All strings of a row, but the buses, which every architecture calls the same."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(item)
            if key not in set(Bus):
                yield from strings(key)
    elif isinstance(value, tuple):
        for item in value:
            yield from strings(item)
    elif isinstance(value, Value):
        for name in value.__struct_fields__:
            yield from strings(getattr(value, name))


def pattern_of(word: str) -> str:
    """A word of two or three letters counts only as a whole string."""
    return rf'["\']{re.escape(word)}["\']' if len(word) < 4 else rf"(?<!\w){re.escape(word)}(?!\w)"


# Words with other meanings elsewhere: names of buses, QEMU's display, the word image, OpenStack's
# virt; fields of /proc/cpuinfo.
SHARED = {"ide", "virtio", "std", "-vga", "max", "model name", "0x00", "Image", "virt"}


def test_no_other_file_has_the_strings_of_the_rows() -> None:
    names = {word for row in ARCHITECTURES for word in strings(row) if word} - SHARED
    texts = {
        file.relative_to(SOURCE).as_posix(): file.read_text()
        for file in SOURCE.rglob("*")
        if file.suffix in {".py", ".sh", ".pl", ".txt"}
    }
    assert [word for word in names if not re.search(pattern_of(word), texts[ROW_FILE])] == []
    del texts[ROW_FILE]
    found = {
        (file, word)
        for word in (*names, "i440fx")
        for file, text in texts.items()
        if word in text and re.search(pattern_of(word), text)
    }
    assert found == ELSEWHERE


@pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.name)
def test_every_bus_has_a_machine_or_a_reason_why_not(row: Architecture) -> None:
    assert set(row.machines) | set(row.missing_buses) == set(Bus)
    assert not set(row.machines) & set(row.missing_buses)


@pytest.mark.parametrize(
    ("guest", "host"),
    [
        ("x86_64", "x86_64"),
        ("amd64", "x86_64"),
        ("i686", "x86_64"),
        ("aarch64", "aarch64"),
        ("arm64", "aarch64"),
        ("riscv64", "riscv64"),
    ],
)
def test_the_hosts_that_run_a_guest_natively(guest: str, host: str) -> None:
    assert host_of(guest) == host


ROW = """TOY = Architecture(
    name="toy64",
    title="Toy-64",
    aliases=("toy",),
    runs=("toy32",),
    emulator="qemu-system-toy64",
    emulator_targets={"toy64": "toy64"},
    default_machine="",
    default_interface="virtio",
    machines=dict.fromkeys(("virtio", "scsi", "nvme"), "playground"),
    missing_buses={"ide": "a playground has no bus ide"},
    machine_options=",swings=2",
    interrupts="swings",
    lab_options=",sand=on",
    console="ttyTOY0",
    emulated_clock="clock=toy",
    emulated_cpu="child",
    lab_cpu="child,-slow",
    lab_has_cpus=False,
    emulated_marks={"toy": "yes"},
    qemu_since=(7, 0),
    kvm_modules={"toyvirt": "kvm_toy"},
    without_kvm="play elsewhere",
    boot_file=BootFile("Image", "a kernel for Toy-64", lambda image: image[:5].decode() or None),
    has_bios=True,
    display=("-vga", "toy"),
    firmware=UefiFiles("TOYFW", (("/toy/code", "/toy/variables"),)),
    packages=Packages(
        architecture="toy",
        kernel="linux-image-toy",
        cloud_kernel="linux-image-cloud-toy",
        kernel_headers="linux-headers-toy",
        emulator="qemu-system-toys",
        firmware="toyboot",
    ),
    cross_compiler="toy-gcc",
    diskspd="TOY/diskspd.exe",
    system_calls=SystemCalls(
        audit=1, seccomp=2, fsync=3, fdatasync=4, perf_event_open=5, fallocate=6, setgroups=7,
        o_direct=8,
    ),
)

ARCHITECTURES = (X86_64, AARCH64, TOY)
"""

PROGRAM = """
import json
from pathlib import Path
from vdisklab.guest.image.guest_image import APPEND
from vdisklab.guest.image.kernel import Flavour, kernel_release
from vdisklab.guest.qemu.command_line import BootFiles, Channels, GuestConfig, build_argv
from vdisklab.host.facts import QEMU
from vdisklab.inspection.host_features import _machine_purposes
from vdisklab.lab.lab_image import PACKAGES, LabImage
from vdisklab.lab.lab_machine import LabConfig, LabFiles, lab_argv, start_script
from vdisklab.path.architecture import host_of
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import GuestPlan
from vdisklab.plan.accelerator import Accelerator
from vdisklab.platforms import libvirt, qemu
from vdisklab.platforms.request import ExportRequest


boot = BootFiles(Path("/k"), Path("/i"), Path("/r"), APPEND)
config = GuestConfig(QEMU, "m", Bus.VIRTIO.machine, Accelerator.TCG, GuestPlan(), boot)
image = LabImage(Path("/lab"), "6.1", "3.11")
files = LabFiles(image, Path("/w"), Path("/c"))
request = ExportRequest(parse_path("raw/none"))
(foreign,) = qemu.read_command(("qemu-system-x86_64", "-hda", "/a.img"), "g")
print(json.dumps({
    "guest": build_argv(config, Channels(3, 4, 5, Path("/w/console"))),
    "lab": lab_argv(LabConfig(Accelerator.TCG), files, "n", None),
    "start": start_script(),
    "packages": PACKAGES,
    "kernels": [Flavour.CLOUD.package, Flavour.FULL.package],
    "release": kernel_release(b"1.2.3 and more"),
    "ide": [impossible(parse_path("raw/none/ide")).reason, impossible(parse_path("raw/none"))],
    "doctor": _machine_purposes(),
    "libvirt": libvirt.export(request).text,
    "qemu": qemu.export(request).text,
    "host": host_of("toy32"),
    "foreign": str(foreign.path),
}))
"""


def value_of(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the source, whose guests have the second row, says of them."""
    copied = tmp_path_factory.mktemp("architecture")
    source = copied / "src/vdisklab"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__", "templates"))
    rows = source / ROW_FILE
    text = rows.read_text()
    before = "ARCHITECTURES = (X86_64, AARCH64)\n"
    assert text.count(before) == 1
    rows.write_text(text.replace(before, ROW))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(copied / "src"), CHOICE: "toy"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_row_makes_the_command_lines(seen: dict[str, Any]) -> None:
    guest, lab = seen["guest"], seen["lab"]
    assert guest[0] == lab[0] == "qemu-system-toy64"
    assert value_of(guest, "-machine") == "playground,swings=2"
    assert value_of(guest, "-cpu") == "child"
    assert value_of(lab, "-machine").startswith("playground,swings=2,sand=on,accel=")
    assert (
        value_of(guest, "-append") == "console=ttyTOY0 quiet panic=-1 cryptomgr.notests clock=toy"
    )
    assert "console=ttyTOY0 " in value_of(lab, "-append")
    assert value_of(lab, "-append").endswith(" clock=toy")
    assert value_of(lab, "-cpu") == "child,-slow"
    assert any(word.startswith("pcie-root-port") for word in guest)


def test_a_row_makes_the_lab(seen: dict[str, Any]) -> None:
    packages = {"linux-image-toy", "linux-headers-toy", "qemu-system-toys", "toyboot"}
    assert packages <= set(seen["packages"])
    assert "/dev/ttyTOY0" in seen["start"]
    assert "kvm_toy" in seen["start"]
    assert "@" not in seen["start"].replace("@lab", "").replace('"$@"', "")


def test_a_row_names_the_kernels(seen: dict[str, Any]) -> None:
    assert seen["kernels"] == ["linux-image-cloud-toy", "linux-image-toy"]
    assert seen["release"] == "1.2.3"


def test_a_row_says_which_buses_exist(seen: dict[str, Any]) -> None:
    assert seen["ide"] == ["a playground has no bus ide", None]
    assert seen["doctor"] == {"playground": "all buses"}


def test_a_row_is_exported(seen: dict[str, Any]) -> None:
    assert '<type arch="toy64" machine="playground">' in seen["libvirt"]
    assert "qemu-system-toy64 -machine playground" in seen["qemu"]


def test_what_other_programs_write_is_read_as_before(seen: dict[str, Any]) -> None:
    assert seen["host"] == "toy64"
    assert seen["foreign"].endswith("/ide")


CLAIMS = """
from vdisklab.actions.missing_claims import _possible
from vdisklab.answers.claims import read_claims

notes = []
claims = [claim for file in read_claims((), ()) for claim in file.claims]
possible = list(_possible(claims, notes.append))
print(len(claims), len(possible), len(notes), notes[0].text)
"""


def test_claims_about_a_bus_that_an_architecture_lacks_are_read_and_not_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLAIMS], env={**os.environ, CHOICE: "aarch64"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    every, possible, left_out, *note = done.stdout.split(maxsplit=3)
    assert int(every) == int(possible) + int(left_out)
    assert int(possible) > 20
    assert "is not measured: " in note[0]
    assert "QEMU's machine virt has no IDE controller" in note[0]
