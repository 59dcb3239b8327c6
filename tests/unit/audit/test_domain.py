"""Reads back what was exported; refuses what is no domain; sees what is doubtful."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.export.made import configurable_paths
from vdisklab.audit.arguments import disks_of_arguments
from vdisklab.audit.disk import NOWHERE, ConfiguredDisk, Surroundings, disk_path
from vdisklab.audit.domain import read_domain
from vdisklab.audit.risks import (
    AioConflict,
    FlushAfterEachWrite,
    FlushesDropped,
    FlushesDroppedBelow,
    FuaForgotten,
    HangsOnGuestFlushes,
    MayOutgrow,
    NoDiscard,
    Risk,
    SlowBus,
    StaleNote,
    risks,
)
from vdisklab.errors import PlanError
from vdisklab.export.form import Wish
from vdisklab.export.qemu import arguments
from vdisklab.export.registry import EXPORTERS, Form
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import CacheMode

SOURCES = st.sampled_from(["/srv/disk.img", "/srv/a b/<&>\"'--.img", "/srv/ä,b=c.img"])


def domain_of(text: str, source: str = "/srv/x.img") -> str:
    return EXPORTERS[Form.LIBVIRT](Wish(parse_path(text), source)).text


@given(configurable_paths, SOURCES)
def test_an_export_is_audited_to_its_own_path(path: DiskPath, source: str) -> None:
    (disk,) = read_domain(EXPORTERS[Form.LIBVIRT](Wish(path, source)).text, "domain.xml")
    assert disk_path(disk) == path
    assert disk.source == source
    assert not disk.note_is_stale


@given(configurable_paths)
def test_without_the_note_all_but_layers_and_image_options_is_read(path: DiskPath) -> None:
    text = EXPORTERS[Form.LIBVIRT](Wish(path, "/srv/x.img")).text
    (disk,) = read_domain(text.replace("urn:vdisklab:disk-path:1", "urn:other"), "domain.xml")
    assert disk.noted is None
    layers, image = path.layers, path.image
    found = disk_path(disk, Surroundings(layers=layers, image=image))
    assert found is not None
    if text.count("qemu:commandline") == 0:  # in arguments two spellings may be one setting
        assert found == path


@given(configurable_paths)
def test_qemus_arguments_are_read(path: DiskPath) -> None:
    (found,) = disks_of_arguments(arguments(Wish(path), "/srv/x.img"))
    disk = ConfiguredDisk("d", found.id, found.filename, found.path, path)
    assert disk_path(disk) == path


def test_a_changed_domain_is_no_longer_what_the_note_says() -> None:
    text = domain_of("ext4/qcow2/none").replace('cache="none"', 'cache="unsafe"')
    (disk,) = read_domain(text, "domain.xml")
    assert str(disk_path(disk)) == "qcow2/unsafe"
    assert StaleNote("ext4/qcow2/none") in risks(disk, NOWHERE)


BILLION = """<?xml version="1.0"?>
<!DOCTYPE domain [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
<domain><name>&b;</name></domain>"""
FOREIGN = """<?xml version="1.0"?>
<!DOCTYPE domain [<!ENTITY secret SYSTEM "file:///etc/hostname">]>
<domain><name>&secret;</name></domain>"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BILLION, "declares a document type or entities"),
        (FOREIGN, "declares a document type or entities"),
        ("", "no XML"),
        ("<domain><name>x</name>", "no XML"),
        ("not xml at all", "no XML"),
        ("<html><body/></html>", "no libvirt domain"),
        ("<domain>" + " " * (5 << 20) + "</domain>", "larger than any"),
    ],
)
def test_what_is_no_domain_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence) as caught:
        read_domain(text, "x.xml")
    assert "hostname" not in str(caught.value)


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_a_mutilated_domain_is_refused_or_read(start: int, length: int) -> None:
    text = domain_of("ext4/qcow2/none/scsi:iothread=on:write_cache=off")
    with contextlib.suppress(PlanError):
        read_domain(text[:start] + text[start + length :], "x.xml")


def disk_of(inside: str) -> ConfiguredDisk:
    (disk,) = read_domain(f"<domain><name>n</name><devices>{inside}</devices></domain>", "x")
    return disk


