"""Reads exported domains back, refuses other XML, and reports doubtful settings."""

from __future__ import annotations

import contextlib
import json
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.path.made import configurable_paths, place_for
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import DiskContext, disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.libvirt_domain import QEMU_NAMESPACE, read_domain
from vdisklab.platforms.qemu import arguments
from vdisklab.platforms.qemu_arguments import disks_of_arguments
from vdisklab.platforms.registry import forms
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.risk_kinds import FlushesDropped, SlowBus, StaleNote
from vdisklab.value import replace

KEYS = st.sampled_from(
    ["driver", "node-name", "drive", "id", "file", "filename", "cache", "direct", "no-flush", "aio",
     "queues", "num-queues", "max_ioqpairs", "bus", "unit", "write-cache", "discard", "iothread"]
)  # fmt: skip
SOURCES = st.sampled_from(["/srv/disk.img", "/srv/a b/<&>\"'--.img", "/srv/ä,b=c.img"])


def domain_of(text: str, source: str = "/srv/x.img") -> str:
    return forms()["libvirt"].write(ExportRequest(parse_path(text), source)).text


@given(configurable_paths, SOURCES)
def test_an_export_is_audited_to_its_own_path(path: DiskPath, source: str) -> None:
    request = ExportRequest(path, place_for(path, source))
    (disk,) = read_domain(forms()["libvirt"].write(request).text, "domain.xml")
    assert disk_path(disk) == path
    assert disk.source == request.place("")
    assert disk.stale_note is None


@given(configurable_paths)
def test_without_the_note_all_but_layers_and_image_options_is_read(path: DiskPath) -> None:
    request = ExportRequest(path, place_for(path, "/srv/x.img"))
    text = forms()["libvirt"].write(request).text
    (disk,) = read_domain(text.replace("urn:vdisklab:disk-path:1", "urn:other"), "domain.xml")
    assert disk.noted is None
    layers, image = path.layers, path.image
    found = disk_path(disk, DiskContext(layers=layers, image=image))
    assert found is not None
    if text.count("qemu:commandline") == 0:  # in arguments two spellings may be one setting
        assert found == path


@given(configurable_paths)
def test_qemus_arguments_are_read(path: DiskPath) -> None:
    (found,) = disks_of_arguments(arguments(ExportRequest(path), "/srv/x.img"))
    disk = replace(found, noted=path)
    assert disk_path(disk) == path


def test_a_changed_domain_is_no_longer_what_the_note_says() -> None:
    text = domain_of("ext4/qcow2/none").replace('cache="none"', 'cache="unsafe"')
    (disk,) = read_domain(text, "domain.xml")
    assert str(disk_path(disk)) == "qcow2/unsafe"
    assert StaleNote("ext4/qcow2/none") in risks(disk)


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
        ("", "is not XML"),
        ("<domain><name>x</name>", "is not XML"),
        ("not xml at all", "is not XML"),
        ("<html><body/></html>", "not a libvirt domain"),
        ("<domain>" + " " * (5 << 20) + "</domain>", "larger than any"),
    ],
)
def test_what_is_not_a_domain_is_refused(text: str, sentence: str) -> None:
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
        ("<disk><driver detect_zeroes='unmap'/><target dev='vda'/></disk>",  # libvirt makes it on
         "raw/default/virtio:detect_zeroes=on"),
        ("<disk><driver detect_zeroes='unmap' discard='unmap'/><target dev='vda'/></disk>",
         "raw/default/virtio:detect_zeroes=unmap:discard=unmap"),
    ],
)  # fmt: skip
def test_left_out_attributes_mean_libvirts_defaults(inside: str, path: str) -> None:
    assert str(disk_of(inside).path) == str(parse_path(path))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<disk type='network'><source protocol='gluster' name='p/i'/></disk>", "type network"),
        ("<disk><driver type='qcow'/><target dev='vda'/></disk>", "format 'qcow'"),
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
    assert risks(disk) == ()


