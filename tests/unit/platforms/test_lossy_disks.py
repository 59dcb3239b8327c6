"""What was proved to lose flushed data is named in every platform's form, and never exported."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vdisklab.answers.export import answer_export
from vdisklab.errors import PlanError
from vdisklab.host.blockdevice import (
    StackedDevice,
    lost_in,
    without_flushes_in,
)
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.memory_names import RAM_DISK, memory_by_name
from vdisklab.path.needs import parse_need, unmet
from vdisklab.path.segments import ImageFormat
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.conversion import remedy_for
from vdisklab.platforms.disk_context import disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import forms, read_guests
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow, LossyImage
from vdisklab.value import replace

DURABLE = parse_need("durable")
SHM = "/dev/" + "shm"  # a name, which nothing here opens
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


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("/dev/zram0", "zram"), ("/dev/zram12", "zram"), ("/dev/ram0", RAM_DISK),
        ("/dev/ram15p1", RAM_DISK), (f"{SHM}/a/b.raw", "tmpfs"), ("//dev//shm/x", "tmpfs"),
        ("/srv/../dev/shm/x", "tmpfs"), ("/run/vm/a.qcow2", "tmpfs"), ("/var/run/a.raw", "tmpfs"),
        ("/run/media/me/STICK/a.raw", None), ("/dev/sda", None), (f"{SHM}oo", None),
        ("/srv/run/a.raw", None), ("/dev/rams", None), ("/dev/mapper/zram0", None),
    ],
)  # fmt: skip
def test_memory_is_known_by_its_name(source: str, kind: str | None) -> None:
    assert memory_by_name(source) == kind


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("qemu-system-x86_64 -drive file=/dev/zram71,format=raw,if=virtio,cache=directsync", "x"),
        ("virtio0: /dev/ram77,cache=none\nmemory: 512\n", "9.conf"),
        ("- {name: g, config: {}, devices: {d: {type: disk, source: /dev/zram72}}}", "i.yaml"),
        ("<domain><name>g</name><devices><disk type='file'><driver type='raw' cache='none'/>"
         "<source file='/dev/shm/no/such.raw'/><target dev='vda'/></disk></devices></domain>", "x"),
        ("<domain><name>g</name><devices><disk type='file'><driver type='qcow2' cache='none'/>"
         "<source file='/no/such.qcow2'/><backingStore type='file'><format type='qcow2'/>"
         "<source file='/no/base.qcow2'/><backingStore type='file'><format type='raw'/>"
         "<source file='/dev/shm/no/such.raw'/><backingStore/></backingStore></backingStore>"
         "<target dev='vda'/></disk></devices></domain>", "x"),
        ("qemu-system-x86_64 -drive file=/run/nosuch/b,if=none,id=a -device odd-disk,drive=a", "x"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("host_disk", HostDisk)
def test_a_disk_in_memory_is_never_durable(text: str, name: str, host_disk: HostDisk) -> None:
    (disk,) = read(text, name)
    (context,) = read_contexts([disk])
    found = risks(disk, replace(context, disk=host_disk))
    assert any(isinstance(risk, FlushesDroppedBelow) and "memory" in str(risk) for risk in found)


@pytest.mark.parametrize("names", ["backing", "data_file"])
def test_an_image_with_a_file_in_memory_below_it_is_not_durable(tmp_path: Path, names: str) -> None:
    """Its header says it; the file is not opened."""
    image, other = tmp_path / "over.qcow2", f"{SHM}/no-such-{tmp_path.name}"
    if names == "backing":
        options = ["-u", "-F", "raw", "-b", other, str(image), "8M"]
    else:
        Path(other).unlink(missing_ok=True)
        options = ["-o", f"data_file={other}", str(image), "8M"]
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options], check=True)
    Path(other).unlink(missing_ok=True)
    (disk,) = read(f"qemu-system-x86_64 -drive file={image},format=qcow2,if=virtio,cache=none")
    (context,) = read_contexts([disk])
    assert context.lost_below == f"{other}, a file below its image, is memory (tmpfs)"


def device(name: str, file: str | None = None, *below: StackedDevice) -> StackedDevice:
    place = None if file is None else Path(file)
    return StackedDevice(name, None, None, None, "write back", None, below, place)


def test_what_is_below_a_device_of_this_host_counts() -> None:
    in_memory = device("loop7", f"{SHM}/a.raw")
    assert lost_in(in_memory) == "loop7 is a file on tmpfs, which is memory"
    assert lost_in(device("dm-0", None, device("md0", None, device("zram1")))) == "zram1 is memory"
    assert lost_in(device("dm-0", None, device("sda"), in_memory)) == lost_in(in_memory)
    assert lost_in(device("dm-0", None, device("sda"))) is None
    told = replace(device("loop8", "/proc/self/exe"), write_cache="write through")
    assert "no flush reaches its file" in (without_flushes_in(told) or "")


GUEST = "qemu-system-x86_64 -name c -drive file={},format=raw,if=virtio,cache=none\n"
NODE = "--blockdev driver=file,node-name=f,filename=/a,cache.no-flush={}"


@pytest.mark.parametrize(
    ("server", "place", "why"),
    [
        ("qemu-nbd -k /s -f raw --cache unsafe /a", "nbd+unix:///?socket=/s", "cache mode unsafe"),
        ("sudo qemu-nbd -fraw -t -p 10810 \\\n  --cache=unsafe /a", "nbd://localhost:10810/x",
         "cache mode unsafe"),
        (f"qemu-nbd -t {SHM}/a", "nbd:127.0.0.1:10809", "is memory (tmpfs)"),
        ("qemu-nbd --connect=/dev/nbd3 -f vmdk /a", "/dev/nbd3p1", "vmdk may give out"),
        ("qemu-nbd -s -c /dev/nbd3 /a", "/dev/nbd3", "throws all writes away"),
        ("nbdkit --unix /s memory 1G", "nbd+unix:///?socket=/s", "keeps nothing"),
        ("nbdkit -U /s ondemand dir=/dev/shm/d 1G", "nbd+unix:///e?socket=/s", "is memory (tmpfs)"),
        ("nbdkit -p 10811 --filter=fua file /a fuamode=discard", "nbd://127.0.0.1:10811",
         "discards flushes"),
        ("nbdkit -U /s --filter=cache file file=/a cache=unsafe", "nbd+unix:///x?socket=/s",
         "ignores flushes"),
        (f"qemu-storage-daemon {NODE.format('on')} --nbd-server addr.type=unix,addr.path=/s "
         "--export type=nbd,id=e,node-name=f,name=d,writable=on", "nbd+unix:///d?socket=/s",
         "cache mode unsafe"),
        ("bash -c 'qemu-nbd -k /s -f raw --cache unsafe /a'", "nbd+unix:///?socket=/s",
         "cache mode unsafe"),
    ],
)  # fmt: skip
def test_an_nbd_server_in_the_same_file_answers_for_its_flushes(
    server: str, place: str, why: str
) -> None:
    (disk,) = read(f"#!/bin/sh\n{server}\n{GUEST.format(place)}")
    assert why in (disk.lost_below or "")
    texts = [GuestText(f"{server}\n", "server.sh"), GuestText(GUEST.format(place), "guest.sh")]
    if not server.startswith("bash"):
        (apart,) = read_guests(texts)
        same = replace(disk, domain="c", below_instead="", origin="guest.sh")
        assert replace(apart, below_instead="") == same
        assert apart.below_instead.startswith("Change its server in line 1 of server.sh: ")


TGT = "tgtadm --lld iscsi --op new --mode target --tid 1 -T iqn.a:pg"
UNIT = "tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b"


@pytest.mark.parametrize(
    ("server", "place", "why"),
    [
        ("nbdkit -p 10820 --filter=cow file /a\nnbd-client localhost 10820 /dev/nbd2",
         "/dev/nbd2p1", "filter cow throws"),
        ("nbdkit -U /s --filter=cow file /a\nnbd-client -unix /s /dev/nbd2 -N x",
         "/dev/nbd2", "filter cow throws"),
        (f"losetup -o 512 /dev/loop5 {SHM}/a", "/dev/loop5", "is memory (tmpfs)"),
        (f"L=$(losetup -f --show {SHM}/a)", "$L", "is memory (tmpfs)"),
        ("mount -t tmpfs -o size=9G none /mnt/m", "/mnt/m/a", "/mnt/m is memory (tmpfs)"),
        (f"{TGT}\n{UNIT} {SHM}/a", "iscsi://127.0.0.1/iqn.a:pg/1", "is memory (tmpfs)"),
        (f"{TGT}\n{UNIT} /a -E null", "iscsi://127.0.0.1/iqn.a:pg/1", "keeps nothing"),
    ],
)  # fmt: skip
def test_a_device_that_a_command_beside_the_guest_makes_of_memory_keeps_nothing(
    server: str, place: str, why: str
) -> None:
    (disk,) = read(f"#!/bin/sh\n{server}\n{GUEST.format(place)}")
    assert why in (disk.lost_below or "")


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("nbdkit -p 10820 --filter=cow file /a\nnbd-client nas 10820 /dev/nbd2", "/dev/nbd2"),
        (
            "nbdkit -p 10820 --filter=cow file /a\nnbd-client localhost 10820 /dev/nbd2",
            "/dev/nbd21",
        ),
        ("losetup /dev/loop5 /srv/a", "/dev/loop5"),
        (f"losetup /dev/loop5 {SHM}/a", "/dev/loop6"),
        ("mount -t tmpfs none /mnt/m", "/mnt/more/a"),
        ("mount -t ext4 /dev/sdb /mnt/m # no tmpfs", "/mnt/m/a"),
        (f"{TGT}\n{UNIT} {SHM}/a", "iscsi://127.0.0.1/iqn.a:pg/2"),
        (f"{TGT}\n{UNIT} {SHM}/a", "iscsi://nas/iqn.a:pg/1"),
    ],
)
def test_another_device_of_the_host_keeps_what_it_has(server: str, place: str) -> None:
    (disk,) = read(f"#!/bin/sh\n{server}\n{GUEST.format(place)}")
    assert disk.lost_below is None


@pytest.mark.parametrize("place", ["$nbd", "$uri", "${uri}", "nbd:unix:$unixsocket"])
def test_a_guest_that_nbdkit_runs_has_the_disk_of_nbdkit(place: str) -> None:
    inner = GUEST.format(place).strip()
    (disk,) = read(f"nbdkit -U - memory 10G --run 'exec {inner}'\n")
    assert "plugin memory keeps nothing" in (disk.lost_below or "")
    other = f"nbdkit -U - file /a --run 'exec {inner.replace('-name c', '-name d')}'\n"
    both = read(f"nbdkit -U - memory 10G --run 'exec {inner}'\n{other}")
    assert [(disk.domain, disk.lost_below is None) for disk in both] == [("c", False), ("d", True)]


@pytest.mark.parametrize(
    ("server", "instead"),
    [
        ("qemu-nbd -t -k /s -f raw --cache unsafe /a",
         "write --cache=writeback in place of --cache=unsafe"),
        ("qemu-nbd -s -k /s /a", "leave out --snapshot"),
        ("qemu-nbd -k /s -f vmdk /a", "serve an image of another format than vmdk"),
        (f"qemu-nbd -k /s {SHM}/a", "serve a file or device on a disk"),
        ("nbdkit -U /s --filter=cache file file=/a cache=unsafe",
         "write cache=writeback in place of cache=unsafe"),
        ("nbdkit -U /s --filter=fua file /a fuamode=discard",
         "write fuamode=pass in place of fuamode=discard"),
        ("nbdkit -U /s --filter=cow file /a", "leave out --filter=cow"),
        ("nbdkit -U /s memory 1G", "serve a file with its plugin file: nbdkit file FILE"),
        (f"qemu-storage-daemon {NODE.format('on')} --nbd-server addr.type=unix,addr.path=/s "
         "--export type=nbd,id=e,node-name=f,name=,writable=on",
         "write cache.no-flush=off in its --blockdev"),
    ],
)  # fmt: skip
def test_what_to_change_at_the_server_is_said_with_its_line(server: str, instead: str) -> None:
    (disk,) = read(f"#!/bin/sh\nset -e\n{server}\n{GUEST.format('nbd+unix:///?socket=/s')}")
    said = [str(risk) for risk in risks(disk)]
    assert any(f"Change its server in line 3 of start.sh: {instead}." in each for each in said)


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("qemu-nbd -k /s -f raw --cache none /a", "nbd+unix:///?socket=/s"),
        ("qemu-nbd -k /other --cache unsafe /a", "nbd+unix:///?socket=/s"),
        ("qemu-nbd -p 10810 --cache unsafe /a", "nbd://nas:10810"),
        ("qemu-nbd -c /dev/nbd3 --cache unsafe /a", "/dev/nbd31"),
        ("nbdkit -U /s --filter=fua file /a fuamode=pass", "nbd+unix:///?socket=/s"),
        (f"qemu-storage-daemon {NODE.format('off')} --nbd-server addr.type=unix,addr.path=/s "
         "--export type=nbd,id=e,node-name=f,name=d,writable=on", "nbd+unix:///d?socket=/s"),
    ],
)  # fmt: skip
def test_another_server_and_one_that_flushes_change_nothing(server: str, place: str) -> None:
    (disk,) = read(f"#!/bin/sh\n{server}\n{GUEST.format(place)}")
    assert disk.lost_below is None


@pytest.mark.parametrize(
    ("form", "remedy"),
    [
        *((form, "`{ test ! -e '/s v/a.x.qcow2' || ! echo '/s v/a.x.qcow2 is there already' >&2; } "
           f"&& qemu-img convert -p -f {form} -O qcow2 '/s v/a.x' '/s v/a.x.qcow2.part' && mv -n "
           "'/s v/a.x.qcow2.part' '/s v/a.x.qcow2'`") for form in ("vmdk", "vdi")),
        ("qcow2,lazy-refcounts=on", "`qemu-img amend -o lazy_refcounts=off '/s v/a.x'`"),
    ],
)  # fmt: skip
def test_the_remedy_of_a_lossy_image_names_its_file(form: str, remedy: str) -> None:
    (disk,) = read(f"qemu-system-x86_64 -drive 'if=virtio,file=/s v/a.x,format={form},cache=none'")
    (risk,) = (risk for risk in risks(disk) if isinstance(risk, LossyImage))
    assert remedy in str(risk)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_conversion_fails_aloud_where_its_new_name_is_taken(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "qemu-img"
    fake.write_text('#!/bin/sh\nshift 6\necho "of $1" > "$2"\n')
    fake.chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}

    def convert(name: str) -> subprocess.CompletedProcess[str]:
        said = remedy_for(tmp_path / name, ImageFormat(name.rpartition(".")[2]))
        line = said.split("`")[1]
        return subprocess.run(
            [shell, "-c", line], env=path, capture_output=True, text=True, check=False
        )

    assert [convert(name).returncode for name in ("a.vmdk", "a.vdi")] == [0, 0]
    for name in ("a.vmdk", "a.vdi"):
        assert (tmp_path / f"{name}.qcow2").read_text() == f"of {tmp_path / name}\n"
        again = convert(name)
        assert again.returncode != 0
        assert f"{name}.qcow2 is there already" in again.stderr


@pytest.mark.parametrize(
    ("before", "place", "part"),
    [
        ("mount -o noatime,nobarrier /dev/vg/vm /mnt/vm", "/mnt/vm/a.raw", "`nobarrier`"),
        ("mount /dev/vg/vm /mnt/vm -o barrier=0", "/mnt/vm/a.raw", "`barrier=0`"),
        ("mkfs.ext4 /dev/ram0 && mount /dev/ram0 /mnt/vm", "/mnt/vm/a.raw", "a RAM disk"),
        ("zfs set sync=disabled tank/vm", "/tank/vm/a.raw", "sync=disabled"),
        ("sudo zfs create -o sync=disabled tank/vm", "/dev/zvol/tank/vm/web", "sync=disabled"),
        ("zfs create -V 10G -o sync=disabled tank/web", "/dev/zvol/tank/web", "sync=disabled"),
        ("nbd-server 10810 /srv/a.img -c", "nbd://localhost:10810", "(-c)"),
        ("nbd-server 127.0.0.1@10810 /srv/a.img", "nbd://localhost:10810", "offers no flush"),
        ("mount -o nobarrier,barrier /dev/vg/vm /mnt/vm", "/mnt/vm/a.raw", ""),
        ("mount -o nobarrier /dev/vg/vm /mnt/other", "/mnt/vm/a.raw", ""),
        ("zfs set sync=always tank/vm", "/tank/vm/a.raw", ""),
        ("nbd-server -C /etc/nbd-server/config", "nbd://localhost:10809", ""),
    ],
)
def test_what_a_command_beside_the_guest_takes_away_is_lost(
    before: str, place: str, part: str
) -> None:
    command = f"qemu-system-x86_64 -name g -drive file={place},format=raw,if=virtio,cache=none"
    (disk,) = read_guests([GuestText(f"#!/bin/sh\n{before}\n{command}\n", "vm.sh")])
    assert (part in (disk.lost_below or "")) if part else disk.lost_below is None
