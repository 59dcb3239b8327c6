"""No platform's disk is called durable whose flushes are dropped, and none is missed in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import (
    Ephemeral,
    ErrorsIgnored,
    FlushAfterEachWrite,
    FlushesDropped,
    LimitsBeyondPath,
    NoDiscard,
    PendingLoss,
    Risk,
    WritesThrownAway,
)

QEMU = "qemu-system-x86_64 -m 1G "
IMAGE = "-drive file=/vm/one.img,format=raw,if=virtio"
STORAGES = GuestText(
    "dir: files\n\tpath /vm\n\nlvmthin: thin\n\tvgname fast\n\nzfspool: zp\n\tpool z/vm\n",
    "storage.cfg",
)


def read(text: str, name: str = "guest.sh") -> tuple[ConfiguredDisk, ...]:
    return read_guests([STORAGES, GuestText(text, name)])


def domain(disk: str, machine: str = "q35", devices: str = "") -> str:
    return (
        f"<domain type='kvm'><name>g</name><os><type arch='x86_64' machine='{machine}'>hvm</type>"
        f"</os><devices>{devices}{disk}</devices></domain>"
    )


def xml(driver: str = "", inside: str = "", kind: str = "type='file'", bus: str = "virtio") -> str:
    name = "sda" if bus == "scsi" else "vda"
    return (
        f"<disk {kind} device='disk'><driver name='qemu' {driver}/>"
        f"<source file='/vm/one.img'/><target dev='{name}' bus='{bus}'/>{inside}</disk>"
    )


NETWORK = xml("type='raw' cache='unsafe'", kind="type='network'")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("virtio0: lost:vm-3-disk-0,cache=unsafe\nmemory: 512\n", "3.conf"),
        ("scsi0: files:3/vm-3-disk-0.raw,cache=unsafe\nmemory: 512\n", "3.conf"),
        (domain(NETWORK), "g.xml"),
        (f"{QEMU}-drive file=https://host/x,format=raw,if=virtio,cache=unsafe", "guest.sh"),
        ("- {name: g, config: {}, devices: {d: {type: disk, pool: far, io.cache: unsafe}}}", "i"),
        ("- {name: g, config: {}, devices: {d: {type: disk, source: 'cephfs:fs/vol', "
         "io.cache: unsafe}}}", "i"),
    ],
)  # fmt: skip
def test_dropped_flushes_are_named_without_a_path(text: str, name: str) -> None:
    (disk,) = read(text, name)
    assert disk.path is None
    assert risks(disk) == (FlushesDropped(),)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (f"{IMAGE},cache.direct=on,cache.no-flush=on", "raw/directunsafe"),
        (f"{IMAGE},cache.no-flush=on", "raw/unsafe"),
        (f"{IMAGE},cache.direct=on", "raw/none"),
        (f"{IMAGE},cache=none,cache.direct=off", "raw/writeback"),
        (f"{IMAGE},cache.writeback=off", "raw/writethrough"),
        (f"{IMAGE},cache=off", "raw/none"),
        (f"-machine q35 {IMAGE.replace(',if=virtio', '')},cache=none", "raw/none/sata"),
        ("-machine q35 -hda /vm/one.img", "raw/default/sata"),
    ],
)
def test_the_cache_of_a_drive_is_read_in_each_spelling(arguments: str, path: str) -> None:
    (disk,) = read(QEMU + arguments)
    assert disk.path == parse_path(path)


@pytest.mark.parametrize(
    ("file", "form", "path"),
    [
        (",cache.no-flush=on", "", "qcow2/unsafe"),
        (",cache.direct=on,aio=native", "", "qcow2/none/virtio:aio=native"),
        ("", ",cache.direct=on", "qcow2/writeback"),
        ("", ",cache.no-flush=on", "qcow2/writeback"),
        ("", "", "qcow2/default"),
    ],
)
def test_the_files_node_decides_about_direct_and_flushes(file: str, form: str, path: str) -> None:
    nodes = (
        f"-blockdev driver=file,node-name=f,filename=/vm/a.qcow2{file} "
        f"-blockdev driver=qcow2,node-name=q,file=f{form} -device virtio-blk-pci,drive=q"
    )
    (disk,) = read(QEMU + nodes)
    assert disk.path == parse_path(path)


SECOND = "-drive file=/vm/two.img,format=raw,if=none,id=two,cache=unsafe -device {},drive=two"


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (SECOND.format("virtio-blk-pci-non-transitional"), "raw/unsafe"),
        (SECOND.format("virtio-blk-device"), "raw/unsafe"),
        (f"-device virtio-scsi-device,id=s {SECOND.format('scsi-disk')},bus=s.0",
         "raw/unsafe/scsi"),
        (SECOND.format("nvme-ns"), "raw/unsafe/nvme"),
        ("-blockdev driver=file,node-name=two,filename=/vm/two.img,cache.direct=on,"
         "cache.no-flush=on -device virtio-blk-pci,drive=two",
         "raw/directunsafe"),
    ],
)  # fmt: skip
def test_no_disk_is_missed(more: str, path: str) -> None:
    _, second = sorted(read(f"{QEMU}{IMAGE} {more}"), key=lambda disk: disk.source or "")
    assert second.path == parse_path(path)


@pytest.mark.parametrize(
    "file",
    ["$(realpath a.raw b.raw)", "`realpath a.raw`", '"$(dirname "$0")/a b.raw"', "$(a $(b c) d)"],
)
def test_a_shells_substitution_is_one_word(file: str) -> None:
    (disk,) = read(f"{QEMU}-drive file={file},format=raw,if=virtio,cache=unsafe\n")
    assert disk.path == parse_path("raw/unsafe")
    (named,) = read(f"{QEMU}$(cat my arguments)\n")
    assert "$(cat my arguments), which may describe a disk" in (named.problem or "")


@pytest.mark.parametrize(
    "arguments",
    [
        "-drive if=none,id=d,file=/vm/a.raw,format=raw,cache=unsafe",
        "-blockdev driver=file,node-name=f,filename=/vm/a.raw,cache.no-flush=on "
        "-blockdev driver=file,node-name=g,filename=/vm/b.raw "
        "-blockdev driver=quorum,node-name=q,children.0=g,children.1=f,vote-threshold=1 "
        "-device virtio-blk-pci,drive=q",
        "-blockdev driver=quorum,node-name=q,children.0.driver=file,children.0.filename=/vm/a.raw,"
        "children.0.cache.no-flush=on,vote-threshold=1 -device virtio-blk-pci,drive=q",
        "-blockdev driver=file,node-name=f,filename=/vm/a.raw,cache.no-flush=on "
        "-blockdev driver=blkverify,node-name=q,test=q,raw=f -device virtio-blk-pci,drive=q",
    ],
)
def test_flushes_are_judged_in_all_nodes_that_are_written(arguments: str) -> None:
    (disk,) = read(QEMU + arguments)
    assert risks(disk) == (FlushesDropped(),)


def test_a_line_that_continues_in_its_first_column_is_read() -> None:
    text = f"{QEMU}{IMAGE} \\\n-drive file=/vm/two.img,format=raw,if=virtio,cache=unsafe\n"
    assert [str(disk.path) for disk in read(text)] == ["raw/default", "raw/unsafe"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (SECOND.format("odd-disk"), "does not know the device 'odd-disk'"),
        ("-blockdev driver=nvme-io_uring,node-name=two,path=/dev/ng0n1 "
         "-device virtio-blk-pci,drive=two", "its storage is 'nvme-io_uring'"),
        ("-readconfig /vm/guest.cfg", "its configuration is in /vm/guest.cfg"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_named(arguments: str, said: str) -> None:
    (disk,) = read(QEMU + arguments)
    assert said in (disk.problem or "")
    assert read_guests([GuestText(f"{QEMU}-cdrom /a.iso {IMAGE}", "x")])[0].problem is None


KUBEVIRT = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: g}
spec: {template: {spec: {
  domain: {devices: {disks: [{name: v, disk: {bus: virtio}}]}}, volumes: [{name: v, %s}]}}}
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{QEMU}{IMAGE},cache=none -snapshot", "guest.sh"),
        (f"{QEMU}{IMAGE},cache=none,snapshot=on", "guest.sh"),
        (domain(xml("cache='none'", "<transient/>")), "g.xml"),
        ("virtio0: files:3/vm-3-disk-0.raw,snapshot=1\nmemory: 512\n", "3.conf"),
        *((KUBEVIRT % volume, "g.yaml") for volume in (
            "emptyDisk: {capacity: 1Gi}", "containerDisk: {image: i}",
            "ephemeral: {persistentVolumeClaim: {claimName: c}}",
        )),
    ],
)  # fmt: skip
def test_writes_that_are_thrown_away_are_the_first_risk(
    text: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (disk,) = read(text, name)
    assert risks(disk)[0] == (Ephemeral(disk.ephemeral) if disk.ephemeral else WritesThrownAway())
    assert bool(disk.ephemeral) is (name == "g.yaml")
    (tmp_path / name).write_text(text)
    (tmp_path / "storage.cfg").write_text(STORAGES.text)
    files = [str(tmp_path / file) for file in (name, "storage.cfg")]
    main(["audit", *files, "--need", "durable", "--format", "json"])
    (audited,) = json.loads(capsys.readouterr().out)["disks"]
    assert audited["lacks"] == {"durable": "what the guest writes is thrown away when it stops"}
    main(["advise", *files, "--format", "json"])
    (advised,) = json.loads(capsys.readouterr().out)["disks"]
    if disk.ephemeral:
        assert advised["advice"]["action"] == "keep"
        assert advised["advice"]["reason"].startswith(f"ephemeral by design ({disk.ephemeral}): ")


@pytest.mark.parametrize(
    ("disk", "machine", "devices", "path"),
    [
        (xml("cache='unsafe'", bus="scsi"), "q35",
         "<controller type='scsi' model='virtio-non-transitional'/>", "raw/unsafe/scsi"),
        (xml(inside="<shareable/>"), "q35", "", "raw/none"),
        (xml("cache='writeback'", "<shareable/>"), "q35", "", "raw/writeback"),
        (xml("type='qcow2' cache='none'",
             "<backingStore type='file'><format type='raw'/><source file='/vm/base'/>"
             "<backingStore/></backingStore>"), "q35", "", "qcow2:backing=1/none"),
    ],
)  # fmt: skip
def test_libvirts_words_are_read(disk: str, machine: str, devices: str, path: str) -> None:
    (found,) = read(domain(disk, machine, devices), "g.xml")
    assert found.path == parse_path(path)


def test_libvirts_disks_that_nobody_measures_say_why() -> None:
    (lsi,) = read(domain(xml(bus="scsi"), "pc"), "g.xml")
    assert "controller 'lsilogic'" in (lsi.problem or "")
    far = "<source file='/vm/m.qcow2'><dataStore type='network'><format type='raw'/></dataStore>"
    text = domain(xml("type='qcow2'")).replace("<source file='/vm/one.img'/>", f"{far}</source>")
    (store,) = read(text, "g.xml")
    assert "its data lie in a store of type network" in (store.problem or "")


def test_guests_that_share_a_disk_get_no_page_cache() -> None:
    (disk,) = read(domain(xml("cache='none'", "<shareable/>")), "g.xml")
    with pytest.raises(NotChangeableError, match="guests share the disk"):
        change_of(disk, parse_path("raw/writeback"))


def test_each_change_of_a_guest_saves_a_definition_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = domain(xml("cache='unsafe'") + xml("cache='unsafe'").replace("vda", "vdb"))
    undos = (change_of(disk, parse_path("raw/none")).undo for disk in read(both, "g.xml"))
    begun = [undo.partition(".before-")[0] for undo in undos]
    assert begun == ["virsh define g.vda", "virsh define g.vdb"]
    (tmp_path / "g.xml").write_text(both)
    assert main(["advise", str(tmp_path / "g.xml")]) == 0
    assert "# undo the changes to g from the last to the first" in capsys.readouterr().out


def test_proxmox_args_pending_changes_and_linked_clones_are_read() -> None:
    text = (
        "args: -drive file=/vm/x.img,format=raw,if=none,id=x,cache=unsafe -device nvme,drive=x\n"
        "virtio0: files:2/base-2-disk-0.qcow2/3/vm-3-disk-0.qcow2\n"
        "virtio1: zp:base-2-disk-0/vm-3-disk-1\nscsihw: virtio-scsi-pci\n"
        "scsi0: thin:vm-3-disk-2\n"
        "[PENDING]\nvirtio0: files:3/vm-3-disk-0.qcow2,cache=unsafe\n"
    )
    disks = {disk.target: disk for disk in read(text, "3.conf")}
    assert str(disks["x"].path) == "raw/unsafe/nvme"
    assert disks["virtio0"].source == "/vm/images/3/vm-3-disk-0.qcow2"
    assert "qcow2:backing=1/" in str(disks["virtio0"].path)
    assert disks["virtio1"].source == "/dev/zvol/z/vm/vm-3-disk-1"
    line = "files:3/vm-3-disk-0.qcow2,cache=unsafe"
    pending = PendingLoss(f"{line}: its cache mode drops flushes")
    assert pending in risks(disks["virtio0"])
    assert NoDiscard() in risks(disks["scsi0"])


def test_a_volume_that_nothing_uses_is_a_disk_of_kubevirt() -> None:
    text = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: g}
spec:
  template:
    spec:
      domain: {devices: {}}
      volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {volumeMode: Block}
"""
    (disk,) = read(text, "m.yaml")
    assert (disk.target, disk.source) == ("data", "c")
    assert disk.path == parse_path("none/sata:aio=native:discard=unmap")
    with pytest.raises(NotChangeableError, match="a volume without a disk"):
        change_of(disk, parse_path("writeback/sata:discard=unmap"))


