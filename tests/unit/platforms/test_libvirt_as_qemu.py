"""libvirt's XML says of each disk what the arguments say that libvirt makes of it.

Each row shows one kind of libvirt's own test domains (qemuxmlconfdata), in words of this project.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import DiskContext, disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.libvirt_domain import QEMU_NAMESPACE
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import (
    STOPPING_FOR_ALL,
    ErrorsIgnored,
    FlushesDropped,
    LimitsBeyondPath,
    PendingChange,
    PendingLoss,
    Risk,
    WritesThrownAway,
)


def domain(devices: str, machine: str = "q35", arch: str = "x86_64", arguments: str = "") -> str:
    return (
        f"<domain type='kvm' xmlns:qemu='{QEMU_NAMESPACE}'><name>g</name>"
        f"<os><type arch='{arch}' machine='{machine}'>hvm</type></os>"
        f"<devices>{devices}</devices>{arguments}</domain>"
    )


def disk(
    driver: str = "type='raw'",
    inside: str = "",
    source: str = "file='/vm/a'",
    bus: str = "virtio",
    device: str = "disk",
    within: str = "",
) -> str:
    kind = "block" if source.startswith("dev=") else "file"
    name = {"virtio": "vda", "ide": "hda"}.get(bus, "sda")
    return (
        f"<disk type='{kind}' device='{device}'><driver name='qemu' {driver}/>"
        f"<source {source}>{within}</source><target dev='{name}' bus='{bus}'/>{inside}</disk>"
    )


def read(xml: str) -> tuple[ConfiguredDisk, ...]:
    return read_guests([GuestText(xml, "g.xml")])


RAW = "-blockdev driver=file,node-name=f,filename=/vm/a"
FILE = f"{RAW},discard=unmap"  # libvirt's node below a format
VIRTIO = "-device virtio-blk-pci,id=d,drive="
LUKS = "<encryption format='luks'><secret type='passphrase' usage='/vm/a'/></encryption>"
BASE = "<backingStore type='file'><format type='raw'/><source file='/vm/base'/></backingStore>"
HBA = "<controller type='scsi' index='0' model='virtio-scsi'><driver queues='4'/></controller>"
SLICE = "<slices><slice type='storage' offset='512' size='4096'/></slices>"
POOL = "<driver type='qcow2'><iothreads><iothread id='1'/><iothread id='2'/></iothreads></driver>"


@pytest.mark.parametrize(
    ("devices", "arguments"),
    [
        (disk("type='qcow2' cache='none' io='native' discard='unmap'"),
         f"{FILE},cache.direct=on,aio=native -blockdev driver=qcow2,node-name=q,file=f,"
         f"cache.direct=on,discard=unmap {VIRTIO}q,write-cache=on"),
        (disk("type='raw' cache='writethrough' detect_zeroes='on'"),
         f"{RAW},cache.direct=off,detect-zeroes=on {VIRTIO}f,write-cache=off"),
        (disk("type='raw' cache='unsafe'", bus="ide"),
         f"-M pc {RAW},cache.no-flush=on -device ide-hd,id=d,drive=f,unit=0,write-cache=on"),
        (disk("type='raw' cache='directsync'", bus="usb"),
         f"{RAW},cache.direct=on -device usb-storage,id=d,drive=f,write-cache=off"),
        (disk("type='raw' cache='none'", source="dev='/dev/v/l'", bus="sata"),
         "-M q35 -blockdev driver=host_device,node-name=f,filename=/dev/v/l,cache.direct=on "
         "-device ide-hd,id=d,drive=f,write-cache=on"),
        (disk("type='qcow2' cache='unsafe'", source="dev='/dev/v/l'"),
         "-blockdev driver=host_device,node-name=f,filename=/dev/v/l,cache.no-flush=on "
         f"-blockdev driver=qcow2,node-name=q,file=f {VIRTIO}q,write-cache=on"),
        (f"{HBA}{disk(bus='scsi')}", f"{RAW} -device virtio-scsi-pci,id=s,num_queues=4 "
         "-device scsi-hd,id=d,drive=f,bus=s.0"),
        (disk("type='raw' iothread='1' queues='2' queue_size='512' packed='on'"),
         f"-object iothread,id=t {RAW} {VIRTIO}f,iothread=t,num-queues=2,queue-size=512,"
         "packed=on"),
        (disk("type='qcow2'").replace("<driver name='qemu' type='qcow2'/>", POOL),
         "-object iothread,id=t -object iothread,id=u "
         f"{FILE} -blockdev driver=qcow2,node-name=q,file=f "
         """-device '{"driver":"virtio-blk-pci","id":"d","drive":"q","""
         """"iothread-vq-mapping":[{"iothread":"t"},{"iothread":"u"}]}'"""),
        (disk("type='raw'", within=LUKS), f"{FILE} -blockdev driver=luks,node-name=l,"
         f"key-secret=k,file=f {VIRTIO}l"),
        (disk("type='qcow2'", within=LUKS), f"{FILE} -blockdev driver=qcow2,node-name=q,file=f,"
         f"encrypt.format=luks,encrypt.key-secret=k {VIRTIO}q"),
        (disk("type='qcow2'", BASE), f"{FILE} -blockdev driver=file,node-name=e,filename=/vm/base "
         f"-blockdev driver=raw,node-name=b,file=e,read-only=on "
         f"-blockdev driver=qcow2,node-name=q,file=f,backing=b {VIRTIO}q"),
        (disk("type='qcow2'", within="<dataStore type='file'><format type='raw'/>"
              "<source file='/vm/data'/></dataStore>"),
         f"{FILE} -blockdev driver=file,node-name=e,filename=/vm/data "
         f"-blockdev driver=qcow2,node-name=q,file=f,data-file=e {VIRTIO}q"),
        (disk("type='raw'", "<readonly/>"), f"{RAW},read-only=on {VIRTIO}f"),
        (disk("type='raw'", "<shareable/>"),
         f"{RAW},cache.direct=on {VIRTIO}f,share-rw=on,write-cache=on"),
        (disk("type='raw' error_policy='ignore'"), f"{RAW} {VIRTIO}f,werror=ignore,rerror=ignore"),
        (disk("type='raw' error_policy='enospace' rerror_policy='report'"),
         f"{RAW} {VIRTIO}f,werror=enospc,rerror=report"),
        (disk("type='raw' error_policy='ignore' rerror_policy='stop'"),
         f"{RAW} {VIRTIO}f,werror=ignore,rerror=stop"),
        (disk("type='raw'", "<blockio logical_block_size='4096' physical_block_size='4096' "
              "discard_granularity='8192'/>"),
         f"{RAW} {VIRTIO}f,logical_block_size=4096,physical_block_size=4096,"
         "discard_granularity=8192"),
        (disk("type='raw'", "<iotune><total_iops_sec>500</total_iops_sec></iotune>"),
         f"-object throttle-group,id=g,limits.iops-total=500 {FILE} "
         f"-blockdev driver=throttle,node-name=t,throttle-group=g,file=f {VIRTIO}t"),
    ],
)  # fmt: skip
def test_the_two_readers_agree(devices: str, arguments: str) -> None:
    (ours,), (theirs,) = read(domain(devices)), read(f"qemu-system-x86_64 {arguments}")
    assert ours.problem is None
    assert ours.path == theirs.path
    for fact in ("source", "read_only", "drops_flushes", "ignored_errors", "shareable", "limits"):
        assert getattr(ours, fact) == getattr(theirs, fact), fact


