"""virtiofsd, which serves a directory to QEMU's device, while a context is open.

It ends when QEMU does.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.plugging import VIRTIOFSD, virtiofsd_arguments
from vdisklab.guest.qemu.process import qemu_process
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.host.programs import not_installed

_PLACES = (
    VIRTIOFSD, "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd",
)  # fmt: skip
"""Where distributions put the daemon, which is not meant for users to start."""


_OLDER_RELEASES = (
    "on Debian 12 and Ubuntu 22.04, which have no such package, unpack their qemu-system-common as "
    "docs/paths.md says"
)


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


@dataclass(frozen=True, slots=True)
class VirtiofsDaemon:
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
        return self.process.poll() in (None, 0)

    def option(self, name: str) -> str:
        """The value of an option on the command line that the kernel shows; `none` without it."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")
        except OSError as error:
            raise GuestError(f"{VIRTIOFSD} has ended: {error.strerror}") from error
        values = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
        return values[-1] if values else "none"


@contextmanager
def start_virtiofsd(
    host: Host, ledger: Ledger, directory: Path, disk: Disk
) -> Iterator[VirtiofsDaemon]:
    """Starts the daemon of a shared directory, which waits for QEMU on a socket.

    Its errors go to a file in `directory`. Raises HostError if it is not installed, or if it cannot
    take the directory's name.
    """
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
        listening.bind(f"\0{disk.names.served}")
        listening.listen(1)
        at = f"--fd={listening.fileno()}"
        argv = virtiofsd_arguments(program, shared, disk.attachment, at)
        errors = directory / f"{disk.serial}.virtiofsd.stderr"
        with qemu_process(argv, (listening,), errors) as process:
            yield VirtiofsDaemon(process, printed)