@pytest.mark.parametrize(
    ("inside", "path"),
    [
        ("<disk><source file='/a'/><target dev='vda'/></disk>", "raw/default"),
        ("<disk><target dev='hda'/></disk>", "raw/default/ide"),
        ("<disk type='block'><driver type='qcow2'/><target dev='sdb' bus='sata'/></disk>",
         "qcow2/default/sata"),
        ("<disk type='block'><driver cache='none' io='native'/><target dev='vda'/></disk>",
         "none/virtio:aio=native"),
    ],
)  # fmt: skip
def test_left_out_attributes_mean_libvirts_defaults(inside: str, path: str) -> None:
    assert str(disk_of(inside).path) == str(parse_path(path))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<disk type='network'><source protocol='rbd' name='p/i'/></disk>", "type network"),
        ("<disk><driver type='luks'/><target dev='vda'/></disk>", "format 'luks'"),
        ("<disk><target dev='xvda' bus='xen'/></disk>", "bus 'xen'"),
        ("<disk><driver queues='9999'/><target dev='vda' bus='virtio'/></disk>", "whole number"),
        ("<disk><target dev='sda' bus='scsi'/></disk>"
         "<controller type='scsi' index='0' model='lsilogic'/>", "lsilogic"),
    ],
)  # fmt: skip
def test_a_disk_without_a_path_says_why(inside: str, problem: str) -> None:
    disk = disk_of(inside)
    assert disk.path is None
    assert problem in (disk.problem or "")
    assert risks(disk, NOWHERE) == ()


def test_cdroms_and_floppies_are_no_disks() -> None:
    text = "<domain><devices><disk device='cdrom'/><disk device='floppy'/></devices></domain>"
    assert read_domain(text, "x") == ()


def risks_of(path: str, around: Surroundings = NOWHERE) -> tuple[Risk, ...]:
    return risks(ConfiguredDisk("d", "vda", "/a", parse_path(path)), around)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/unsafe", (FlushesDropped(),)),
        ("raw/none", (HangsOnGuestFlushes(in_memory=False),)),
        ("tmpfs/raw/none", (FlushesDroppedBelow("tmpfs is memory"),)),
        ("ext4:barrier=off/raw/directsync",
         (FlushesDroppedBelow("ext4:barrier=off sends no flushes to the disk"),)),
        ("raw/default", (HangsOnGuestFlushes(in_memory=True),)),
        ("raw/writethrough", (FlushAfterEachWrite(),)),
        ("raw/none/nvme", (FuaForgotten(), HangsOnGuestFlushes(in_memory=False))),
        ("raw/default/nvme", (FuaForgotten(), HangsOnGuestFlushes(in_memory=True))),
        ("raw/none/nvme:write_cache=off", (FlushAfterEachWrite(),)),
        ("raw/directsync/nvme", (FlushAfterEachWrite(),)),
        ("raw/unsafe/nvme", (FlushesDropped(),)),
        ("raw/writeback/virtio:write_cache=off", (FlushAfterEachWrite(),)),
        ("raw/writethrough/virtio:write_cache=on", (HangsOnGuestFlushes(in_memory=True),)),
        ("raw/writeback/virtio:aio=native",
         (AioConflict(CacheMode.WRITEBACK), HangsOnGuestFlushes(in_memory=True))),
        ("qcow2:preallocation=off/none", (HangsOnGuestFlushes(in_memory=False), NoDiscard())),
        ("qcow2:preallocation=off/none/virtio:discard=unmap",
         (HangsOnGuestFlushes(in_memory=False),)),
    ],
)  # fmt: skip
def test_each_risk_is_seen(path: str, expected: tuple[Risk, ...]) -> None:
    assert risks_of(path) == expected


def test_emulated_controllers_and_impossible_paths_are_seen() -> None:
    assert any(isinstance(risk, SlowBus) for risk in risks_of("raw/none/ide"))
    assert any(isinstance(risk, Impossible) for risk in risks_of("ext4/none"))


def test_a_thin_image_on_a_nearly_full_file_system_is_seen() -> None:
    tight = Surroundings(virtual_size=100, allocated=10, free=50)
    assert MayOutgrow(90, 50) in risks_of("qcow2/none", tight)
    assert NoDiscard() in risks_of("qcow2/none", tight)
    roomy = Surroundings(virtual_size=100, allocated=100, free=0)
    assert not any(isinstance(risk, MayOutgrow) for risk in risks_of("qcow2/none", roomy))