@pytest.mark.parametrize(
    ("devices", "machine", "said"),
    [
        (disk(bus="scsi"), "q35", "controller 'lsilogic'"),
        (disk(bus="scsi"), "pseries-9.0", "controller 'ibmvscsi'"),
        (disk(bus="sd"), "virt", "bus 'sd'"),
        (disk(device="tape"), "q35", "device 'tape'"),
        (disk(device="lun", bus="scsi"), "q35", "SCSI commands go straight to the device"),
        (disk().replace("type='file'", "type='vhostuser'"), "q35", "vhost-user"),
        (disk().replace("type='file'", "type='nvme'"), "q35", "source is of type nvme"),
        ("<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/>"
         "<address bus='0' target='0' unit='0'/></source></hostdev>", "q35", "SCSI commands"),
        ("<hostdev mode='subsystem' type='scsi_host'><source protocol='vhost' wwpn='naa.1'/>"
         "</hostdev>", "q35", "SCSI commands"),
        ("<memory model='nvdimm'><source><path>/vm/a</path></source></memory>", "q35",
         "persistent memory (nvdimm)"),
        ("<filesystem><driver type='mtp'/><source dir='/vm'/><target dir='t'/></filesystem>", "q35",
         "its driver 'mtp'"),
        ("<filesystem type='block'><source dev='/dev/v/l'/><target dir='/'/></filesystem>", "q35",
         "file system 'block'"),
    ],
)  # fmt: skip
def test_each_device_that_may_be_a_disk_is_named(devices: str, machine: str, said: str) -> None:
    (found,) = read(domain(devices, machine))
    assert said in (found.problem or "")


