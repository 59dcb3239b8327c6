"""Incus, KubeVirt and OpenStack: settings beside the disk that change it, or may hold one."""

from __future__ import annotations

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import FlushesDropped

INCUS = """name: g
type: virtual-machine
config: {%s}
devices: {root: {type: disk, path: /, source: /srv/a.img%s}}
"""


def read(text: str, *more: GuestText) -> tuple[ConfiguredDisk, ...]:
    return read_guests([GuestText(text, "g.yaml"), *more])


def test_arguments_that_incus_gives_to_qemu_are_read() -> None:
    arguments = "-drive file=/x.img,format=raw,if=virtio,cache=unsafe -global scsi-hd.werror=ignore"
    root, other = read(INCUS % (f"raw.qemu: '{arguments}'", ""))
    assert root.ignored_errors == ("writes",)
    assert other.path == parse_path("raw/unsafe")
    (scripted,) = read(INCUS % ("raw.qemu.conf: '[drive]'", ", turbo: 1"))
    assert scripted.limits == ("turbo=1", "raw.qemu.conf")
    (kept,) = read(INCUS % ("raw.qemu: '-snapshot'", ", readonly: 1"))
    assert (kept.limits, kept.read_only) == (("-snapshot",), True)
    _, broken = read(INCUS % ("raw.qemu: '-drive \"file=/x'", ""))
    assert "the one argument" in (broken.problem or "")


def test_profiles_of_incus_that_are_not_here_are_named() -> None:
    _, named = read((INCUS % ("", "")) + "profiles: [default, fast]\n")
    assert "the devices of its profiles (default, fast) are not here" in (named.problem or "")
    assert len(read((INCUS % ("", "")) + "profiles: [a]\nexpanded_devices: {}\n")) == 1


def test_a_file_with_config_in_its_name_is_a_disk_of_incus() -> None:
    (disk,) = read((INCUS % ("", "")).replace("/srv/a.img", "'/srv/a:config.img'"))
    assert disk.source == "/srv/a:config.img"


MACHINE = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: g, namespace: n}
spec:
  %s
  template:
    metadata: {annotations: {%s}}
    spec:
      domain: {devices: {disks: [{name: a%s}]}}
      volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c, namespace: n}
spec: {volumeMode: Block}
"""
PREFERENCE = """---
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterPreference
metadata: {name: p}
spec: {devices: {preferredDiskBus: virtio, preferredDiskCache: writeback}}
"""
NAMED = "preference: {name: p}"


def kubevirt(
    spec: str = "runStrategy: Always", disk: str = "", more: str = "", notes: str = ""
) -> ConfiguredDisk:
    (found,) = read(MACHINE % (spec, notes, disk) + more)
    return found


@pytest.mark.parametrize(
    ("disk", "path"),
    [
        ("", "writeback/virtio:discard=unmap"),
        (", disk: {bus: sata}", "writeback/sata:discard=unmap"),
        (", cache: none", "none/virtio:aio=native:discard=unmap"),
    ],
)
def test_what_a_preference_says_holds_where_the_disk_says_nothing(disk: str, path: str) -> None:
    assert kubevirt(NAMED, disk, PREFERENCE).path == parse_path(path)


def test_a_preference_that_is_not_here_is_named() -> None:
    assert "preference 'p' sets what the disk leaves out, but is not here" in (
        kubevirt(NAMED).problem or ""
    )
    inferred = kubevirt("preference: {inferFromVolume: a}")
    assert "preference '?' sets what the disk leaves out, but is not here" in (
        inferred.problem or ""
    )
    whole = kubevirt(NAMED, ", disk: {bus: virtio}, cache: none")
    assert whole.path == parse_path("none/virtio:aio=native:discard=unmap")


def test_instance_types_and_hooks_are_named_or_read() -> None:
    assert kubevirt("instancetype: {name: u1}").limits == ("instancetype=u1",)
    kind = PREFERENCE.replace("Preference", "Instancetype")
    kind = kind[: kind.index("spec")] + "spec: {cpu: {guest: 4}, ioThreadsPolicy: auto}\n"
    found = kubevirt("instancetype: {name: p}", ", disk: {bus: virtio}", kind)
    assert (found.limits, str(found.path)) == (
        (), "none/virtio:aio=native:discard=unmap:iothread=on",
    )  # fmt: skip
    hooks = "hooks.kubevirt.io/hookSidecars: x"
    assert "hookSidecars" in kubevirt(notes=hooks).may_differ


def test_words_of_a_kubevirt_disk_are_read_or_named() -> None:
    found = kubevirt(disk=", errorPolicy: ignore, shareable: true, turbo: 1, cache: unsafe")
    assert (found.ignored_errors, found.shareable) == (("writes", "reads"), True)
    assert (found.limits, found.drops_flushes) == (("turbo=1",), True)


SERVER = """{"name": "g", "id": "u", "image": {"id": "i"}, "volumes_attached": [{"id": "v"}],
 "flavor": {"vcpus": 1, "ram": 512, "ephemeral": 20, "swap": 0}}"""


def test_openstacks_unsafe_modes_count_for_volumes_and_unknown_storage() -> None:
    host = "[libvirt]\nimages_type = {}\ndisk_cachemodes = {}\n"

    def found(kind: str, modes: str) -> dict[str, bool]:
        nova = GuestText(host.format(kind, modes), "nova.conf")
        disks = [disk for disk in read(SERVER, nova) if disk.guest == "g"]
        return {disk.target: FlushesDropped() in risks(disk) for disk in disks}

    assert found("rbd", "network=unsafe") == {"root": True, "eph0": True, "v": True}
    assert found("raw", "file=unsafe") == {"root": True, "eph0": True, "v": False}
    assert found("raw", "block=unsafe") == {"root": False, "eph0": False, "v": True}


def test_openstack_turns_the_cache_of_a_shared_volume_off() -> None:
    nova = GuestText("[libvirt]\nimages_type = raw\ndisk_cachemodes = block=unsafe\n", "nova.conf")
    volume = GuestText('{"id": "v", "multiattach": true, "os-vol-host-attr:host": "h@b#p"}', "v")
    found = next(disk for disk in read(SERVER, nova, volume) if disk.target == "v")
    assert (found.shareable, risks(found)) == (True, ())


PROFILES = """config: {raw.qemu: '-snapshot'}
description: Default Incus profile
devices:
  eth0: {name: eth0, network: incusbr0, type: nic}
  root: {path: /, pool: local, type: disk, io.cache: writeback}
