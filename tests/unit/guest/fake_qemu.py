"""A QEMU with its guest that says what real ones said of a disk; see script/record-qmp.

It speaks QMP and the agent's protocol over sockets, opens the files that it is told to open (in
this process, whose /proc is looked at), and notes in order what it was asked to do.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vdisklab.guest.agent import Agent
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import AttachedNames, Disk
from vdisklab.guest.qemu.command_line import BootFiles, GuestConfig
from vdisklab.guest.systems import FIND_DISK, MicroGuest
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan

from .fake_far_side import GREETING, channel_to

Message = dict[str, Any]

SERIAL = "vdl00000000"
SIZE = 32 << 20
"""Those of the recorded disks."""

DATA = Path(__file__).parents[2] / "data" / "qmp"

RECORDED = sorted(file.stem.rpartition("-")[2] for file in DATA.glob("qemu-*.json"))
HOT = [name for name in RECORDED if name not in ("ide", "sata")]


@cache
def _text(name: str) -> str:
    (file,) = DATA.glob(f"qemu-*-{name}.json")
    return file.read_text()


@dataclass(frozen=True)
class Recording:
    """What was said of the disk of one path, here under the serial number `serial`."""

    path: str
    answers: dict[str, Any]
    found: str


def recorded(name: str, serial: str = SERIAL) -> Recording:
    said = json.loads(_text(name).replace(SERIAL, serial))
    return Recording(said["path"], said["answers"], said["find-disk"])


def disk_of(name: str, file: Path, *, serial: str = SERIAL) -> Disk:
    """The disk that was recorded, with its image in `file`."""
    path = parse_path(recorded(name).path)
    if path.image is None or not path.has_storage:
        return Disk(serial, SIZE, None, "null-co", path.cache, path.attachment)
    form = path.image.format.value
    return Disk(
        serial, SIZE, {"driver": "file", "filename": str(file)}, form, path.cache, path.attachment
    )


def make_image(directory: Path) -> Path:
    """An empty image where O_DIRECT works."""
    file = directory / "image"
    with file.open("wb") as sink:
        sink.truncate(SIZE)
    try:
        os.close(os.open(file, os.O_RDWR | os.O_DIRECT))
    except OSError:
        pytest.skip(f"{directory} refuses O_DIRECT")
    return file


def refusing(said: str) -> list[Message]:
    return [{"error": {"class": "GenericError", "desc": said}}]


@dataclass
class FakeQemu:
    """`instead` answers a command, or a program of the guest, in another way than recorded.

    Its value takes the request and gives messages, or None for a connection that is lost; for a
    program it gives the exit status and what is printed. Every file in the guest holds `log`.
    """

    name: str
    instead: dict[str, Callable[[Message], Any]] = field(default_factory=dict)
    programs: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    log: str = ""
    ignores_direct: bool = False
    asked: list[str] = field(default_factory=list)
    serial: str = SERIAL
    _open: dict[str, int] = field(default_factory=dict)
    _ran: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    _devices: set[str] = field(default_factory=set)

    def plugged(self, disk: Disk) -> None:
        """A disk that is there from the start."""
        self.serial = disk.serial
        if disk.filename is not None:
            node = AttachedNames(disk.serial).file_node
            self._add_node({"node-name": node, "filename": disk.filename,
                            "cache": {"direct": disk.cache.direct}})  # fmt: skip

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def monitor(self, request: Message) -> list[Message] | None:
        """What it answers over QMP."""
        verb, arguments = request["execute"], request.get("arguments", {})
        name = arguments.get("id", arguments.get("node-name"))
        if not verb.startswith(("query-", "qom-")):
            self.asked.append(f"{verb} {name}" if name else verb)
        if verb in self.instead:
            answer: list[Message] | None = self.instead[verb](request)
            return answer
        match verb:
            case "blockdev-add":
                self._add_node(arguments)
            case "blockdev-del":
                if self._devices:
                    return refusing(f"Node {name} is in use")
                if name in self._open:
                    os.close(self._open.pop(name))
            case "device_add":
                self._devices.add(name)
            case "query-version":
                return [{"return": GREETING["QMP"]["version"]}]
            case "device_del":
                self._devices.discard(name)
                return [{"return": {}}, *self._deleted(name)]
        return [{"return": recorded(self.name, self.serial).answers.get(verb, {})}]

    def agent(self, request: Message) -> list[Message] | None:
        """What its guest answers."""
        verb, arguments = request["execute"], request.get("arguments", {})
        if verb in self.instead:
            answer: list[Message] | None = self.instead[verb](request)
            return answer
        match verb:
            case "guest-exec":
                said: Any = self._start([arguments["path"], *arguments["arg"]])
            case "guest-exec-status":
                said = self._ended(arguments["pid"])
            case "guest-file-open":
                said = 1000
            case "guest-file-read":
                said = {"buf-b64": _encoded(self.log), "eof": True}
            case _:
                said = {}
        return [{"return": said}]

    def _add_node(self, node: Message) -> None:
        self.serial = node["node-name"].rsplit("-", 1)[0]
        if "filename" in node:
            direct = node.get("cache", {}).get("direct") and not self.ignores_direct
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
            self._open[node["node-name"]] = os.open(node["filename"], flags)

    @staticmethod
    def _deleted(name: str) -> list[Message]:
        """As qapi/qdev.json has it; a virtio device's inner one goes first and has no name."""
        path, stamp = f"/machine/peripheral/{name}", {"seconds": 1, "microseconds": 2}
        ended = ({"path": f"{path}/virtio-backend"}, {"device": name, "path": path})
        return [{"event": "DEVICE_DELETED", "data": data, "timestamp": stamp} for data in ended]

    def _start(self, argv: list[str]) -> Message:
        program = Path(argv[0]).name
        self.asked.append(f"guest: {program}")
        usual = (0, recorded(self.name, self.serial).found if argv[0] == FIND_DISK else "", "")
        pid = 100 + len(self._ran)
        self._ran[pid] = self.programs.get(program, usual)
        return {"pid": pid}

    def _ended(self, pid: int) -> Message:
        status, out, err = self._ran[pid]
        return {"exited": True, "exitcode": status, "out-data": _encoded(out),
                "err-data": _encoded(err)}  # fmt: skip


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def machine_of(qemu: FakeQemu) -> Iterator[Machine]:
    """The machine that talks to it; its process is ours."""
    boot = BootFiles(Path("/k"), Path("/i"), Path("/r"), "quiet")
    config = GuestConfig("qemu", "fake", "q35", Accelerator.TCG, GuestPlan(), boot)
    with ExitStack() as channels:
        channels.callback(qemu.close)
        monitor, _ = channels.enter_context(channel_to(qemu.monitor))
        agent, _ = channels.enter_context(channel_to(qemu.agent, greets=False))
        argv = ("qemu", "-name", "fake")
        yield Machine(config, argv, os.getpid(), monitor, Agent(agent), MicroGuest())
