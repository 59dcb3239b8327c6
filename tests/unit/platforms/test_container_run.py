"""Containers that run QEMU, started by a command or described by a Quadlet."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests

SCRIPT = r"""#!/bin/bash
set -e
CACHE=unsafe
docker run -it --rm --name windows -e "VERSION=11" -e DISK_SIZE=64G \
  -e DISK_CACHE=$CACHE -e DISK_FMT=qcow2 \
  -p 8006:8006 --device=/dev/kvm --device /dev/net/tun --cap-add NET_ADMIN \
  -v "/srv/windows:/storage" --stop-timeout 120 dockurr/windows
sudo podman run -d --name debian --env BOOT=debian -v /srv/debian:/storage:Z qemux/qemu:latest
docker run -d --name proxy -v /srv/proxy:/storage nginx
echo docker run --name shown qemux/qemu
qemu-system-x86_64 -name old -drive file=/srv/old.qcow2,format=qcow2,if=virtio,cache=none
"""
QUADLET = """[Unit]
Description=Windows
[Container]
Image=docker.io/dockurr/windows:latest
ContainerName=win
Environment=VERSION=11 "DISK_CACHE=unsafe"
EnvironmentFile=win.env
AddDevice=/dev/kvm
Volume=/srv/win:/storage
[Service]
Restart=always
[Install]
WantedBy=default.target
"""
VIRTIO = "scsi:detect_zeroes=on:discard=unmap:iothread=on"


def read(text: GuestText) -> dict[str, ConfiguredDisk]:
    return {disk.domain: disk for disk in read_guests([text])}


def test_docker_run_of_a_script_is_a_guest() -> None:
    disks = read(GuestText(SCRIPT, "start.sh"))
    assert {name: (str(disk.path), disk.source) for name, disk in disks.items()} == {
        "windows": (f"qcow2/unsafe/{VIRTIO}", "/srv/windows/data.qcow2"),
        "debian": (
            f"raw/none/{VIRTIO.replace('scsi:', 'scsi:aio=native:')}", "/srv/debian/data.img"
        ),
        "old": ("qcow2/none", "/srv/old.qcow2"),
    }  # fmt: skip
    assert disks["windows"].changed_at == "`DISK_CACHE` in line 5 of start.sh"
    assert (
        disks["debian"].changed_at
        == "`DISK_CACHE` of container debian in start.sh, which is not set"
    )
    assert disks["old"].changed_in == ""


@pytest.mark.parametrize("beside", [True, False])
def test_a_quadlet_is_a_guest(beside: bool) -> None:
    files = {"win.env": "# of the guest\nDISK_FMT=qcow2\n"} if beside else {}
    (disk,) = read(GuestText(QUADLET, "win.container", files=files)).values()
    assert disk.domain == "win"
    assert str(disk.path) == f"{'qcow2' if beside else 'raw'}/unsafe/{VIRTIO}"
    assert disk.changed_at == "`DISK_CACHE` in line 6 of win.container"
    assert bool(disk.may_differ) is not beside


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        ("-e DISK_CACHE=writeback", "writeback"),
        ("-eDISK_CACHE=unsafe", "unsafe"),
        ("--env=DISK_CACHE=directsync", "directsync"),
        ("-dit --env DISK_CACHE=writethrough", "writethrough"),
        ("--rm --init", "none"),
    ],
)
def test_ways_to_write_a_variable(options: str, cache: str) -> None:
    text = f"docker run {options} --name w qemux/qemu -e DISK_CACHE=unsafe\n"
    (disk,) = read(GuestText(text, "w.sh")).values()
    assert disk.path is not None
    assert str(disk.path.cache) == cache


SERVICE = """services:
  db: {{image: "postgres:16"}}
  vm:
    image: registry.lan/runner:1
    {command}
    volumes: ["/srv/vm:/d"]
"""
RUNS = "qemu-system-x86_64 -drive file=/d/a.img,format=raw,if=virtio,cache=unsafe"
UNIT = f"[Container]\nImage=registry.lan/runner:1\nVolume=/srv/vm:/d\nExec={RUNS}\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SERVICE.format(command=f"command: {RUNS.split()}"), "compose.yaml"),
        (SERVICE.format(command=f"command: {RUNS}"), "compose.yaml"),
        (SERVICE.format(command=f"command: sh -c 'exec {RUNS}'"), "compose.yaml"),
        (SERVICE.format(command=f"entrypoint: {RUNS.split()[:1]}\n    command: {RUNS.split()[1:]}"),
         "compose.yaml"),
        (UNIT, "vm.container"),
    ],
)  # fmt: skip
def test_a_container_whose_own_command_starts_qemu_is_a_guest(text: str, name: str) -> None:
    """Its service was left out without a word, and a Quadlet was called no plain YAML."""
    (disk,) = read_guests([GuestText(text, name)])
    assert (disk.domain, disk.source) == ("vm", "/srv/vm/a.img")
    assert str(disk.path) == "raw/unsafe"
    assert (disk.changed_at or "").startswith("`cache=` of "), "its image knows no DISK_CACHE"


def test_files_that_are_only_in_the_container_are_all_named() -> None:
    """The doubt named the file of another disk."""
    two = f"{RUNS.replace('/d/', '/e/')} -drive file=/e/b.img,format=raw,if=virtio"
    first, other = read_guests([GuestText(SERVICE.format(command=f"command: {two}"), "c.yaml")])
    assert first.may_differ == other.may_differ
    assert "/e/a.img, /e/b.img are in the container" in first.may_differ


def test_the_deepest_mount_has_a_file() -> None:
    """`/srv/vm`, the place of one directory, is another's inside the container."""
    mounts = '["/srv/vm:/d", "/fast:/d/a", "/other:/srv/vm"]'
    text = SERVICE.format(command=f"command: {RUNS.replace('/d/', '/d/a/')}")
    text = text.replace('["/srv/vm:/d"]', mounts)
    (disk,) = read_guests([GuestText(text, "compose.yaml")])
    assert disk.source == "/fast/a.img"


def test_a_file_inside_the_container_leaves_its_disk_in_doubt() -> None:
    runs = RUNS.replace("unsafe", "none").replace("/d/", "/e/")
    text = SERVICE.format(command=f"command: {runs}")
    (disk,) = read_guests([GuestText(text, "compose.yaml")])
    assert disk.may_differ.startswith("/e/a.img is in the container")
