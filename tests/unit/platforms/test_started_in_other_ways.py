"""Guests that a script starts in ways that hide what changes their disks, or hide the guest."""

from __future__ import annotations

import time

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk, loses_writes
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests

GUEST = "qemu-system-x86_64 -name g -drive file=/srv/a.raw,format=raw,if=virtio,cache={}"
SAFE = GUEST.format("none")
UNSAFE = GUEST.format("unsafe")


def read(text: str, files: dict[str, str] | None = None) -> list[ConfiguredDisk]:
    return list(read_guests([GuestText(f"#!/bin/sh\n{text}\n", "s.sh", files=files or {})], []))


@pytest.mark.parametrize(
    "text",
    [
        f'eatmydata -- bash -c "exec {SAFE}"', f"eatmydata tmux new -d '{SAFE}'",
        f"LD_PRELOAD=libeatmydata.so sh -c '{SAFE}'", f"sudo nosync su vm -c '{SAFE}'",
        f"env LD_PRELOAD=/usr/lib/libeatmydata.so.1 bash -c '{SAFE}'",
    ],
)  # fmt: skip
def test_a_library_that_a_shell_is_started_with_takes_fsync_from_its_guests(text: str) -> None:
    (disk,) = read(text)
    assert "makes QEMU's fsync do nothing" in (loses_writes(disk) or "")
    other, same = read(f"{text}\n{SAFE.replace('-name g', '-name h')}")
    assert {disk.domain: disk.lost_below is None for disk in (other, same)} == {
        "g": False, "h": True
    }  # fmt: skip


@pytest.mark.parametrize("text", [f"xargs -a o {SAFE}", f"cat o | sudo xargs {SAFE}"])
def test_a_program_that_adds_arguments_leaves_the_disk_in_doubt(text: str) -> None:
    (disk,) = read(text)
    assert disk.may_differ == "xargs adds arguments, which may change it (-snapshot, -global)"


@pytest.mark.parametrize(
    ("link", "is_memory"),
    [
        ("ln -s /dev/shm/a.raw /srv/a.raw", True), ("ln -sfn /dev/shm/vms /srv", True),
        ("sudo ln -s /dev/shm/a.raw /srv", True), ("ln -s /data/a.raw /srv/a.raw", False),
        ("ln -s /dev/shm/b.raw /srv/b.raw", False),
    ],
)  # fmt: skip
def test_a_link_to_memory_loses_what_is_written_through_it(link: str, is_memory: bool) -> None:
    (disk,) = read(f"{link}\n{SAFE}")
    assert ("is a link to /dev/shm/" in (disk.lost_below or "")) is is_memory


@pytest.mark.parametrize(
    "text",
    [
        "bwrap " + "--ro-bind /usr /usr --bind /srv /srv " * 8 + UNSAFE,
        f"systemd-run {'-p X=y ' * 20}{UNSAFE}", f"echo '{UNSAFE}' | at now",
        f"echo '{UNSAFE}' | sudo batch",
        f"start-stop-daemon --start --exec /usr/bin/{UNSAFE.replace(' ', ' -- ', 1)}",
    ],
)  # fmt: skip
def test_a_guest_behind_other_programs_is_read(text: str) -> None:
    assert [f"{disk.guest} {disk.path}" for disk in read(text)] == ["g raw/unsafe"]


CONFIG = """\
# of the guest
[drive "d0"]
  file = "/srv/a.raw"
  format = "raw"
  if = "none"
  cache = "unsafe"
[device]
  driver = "virtio-blk-pci"
  drive = "d0"
[device "d1"]
  drive = "d1"
  driver = "virtio-blk-pci"
[global]
  driver = "virtio-blk-pci"
  property = "werror"
  value = "ignore"
"""
BESIDE = "-drive id=d1,file=/b.raw,format=raw,if=none,cache=none"