def test_advice_makes_an_unsafe_device_safe_without_a_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.xml"
    disk = xml("cache='unsafe'", kind="type='block'").replace(
        "file='/vm/one.img'", "dev='/dev/sdz'"
    )
    file.write_text(domain(disk))
    assert main(["advise", str(file), "--format", "json"]) == 0
    advice = json.loads(capsys.readouterr().out)["disks"][0]["advice"]
    assert (advice["action"], advice["to"], advice["for_safety"]) == ("change", "none", True)
    file.write_text(domain(NETWORK))
    assert main(["advise", str(file)]) == 0
    assert "Flushes are dropped" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["1", "on", "yes", "True"])
def test_proxmox_says_yes_in_four_ways(word: str) -> None:
    """PVE::JSONSchema::parse_boolean."""
    thrown, kept = read(
        f"{PROXMOX}virtio0: /vm/a.raw,snapshot={word},iothread={word}\n"
        f"virtio1: /vm/b.raw,ro={word},cache=unsafe,detect_zeroes={word}\n",
        "3.conf",
    )
    assert WritesThrownAway() in risks(thrown)
    assert thrown.path is not None
    assert thrown.path.attachment.iothread
    assert kept.read_only
    assert kept.path is not None
    assert kept.path.attachment.detect_zeroes == "on"


