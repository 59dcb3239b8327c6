"""What a configuration says that is not of today, not started, or said in its status alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.needs import nearest, parse_need
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import cannot_have, change_of, read_guests
from vdisklab.platforms.risk_kinds import CannotWork, NotOfToday, UnsafeBefore


def machine(
    disks: list[dict[str, object]],
    kind: str = "VirtualMachine",
    status: object = None,
    devices: dict[str, object] | None = None,
    **domain: object,
) -> str:
    devices = {"disks": disks, **(devices or {})}
    names = [disk["name"] for disk in disks]
    inner = {
        "domain": {**domain, "devices": devices},
        "volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names],
    }
    whole = inner if kind.endswith("Instance") else {"template": {"spec": inner}}
    documents = [
        {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "m"}, "spec": whole,
         "status": status or {}},
        *({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": n},
           "spec": {"volumeMode": "Block"}} for n in names if status is None),
    ]  # fmt: skip
    return json.dumps({"items": documents})


def read(text: str, name: str = "m.json") -> dict[str, ConfiguredDisk]:
    return {disk.target: disk for disk in read_guests([GuestText(text, name)])}


def virtio(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "disk": {"bus": "virtio"}, **more}


def scsi(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "disk": {"bus": "scsi"}, **more}


DEDICATED = {"dedicatedIOThread": True}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (machine([virtio("a", **DEDICATED), virtio("b")], ioThreadsPolicy="supplementalPool",
                 ioThreads={"supplementalPoolThreadCount": 3}),
         ["none/virtio:aio=native:discard=unmap:iothreads=3"] * 2),
        (machine([virtio("a", **DEDICATED), virtio("b")]),
         ["none/virtio:aio=native:discard=unmap:iothread=on"] * 2),
        (machine([scsi("a", **DEDICATED), scsi("b"), virtio("c")], cpu={"cores": 2, "sockets": 3}),
         ["none/scsi:aio=native:discard=unmap:iothread=on:queues=6"] * 2
         + ["none/virtio:aio=native:discard=unmap:iothread=on"]),
        (machine([scsi("a"), virtio("b", **DEDICATED)], cpu={"cores": 4}),
         ["none/scsi:aio=native:discard=unmap",
          "none/virtio:aio=native:discard=unmap:iothread=on"]),
        (machine([scsi("a", **DEDICATED)], ioThreadsPolicy="supplementalPool",
                 ioThreads={"supplementalPoolThreadCount": 3}),
         ["none/scsi:aio=native:discard=unmap"]),
        (machine([virtio("a")], devices={"blockMultiQueue": True},
                 resources={"requests": {"cpu": 5}}),
         ["none/virtio:aio=native:discard=unmap:queues=5"]),
    ],
)  # fmt: skip
def test_threads_of_kubevirt_are_those_of_its_converter(text: str, paths: list[str]) -> None:
    disks = read(text).values()
    assert [str(disk.path) for disk in disks] == paths
    refused = [str(risk) for disk in disks for risk in risks(disk) if isinstance(risk, CannotWork)]
    assert all("refuses dedicatedIOThread on bus scsi" in said for said in refused)
    assert len(refused) == text.count('"bus": "scsi"}, "dedicatedIOThread"')


@pytest.mark.parametrize(
    ("cache", "starts"),
    [("writeback", False), ("writethrough", False), ("none", True), ("directsync", False),
     (None, True)],
)  # fmt: skip
def test_kubevirt_starts_no_guest_that_shares_a_disk_in_its_page_cache(
    cache: str | None, starts: bool
) -> None:
    more = {"cache": cache} if cache else {}
    (disk,) = read(machine([scsi("q", shareable=True, **more)])).values()
    said = [str(risk) for risk in risks(disk) if isinstance(risk, CannotWork)]
    assert (said == []) is starts
    why = "refuses cache directsync" if cache == "directsync" else "a shareable disk requires"
    assert all(why in row for row in said)


def test_a_running_instance_says_the_mode_of_its_volumes() -> None:
    status = {
        "volumeStatus": [
            {"name": "a", "persistentVolumeClaimInfo": {"claimName": "a", "volumeMode": "Block"}},
            {"name": "b", "persistentVolumeClaimInfo": {"volumeMode": "Filesystem"}},
            {"name": "c", "target": "vdc"},
        ]
    }
    disks = read(machine([virtio("a"), virtio("b"), virtio("c")], "VirtualMachineInstance", status))
    assert str(disks["a"].path) == "none/virtio:aio=native:discard=unmap"
    assert (str(disks["b"].path), disks["b"].on_file_volume) == (
        "raw/none/virtio:discard=unmap",
        True,
    )
    assert "volumeMode of its claim 'c' is not known" in (disks["c"].problem or "")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_data_volume_that_leaves_its_mode_to_its_claim_hides_no_claim(place: int) -> None:
    leaves_it = {
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "a"},
        "spec": {"storage": {"resources": {"requests": {"storage": "20Gi"}}}},
    }  # fmt: skip
    documents = json.loads(machine([virtio("a")]))
    documents["items"].insert(place, leaves_it)
    (disk,) = read(json.dumps(documents)).values()
    assert str(disk.path) == "none/virtio:aio=native:discard=unmap"


DOMAIN = (
    "<domain type='kvm'><name>old</name><devices><disk type='file'><driver type='raw' "
    "cache='unsafe'/><source file='/a'/><target dev='vda'/></disk></devices></domain>"
)


@pytest.mark.parametrize("root", ["domainsnapshot", "domaincheckpoint"])
def test_a_definition_of_the_past_is_not_changed(root: str) -> None:
    (disk,) = read(f"<{root}><name>x</name>{DOMAIN}</{root}>", "s.xml").values()
    assert any(isinstance(risk, NotOfToday) for risk in risks(disk))
    with pytest.raises(NotChangeableError, match="not the guest of today"):
        change_of(disk, parse_path("raw/none"))
    (today,) = read(DOMAIN, "s.xml").values()
    assert change_of(today, parse_path("raw/none")).paste


START = "2025-0{0}-01 07:00:00.000+0000: starting up libvirt version: 10.0.0, qemu version: 8.2.2\n"


@pytest.mark.parametrize(("first", "last"), [("unsafe", "none"), ("none", "unsafe")])
def test_the_last_start_in_libvirts_log_holds(first: str, last: str) -> None:
    text = "".join(
        START.format(number)
        + "LC_ALL=C \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=g,debug-threads=on \\\n"
        + f"-drive file=/a,format=raw,if=virtio,cache={mode} \\\n-msg timestamp=on\n"
        for number, mode in ((1, "writeback"), (2, first), (3, last))
    )
    (disk,) = read_guests([GuestText(text, "g.log")])
    assert str(disk.path) == f"raw/{last}"
    assert any(isinstance(risk, UnsafeBefore) for risk in risks(disk)) is (first == "unsafe")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("file=/a,format=raw,if=virtio,cache=unsafe,readonly=on", False),
        ("file=/b,format=raw,if=virtio,cache=unsafe", False),
        ("file=/a,format=raw,if=virtio,snapshot=on", True),
        ("file=/a,format=raw,if=virtio,cache=", False),
    ],
)
def test_only_the_same_disk_was_unsafe_before(before: str, said: bool) -> None:
    text = "".join(
        START.format(number) + f"/usr/bin/qemu-system-x86_64 -name guest=g -drive {drive}\n"
        for number, drive in ((1, before), (2, "file=/a,format=raw,if=virtio,cache=none"))
    )
    (disk,) = read_guests([GuestText(text, "g.log")])
    assert any(isinstance(risk, UnsafeBefore) for risk in risks(disk)) is said


@pytest.mark.parametrize("both", [False, True])
def test_a_file_that_is_found_twice_is_read_once(tmp_path: Path, both: bool) -> None:
    for name, text in (
        ("nova.conf", "[libvirt]\nimages_type = raw\n"),
        ("7.conf", "memory: 512\nvirtio0: /a.raw\n"),
        ("storage.cfg", "dir: x\n\tpath /x\n"),
    ):
        (tmp_path / name).write_text(text)
    named = [tmp_path, tmp_path / "nova.conf", tmp_path / "7.conf"] if both else [tmp_path]
    found = read_disks(LocalHost(), named, None)
    assert sorted(disk.domain for disk in found.disks) == ["7", "nova"]


@pytest.mark.parametrize("cache", ["none", "writeback"])
@pytest.mark.parametrize("source", ["/dev/sdq", "/srv/a.raw"])
def test_incus_has_a_safe_path_for_an_nvme_disk(cache: str, source: str) -> None:
    device = {"type": "disk", "source": source, "io.bus": "nvme", "io.cache": cache}
    text = json.dumps([{"name": "g", "config": {}, "devices": {"d": device}}])
    (disk,) = read(text).values()
    assert disk.path is not None
    wanted = [parse_need("durable")]
    instead = nearest(disk.path, wanted, CrashVerdicts(), lambda path: cannot_have(disk, path))
    assert instead is not None
    assert (instead.attachment.bus, instead.cache, instead.image) == (
        "virtio", cache, disk.path.image,
    )  # fmt: skip


def test_an_instance_whose_profiles_are_elsewhere_is_told_the_one_command() -> None:
    text = "config: {}\ndevices: {}\nprofiles: [fast]\nname: g\n"
    (disk,) = read(text, "g.yaml").values()
    assert "give `incus list --format yaml`" in (disk.problem or "")
    assert "--expanded" not in (disk.problem or "")


def test_a_copy_of_proxmox_is_read_with_all_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "storage.cfg").write_text("lvmthin: thin\n\tvgname v\n")
    for node, vmid in (("a", 101), ("b", 102)):
        place = tmp_path / "nodes" / node / "qemu-server"
        place.mkdir(parents=True)
        (place / f"{vmid}.conf").write_text(f"memory: 512\nvirtio0: thin:vm-{vmid}-disk-0\n")
    (tmp_path / "qemu-server").symlink_to("nodes/a/qemu-server")  # as pmxcfs has it
    found = read_disks(LocalHost(), [tmp_path], None)
    assert [f"{disk.guest} {disk.path and disk.path.stack}" for disk in found.disks] == [
        "101 lvmthin", "102 lvmthin",
    ]  # fmt: skip


@pytest.mark.parametrize("named", [".", "nodes/a/qemu-server", "nodes/a/qemu-server/101.conf"])
def test_a_copy_of_proxmox_without_links_has_each_guest_once(tmp_path: Path, named: str) -> None:
    """`cp -rL /etc/pve copy`: qemu-server is a directory, and storage.cfg lies three levels up."""
    (tmp_path / "storage.cfg").write_text("lvmthin: thin\n\tvgname v\n")
    for place in ("nodes/a/qemu-server", "qemu-server"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "101.conf").write_text("memory: 512\nvirtio0: thin:vm-101-disk-0\n")
    found = read_disks(LocalHost(), [tmp_path / named], None)
    assert [f"{disk.guest} {disk.path and disk.path.stack}" for disk in found.disks] == [
        "101 lvmthin"
    ]
