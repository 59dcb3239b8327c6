"""The daemons that serve a disk or a directory: qemu-storage-daemon and virtiofsd.

The storage daemon is QEMU's block layer without a guest, with the same monitor. It exports a disk
over NBD as a guest's device would use it, with the same nodes and cache options; the export's
`writethrough` is the device's `write-cache=off`. virtiofsd ends when its QEMU does.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vdisklab.errors import GuestError, GuestTimeoutError, HostError, VdisklabError
from vdisklab.guest.qemu.block_nodes import (
    DAEMON,
    VIRTIOFSD,
    Disk,
    block_nodes,
    drive_node,
    export_arguments,
    node_objects,
    objects,
    served_export,
    virtiofsd_arguments,
)
from vdisklab.guest.qemu.qmp import (
    Channel,
    event_loop,
    open_channel,
    qemu_process,
    socket_of,
    socket_pair,
)
from vdisklab.host.command import Host, not_installed
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.host.waiting import exit_status, patience
from vdisklab.path.segments import Bus
from vdisklab.value import Value

_ANSWER_SECONDS = 30.0


_PLACES = (
    VIRTIOFSD, "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd",
)  # fmt: skip
"""The places where distributions put the daemon: outside PATH, as users do not start it."""

_OLDER_RELEASES = (
    "on Debian 12 and Ubuntu 22.04, which have no such package, unpack their qemu-system-common as "
    "docs/paths.md says"
)


class StorageDaemon(Value):
    """A running daemon with an NBD server on a socket in its directory."""

    monitor: Channel
    address: str
    argv: tuple[str, ...]
    errors: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self.process.pid

    def query(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The answer to a QMP query."""
        return self.monitor.execute(command)

    def alive(self) -> bool:
        """True if it still runs, also after a lost connection."""
        return exit_status(self.process) is None

    @contextmanager
    def export(self, disk: Disk) -> Iterator[None]:
        """Exports a disk, writable: to QEMU's device if its bus is served, else over NBD under its
        serial.

        Raises GuestError if QEMU does not open it.
        """
        names, served = disk.names, disk.attachment.bus.is_served
        nodes = block_nodes(disk)
        with ExitStack() as opened:
            for made in objects(disk) if served else node_objects(disk):
                self.monitor.execute("object-add", made)
                opened.callback(self.monitor.execute, "object-del", {"id": made["id"]})
            for node in nodes:
                self.monitor.execute("blockdev-add", node)
                opened.callback(
                    self.monitor.execute, "blockdev-del", {"node-name": node["node-name"]}
                )
            arguments = served_export(disk) if served else export_arguments(disk)
            self.monitor.execute("block-export-add", arguments)
            opened.callback(self._stop_export, names.device)
            yield

    def resize(self, disk: Disk, size: int) -> None:
        """Resizes a disk that is exported over NBD; its clients must connect again.

        An export's size is fixed, so QEMU refuses `block_resize` during one
        (nbd_export_create in nbd/server.c).
        """
        self._stop_export(disk.names.device)
        self.monitor.execute("block_resize", {"node-name": drive_node(disk), "size": size})
        self.monitor.execute("block-export-add", export_arguments(disk))

    def _stop_export(self, export: str) -> None:
        """Ends an export and waits for the end: until then its node cannot be closed."""

        with self.monitor.expecting(
            "BLOCK_EXPORT_DELETED", lambda data: data.get("id") == export
        ) as wait:
            self.monitor.execute("block-export-del", {"id": export, "mode": "hard"})
            wait(_ANSWER_SECONDS)

    def connect(self) -> socket.socket:
        """A connection to the NBD server."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_SECONDS * patience())
        try:
            connection.connect(socket_of(self.pid, self.address))
        except OSError as error:
            connection.close()
            kind = GuestTimeoutError if isinstance(error, TimeoutError) else GuestError
            raise kind(
                f"{DAEMON}'s NBD server does not answer: {error}",
                hint="the machine may be too busy: try again when it is idle",
            ) from error
        return connection


def daemon_argv(monitor: int, address: str) -> tuple[str, ...]:
    """The command line; `monitor` is a descriptor that the daemon inherits."""
    return (
        DAEMON,
        "--chardev", f"socket,id=monitor,fd={monitor}",
        "--monitor", "chardev=monitor",
        "--nbd-server", f"addr.path={address},addr.type=unix",
    )  # fmt: skip


@contextmanager
def start_storage_daemon(
    ledger: Ledger, directory: Path, name: str, *, before: Callable[[], None] | None = None
) -> Iterator[StorageDaemon]:
    """Starts a daemon and waits until it answers; `name` must be unique on this host.

    `before` runs in its process just before QEMU does. Raises GuestError if it does not answer,
    HostError if it is not installed.
    """
    errors = directory / f"{name}.stderr"
    with ExitStack() as stack:
        stack.enter_context(ledger.entry(Kind.PROCESS, f"addr.path={name},"))
        near, far = stack.enter_context(socket_pair())
        argv = daemon_argv(far.fileno(), name)
        process = stack.enter_context(qemu_process(argv, (far,), errors, before=before))
        far.close()
        loop = stack.enter_context(event_loop())
        monitor = stack.enter_context(
            open_channel(loop, near, "monitor", negotiate=True, timeout=_ANSWER_SECONDS)
        )
        yield StorageDaemon(monitor, name, argv, errors, process)


def find_virtiofsd(host: Host) -> Path:
    """The program. Raises HostError if it is not installed."""
    for place in _PLACES:
        program = host.which(place)
        if program is not None:
            return program
    missing = not_installed(VIRTIOFSD)
    if "apt-get" not in (missing.hint or ""):
        raise missing
    raise HostError(missing.message, hint=f"{missing.hint}; {_OLDER_RELEASES}")


class VirtiofsDaemon(Value):
    """A running virtiofsd."""

    process: subprocess.Popen[bytes]
    version: str

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self.process.pid

    def alive(self) -> bool:
        """True if it still runs, or ended because QEMU did: then it exits with 0, both in C and
        in Rust, and the error is QEMU's."""
        return exit_status(self.process) in (None, 0)

    def option(self, name: str) -> str:
        """The value of an option on the command line that the kernel shows; `none` without it."""
        try:
            arguments = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")
        except OSError as error:
            raise GuestError(f"{VIRTIOFSD} has ended: {error.strerror}") from error
        values = [word.partition("=")[2] for word in arguments if word.startswith(f"{name}=")]
        return values[-1] if values else "none"