@pytest.mark.parametrize("kind", ["xen", "bhyve", "test", "lxc", "vz", "hyperv", "vmware"])
def test_other_hypervisors_disks_are_not_judged_as_qemus(kind: str) -> None:
    text = (
        f"<domain type='{kind}'><name>n</name><devices><disk><driver name='phy' cache='unsafe'/>"
        "<source file='/a'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    (disk,) = read_domain(text, "x")
    assert disk.path is None
    assert f"of type {kind}" in (disk.problem or "")
    assert risks(disk) == ()


@pytest.mark.parametrize("kind", ["kvm", "qemu", "hvf"])
def test_qemus_domains_are_judged(kind: str) -> None:
    text = (
        f"<domain type='{kind}'><devices><disk><driver cache='unsafe'/><target dev='vda'/></disk>"
        "</devices></domain>"
    )
    (disk,) = read_domain(text, "x")
    assert FlushesDropped() in risks(disk)


def test_a_disk_that_qemu_only_forwards_is_listed_with_the_reason() -> None:
    disk = disk_of("<disk type='block' device='lun'><target dev='sda' bus='scsi'/></disk>")
    assert disk.path is None
    assert "(lun)" in (disk.problem or "")


@pytest.mark.parametrize("cache", [mode for mode in CacheMode if mode != "directunsafe"])
def test_a_read_only_disk_has_no_risk_of_writing(cache: CacheMode) -> None:
    inside = (
        f"<disk><driver type='qcow2' cache='{cache}'/><target dev='sda' bus='sata'/>"
        "<readonly/></disk>"
    )
    thin = DiskContext(None, None, virtual_size=1 << 30, allocated=1, free=1)
    assert risks(disk_of(inside), thin) == (SlowBus(Bus.SATA),)
    assert len(risks(disk_of(inside.replace("<readonly/>", "")), thin)) > 1


def test_libvirts_own_nvme_disk_is_read() -> None:
    """The form of libvirt 11.5; QEMU's num_queues counts the admin queue."""
    path = parse_path("qcow2/none/nvme:queues=4:write_cache=off")
    text = forms()["libvirt"].write(ExportRequest(path, "/srv/a", libvirt=(11, 5))).text
    assert "qemu:arg" not in text
    (disk,) = read_domain(text.replace("urn:vdisklab:disk-path:1", "urn:other"), "x")
    assert disk.path == path


def arguments_of(*arguments: str) -> tuple[ConfiguredDisk, ...]:
    inside = "".join(f"<qemu:arg value={quoteattr(word)}/>" for word in arguments)
    return read_domain(
        f"<domain type='kvm' xmlns:qemu='{QEMU_NAMESPACE}'><qemu:commandline>{inside}"
        "</qemu:commandline></domain>",
        "x",
    )


@pytest.mark.parametrize("depth", [1, 1000, 100_000])
def test_deeply_nested_arguments_are_read_or_said(depth: int) -> None:
    assert arguments_of("-blockdev", "[" * depth, "-device", "[" * depth) == ()
    for text in ('{"a":' * depth, "{" + '"a":[' * depth + "]" * depth + "}"):
        disks = arguments_of("-blockdev", text, "-device", text)
        assert len(disks) == (0 if text.endswith("}") and depth == 1 else 2)
        assert all(disk.path is None and "cannot be read" in str(disk.problem) for disk in disks)


@pytest.mark.parametrize("depth", [1000, 300_000])
def test_deeply_nested_elements_are_read_or_refused(depth: int) -> None:
    with contextlib.suppress(PlanError):
        read_domain("<domain>" + "<a>" * depth + "</a>" * depth + "</domain>", "x")


def test_a_disk_without_an_id_has_the_name_of_its_drive() -> None:
    (disk,) = arguments_of("-drive", "file=/a,if=none,id=data", "-device", "usb-storage,drive=data")
    assert disk.target == "data"


@pytest.mark.parametrize(
    ("file", "path"),
    [("/dev/vg/a", "none"), ("/dev/shm/a", "raw/none")],  # noqa: S108 - a name
)
def test_an_image_in_shared_memory_is_no_device(file: str, path: str) -> None:
    (disk,) = arguments_of("-drive", f"file={file},if=virtio,format=raw,cache=none")
    assert str(disk.path) == path


def test_a_file_node_inside_the_format_node_is_read() -> None:
    (disk,) = arguments_of(
        "-blockdev",
        '{"driver":"qcow2","node-name":"n","read-only":true,'
        '"file":{"driver":"file","filename":"/a"}}',
        "-device", '{"driver":"virtio-blk-pci","drive":"n","id":"d","num-queues":2}',
    )  # fmt: skip
    assert str(disk.path) == "qcow2/default/virtio:queues=2"
    assert disk.source == "/a"
    assert disk.read_only


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(json_values, min_size=1, max_size=3), st.lists(json_values, max_size=3))
def test_any_json_in_arguments_is_read_or_skipped(
    nodes: list[object], devices: list[object]
) -> None:
    arguments = [word for node in nodes for word in ("-blockdev", json.dumps(node))]
    arguments += [word for device in devices for word in ("-device", json.dumps(device))]
    for found in disks_of_arguments(arguments):
        assert str(found.path)


def test_cdroms_and_floppies_are_left_out() -> None:
    text = "<domain><devices><disk device='cdrom'/><disk device='floppy'/></devices></domain>"
    assert read_domain(text, "x") == ()


PHRASE = "<secret type='passphrase' uuid='e68fb5a4-2f95-4ec2-8dfa-8a1b2c0b2ea1'/>"


@pytest.mark.parametrize(
    ("source", "image", "path"),
    [
        ("file='/srv/a.img'", "qcow2", "qcow2:encrypt=luks/none"),
        ("file='/srv/a.img'", "raw", "raw:encrypt=luks/none"),
        ("dev='/dev/vg/a'", "raw", "raw:encrypt=luks/none"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_what_libvirt_encrypts_is_read(source: str, image: str, path: str, inside: bool) -> None:
    encryption = f"<encryption format='luks'>{PHRASE}</encryption>"
    below, beside = (encryption, "") if inside else ("", encryption)
    kind = "block" if source.startswith("dev") else "file"
    xml = (
        f"<domain type='kvm'><name>g</name><devices><disk type='{kind}' device='disk'>"
        f"<driver name='qemu' type='{image}' cache='none'/><source {source}>{below}</source>"
        f"{beside}<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    (disk,) = read_domain(xml, "g.xml")
    assert (disk.path, disk.problem) == (parse_path(path), None)
    (old,) = read_domain(xml.replace("'luks'", "'qcow'"), "g.xml")
    assert (old.path, old.problem) == (None, "its encrypt is 'qcow', but must be one of off, luks")


def test_what_a_command_line_encrypts_is_read() -> None:
    (node,) = arguments_of(
        "-blockdev", "driver=qcow2,node-name=d,encrypt.format=luks,encrypt.key-secret=k,"
        "file.driver=file,file.filename=/a", "-device", "virtio-blk-pci,drive=d",
    )  # fmt: skip
    (drive,) = arguments_of(
        "-drive", "file=/a,format=qcow2,if=virtio,encrypt.format=luks,encrypt.key-secret=k"
    )
    assert node.path == drive.path == parse_path("qcow2:encrypt=luks/default")
