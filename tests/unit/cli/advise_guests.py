"""Guests' files and stored speeds for the tests of `vdisklab advise`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.registry import forms
from vdisklab.platforms.request import ExportRequest

SPEEDS = {
    "host": 1.0,
    "raw/default": 0.5,
    "raw/writeback": 0.5,
    "raw/none": 0.8,
    "raw/unsafe": 1.4,
    "raw/none/virtio:aio=io_uring": 0.8,
    "raw/none/virtio:iothread=on": 0.7,
    "qcow2/none": 0.4,
    "raw/none/scsi": 0.75,
    "qcow2/directsync": 0.3,
    "qcow2/writethrough": 0.2,
}


def guest(tmp_path: Path, path: str, name: str = "web", image: str | None = None) -> str:
    source = image or str(tmp_path / f"{name}.img")
    request = ExportRequest(parse_path(path), source, name)
    file = tmp_path / f"{name}.xml"
    # Without its note: the configuration alone counts.
    text = forms()["libvirt"].write(request).text.replace("urn:vdisklab:disk-path:1", "urn:x")
    file.write_text(text)
    made = request.path.image
    if image is None and made is not None and not Path(source).exists():
        with_image(Path(source), str(made.format))
    return str(file)


def with_image(file: Path, form: str = "raw") -> None:
    """An image that is allocated as far as it is long; without it the disk is another host's."""
    if form == "raw":
        file.write_bytes(bytes(8192))
    else:
        argv = ["qemu-img", "create", "-q", "-f", form, str(file), "1M"]
        subprocess.run(argv, check=True)


def advised(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    """The document, with the advice of each disk beside what is known of the disk."""
    assert main(["advise", *arguments, "--format", "json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document | {"disks": [disk | disk["advice"] for disk in document["disks"]]}


INCUS = """- name: web
  type: virtual-machine
  config: {}
  expanded_devices: {root: {path: /, pool: default, type: disk, io.cache: unsafe}}
"""


SERVERS = """<domain><name>n</name><devices>
<disk type="network"><driver type="raw" cache="none"/><source protocol="rbd" name="p/v"/>
<target dev="vda" bus="virtio"/></disk>
<disk type="network"><driver type="raw" cache="none"/><source protocol="iscsi" name="iqn.x:t/1">
<host name="san"/></source><target dev="vdb" bus="virtio"/></disk>
<disk type="network"><driver type="raw" cache="none"/><source protocol="nbd" name="e">
<host name="nbd"/></source><target dev="vdc" bus="virtio"/></disk>
<disk type="network"><driver type="raw" cache="none"/><source protocol="nfs" name="/x/y.raw">
<host name="nas"/></source><target dev="vdd" bus="virtio"/></disk></devices></domain>"""