def ended(program: str) -> GuestError:
    """The error for a daemon that is gone."""
    return GuestError(
        f"{program}, which serves the guest, has ended",
        hint="`dmesg` says whether the kernel killed it because memory ran out",
    )


@contextmanager
def shared(
    host: Host, ledger: Ledger, directory: Path, disk: Disk
) -> Iterator[VirtiofsDaemon | None]:
    """Runs virtiofsd for a virtiofs, which waits for QEMU on a socket; yields None for 9p, which
    QEMU serves itself.

    Its errors go to a file in `directory`. Raises HostError if it is not installed, or if it cannot
    take the directory's name. An error in the body says so if virtiofsd has ended.
    """
    if disk.attachment.bus is not Bus.VIRTIOFS:
        yield None
        return
    program, shared = find_virtiofsd(host), disk.directory
    if "," in shared:
        raise HostError(
            f"{VIRTIOFSD} cannot share {shared}: a comma ends an option of its command line",
            hint="choose a work directory without a comma in its name: --dir",
        )
    printed = host.run(program, "--version").stdout.split("\n", 1)[0].strip()
    with (
        ledger.entry(Kind.PROCESS, f"source={shared}"),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
    ):
        _bind_in(directory, disk.names.served, listening)
        listening.listen(1)
        socket_option = f"--fd={listening.fileno()}"
        argv = virtiofsd_arguments(program, shared, disk.attachment, socket_option)
        errors = directory / f"{disk.serial}.virtiofsd.stderr"
        with qemu_process(argv, (listening,), errors) as process:
            daemon = VirtiofsDaemon(process, printed)
            try:
                yield daemon
            except VdisklabError as error:
                if daemon.alive():
                    raise
                raise ended(VIRTIOFSD) from error


def _bind_in(directory: Path, name: str, listening: socket.socket) -> None:
    """Gives a socket a name in a directory, however long the directory's own name is."""
    (directory / name).unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listening.bind(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
