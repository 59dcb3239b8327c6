"""Parsers of guests: their configurations, and the answers of QEMU and the guest agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from qemu.qmp.error import ProtocolError

from fuzz_inputs import Parser, recorded
from vdisklab.errors import VdisklabError
from vdisklab.guest.agent import Agent
from vdisklab.guest.machine import Machine, detect_os
from vdisklab.guest.qemu.qmp import Channel, read_message
from vdisklab.guest.qemu.read_back import (
    device_statistics,
    inserted_node,
    iothreads,
    running_version,
)
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.guest_edge import BUG
from vdisklab.platforms.libvirt_domain import QEMU_NAMESPACE, read_domain
from vdisklab.platforms.qemu import monitor_of
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests


def guest_parsers() -> Iterable[Parser]:
    argv = [
        (
            "-blockdev",
            {
                "driver": "qcow2",
                "node-name": "f",
                "file": "p",
                "discard": "unmap",
                "cache": {"direct": True, "no-flush": False},
            },
        ),
        ("-blockdev", {"driver": "file", "node-name": "p", "filename": "/x", "aio": "native"}),
        ("-object", {"qom-type": "iothread", "id": "t"}),
        ("-device", {"driver": "virtio-scsi-pci", "id": "s", "iothread": "t", "num_queues": 2}),
        ("-device", {"driver": "scsi-hd", "drive": "f", "id": "d", "bus": "s.0"}),
    ]
    arguments = [
        word for flag, value in argv for word in (flag, json.dumps(value).replace('"', "&quot;"))
    ]
    tags = "".join(f'<qemu:arg value="{word}"/>\n' for word in arguments)
    commandline = (
        f'<domain xmlns:qemu="{QEMU_NAMESPACE}"><name>web</name>\n'
        f"<qemu:commandline>{tags}</qemu:commandline></domain>"
    )
    yield Parser("libvirt domain", 20, (_DOMAIN,), _domain)
    yield Parser("QEMU arguments", 15, (commandline,), _domain)
    yield Parser("guests of other managers", 15, _GUESTS, _guests)
    yield Parser("a running QEMU", 10, _ARGUMENTS, _process)
    answers = [json.loads(text)["answers"] for text in recorded("qmp/qemu-7.2.22-virtio.json")]
    names = ("query-block", "query-blockstats", "query-iothreads", "query-version")
    qmp = json.dumps(
        {
            name: answers[0].get(
                name, {"qemu": {"major": 7, "minor": 2, "micro": 2}, "package": ""}
            )
            for name in names
        }
    )
    yield Parser("QEMU's answers", 10, (qmp,), _qmp)
    yield Parser("the agent's answers", 20, (json.dumps(_AGENT),), _agent)
    messages = [
        json.dumps({"id": "__vdisklab#00001", "return": value}) for value in _AGENT.values()
    ]
    hostile = ("[" * 5000, "[[" * 40 + "]]" * 40, '{"return": ' + "9" * 5000 + "}")
    yield Parser("QEMU's messages", 10, (*messages, *hostile), _message)


_DOMAIN = f"""\
<domain type='kvm' xmlns:qemu='{QEMU_NAMESPACE}'>
  <name>web</name>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap'
       queues='4' iothread='1'/>
      <source file='/var/lib/libvirt/images/web.qcow2'/>
      <target dev='vda' bus='virtio'/><alias name='ua-one'/>
    </disk>
    <disk type='block' device='disk'><driver name='qemu' type='raw' cache='unsafe'/>
      <source dev='/dev/vg/web'/><target dev='sda' bus='scsi'/>
      <address type='drive' controller='0'/><readonly/>
    </disk>
    <disk type='network' device='cdrom'><target dev='hdc' bus='ide'/></disk>
    <controller type='scsi' index='0' model='virtio-scsi'>
      <driver queues='2' iothread='1'/></controller>
  </devices>
  <metadata><v:disks xmlns:v='urn:x'><v:disk target='vda' path='qcow2/none'/></v:disks></metadata>
  <qemu:override><qemu:device alias='ua-one'><qemu:frontend>
    <qemu:property name='write-cache' type='string' value='on'/>
  </qemu:frontend></qemu:device></qemu:override>