@pytest.mark.parametrize("bus", ["sd", "xen", "scsi"])
def test_the_cache_mode_is_judged_whatever_the_bus_is(bus: str) -> None:
    (found,) = read(domain(disk("cache='unsafe'", bus=bus)))
    assert found.path is None
    assert risks(found) == (FlushesDropped(),)


@pytest.mark.parametrize(
    ("devices", "named"),
    [
        (disk("type='qcow2' copy_on_read='on'"), "copy_on_read=on"),
        (disk("type='raw' ioeventfd='off' event_idx='on'"), "ioeventfd=off"),
        (disk("type='raw' newer='x'"), "newer=x"),
        (disk("type='raw'", within=SLICE), "slices"),
        (disk("type='raw'", "<mirror type='file' job='copy'><source file='/vm/b'/></mirror>"),
         "mirror"),
        (disk("type='raw'", "<blockio logical_block_size='512' physical_block_size='4096'/>"),
         "physical_block_size=4096"),
        (disk("type='raw'", "<blockio discard_granularity='4096'/>", bus="ide"),
         "discard_granularity=4096"),
    ],
)  # fmt: skip
def test_settings_that_no_path_has_are_named(devices: str, named: str) -> None:
    (found,) = read(domain(devices))
    assert named in found.limits
    assert any(isinstance(risk, LimitsBeyondPath) for risk in risks(found))


def arguments(*arguments: str) -> str:
    inner = "".join(f"<qemu:arg value={quoteattr(word)}/>" for word in arguments)
    return f"<qemu:commandline>{inner}</qemu:commandline>"


@pytest.mark.parametrize(
    ("driver", "command_line", "path"),
    [
        ("", ("-set", "device.virtio-disk0.write-cache=off"),
         "raw/default/virtio:write_cache=off"),
        ("", ("-global", "virtio-blk-pci.write-cache=off"), "raw/default/virtio:write_cache=off"),
        ("cache='none'", ("-global", "virtio-blk-pci.write-cache=off"), "raw/none"),
        ("cache='none'", ("-set", "device.virtio-disk1.write-cache=off"), "raw/none"),
    ],
)  # fmt: skip
def test_arguments_that_change_libvirts_own_disks_are_read(
    driver: str, command_line: tuple[str, ...], path: str
) -> None:
    (found,) = read(domain(disk(driver), arguments=arguments(*command_line)))
    assert found.path == parse_path(path)


