"""What was proved to lose flushed data is named in every platform's form, and never exported."""

from __future__ import annotations

import pytest

from vdisklab.answers.export import answer_export
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import parse_need, unmet
from vdisklab.platforms.configured_disk import ConfiguredDisk, LossyImage, disk_path, risks
from vdisklab.platforms.dialect import ExportRequest
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import forms, read_guests

DURABLE = parse_need("durable")
STORAGES = GuestText("dir: shelf\n\tpath /shelf\n", "storage.cfg")


def read(text: str, name: str = "start.sh") -> tuple[ConfiguredDisk, ...]:
    return read_guests([STORAGES, GuestText(text, name)])


def lacks_durable(disk: ConfiguredDisk) -> bool:
    path = disk_path(disk)
    assert path is not None, disk.problem
    return DURABLE in unmet(path, [DURABLE], CrashVerdicts())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("memory: 512\nvirtio0: shelf:7/vm-7-disk-0.vmdk\n", "7.conf"),
        ("<domain type='kvm'><name>old</name><devices><disk type='file'><driver type='vdi' "
         "cache='writethrough'/><source file='/shelf/old.vdi'/><target dev='vda' bus='virtio'/>"
         "</disk></devices></domain>", "old.xml"),
        ("qemu-system-aarch64 -M virt -drive file=/a.vdi,format=vdi,cache=directsync", "start.sh"),
        ("qemu-system-x86_64 -drive if=virtio,file=/a.qcow2,driver=qcow2,lazy-refcounts=on", "x"),
        ('qemu-system-x86_64 -blockdev \'{"driver":"qcow2","node-name":"q","lazy-refcounts":true,'
         '"file":{"driver":"file","filename":"/a"}}\' -device nvme,drive=q,write-cache=off', "x"),
    ],
)  # fmt: skip
def test_an_image_that_loses_flushed_data_is_named(text: str, name: str) -> None:
    (disk,) = read(text, name)
    assert lacks_durable(disk)
    assert any(isinstance(risk, LossyImage) and risk.serious for risk in risks(disk))


@pytest.mark.parametrize("path", ["vmdk/none", "vdi/writethrough", "qcow2:lazy_refcounts=on/none"])
@pytest.mark.parametrize("form", ["libvirt", "libvirt-disk", "proxmox", "qemu"])
def test_no_lossy_image_is_exported_as_durable(
    path: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    assert form in forms()
    with pytest.raises(PlanError, match="does not meet --need durable: QEMU's") as refused:
        answer_export(
            ExportRequest(parse_path(path), "/srv/a"), form, (DURABLE,), HostDisk.PLP, None
        )
    assert (
        refused.value.hint
        == "the nearest path that meets all needs: qcow2/" + (path.partition("/")[2])
    )


def test_turned_off_lazy_refcounts_are_no_other_setting() -> None:
    (disk,) = read(
        "qemu-system-x86_64 -drive if=virtio,file=/a,format=qcow2,lazy-refcounts=off,cache=none"
    )
    assert (str(disk.path), disk.limits) == ("qcow2/none", ())
