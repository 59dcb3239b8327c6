"""A block device whose every change is logged: the disk below the host's file system.

A server of our own behind FUSE logs it (`disk_server`).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError, memory_full
from vdisklab.host import command, mounts, pagecache, syscalls, waiting
from vdisklab.host.ledger import Kind
from vdisklab.storage import disk_server
from vdisklab.storage.device import read_direct_io, require_flushes
from vdisklab.storage.disk_server import FULL, HONEST, READY, Lies
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.value import Value, field, replace

_START_SECONDS = 30.0
_END_SECONDS = 60.0


class LoggedDisk(Value):
    """The logged file or device with the properties that were read back, and its growing log."""

    path: Path
    log: Path
    size: int
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def device(self) -> Device:
        """The device to build on. It must not be a logged file."""
        return Device(self.path, self.properties)


@contextmanager
def logged_disk(
    site: Site,
    name: str,
    size: int,
    *,
    lies: Lies = HONEST,
    direct_io: bool = True,
    log: Path | None = None,
) -> Iterator[LoggedDisk]:
    """A loop device of `size` bytes over a logged file. Raises HostError as `logged_file` does."""
    with (
        logged_file(site, name, size, lies=lies, log=log) as below,
        site.tracked(Kind.LOOP, below.path),
    ):
        device = Path(syscalls.attach_loop(below.path, direct_io=direct_io))
        require_flushes(device)
        yield replace(below, path=device, properties=_direct_io(site, device))


@contextmanager
def rated_disk(site: Site, name: str, size: int, rate: float) -> Iterator[Path]:
    """A loop device of `size` bytes that completes `rate` requests a second, one after the other.

    Raises HostError as `logged_file` does.
    """
    with (
        served_file(site, name, size, f"--rate={rate:g}") as served,
        site.tracked(Kind.LOOP, served.path),
    ):
        yield Path(syscalls.attach_loop(served.path, direct_io=True))


@contextmanager
def logged_file(
    site: Site, name: str, size: int, *, lies: Lies = HONEST, log: Path | None = None
) -> Iterator[LoggedDisk]:
    """A file whose size stays `size` bytes; the FUSE server logs each change to it.

    Content and log lie in the site's directory, which should be in memory. A `log` elsewhere is
    kept; otherwise it is removed with the file. Raises HostError without FUSE or when the server
    does not start.
    """
    log = log or site.directory / f"{name}.log"
    options = (f"--dropped-flushes={lies.dropped_flushes}", f"--seed={lies.seed}")
    with (
        site.tracked(Kind.FILE, log) if log.parent == site.directory else nullcontext(),
        served_file(site, name, size, *options, log=log) as served,
    ):
        yield LoggedDisk(served.path, log, size)


class ServedFile(Value):
    """A file that a server of our own answers for, and the server's process."""

    path: Path
    process: subprocess.Popen[bytes]


@contextmanager
def served_file(
    site: Site,
    name: str,
    size: int,
    *options: str,
    log: Path | None = None,
    program: str = disk_server.__name__,
    fill: Callable[[Path], object] | None = None,
) -> Iterator[ServedFile]:
    """A file of `size` bytes that the module `program` serves, until the context closes.

    `fill` gets the file with its content, before it is served. Raises HostError without FUSE or
    when the server does not start.
    """
    refused = pagecache.try_device("fuse")
    if refused is not None:
        raise HostError(f"/dev/fuse: {refused.strerror}", hint="modprobe fuse, or run as root")
    mountpoint, content = site.directory / f"{name}.disk", site.directory / f"{name}.content"
    marker = f"{site.directory.name}-{name}"
    argv = (
        sys.executable, "-m", program, f"--marker={marker}",
        f"--size={size}", *options, *map(os.fspath, filter(None, (mountpoint, content, log))),
    )  # fmt: skip
    with (
        site.tracked(Kind.FILE, content),
        site.tracked(Kind.FILE, mountpoint),
        site.tracked(Kind.PROCESS, f"--marker={marker}"),
    ):
        site.new_file(mountpoint)
        if fill is not None:
            fill(content)
        with site.tracked(Kind.MOUNT, mountpoint), _server(argv, marker) as process:
            yield ServedFile(mountpoint, process)
            # The server ends with its mount; `_server` waits for that.
            site.host.run("umount", mountpoint)


def _direct_io(site: Site, loop: Path) -> dict[str, str]:
    return {"loop.direct_io": "on" if read_direct_io(site.host, loop) else "off"}


@contextmanager
def _server(argv: tuple[str, ...], marker: str) -> Iterator[subprocess.Popen[bytes]]:
    """The running server. It ends when its file is unmounted; otherwise it is killed."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,  # a server that takes orders sees its end when this process dies
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # Ctrl-C goes to the whole process group, but the disk must outlive its users.
        start_new_session=True,
    )
    try:
        _await_ready(process)
        with _required_health(process, marker):
            yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _required_health(process: subprocess.Popen[bytes], marker: str) -> Iterator[None]:
    """Waits for the server's end when the context closes.

    Raises HostError if the server was killed or ran out of memory, even if the body raised another
    error: the disk's users then saw errors that are not part of the disk model.
    """
    try:
        yield
        process.wait(_END_SECONDS * waiting.patience())
    except subprocess.TimeoutExpired as error:
        raise mounts.still_mounted("the logged disk", marker) or HostError(
            "the logged disk did not end when it was unmounted"
        ) from error
    except DirtyHostError:
        raise
    except Exception as error:
        status = waiting.exit_status(process)
        _require_memory_sufficed(process, error)
        if status is not None:
            raise _ended_early(status) from error
        raise
    else:
        _require_memory_sufficed(process)
        if process.returncode:
            raise _ended_early(process.returncode)


def _ended_early(status: int) -> HostError:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
    return HostError(
        f"the logged disk's server {how} while the disk was in use",
        hint="`dmesg` shows whether it was killed for lack of memory; run the same command again",
    )


def _require_memory_sufficed(
    process: subprocess.Popen[bytes], cause: Exception | None = None
) -> None:
    """Raises MemoryFullError if the server reported it; ends the server to read its report."""
    if FULL in _error_output(process):
        raise memory_full("the data written to the logged disk") from cause


def _error_output(process: subprocess.Popen[bytes]) -> bytes:
    process.kill()
    return process.communicate()[1]


def _await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None  # noqa: S101 - Popen was given a pipe
    readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS * waiting.patience())
    line = process.stdout.readline() if readable else b""
    if line != READY:
        errors = _error_output(process)
        if FULL in errors:
            raise memory_full("a logged disk")
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
        raise HostError(f"the logged disk cannot be started: {last[0]}")