PROXMOX = "name: g\nmemory: 512\nscsihw: virtio-scsi-single\n"
DISK = "virtio0: files:3/vm-3-disk-0.raw,detect_zeroes=0,aio=threads"


@pytest.mark.parametrize(
    ("args", "path", "risk"),
    [
        ("-set drive.drive-virtio0.cache=unsafe", "raw/unsafe", FlushesDropped()),
        ("-snapshot", "raw/none", WritesThrownAway()),
        ("-set device.virtio0.werror=ignore", "raw/none/virtio:werror=ignore",
         ErrorsIgnored(("writes",), "werror=stop,rerror=stop on its drive")),
        ("-global virtio-blk-pci.write-cache=off", "raw/none/virtio:write_cache=off",
         FlushAfterEachWrite()),
        ("-set drive.drive-virtio0.snapshot=yes", "raw/none", WritesThrownAway()),
        ("-set drive.drive-virtio0.cache.no-flush=on", "raw/none", FlushesDropped()),
        ("-set device.virtio0.event_idx=off", "raw/none", LimitsBeyondPath(("event_idx=off",))),
    ],
)  # fmt: skip
def test_args_of_proxmox_change_its_own_disks(args: str, path: str, risk: Risk) -> None:
    (disk,) = read(f"{PROXMOX}{DISK}\nargs: {args}\n", "3.conf")
    assert disk.path == parse_path(path)
    assert risk in risks(disk)


