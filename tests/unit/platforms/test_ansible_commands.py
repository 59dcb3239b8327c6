"""Guests that Ansible's command, shell and raw start: what Jinja hides is in doubt."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests

STARTED = "qemu-system-x86_64 -name {} -m {{{{ memory }}}} -drive file=/srv/{}.raw,format=raw,{}"
PLAY = "- hosts: kvm\n  vars:\n    mode: unsafe\n  tasks:\n"


def read(tasks: str) -> list[ConfiguredDisk]:
    return list(read_guests([GuestText(f"{PLAY}{tasks}", "play.yml")], []))


def task(started: str, module: str = "command") -> str:
    return f"    - {module}: {started}\n"


@pytest.mark.parametrize("module", ["command", "shell", "ansible.builtin.command", "raw"])
def test_a_guest_that_a_task_starts_is_read(module: str) -> None:
    started = STARTED.format("web", "web", "if=virtio,cache={{ mode }}")
    (disk,) = read(task(started, module))
    assert (disk.guest, disk.source, str(disk.path)) == ("web", "/srv/web.raw", "raw/unsafe")
    assert disk.path is not None
    with pytest.raises(NotChangeableError, match="Ansible sets it"):
        change_of(disk, disk.path)


@pytest.mark.parametrize(
    "task_lines",
    [
        "    - command: >\n        {0}\n        {1}\n",
        "    - shell: |\n        {0} \\\n          {1}\n",
        "    - command:\n        cmd: {0} {1}\n",
        "    - command:\n        argv: [qemu-system-x86_64, -name, web, -drive,\n"
        "          'file=/srv/web.raw,format=raw,if=virtio,cache=unsafe']\n",
        "    - shell: {0} {1}\n      environment:\n        X: y\n",
        "    - block:\n        - shell: '{0} {1}'\n",
    ],
)
def test_each_way_to_write_a_command_is_read(task_lines: str) -> None:
    first = "qemu-system-x86_64 -name web"
    second = "-drive file=/srv/web.raw,format=raw,if=virtio,cache=unsafe"
    (disk,) = read(task_lines.replace("{0}", first).replace("{1}", second))
    assert (disk.guest, disk.source, str(disk.path)) == ("web", "/srv/web.raw", "raw/unsafe")


def test_what_jinja_hides_is_in_doubt_and_the_rest_is_read() -> None:
    disks = read(
        task(STARTED.format("a", "a", "if=virtio,cache={{ cache_of_a | default('none') }}"))
        + task(STARTED.format("b", "b", "if=virtio,cache=none{{ more }}"))
        + task(STARTED.format("c", "c", "if=virtio,cache=none") + " {{ extra }}")
        + task("qm set {{ vmid }} --virtio0 local-lvm:8,cache=unsafe")
    )
    told = {f"{disk.guest} {disk.path}": disk.problem or disk.may_differ for disk in disks}
    assert told["a None"].endswith(
        "its cache mode is {{cache_of_a}}, a variable whose value is not known"
    )
    assert told["b raw/none"] == "{{more}} may set its cache mode"
    assert told["c raw/none"] == "what stands for {{extra}} may change it (-snapshot, -global)"
    assert told["c None"].startswith("a shell puts arguments in place of {{extra}}")
    assert told["{{vmid}} None"].startswith("its storage 'local-lvm'")
    assert [disk.drops_flushes for disk in disks if disk.guest == "{{vmid}}"] == [True]


def test_a_loop_starts_a_guest_for_each_item() -> None:
    drive = "file=/{{ item.n }}.raw,format=raw,if=virtio,cache={{ item.c }}"
    started = f"qemu-system-x86_64 -name {{{{ item.n }}}} -drive {drive}"
    lines = f"    - command: '{started}'\n      loop: [{{n: x, c: none}}, {{n: y, c: unsafe}}]\n"
    assert [f"{disk.guest} {disk.path}" for disk in read(lines)] == ["x raw/none", "y raw/unsafe"]


def test_a_playbook_with_modules_of_proxmox_has_these_too() -> None:
    lines = (
        task("qm set 9 --virtio1 thin:8,cache=unsafe")
        + "    - community.general.proxmox_kvm:\n        vmid: 8\n        name: m\n"
        "        virtio:\n          virtio0: 'thin:8,cache=none'\n"
    )
    assert {f"{disk.domain} {disk.target}" for disk in read(lines)} == {"9 virtio1", "m virtio0"}


def test_a_compose_file_is_no_playbook() -> None:
    text = (
        "name: x\nservices:\n  vm:\n    image: mine\n"
        "    command: qemu-system-x86_64 -drive file=/a.raw,format=raw,if=virtio,cache=unsafe\n"
    )
    (disk,) = read_guests([GuestText(text, "compose.yml")], [])
    assert str(disk.path) == "raw/unsafe"
    assert "compose" in disk.changed_in
