"""`advise` keeps no disk that loses data, or with which its guest does not start, by `audit`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from vdisklab.answers.advise import advise_disks
from vdisklab.answers.audit import audit_disks
from vdisklab.answers.disks import DiskAction, ExistingDisk
from vdisklab.cli.shell.main import main
from vdisklab.host.command import LocalHost
from vdisklab.plan.settings import Request
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import FlushesDropped, Risk, WritesThrownAway

DATA = Path(__file__).parents[2] / "data" / "guests"
CACHES = ("", "none", "writeback", "directsync", "unsafe")
POLICIES = ("", "stop", "ignore")
"""Of errors; empty for the default."""


def libvirt() -> Iterator[str]:
    """A domain for each setting of a disk, in files of their own."""
    for cache, io, policy, other, extra, source in product(
        CACHES, ("", "native"), POLICIES, ("", "ignore"), ("", "<transient/>", "<readonly/>"),
        ("type='file'", "type='network'"),
    ):  # fmt: skip
        driver = {"cache": cache, "io": io, "error_policy": policy, "rerror_policy": other}
        set_to = "".join(f" {name}='{value}'" for name, value in driver.items() if value)
        where = "<source file='/vm/a.raw'/>"
        if "network" in source:
            where = "<source protocol='nbd' name='e'><host name='far'/></source>"
        yield (
            f"<domain type='kvm'><name>g</name><devices><disk {source} device='disk'>"
            f"<driver name='qemu' type='raw'{set_to}/>{where}<target dev='vda' bus='virtio'/>"
            f"{extra}</disk></devices></domain>"
        )


def proxmox() -> Iterator[str]:
    for cache, aio, policy, bus, volume in product(
        CACHES, ("", "native", "threads"), POLICIES, ("scsi0", "virtio0", "sata0"),
        ("local-lvm:vm-100-disk-0", "local:100/a.qcow2", "/dev/sdz", "ceph:vm-100-disk-0"),
    ):  # fmt: skip
        options = {"cache": cache, "aio": aio, "werror": policy, "rerror": policy}
        set_to = "".join(f",{name}={value}" for name, value in options.items() if value)
        yield f"name: g\nscsihw: virtio-scsi-single\n{bus}: {volume}{set_to},size=8G\n"


def qemu() -> Iterator[str]:
    for cache, aio, policy, bus, form, extra in product(
        CACHES, ("", "native"), POLICIES, ("virtio", "scsi", "none"), ("raw", "vmdk"),
        ("", ",snapshot=on", ",readonly=on"),
    ):  # fmt: skip
        options = {"cache": cache, "aio": aio, "werror": policy, "rerror": policy}
        set_to = "".join(f",{name}={value}" for name, value in options.items() if value)
        device = " -device nvme,drive=d,serial=1" if bus == "none" else ""
        yield (
            f"qemu-system-x86_64 -name g -m 1G -drive file=/vm/a,id=d,format={form},if={bus}"
            f"{set_to}{extra}{device}\n"
        )


def kubevirt() -> Iterator[str]:
    for cache, policy, bus, volume in product(
        ("none", "writethrough", "writeback"), ("stop", "ignore", "report"), ("virtio", "sata"),
        ("persistentVolumeClaim: {claimName: c}", "emptyDisk: {capacity: 2Gi}",
         "ephemeral: {persistentVolumeClaim: {claimName: c}}"),
    ):  # fmt: skip
        yield (
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: g}\n"
            "spec: {template: {spec: {domain: {devices: {disks: [{name: d, cache: "
            f"{cache}, errorPolicy: {policy}, disk: {{bus: {bus}}}}}]}}}}, "
            f"volumes: [{{name: d, {volume}}}]}}}}}}\n"
        )


def shared() -> Iterator[str]:
    drive = "-drive file=/vm/a.raw,format=raw,if=virtio,cache={}"
    for first, second in product(("none", "writeback", "unsafe"), ("none", "unsafe")):
        yield f"qemu-system-x86_64 -name g -m 1G {drive.format(first)} {drive.format(second)}\n"


def committed() -> Iterator[str]:
    return (file.read_text() for file in sorted(DATA.iterdir()) if file.suffix != ".cfg")


def judged(texts: Iterator[str]) -> Iterator[tuple[ExistingDisk, ExistingDisk]]:
    """Each disk as `audit` and as `advise` judges it; each text is a host's only guest."""
    for number, text in enumerate(texts):
        disks: tuple[ConfiguredDisk, ...] = tuple(read_guests([GuestText(text, f"g{number}")]))
        audited = audit_disks(LocalHost(), disks, (), None, None, guests="g").disks
        advised = advise_disks(None, LocalHost(), disks, Request(), machine="x86_64").disks
        by_name = {row.name: row for row in advised}
        yield from ((row, by_name[row.name]) for row in audited)


def is_grave(risk: Risk) -> bool:
    """True for a risk that loses data or keeps a guest from its start."""
    return risk.serious or risk.blocks


def test_disks_of_one_image_get_images_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.sh"
    drive = "-drive file=/vm/a.raw,format=raw,if=virtio,cache=none"
    file.write_text(f"qemu-system-x86_64 -name g -m 1G {drive} {drive}\n")
    assert main(["advise", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 disks: change 2" in said
    assert "image opened twice; give it an image of its own" in said
    assert "g virtio0: give it an image of its own: g virtio1 has the same one." in said


@pytest.mark.parametrize("texts", [libvirt, proxmox, qemu, kubevirt, shared, committed])
def test_no_disk_is_kept_that_audit_finds_unsafe(texts: object) -> None:
    assert callable(texts)
    found, kept = 0, dict[str, str]()
    for audited, advised in judged(texts()):
        grave = [risk for risk in audited.risks if is_grave(risk)]
        if any(isinstance(risk, WritesThrownAway) for risk in grave):
            # Such a guest is made to forget what it writes: no other loss is one.
            reason = "nothing it writes is meant to survive"
            assert advised.advised.reason == reason or any(risk.blocks for risk in grave)
            grave = [risk for risk in grave if risk.blocks]
        found += bool(grave)
        if grave and advised.advised.action is DiskAction.KEEP:
            shown = f"{audited.disk.platform} {audited.disk.path} {advised.advised.reason}"
            kept.setdefault(f"{[risk.short for risk in grave]} {advised.advised.reason}", shown)
    assert kept == {}
    assert found or texts is committed


@pytest.mark.parametrize("texts", [libvirt, proxmox, qemu])
def test_the_cache_mode_of_a_remedy_keeps_data_and_starts(texts: object) -> None:
    """Each disk that drops flushes is audited again with what `audit` and `advise` say to set: with
    io=native, writeback would not start."""
    assert callable(texts)
    unsafe = [text for text in texts() if "unsafe" in text]
    repaired, faults = 0, list[str]()
    for text, (audited, advised) in zip(unsafe, judged(iter(unsafe)), strict=True):
        dropped = [risk for risk in audited.risks if isinstance(risk, FlushesDropped)]
        if not dropped:
            continue  # it is read-only
        modes = [mode for mode in CACHES if mode and f"Use {mode}" in str(dropped[0])]
        to, path = advised.advised.to, advised.advised.path
        if to is not None and path is not None and to.attachment == path.attachment:
            modes.append(str(to.cache))
        assert modes
        for mode in modes:
            changed = re.sub(r"(cache='?)unsafe", rf"\g<1>{mode}", text)
            ((after, _),) = judged(iter([changed]))
            repaired += 1
            if any(isinstance(risk, FlushesDropped) or risk.blocks for risk in after.risks):
                faults.append(f"{mode}: {changed}")
    assert faults == []
    assert repaired