name: default
used_by: [/1.0/instances/web]
---
config: {}
devices:
  root: {path: /, pool: fast, type: disk}
  data: {pool: local, source: dbvol, type: disk, io.bus: nvme}
name: fastdisk
used_by: [/1.0/instances/web]
---
config: {}
devices: {root: {path: /, pool: local, type: disk}}
name: unused
used_by: []
"""
WEB = """architecture: x86_64
config: {limits.cpu: '4'}
devices: {logs: {pool: local, source: logs, type: disk}}
name: web
profiles: [NAMES]
type: virtual-machine
"""
POOLS = """- {name: local, driver: dir, config: {source: /srv/local}}
- {name: fast, driver: lvm, config: {}}
"""


@pytest.mark.parametrize("in_one_text", [True, False])
def test_profiles_of_incus_that_are_given_too_are_those_of_the_instance(in_one_text: bool) -> None:
    guest = WEB.replace("NAMES", "default, fastdisk")
    texts = [GuestText(PROFILES, "p.yaml"), GuestText(guest, "web.yaml")]
    if in_one_text:
        texts = [GuestText(f"{PROFILES}---\n{guest}", "all.yaml")]
    disks = read_guests([*texts, GuestText(POOLS, "pools.yaml")])
    assert {(disk.domain, disk.target): str(disk.path) for disk in disks if disk.path} == {
        ("web", "root"): "lvmthin/none/scsi:aio=io_uring:discard=unmap",
        ("web", "data"): "raw/none/nvme:aio=io_uring:discard=unmap",
        ("web", "logs"): "raw/none/scsi:aio=io_uring:discard=unmap",
        ("profile unused", "root"): "raw/none/scsi:aio=io_uring:discard=unmap",
    }
    assert all(disk.path for disk in disks)
    assert {disk.limits for disk in disks if disk.domain == "web"} == {("-snapshot",)}
    inherited = next(disk for disk in disks if (disk.domain, disk.target) == ("web", "root"))
    assert change_of(inherited, parse_path("lvmthin/writeback/scsi:discard=unmap")).paste == (
        "incus config device override web root io.cache=writeback"
    )


def test_only_the_profiles_that_are_missing_are_asked_for() -> None:
    guest = WEB.replace("NAMES", "default, other, fastdisk")
    disks = read_guests([GuestText(PROFILES, "p.yaml"), GuestText(guest, "web.yaml")])
    (problem,) = [disk.problem for disk in disks if disk.target == "?"]
    assert problem is not None
    assert problem.startswith("the devices of its profiles (other) are not here")


def test_a_shared_directory_of_incus_may_cache_metadata() -> None:
    """validateConfig in device/disk.go has words of its own for directories."""
    text = (
        "name: web\ntype: virtual-machine\ndevices:\n"
        "  share: {path: /mnt/s, source: /srv/s, type: disk, io.cache: WORD}\n"
    )
    for word, is_refused in (("metadata", False), ("none", False), ("writethrough", True)):
        (disk,) = read_guests([GuestText(text.replace("WORD", word), "web.yaml")])
        assert (disk.refused is not None) is is_refused
        assert disk.path is None