@pytest.mark.parametrize("written", [False, True])
def test_the_file_of_readconfig_is_read(written: bool) -> None:
    started = f"qemu-system-x86_64 -name g {BESIDE} -readconfig vm.cfg"
    if written:
        disks = read(f"cat > vm.cfg <<EOF\n{CONFIG}EOF\n{started}")
    else:
        disks = read(started, {"vm.cfg": CONFIG})
    assert {disk.source: str(disk.path) for disk in disks} == {
        "/srv/a.raw": "raw/unsafe/virtio:werror=ignore", "/b.raw": "raw/none/virtio:werror=ignore",
    }  # fmt: skip


def test_what_is_not_understood_of_readconfig_is_named() -> None:
    (disk,) = read("qemu-system-x86_64 -readconfig gone.cfg")
    assert "its configuration is in gone.cfg (-readconfig), which is not read" in (
        disk.problem or ""
    )
    broken = read("qemu-system-x86_64 -readconfig a.cfg", {"a.cfg": "[drive\nfile=x\n"})
    assert broken
    assert not any(disk.path for disk in broken)


def test_many_texts_that_never_end_do_not_take_long() -> None:
    start = time.monotonic()
    for name in ("E", "E{0}"):
        heads = "".join(f"cat > a.cfg <<{name.format(n)}\n" for n in range(5_000))
        read(f"{heads}qemu-system-x86_64 -readconfig a.cfg")
    assert time.monotonic() - start < 8


@pytest.mark.parametrize(
    ("line", "found", "lossy"),
    [
        ("virt-xml web --add-device --disk /b.qcow2,cache=unsafe",
         "web qcow2/unsafe/virtio:discard=unmap", True),
        ("virt-xml web --add-device --disk /b.qcow2,cache=unsafe,bus=scsi", "web None", True),
        ("virt-xml -c qemu:///system web --edit target=vda --disk driver.cache=unsafe",
         "web None", True),
        ("virt-xml web --edit --disk cache=none", "web None", False),
    ],
)  # fmt: skip
def test_a_disk_that_virt_xml_adds_or_changes_has_a_row(line: str, found: str, lossy: bool) -> None:
    (disk,) = read(line)
    assert f"{disk.domain} {disk.path}" == found
    assert disk.drops_flushes is lossy


def test_what_virt_xml_removes_is_no_disk() -> None:
    disks = read(f"virt-xml web --remove-device --disk vdb\n{SAFE}")
    assert [disk.guest for disk in disks] == ["g"]


@pytest.mark.parametrize(
    "text",
    [
        "test:\n  script:\n    - apt-get install -y qemu-system-x86\n    - {0}\n    - echo done\n",
        "jobs:\n  t:\n    steps:\n      - run: |\n          {0}\n      - run: echo done\n",
        "jobs:\n  t:\n    steps:\n      - run: {0}\n      - name: end\n",
        '#!/sbin/openrc-run\ncommand="/usr/bin/qemu-system-x86_64"\ncommand_args="{1}"\n',
        "CACHE := none\nrun:\n\t@{0}\n",
    ],
)
def test_commands_of_services_and_makefiles_are_read_to_their_end(text: str) -> None:
    given = text.replace("{0}", UNSAFE).replace("{1}", UNSAFE.partition(" ")[2])
    disks = read_guests([GuestText(given, "file")], [])
    assert [f"{disk.guest} {disk.source} {disk.path}" for disk in disks] == [
        "g /srv/a.raw raw/unsafe"
    ]  # fmt: skip


def test_a_command_in_a_message_has_its_blanks() -> None:
    (disk,) = read(GUEST.format("$(cat /etc/mode)"))
    assert "its cache mode is $(cat /etc/mode), a variable" in (disk.problem or "")
    first, more = read(f"{SAFE} $(cat /etc/more)")
    assert first.may_differ.startswith("what stands for $(cat /etc/more) may change it")
    assert "in place of $(cat /etc/more)" in (more.problem or "")