def test_other_properties_of_libvirts_disks_are_named() -> None:
    command_line = (
        "-set",
        "device.virtio-disk0.werror=ignore",
        "-global",
        "virtio-blk.seg-max-adjust=off",
    )
    (found,) = read(domain(disk(), arguments=arguments(*command_line)))
    assert ErrorsIgnored(
        ("writes",), "error_policy='stop' and rerror_policy='stop' in its <driver>"
    ) in risks(found)
    assert found.limits == ("seg-max-adjust=off",)


@pytest.mark.parametrize(
    ("command_line", "risk"),
    [
        (("-set", "drive.drive-virtio-disk0.cache=unsafe"), FlushesDropped()),
        (("-set", "drive.drive-virtio-disk0.cache.no-flush=on"), FlushesDropped()),
        (("-set", "drive.drive-virtio-disk0.snapshot=on"), WritesThrownAway()),
        (("-set", "drive.drive-virtio-disk0.werror=ignore"),
         ErrorsIgnored(("writes",), STOPPING_FOR_ALL[Platform.LIBVIRT])),
        (("-snapshot",), LimitsBeyondPath(("-snapshot",))),
        (("-set", "drive.other.cache=unsafe"),
         LimitsBeyondPath(("-set drive.other.cache=unsafe",))),
    ],
)  # fmt: skip
def test_arguments_that_change_a_drive_are_named(command_line: tuple[str, ...], risk: Risk) -> None:
    """libvirt before 6.0 gives its disks as -drive; QEMU ignores -snapshot for -blockdev."""
    (found,) = read(domain(disk(), arguments=arguments(*command_line)))
    assert risk in risks(found)
    assert " ".join(command_line) in found.limits


def test_an_argument_that_qemu_does_not_know_is_named() -> None:
    command_line = arguments("-drive file=/vm/b.img,if=virtio,cache=unsafe", "-snapshot")
    _, named = read(domain(disk(), arguments=command_line))
    assert "the one argument '-drive file=/vm/b.img" in (named.problem or "")
    set_later = ("-drive", "if=none,id=z,file=/vm/b.img", "-set", "drive.z.cache=unsafe")
    assert read(domain(disk(), arguments=arguments(*set_later)))[0].limits == ()


def test_what_waits_for_the_next_start_is_named() -> None:
    """`virsh dumpxml g; virsh dumpxml --inactive g`: what runs, and what is defined."""
    now = domain(disk("cache='none'"))
    later = domain(disk("cache='unsafe'") + disk("cache='none'", bus="sata"))
    first, new = read(f"{now}\n{later}\n")
    assert first.path == parse_path("raw/none")
    assert PendingLoss("raw/unsafe: its cache mode drops flushes") in risks(first)
    assert PendingChange("it is new") in risks(new)
    assert read(f"{now}\n{now}\n")[0].pending == ""
    (gone,) = read(f"{now}\n{domain('')}\n")
    assert gone.pending == "it is gone"


def test_a_snapshots_next_definition_is_read_too() -> None:
    later = domain(disk("cache='unsafe'")).replace("domain", "inactiveDomain")
    (found,) = read(f"<domainsnapshot>{domain(disk())}{later}</domainsnapshot>")
    assert "drops flushes" in found.pending


def test_an_encrypted_image_says_so_once() -> None:
    """The XML says it, and the image's header says it again."""
    (found,) = read(domain(disk("type='qcow2'", within=LUKS)))
    of_header = parse_path("qcow2:encrypt=luks/none").image
    path = disk_path(found, DiskContext(image=of_header))
    assert str(path) == "qcow2:encrypt=luks/default"


def test_what_librbd_encrypts_is_named() -> None:
    by_librbd = LUKS.replace("format='luks'", "format='luks2' engine='librbd'")
    source = f"<source protocol='rbd' name='p/i'><host name='h'/>{by_librbd}</source>"
    element = f"<disk type='network'><driver type='raw'/>{source}<target dev='vda'/></disk>"
    (found,) = read(domain(element))
    assert (str(found.path), found.limits) == ("rbd/default", ("encryption=luks2",))