</domain>
"""


def _looked_at(disks: Iterable[ConfiguredDisk]) -> object:
    """What is said of the disks. A bug that the edge of a guest has caught is one here, too."""
    said = []
    for disk in disks:
        if BUG in (disk.problem or ""):
            raise AssertionError(disk.problem)
        said.append((disk_path(disk), risks(disk)))
    return said


def _domain(text: str) -> object:
    return _looked_at(read_domain(text, "web.xml"))


_GUESTS = (
    "name: web\nscsihw: virtio-scsi-pci\nscsi0: /srv/a.qcow2,cache=none,iothread=1,mbps=5\n",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\nspec:\n  template:\n"
    "    spec:\n      domain: {devices: {disks: [{name: d, disk: {bus: virtio}}]}}\n"
    "      volumes: [{name: d, hostDisk: {path: /a.img}}]\n",
    "- {name: a, config: {}, devices: {d: {type: disk, source: /dev/sdz, io.cache: none}}}\n",
    "qemu-system-x86_64 -drive file=/a,if=none,id=d,cache=none -device virtio-blk-pci,drive=d",
    "{name: web, id: u-1, image: {id: i, hw_disk_bus: scsi}, flavor: {vcpus: 2, ram: 1, "
    "extra_specs: {'quota:disk_total_iops_sec': 5}}, volumes_attached: [{id: v-1}]}\n",
    "[libvirt]\nimages_type = rbd\ndisk_cachemodes = network=writeback\nrbd_user = nova\n",
    "name: p\nargs: -drive file=/x,index=1 -snapshot\nvirtio0: local:7/vm-7-disk-0.qcow2,mbps=1.5\n"
    "[PENDING]\nvirtio0: local:7/vm-7-disk-0.qcow2,cache=unsafe\n",
)


def _guests(text: str) -> object:
    return _looked_at(read_guests([GuestText(text, "a.txt")]))


def _process(text: str) -> object:
    """As the command line of a running QEMU, whose words are lines here."""
    arguments = text.split("\n")
    monitor_of(arguments)
    return _looked_at(read_guests([GuestText("\0".join(["qemu-system-x86_64", *arguments]), "7")]))


_ARGUMENTS = (
    "-name\nguest=web,debug-threads=on\n-drive\nfile=/a.qcow2,if=virtio,index=0,format=qcow2\n"
    "-drive\nfile=nbd:host:10809:exportname=x,if=none,id=n,format=raw,cache.direct=on\n"
    "-device\nvirtio-scsi-pci,id=s,num_queues=4\n-device\nscsi-hd,drive=n,bus=s.0,id=d\n"
    "-qmp\nunix:/run/q.sock,server=on,wait=off\n-set\ndevice.d.write-cache=on\n"
    "-global\nscsi-hd.physical_block_size=4096\n-virtfs\nlocal,path=/x,mount_tag=t",
    '-blockdev\n{"driver": "rbd", "node-name": "p", "pool": "a", "image": "b", "server": '
    '[{"host": "x", "port": "1"}]}\n-blockdev\n{"driver": "raw", "node-name": "f", "file": "p", '
    '"cache": {"direct": true}}\n-object\n{"qom-type": "throttle-group", "id": "g", "limits": '
    '{"iops-total": 5}}\n-device\n{"driver": "virtio-blk-pci", "drive": "f", "id": "d", '
    '"num-queues": 4, "iothread-vq-mapping": [{"iothread": "t"}]}',
)


def _values(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value; invalid JSON does not get past QEMU's own protocol."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VdisklabError("not JSON") from error


def _qmp(text: str) -> object:
    value = _values(text)
    answers: Mapping[str, Any] = value if isinstance(value, dict) else {}
    machine = cast("Machine", SimpleNamespace(query=answers.get, pid=1))
    for ask in (
        running_version,
        iothreads,
        lambda m: inserted_node(m, "virtio0"),
        lambda m: device_statistics(m, "virtio0"),
    ):
        with suppress(VdisklabError):
            ask(machine)
    return None


_AGENT: dict[str, Any] = {
    "guest-info": {
        "version": "8.0",
        "supported_commands": [
            {"name": name, "enabled": True}
            for name in (
                "guest-exec",
                "guest-exec-status",
                "guest-file-open",
                "guest-file-read",
                "guest-file-close",
                "guest-get-osinfo",
            )
        ],
    },
    "guest-get-osinfo": {"id": "debian", "pretty-name": "Debian 12", "version-id": "12"},
    "guest-exec": {"pid": 7},
    "guest-file-open": 1000,
    "guest-file-close": {},
    "guest-exec-status": {
        "exited": True,
        "exitcode": 0,
        "out-data": "aGVsbG8=",
        "err-data": "",
        "signal": 0,
    },
    "guest-file-read": {"count": 5, "buf-b64": "aGVsbG8=", "eof": True},
}


class _Recorded:
    """A channel whose answers are known beforehand."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    def execute(self, command: str, *_: object, **__: object) -> Any:  # noqa: ANN401
        return self._answers.get(command)

    def deadline(self, seconds: float) -> Callable[[], float]:
        return lambda: seconds

    def pause(self, _seconds: float) -> None:
        raise VdisklabError("the agent has no further answer")


def _message(text: str) -> object:
    try:
        return read_message(text.encode("latin-1", errors="replace"))
    except ProtocolError as error:
        raise VdisklabError(str(error)) from error


def _agent(text: str) -> object:
    value = _values(text)
    agent = Agent(cast("Channel", _Recorded(value if isinstance(value, dict) else {})))
    for ask in (
        lambda: detect_os(agent, None),
        lambda: agent.run(("true",), timeout=0.0),
        lambda: agent.read_file("/x"),
    ):
        with suppress(VdisklabError):
            ask()
    return None
