"""The lines for libvirt do with the real virt-xml(1) what they say, on libvirt's test driver."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.libvirt_domain import read_domain
from vdisklab.platforms.registry import change_of

pytestmark = pytest.mark.skipif(shutil.which("virt-xml") is None, reason="virtinst is missing")

DOMAIN = """<domain type='{type}'><name>web</name><memory>65536</memory>{threads}
<os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='writeback'/>
<source file='/srv/a.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.mark.parametrize(
    ("threads", "wanted", "lines"),
    [
        ("", "raw/none", ['+      <driver name="qemu" type="raw" cache="none" io="threads"/>']),
        (
            "<iothreads>3</iothreads><iothreadids><iothread id='7'/></iothreadids>",
            "raw/none/virtio:aio=native:iothread=on",
            ['+      <driver name="qemu" type="raw" cache="none" io="native" iothread="7"/>'],
        ),
        (
            "",
            "raw/none/virtio:aio=native:iothread=on",
            [
                "+  <iothreads>1</iothreads>",
                '+      <driver name="qemu" type="raw" cache="none" io="native" iothread="1"/>',
            ],
        ),
    ],
)
def test_the_lines_to_paste(tmp_path: Path, threads: str, wanted: str, lines: list[str]) -> None:
    (tmp_path / "web.xml").write_text(DOMAIN.format(type="test", threads=threads))
    node = tmp_path / "node.xml"
    node.write_text(f"<node><domain file='{tmp_path}/web.xml'/></node>")
    (disk,) = read_domain(DOMAIN.format(type="kvm", threads=threads), "web.xml")
    change = change_of(disk, parse_path(wanted))
    shown = ""
    for command in change.paste.split(" && "):
        program, *arguments = shlex.split(command)
        if program == "virt-xml":
            argv = [program, "--connect", f"test://{node}", *arguments, "--print-diff"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
            shown += done.stdout
    assert [line for line in shown.splitlines() if line.startswith("+ ")] == lines


def test_many_guests_of_a_libvirt_are_printed_together(tmp_path: Path) -> None:
    domains = "".join(
        f"<domain type='test'><name>g{number}</name><uuid>{UUID(int=number + 1)}</uuid>"
        "<memory>1</memory><os><type>hvm</type></os>"
        f"<devices><disk type='file'><source file='/{number}'/><target dev='vda'/></disk></devices>"
        "</domain>"
        for number in range(3)
    )
    (tmp_path / "node.xml").write_text(f"<node>{domains}</node>")
    guests = read_disks(LocalHost(), (), f"test://{tmp_path}/node.xml")
    assert sorted(disk.domain for disk in guests.disks) == ["g0", "g1", "g2"]