@pytest.mark.parametrize(
    ("pending", "said"),
    [
        ("scsi1: files:3/vm-3-disk-1.raw,cache=unsafe", {"scsi1": "it is new", "virtio0": ""}),
        ("delete: virtio0", {"virtio0": "it is gone"}),
        ("scsihw: lsi", {"virtio0": ""}),
        ("args: -set drive.drive-virtio0.cache=writeback", {"virtio0": "raw/writeback"}),
        (f"{DISK},werror=ignore", {"virtio0": f"{DISK[9:]},werror=ignore: a write or flush that "
         "fails is called good (its error policy is ignore)"}),
    ],
)  # fmt: skip
def test_all_that_proxmox_has_pending_is_named(pending: str, said: dict[str, str]) -> None:
    disks = read(f"{PROXMOX}{DISK}\n[PENDING]\n{pending}\n[old]\n{DISK},cache=unsafe\n", "3.conf")
    assert {disk.target: disk.pending for disk in disks} == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("scsi0: /dev/sda,scsiblock=1", "SCSI commands go straight to the device"),
        ("nvme0: files:3/vm-3-disk-7.raw,size=8G", "the slot 'nvme0'"),
        ("nvme0: files:vm-3-disk-7", "the slot 'nvme0'"),
        ("xyz12: /dev/sdb,cache=unsafe", "the slot 'xyz12'"),
        ("args: -drive 'file=/vm/a.img,if=virtio", "the one argument '-drive 'file=/vm/a.img"),
        ("virtio0: files:3/vm-3-cloudinit-data.raw", "None"),
    ],
)
def test_no_slot_of_proxmox_is_skipped(line: str, said: str) -> None:
    (disk,) = read(f"{PROXMOX}{line}\n", "3.conf")
    assert said in str(disk.problem)
    text = f"{PROXMOX}ide2: files:3/vm-3-cloudinit.qcow2\nefidisk0: files:3/e.raw,size=1M\n"
    assert read(text, "3.conf") == ()


