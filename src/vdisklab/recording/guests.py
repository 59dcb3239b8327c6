"""A running guest and the way to its monitor: libvirt's, Proxmox VE's, or QEMU's own socket.

A monitor serves one client, so it is opened for a moment and never held while a recording runs:
Proxmox VE asks its guests every ten seconds.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import asdict

from vdisklab.errors import (
    CommandError,
    GuestError,
    HostError,
    PlanError,
    RefusedError,
    SilentGuestError,
)
from vdisklab.host.command import Host
from vdisklab.host.processes import Process
from vdisklab.host.waiting import Clock, patience
from vdisklab.inspection.existing_guests import (
    believed_processes,
    names_of,
    process_monitor,
)
from vdisklab.platforms.qemu import monitor_of
from vdisklab.units import named
from vdisklab.value import Value

LIBVIRT_URI = "qemu:///system"

_QEMU = re.compile(r"qemu-system-\w+|qemu-kvm|kvm|\.qemu-\S+-wrapped")
_VIRSH_SECONDS = 30.0
_BUSY_SECONDS = 15.0
_PAUSE = 0.5


class GuestMonitor(Protocol):
    """QEMU's machine protocol, whoever carries it."""

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The `return` of a command. Raises RefusedError and GuestError."""


class RunningGuest(Value):
    """A guest that runs: its name, the way to its monitor, and the user and process of its QEMU.

    `domain` is libvirt's name for it, at `uri`; else `socket` is the monitor's. `pid` and `started`
    tell this process from a later one with the same number. All are texts or numbers, so that a
    ledger can hold them.
    """

    name: str
    pid: int
    started: str
    user: int
    domain: str = ""
    uri: str = ""
    socket: str = ""

    @property
    def detail(self) -> dict[str, str]:
        """The guest as texts, for a ledger."""
        fields = {key: str(value) for key, value in asdict(self).items()}
        return {"guest": fields.pop("name"), **fields}

    @property
    def is_running(self) -> bool:
        """False when its QEMU has ended, or was migrated away."""
        return bool(self.started) and started_at(Path("/proc", str(self.pid))) == self.started


def of_detail(detail: Mapping[str, str]) -> RunningGuest:
    """The guest that a ledger notes. Raises HostError for a damaged note."""
    fields = {key: detail.get(key, "") for key in ("started", "domain", "uri", "socket")}
    numbers = [detail.get("pid", ""), detail.get("user", "")]
    if not all(re.fullmatch("[0-9]{1,10}", number) for number in numbers):
        raise HostError("the note of a recorded guest is damaged", hint="delete its ledger by hand")
    name = detail.get("guest", "")
    return RunningGuest(name, int(numbers[0]), user=int(numbers[1]), **fields)


class _Virsh:
    """The monitor of a libvirt domain. libvirt marks the domain as tainted: custom-monitor."""

    def __init__(self, host: Host, uri: str, domain: str) -> None:
        self._host, self._uri, self._domain = host, uri, domain

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401
        request = {"execute": command, **({"arguments": dict(arguments)} if arguments else {})}
        printed = self._host.run(
            "virsh", "--connect", self._uri, "qemu-monitor-command", self._domain,
            json.dumps(request), timeout=max(timeout, _VIRSH_SECONDS),
        ).stdout  # fmt: skip
        try:
            answer = json.loads(printed)
        except (ValueError, RecursionError) as error:
            raise GuestError(f"virsh printed no JSON for {command}") from error
        if isinstance(answer, dict) and "return" in answer:
            return answer["return"]
        said = answer.get("error") if isinstance(answer, dict) else None
        reason = said.get("desc") if isinstance(said, dict) else "an answer without `return`"
        raise RefusedError(f"QEMU refused: {str(reason)[:200]}")


@contextmanager
def open_monitor(host: Host, guest: RunningGuest, clock: Clock = time) -> Iterator[GuestMonitor]:
    """The guest's monitor, for a moment. Raises GuestError, also if another program holds it for
    longer than a few seconds."""
    if guest.domain:
        yield _Virsh(host, guest.uri, guest.domain)
        return
    with ExitStack() as stack:
        yield _monitor_of_socket(stack, guest, clock)


def _monitor_of_socket(stack: ExitStack, guest: RunningGuest, clock: Clock) -> GuestMonitor:
    deadline = clock.monotonic() + _BUSY_SECONDS * patience()
    while True:
        try:
            return stack.enter_context(process_monitor(Path(guest.socket), guest.user))
        # Few may wait for a monitor that serves another program; the next one is told EAGAIN.
        except (SilentGuestError, BlockingIOError) as error:
            if clock.monotonic() > deadline:
                raise GuestError(
                    f"another program holds the monitor of {guest.name} ({guest.socket})",
                    hint="end that program, or give the guest a second monitor: -qmp unix:FILE,"
                    "server=on,wait=off",
                ) from error
            clock.sleep(_PAUSE)
        except OSError as error:
            raise GuestError(
                f"the monitor {guest.socket} cannot be opened: {error.strerror or error}",
                hint="be root, or the user of the guest",
            ) from error


def find_guest(
    host: Host, name: str, uri: str | None = None, processes: Path = Path("/proc")
) -> RunningGuest:
    """The running guest of that name: libvirt's name, Proxmox VE's number, QEMU's -name, or the
    file of its monitor.

    Only processes that run a QEMU as root, as the caller or as a platform's user count. Raises
    PlanError if there is none, GuestError for a guest that no program can ask.
    """
    notes: list[str] = []
    found = [
        process
        for process in believed_processes(processes, notes)
        if _QEMU.fullmatch(process.program) and name in _names(process)
    ]
    domain = _is_domain(host, name, uri or LIBVIRT_URI, asked=uri is not None)
    if not found:
        said = f" ({notes[0].rstrip('.')})" if notes else ""
        if domain == "running":
            raise GuestError(
                f"libvirt runs {name}, but its process is not seen here{said}",
                hint="run vdisklab on the guest's host, as root, outside of containers",
            )
        if domain:
            raise PlanError(
                f"guest {name} does not run: libvirt says {domain}", hint=f"virsh start {name}"
            )
        names = sorted(
            {
                each
                for process in believed_processes(processes)
                if _QEMU.fullmatch(process.program)
                for each in _names(process)[:1]
            }
        )
        running = f"; running are {named(names)}" if names else "; no guest runs on this host"
        raise PlanError(
            f"no running guest is called {name}{running}{said}",
            hint="name a libvirt domain, a Proxmox VE number, QEMU's -name, or its QMP socket",
        )
    if len(found) > 1:
        raise PlanError(
            f"{len(found)} running guests are called {name}",
            hint="name one by its QMP socket",
        )
    return _guest(name, found[0], domain, uri or LIBVIRT_URI)


def _guest(name: str, process: Process, domain: str, uri: str) -> RunningGuest:
    if "-D" in process.arguments:
        raise GuestError(
            f"the QEMU of {name} writes a log of its own (-D), which a recording would take over",
            hint="start the guest without -D",
        )
    pid, started = int(process.number), started_at(process.directory)
    if domain:
        return RunningGuest(name, pid, started, process.user, domain=name, uri=uri)
    monitor = monitor_of(process.arguments)
    if monitor is None:
        raise GuestError(
            f"guest {name} (process {pid}) has no monitor that a program can open",
            hint="start it with -qmp unix:/run/NAME.qmp,server=on,wait=off",
        )
    place = monitor if monitor.is_absolute() else process.directory / "cwd" / monitor
    return RunningGuest(name, pid, started, process.user, socket=str(place))


def _names(process: Process) -> tuple[str, ...]:
    """What people call the guest of a process."""
    names = [
        part.removeprefix("guest=") for name in names_of(process) for part in name.split(",")[:1]
    ]
    names += [number for flag, number in pairwise(process.arguments) if flag == "-id"]
    monitor = monitor_of(process.arguments)
    return (*names, process.number, *([str(monitor)] if monitor else ()))


def _is_domain(host: Host, name: str, uri: str, *, asked: bool) -> str:
    """The state of the libvirt domain of that name; empty if libvirt has none. Raises HostError if
    libvirt was asked for and does not answer."""
    if host.which("virsh") is None and not asked:
        return ""
    try:
        return host.run(
            "virsh", "--connect", uri, "domstate", "--domain", name, timeout=_VIRSH_SECONDS
        ).stdout.strip()
    except CommandError:
        return ""  # no such domain, or no libvirt
    except HostError:
        if asked:
            raise
        return ""


def started_at(process: Path) -> str:
    """When a process began, in the kernel's clock ticks (field 22 of /proc/PID/stat in proc(5));
    empty if it has ended."""
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
