"""Guests of one name, in one file or in several, and what they are called then."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.told_apart import told_apart

QUADLET = "[Container]\nImage=docker.io/qemux/qemu:7\nEnvironment=DISK_CACHE={}\n{}"
COMPOSE = 'services:\n  vm:\n    image: qemux/qemu\n    environment: {{DISK_CACHE: "{}"}}\n'
QEMU = "qemu-system-x86_64 {}-drive file=/srv/{},format=raw,if=virtio,cache={}\n"
RUN = "docker run -d {}-e DISK_CACHE={} -v /srv/{}:/storage qemux/qemu\n"
CONF = "name: web\nvirtio0: local:vm-{}-disk-0,cache={},size=8G\n"
CLAIM = "volumes: [{name: root, persistentVolumeClaim: {claimName: a}}]"
VM = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: web, namespace: {}}}
spec: {{template: {{spec: {{domain: {{devices: {{disks: [{{name: root, disk: {{bus: virtio}}}}]}}}},
 {}}}}}}}
"""


def names(*texts: tuple[str, str]) -> list[str]:
    disks = read_guests([GuestText(text, origin) for origin, text in texts])
    return [disk.domain for disk in told_apart(disks)]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        # Quadlets by their files, as systemd calls their units.
        ([("q/a.container", QUADLET.format("unsafe", "")),
          ("q/b.container", QUADLET.format("none", ""))], ["a", "b"]),
        ([("q/a.container", QUADLET.format("unsafe", "ContainerName=one\n"))], ["one"]),
        # Services of one name in two projects.
        ([("one/compose.yaml", COMPOSE.format("unsafe")),
          ("two/compose.yaml", COMPOSE.format("none"))], ["vm (one)", "vm (two)"]),
        ([("p/one.yaml", COMPOSE.format("unsafe")),
          ("p/two.yaml", COMPOSE.format("none"))], ["vm (one.yaml)", "vm (two.yaml)"]),
        # Commands of one script without a name.
        ([("two.sh", f"#!/bin/sh\n{QEMU.format('', 'a', 'none')}{QEMU.format('', 'b', 'unsafe')}")],
         ["two:2", "two:3"]),
        ([("two.sh", f"{RUN.format('', 'unsafe', 'a')}{RUN.format('', 'none', 'b')}")],
         ["qemu:1", "qemu:2"]),
        ([("two.sh", f"{RUN.format('--name a ', 'unsafe', 'a')}{RUN.format('', 'none', 'b')}")],
         ["a", "qemu"]),
        # Guests of one name on two nodes, in two namespaces, in two scripts.
        ([("101.conf", CONF.format(101, "unsafe")), ("102.conf", CONF.format(102, "none"))],
         ["web (101)", "web (102)"]),
        ([("vms.yaml", f"{VM.format('prod', CLAIM)}---\n{VM.format('test', CLAIM)}")],
         ["prod/web", "test/web"]),
        ([("a.sh", QEMU.format("-name web ", "a", "none")),
          ("b.sh", QEMU.format("-name web ", "b", "unsafe"))], ["web (a.sh)", "web (b.sh)"]),
        # One guest keeps its name.
        ([("a.sh", QEMU.format("-name web ", "a", "none")),
          ("b.sh", QEMU.format("-name db ", "b", "unsafe"))], ["web", "db"]),
    ],
)  # fmt: skip
def test_guests_of_one_name_are_told_apart(texts: list[tuple[str, str]], found: list[str]) -> None:
    assert names(*texts) == found


def test_the_name_for_commands_stays_the_platforms() -> None:
    texts = [GuestText(CONF.format(n, "none"), f"{n}.conf") for n in (101, 102)]
    assert [disk.guest for disk in told_apart(read_guests(texts))] == ["101", "102"]
    plain = [ConfiguredDisk("web", "vda", None, None, origin=each) for each in ("a/x", "b/x")]
    assert [disk.guest for disk in told_apart(plain)] == ["web", "web"]


def test_two_disks_of_one_guest_are_of_one_name() -> None:
    disks = [ConfiguredDisk("web", each, None, None, origin="a") for each in ("vda", "vdb")]
    assert told_apart(disks) == tuple(disks)