def test_an_option_that_proxmox_has_not_yet_is_named() -> None:
    (disk,) = read(f"{PROXMOX}{DISK},turbo=1,ssd=1,size=8G,werror=ignore\n", "3.conf")
    assert disk.limits == ("turbo=1",)
    assert disk.ignored_errors == ("writes",)


def test_both_names_of_a_proxmox_volume_are_read() -> None:
    text = "virtio{}: {}=files:3/vm-3-disk-0.raw,cache=unsafe\n"
    found = read("memory: 512\n" + text.format(0, "file") + text.format(1, "volume"), "3.conf")
    assert [str(disk.path and disk.path.cache) for disk in found] == ["unsafe", "unsafe"]


def test_an_override_names_the_disk_by_the_alias_that_libvirt_gives_it() -> None:
    space = "http://libvirt.org/schemas/domain/qemu/1.0"
    override = (
        f"<q:override xmlns:q='{space}'><q:device alias='virtio-disk0'><q:frontend>"
        "<q:property name='werror' type='string' value='ignore'/>"
        "</q:frontend></q:device></q:override></domain>"
    )
    text = domain(xml("type='raw' cache='none'")).replace("</domain>", override)
    (disk,) = read(text, "g.xml")
    assert disk.ignored_errors == ("writes",)


_PCI = "<hostdev mode='subsystem' type='{}'><source><address {}/></source></hostdev>"


@pytest.mark.parametrize(
    ("text", "name", "device"),
    [
        (f"{QEMU}{IMAGE} -device vfio-pci,host=01:00.0", "guest.sh", "vfio-pci,host=01:00.0"),
        (f"{QEMU}{IMAGE} -device usb-host,hostbus=1", "guest.sh", "usb-host,hostbus=1"),
        ("memory: 512\nhostpci0: 01:00.0\nvirtio0: files:3/a.raw\n", "3.conf",
         "hostpci0: 01:00.0"),
        ("args: -device vfio-pci,host=2:0.0\nmemory: 512\nvirtio0: files:3/a.raw\n", "3.conf",
         "vfio-pci,host=2:0.0"),
        (domain(xml(), devices=_PCI.format("pci", "bus='6'")), "g.xml", "address bus='6'"),
        (domain(xml(), devices=_PCI.format("mdev", "uuid='c2-1'")), "g.xml", "address uuid='c2-1'"),
        (domain(xml(), devices="<hostdev mode='subsystem' type='usb'/>"), "g.xml", None),
        (KUBEVIRT.replace("disks:", "hostDevices: [{deviceName: v.com/nvme, name: d}], disks:")
         % "emptyDisk: {}", "g.yaml", "v.com/nvme"),
        ("- {name: g, config: {}, devices: {d: {type: disk, pool: p}, e: {type: pci, "
         "address: 0000:03:00.0}}}", "i", "0000:03:00.0"),
        ("- {name: g, config: {}, devices: {d: {type: disk, pool: p}, e: {address: 0000:03:00.0, "
         "type: pci}}}", "i", "0000:03:00.0"),
    ],
)  # fmt: skip
def test_a_device_of_the_host_that_may_be_a_disk_is_named(
    text: str, name: str, device: str | None
) -> None:
    notes: list[str] = []
    assert len(read_guests([STORAGES, GuestText(text, name)], notes)) == 1
    named = "" if device is None else f" ({device})"
    assert notes == [f"Left out: passed-through devices, which may hold disks{named}."]


