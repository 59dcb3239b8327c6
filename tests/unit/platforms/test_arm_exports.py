"""A disk path for a guest of 64-bit Arm, as each platform writes it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.architecture import AARCH64, X86_64
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import configure, read_guests
from vdisklab.platforms.request import ExportRequest

PATHS = (
    "raw/default",
    "qcow2/none",
    "raw/writethrough/scsi:iothread=on:queues=3",
    "qcow2/unsafe/usb",
    "qcow2/none/nvme:queues=2",
    "raw/none/virtio:aio=native:discard=unmap:iothread=on:queues=2",
    "virtiofs",
)


def written(path: str, form: str, domain_type: str = "kvm") -> str:
    request = ExportRequest(parse_path(path), domain_type=domain_type, guest=AARCH64)
    return configure(request, form).text


@pytest.mark.skipif(shutil.which("virt-xml-validate") is None, reason="libvirt is not installed")
@pytest.mark.parametrize("domain_type", ["kvm", "qemu"])
@pytest.mark.parametrize("path", PATHS)
def test_the_domain_is_one_of_libvirts_schema(path: str, domain_type: str) -> None:
    text = written(path, "libvirt", domain_type)
    done = subprocess.run(
        ("virt-xml-validate", "-", "domain"), input=text, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("domain_type", "cpu"),
    [
        ("kvm", '<cpu mode="host-passthrough" />'),
        ("qemu", f"<model>{AARCH64.emulated_cpu}</model>"),
    ],
)
def test_the_machine_boots_by_uefi_with_a_cpu_of_64_bits(domain_type: str, cpu: str) -> None:
    text = written("raw/none", "libvirt", domain_type)
    for part in ('<os firmware="efi">', '<type arch="aarch64" machine="virt">', "<acpi />", cpu):
        assert part in text


@pytest.mark.parametrize("form", ["libvirt", "qemu", "kubevirt"])
@pytest.mark.parametrize("path", ["raw/none", "raw/writeback/scsi"])
def test_what_is_written_is_read_and_found_by_the_guest(form: str, path: str) -> None:
    text = written(path, form)
    claim = (
        "\n---\nkind: PersistentVolumeClaim\napiVersion: v1\nmetadata: {name: guest}\n"
        "spec: {volumeMode: Filesystem}\n"
    )
    named = GuestText(text + claim * (form == "kubevirt"), f"g.{form}")
    (found,) = read_guests([named])
    assert found.architecture == AARCH64.name
    assert found.path is not None
    assert found.path.attachment.bus is parse_path(path).attachment.bus
    assert not {"cannot work", "may not be seen"} & {risk.short for risk in risks(found)}


@pytest.mark.parametrize(
    ("path", "form", "why"),
    [
        ("raw/none/ide", "libvirt", "no IDE controller"),
        ("raw/none/sata", "qemu", "SATA"),
        ("raw/none/usb", "kubevirt", "KubeVirt has no bus usb on arm64"),
    ],
)
def test_a_bus_that_the_guest_lacks_is_refused(path: str, form: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        written(path, form)
    configure(ExportRequest(parse_path(path), guest=X86_64), form)


def test_qemu_gets_a_cpu_and_the_way_to_the_firmware() -> None:
    assert "-machine virt,gic-version=max -accel kvm -cpu host" in written("raw/none", "qemu")
    text = written("raw/none", "qemu", "qemu")
    assert f"-accel tcg -cpu {AARCH64.emulated_cpu}" in text
    assert "AAVMF_VARS.fd COPY" in text


def test_other_platforms_name_the_architecture() -> None:
    assert "      architecture: arm64\n" in written("raw/none", "kubevirt")
    image = "--property hw_architecture=aarch64 --property hw_machine_type=virt"
    assert image in written("raw/none", "openstack")
    assert "Proxmox VE runs on amd64 only" in written("raw/none", "proxmox")


@pytest.mark.parametrize("form", ["libvirt", "qemu", "kubevirt", "openstack", "proxmox"])
def test_nothing_of_it_is_said_of_x86(form: str) -> None:
    text = configure(ExportRequest(parse_path("raw/none"), guest=X86_64), form).text
    for part in ("aarch64", "arm64", "efi", "-cpu", "pflash", "acpi"):
        assert part not in text
