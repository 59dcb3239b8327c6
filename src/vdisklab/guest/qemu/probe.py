"""Queries a QEMU program: its version, machines, devices and aio modes.

A QEMU program is started without a machine and queried through its monitor, so nothing boots. Each
device is queried by name: `-device help` loads all modules in the directory compiled into QEMU, and
a QEMU unpacked next to an installed one aborts on the installed one's modules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from vdisklab.errors import CommandError, HostError
from vdisklab.guest.qemu.block_nodes import CONTROLLER_PROPERTIES, FORMAT_MEMBERS
from vdisklab.guest.qemu.command_line import SANDBOX
from vdisklab.host.command import Host
from vdisklab.host.facts import QEMU
from vdisklab.path.architecture import GUEST
from vdisklab.path.segments import Bus
from vdisklab.value import Value

BUS_DEVICES: Mapping[Bus, tuple[str, ...]] = {
    Bus.VIRTIO: ("virtio-blk-pci",),
    Bus.SCSI: ("virtio-scsi-pci", "scsi-hd"),
    Bus.IDE: ("ide-hd",),
    Bus.SATA: ("ide-hd", "ich9-ahci"),
    Bus.NVME: ("nvme",),
    Bus.USB: ("qemu-xhci", "usb-storage"),
    Bus.VHOSTUSER: ("vhost-user-blk-pci",),
    Bus.VIRTIOFS: ("vhost-user-fs-pci",),
    Bus.P9: ("virtio-9p-pci",),
}
"""The devices of QEMU that each bus or shared directory needs."""

IOTHREADS_SINCE: Mapping[Bus, str] = {Bus.VIRTIO: "9.0", Bus.SCSI: "10.0"}
"""The first QEMU that shares the queues of a bus's controller among several iothreads."""

QCOW2_SINCE = {"discard_no_unref": "8.1"}
"""The first QEMU with a member of qcow2's node, by option of the path (qapi/block-core.json)."""

AGENT_CHANNEL = "virtio-serial-pci"
"""The device that connects the guest agent."""

DEVICES = (*dict.fromkeys(name for names in BUS_DEVICES.values() for name in names), AGENT_CHANNEL)

_SECONDS = 30.0
_QUERIES = ("query-version", "query-target", "query-machines", "query-qmp-schema")
_NO_MACHINE = (
    "-M", "none", "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio",
)  # fmt: skip


class QemuFeatures(Value):
    """The features of a QEMU. `number` is its short version, `version` includes the package.

    `devices` holds the properties of each device that it has. `qcow2` are the members of its node
    of qcow2; empty if its schema does not list them.
    """

    number: str
    version: str
    machines: frozenset[str]
    devices: Mapping[str, frozenset[str]]
    aio: frozenset[str]
    qcow2: frozenset[str] = frozenset()

    def lacking(self, bus: Bus) -> str | None:
        """The first device of a bus that this QEMU lacks, or None."""
        return next((name for name in BUS_DEVICES[bus] if name not in self.devices), None)

    def lacking_options(self, bus: Bus) -> dict[str, str]:
        """The properties of a bus's controller that this QEMU lacks, by option of the path.

        Empty if this QEMU did not list the controller's properties: they are unknown, not missing.
        """
        properties = dict(CONTROLLER_PROPERTIES.get(bus, {}))
        if bus in IOTHREADS_SINCE:
            properties["iothreads"] = "iothread-vq-mapping"
        available = self.devices.get(BUS_DEVICES[bus][0], frozenset())
        if not available:
            return {}
        return {option: name for option, name in properties.items() if name not in available}

    def lacking_of_qcow2(self) -> dict[str, str]:
        """The members of a qcow2 node that this QEMU lacks, by option of the path.

        Empty if its schema lists none: they are unknown, not missing.
        """
        if not self.qcow2:
            return {}
        return {option: name for option, name in FORMAT_MEMBERS.items() if name not in self.qcow2}


class _Number(BaseModel):
    major: int
    minor: int
    micro: int


class QemuVersion(BaseModel):
    """The answer to query-version."""

    qemu: _Number
    package: str = ""

    @property
    def number(self) -> str:
        """The short version: `7.2.22`."""
        return f"{self.qemu.major}.{self.qemu.minor}.{self.qemu.micro}"

    def __str__(self) -> str:
        """The version with its distribution package: `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`."""
        package = self.package.strip().strip("()")
        return f"{self.number} ({package})" if package else self.number


