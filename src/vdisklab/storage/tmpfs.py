"""tmpfs: files in memory, the ceiling that no disk reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.ledger import Kind
from vdisklab.host.memory import available_memory
from vdisklab.host.mounts import mount_at
from vdisklab.storage.room import require_memory
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target


@contextmanager
def tmpfs(site: Site, name: str, size: int) -> Iterator[Target]:
    """A tmpfs that holds `size` bytes. Raises HostError when the memory is not there."""
    require_memory(size, available_memory(), "this stack")
    mountpoint = site.directory / name
    with site.tracked(Kind.DIRECTORY, mountpoint):
        mountpoint.mkdir()
        with site.tracked(Kind.MOUNT, mountpoint):
            site.host.run(*tmpfs_command(mountpoint, size))
            mount = mount_at(mountpoint)
            if mount is None or mount.filesystem != "tmpfs":
                raise HostError(
                    f"{mountpoint} is not a tmpfs although mount said so",
                    hint="something else mounted over it (`findmnt`): choose another --dir",
                )
            yield Target(mountpoint, False, {"tmpfs.mount": ",".join(sorted(mount.options))})


def tmpfs_command(mountpoint: Path, size: int) -> tuple[str, ...]:
    """What mounts a tmpfs of `size` bytes."""
    return ("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mountpoint))