def test_a_guest_that_has_nothing_else_is_refused_with_its_name(tmp_path: Path) -> None:
    guest = tmp_path / "g.xml"
    arguments = "<q:arg value='-device'/><q:arg value='vfio-pci,host=0000:03:00.0'/>"
    space = "http://libvirt.org/schemas/domain/qemu/1.0"
    guest.write_text(
        f"<domain xmlns:q='{space}'><name>g</name><devices/>"
        f"<q:commandline>{arguments}</q:commandline></domain>"
    )
    with pytest.raises(PlanError, match=r"may hold disks \(vfio-pci,host=0000:03:00.0\)\)$"):
        read_disks(LocalHost(), [guest], None)


def test_a_pending_loss_is_one_for_who_needs_durable_disks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = tmp_path / "102.conf"
    guest.write_text("memory: 512\nvirtio0: local:102/a.raw\n[PENDING]\nargs: -snapshot\n")
    main(["audit", str(guest), "--need", "durable", "--format", "json"])
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    loss = "what the guest writes is thrown away when it stops"
    assert disk["lacks"] == {"durable": f"from the guest's next start on {loss}"}
    assert disk["disk"]["pending_loss"] == loss


@pytest.mark.parametrize(
    ("storage", "discard", "grows"),
    [
        ("zfspool: t\n\tpool z\n\tsparse 1\n", "", True),
        ("zfspool: t\n\tpool z\n\tsparse 1\n", ",discard=on", False),
        ("zfspool: t\n\tpool z\n", "", False),
        ("rbd: t\n\tpool p\n", "", True),
    ],
)
def test_a_thin_volume_whose_discards_are_ignored_never_shrinks(
    storage: str, discard: str, grows: bool
) -> None:
    guest = f"memory: 512\nscsihw: virtio-scsi-pci\nscsi0: t:vm-3-disk-0{discard}\n"
    texts = [GuestText(storage, "storage.cfg"), GuestText(guest, "3.conf")]
    (disk,) = read_guests(texts)
    assert (NoDiscard() in risks(disk)) is grows


def test_a_disk_without_a_path_is_not_said_to_lack_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.sh").write_text(f"{QEMU}-readconfig /vm/guest.cfg\n")
    assert main(["audit", str(tmp_path / "g.sh"), "--need", "durable"]) == 0
    assert "durable (unknown)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name", "policy"),
    [
        ("scsihw: lsi\nscsi0: /srv/a.raw,werror=stop,rerror=stop,size=1G\n", "3.conf",
         "raw/scsi:rerror=stop:werror=stop"),
        ("scsihw: lsi\nscsi0: /srv/a.raw,size=1G\n", "3.conf", "raw/scsi"),
        ("qemu-system-x86_64 -device lsi53c895a,id=s -drive file=/srv/a.raw,format=raw,if=none,id=d"
         " -device scsi-hd,drive=d,bus=s.0,werror=report\n", "q.sh", "raw/scsi:werror=report"),
    ],
)  # fmt: skip
def test_a_controller_without_a_path_leaves_the_error_policy_known(
    text: str, name: str, policy: str
) -> None:
    (disk,) = read(text, name)
    assert "does not measure its controller" in str(disk.problem)
    assert disk.by_policy == parse_path(policy)
