"""A block device whose every change is logged: the disk below the host's file system."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host.command import environment
from vdisklab.host.deadline import patience
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import mounted_elsewhere
from vdisklab.host.syscalls import attach_loop
from vdisklab.powercut.cutting.memory import memory_full
from vdisklab.powercut.recording.diskserver import FULL, READY, Lies
from vdisklab.powercut.recording.dmlog import MarkTail
from vdisklab.storage.loop import read_direct_io, require_flushes
from vdisklab.storage.site import Site, Target

_START_SECONDS = 30.0
_END_SECONDS = 60.0

HONEST = Lies()


@dataclass(frozen=True, slots=True)
class LoggedDisk:
    """The device to build on, and the log that grows with it.

    `marks` are the positions where the log's length is none; see `dmlog`.
    """

    target: Target
    log: Path
    size: int
    marks: MarkTail | None = None


class LoggedBy(StrEnum):
    """What logs the disk."""

    FUSE = "fuse"
    DM = "dm-log-writes"


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
    """A loop device of `size` bytes over a file that our own FUSE server logs.

    Content and log lie in the site's directory, which should be in memory. `log` names a log
    that is to stay; else it is removed with the disk. Raises HostError without FUSE or when the
    server does not start.
    """
    if not Path("/dev/fuse").exists():
        raise HostError("this kernel has no /dev/fuse", hint="modprobe fuse")
    mountpoint = site.directory / f"{name}.disk"
    content = site.directory / f"{name}.content"
    log = log or site.directory / f"{name}.log"
    marker = f"{site.directory.name}-{name}"
    with (
        site.tracked(Kind.FILE, content),
        site.tracked(Kind.FILE, mountpoint),
        _log_file(site, log),
        site.tracked(Kind.PROCESS, f"--marker={marker}"),
    ):
        mountpoint.touch()
        arguments = _arguments(marker, size, lies, (mountpoint, content, log))
        with site.tracked(Kind.MOUNT, mountpoint), _server(arguments, marker):
            with site.tracked(Kind.LOOP, mountpoint):
                device = Path(attach_loop(mountpoint, direct_io=direct_io))
                require_flushes(device)
                seen = "on" if read_direct_io(site.host, device) else "off"
                yield LoggedDisk(Target(device, True, {"loop.direct_io": seen}), log, size)
            # The server ends with its mount: unmounted here, awaited by `_server`.
            site.host.run("umount", mountpoint)


@contextmanager
def _log_file(site: Site, log: Path) -> Iterator[None]:
    if log.parent != site.directory:
        yield
        return
    with site.tracked(Kind.FILE, log):
        yield


def _arguments(
    marker: str, size: int, lies: Lies, files: tuple[Path, Path, Path]
) -> tuple[str, ...]:
    return (
        sys.executable, "-m", "vdisklab.powercut.recording.diskserver",
        f"--marker={marker}", f"--size={size}",
        f"--dropped-flushes={lies.dropped_flushes}", f"--seed={lies.seed}",
        *map(os.fspath, files),
    )  # fmt: skip


@contextmanager
def _server(arguments: tuple[str, ...], marker: str) -> Iterator[None]:
    """The server, ready; it ends by itself once its file is unmounted, and is killed otherwise."""
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # What asks us to end may ask our whole group: the disk must outlive what stands on it.
        start_new_session=True,
    )
    try:
        _await_ready(process)
        with _in_good_health(process, marker):
            yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _in_good_health(process: subprocess.Popen[bytes], marker: str) -> Iterator[None]:
    """Waits for the server's end after the block.

    Raises HostError, whatever came of the block, when the server was killed or had no room for
    something: what stood on the disk met errors that no disk of the model has.
    """
    try:
        yield
        process.wait(_END_SECONDS * patience())
    except subprocess.TimeoutExpired as error:
        raise _still_mounted(marker) from error
    except DirtyHostError:
        raise
    except Exception as error:
        ended = process.poll()
        _require_room(process, error)
        if ended is not None:
            raise _ended_early(ended) from error
        raise
    else:
        _require_room(process)
        if process.returncode:
            raise _ended_early(process.returncode)


def _still_mounted(marker: str) -> HostError:
    holders = mounted_elsewhere(marker)
    if not holders:
        return HostError("the logged disk did not end when it was unmounted")
    return HostError(
        "the logged disk is still mounted in another mount namespace, which was made meanwhile, by "
        f"{', '.join(holders)}",
        hint="start no container, and nothing with `unshare --mount`, while vdisklab runs; the "
        "same command asks again",
    )


def _ended_early(status: int) -> HostError:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
    return HostError(
        f"the logged disk's server {how} while the disk was in use",
        hint="`dmesg` says whether it was killed for want of memory; the same command asks again",
    )


def _require_room(process: subprocess.Popen[bytes], met: Exception | None = None) -> None:
    """Raises MemoryFullError when the server said so; it is not read from before it is gone."""
    if FULL in _last_words(process):
        raise memory_full("all that was written to the logged disk") from met


def _last_words(process: subprocess.Popen[bytes]) -> bytes:
    process.kill()
    return process.communicate()[1]


def _await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS * patience())
    said = process.stdout.readline() if readable else b""
    if said != READY:
        errors = _last_words(process)
        if FULL in errors:
            raise memory_full("a logged disk")
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise HostError(f"the logged disk cannot be started: {last[0]}")