def probe_qemu(
    host: Host, binary: Path | str = QEMU, devices: Sequence[str] = DEVICES
) -> QemuFeatures:
    """The features of a QEMU; only devices in `devices` are tested.

    Raises HostError if the file is not a program, too old, or QEMU for another architecture.
    """
    program = host.which(str(binary))
    if program is None:
        raise HostError(
            f"{binary} is not an executable program",
            hint=f"give --qemu the path of a {GUEST.emulator}",
        )
    try:
        answers = _conversation(host, program, devices)
        version = QemuVersion.model_validate(answers["query-version"])
        target = answers["query-target"]["arch"]
        if target != GUEST.name:
            raise HostError(
                f"{binary} is QEMU for {target}, but the guests are {GUEST.name}",
                hint=f"give --qemu the path of a {GUEST.emulator}",
            )
        oldest = GUEST.qemu_since
        if (version.qemu.major, version.qemu.minor) < oldest:
            raise HostError(
                f"{binary} is QEMU {version}, which is too old",
                hint=f"version {oldest[0]}.{oldest[1]} or newer is needed",
            )
        return QemuFeatures(
            number=version.number,
            version=str(version),
            # With aliases, which name the newest version of a machine.
            machines=frozenset(
                str(machine[key])
                for machine in answers.get("query-machines", ())
                for key in ("name", "alias")
                if key in machine
            ),
            devices={
                name: frozenset(str(entry["name"]) for entry in answers[f"device {name}"])
                for name in devices
                if f"device {name}" in answers
            },
            aio=_aio_modes(answers["query-qmp-schema"]),
            qcow2=_qcow2_members(answers["query-qmp-schema"]),
        )
    except (CommandError, json.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
        printed = ""
        if isinstance(error, CommandError):
            printed = error.stderr
        elif isinstance(error, json.JSONDecodeError):
            printed = error.doc  # the line
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        ended = f": it printed {lines[-1][:200]!r}" if lines else ""
        raise HostError(
            f"{binary} does not answer like QEMU{ended}",
            hint=f"give --qemu the path of a {GUEST.emulator} that runs here",
        ) from error


def has_sandbox(host: Host, binary: str) -> bool:
    """True if this QEMU starts in its sandbox here: it may be built without seccomp."""
    quit = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'
    command = (binary, *_NO_MACHINE, "-sandbox", SANDBOX)
    try:
        host.run(*command, timeout=_SECONDS, stdin=quit)
    except CommandError:
        return False
    return True


def _conversation(host: Host, binary: Path, devices: Iterable[str]) -> dict[str, Any]:
    """The `return` of each accepted command, by the command's id.

    Raises CommandError, and JSONDecodeError for a line that is not QMP's.
    """
    commands: list[dict[str, Any]] = [
        {"execute": "qmp_capabilities"},
        *({"execute": name, "id": name} for name in _QUERIES),
        *(
            {
                "execute": "device-list-properties",
                "arguments": {"typename": name},
                "id": f"device {name}",
            }
            for name in devices
        ),
        {"execute": "quit"},
    ]
    text = "".join(json.dumps(command) + "\n" for command in commands)
    output = host.run(binary, *_NO_MACHINE, timeout=_SECONDS, stdin=text).stdout
    answers: dict[str, Any] = {}
    for message in map(json.loads, output.splitlines()):
        if isinstance(message, dict) and "id" in message and "return" in message:
            answers[str(message["id"])] = message["return"]
    return answers


def _aio_modes(schema: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The values of BlockdevAioOptions, recognised by its members: the schema hides type names."""
    for entry in schema:
        values = frozenset(map(str, entry.get("values", ())))
        if {"threads", "native"} <= values:
            return values
    return frozenset()


def _qcow2_members(schema: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The members of BlockdevOptionsQcow2, recognised by two of them, as above."""
    for entry in schema:
        if entry.get("meta-type") == "object":
            names = frozenset(str(member.get("name")) for member in entry.get("members", ()))
            if {"lazy-refcounts", "l2-cache-size"} <= names:
                return names
    return frozenset()


def image_formats(host: Host) -> frozenset[str]:
    """The formats that qemu-img supports; empty when its help does not list them.

    Raises HostError when qemu-img is missing or cannot run.
    """
    text = host.run("qemu-img", "--help", allowed=(0, 1)).stdout
    # One line until 9.2; from 10.0 "Supported image formats:" and indented lines.
    listed = re.search(
        r"^Supported (?:image )?formats:((?:.*\n)(?:\n| .*\n?)*)", text, re.MULTILINE
    )
    return frozenset(listed[1].split()) if listed else frozenset()
