"""The kernel's I/O limits for one process (control groups), as libvirt's <blkiotune> and systemd's
IOReadIOPSMax set them.

Version 1 has blkio.throttle.*_device (Documentation/admin-guide/cgroup-v1/blkio-controller.rst),
version 2 io.max (cgroup-v2.rst). Both limit reads and writes each. Version 1 does not limit later
writes from the page cache. The limit of a partition is set on its disk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host import command, counters, ledger
from vdisklab.host.waiting import wait_until
from vdisklab.path.disk_path import Attachment
from vdisklab.results.model import Check
from vdisklab.storage.site import Site
from vdisklab.storage.undo import Removable
from vdisklab.value import Value

ROOT = Path("/sys/fs/cgroup")

_DYING_SECONDS = 10.0
"""Deadline for a killed process to leave its control group."""

_V1 = {
    "iops": ("blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"),
    "bps": ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"),
}
_V2 = {"iops": ("riops", "wiops"), "bps": ("rbps", "wbps")}


class _Group(Value):
    """A control group for one process; `parent` is the group that the process came from."""

    path: Path
    parent: Path
    is_v2: bool

    def set(self, device: str, limits: Mapping[str, int]) -> None:
        """Writes the limits on a device, MAJOR:MINOR. Raises OSError."""
        if self.is_v2:
            settings = (f"{key}={number}" for kind, number in limits.items() for key in _V2[kind])
            (self.path / "io.max").write_text(f"{device} {' '.join(settings)}")
            return
        for kind, number in limits.items():
            for file in _V1[kind]:
                (self.path / file).write_text(f"{device} {number}")

    def read(self, device: str, kind: str) -> str:
        """The kernel's present limits for reads and writes: `500` if they are equal."""
        if self.is_v2:
            settings = _line((self.path / "io.max").read_text(), device).split()
            values = dict(word.partition("=")[::2] for word in settings)
            limits = [values.get(key, "") for key in _V2[kind]]
        else:
            limits = [_line((self.path / file).read_text(), device) for file in _V1[kind]]
        return "/".join(dict.fromkeys(limits))


def limits_of(attachment: Attachment) -> dict[str, int]:
    """The limits that a path sets, by `iops` or `bps`; empty without any."""
    wanted = {kind: attachment.option(f"cgroup_{kind}") for kind in _V1}
    return {kind: int(number) for kind, number in wanted.items() if number is not None}


@contextmanager
def limited(
    site: Site, pid: int, below: Path, limits: Mapping[str, int], root: Path = ROOT
) -> Iterator[tuple[Check, ...]]:
    """Limits a process on the disk below a file, in a control group of its own.

    Yields the limits as they were read back; nothing happens without `limits`. Raises HostError if
    the kernel cannot limit the disk.
    """
    if not limits:
        yield ()
        return
    device = _disk_below(below)
    try:
        group = _group_for(pid, site.ledger.run_id, root)
    except OSError as error:
        raise HostError(
            f"the control group of process {pid} is unknown: {error.strerror}"
        ) from error
    with site.tracked(CGROUP, group.path, parent=str(group.parent)):
        try:
            group.path.mkdir()
            group.set(device, limits)
            (group.path / "cgroup.procs").write_text(str(pid))
            checks = tuple(
                Check(f"host.cgroup_{kind}", str(number), group.read(device, kind))
                for kind, number in limits.items()
            )
        except OSError as error:
            raise HostError(
                f"the kernel does not limit the disk {device} in {group.path}: {error.strerror}",
                hint="cgroup_iops and cgroup_bps need the controller blkio (cgroup version 1) or "
                "io (version 2) with CONFIG_BLK_DEV_THROTTLING, and root",
            ) from error
        yield checks


def _group_for(pid: int, run_id: str, root: Path) -> _Group:
    """The group to make, below the root group: version 2 lets processes be moved there."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    groups = {controllers: name.lstrip("/") for _, controllers, name in lines}
    v1 = root / "blkio"
    name = f"vdisklab-{run_id}-{pid}"
    if "blkio" in groups and (v1 / "cgroup.procs").exists():
        return _Group(v1 / name, v1 / groups["blkio"], is_v2=False)
    controllers = root / "cgroup.subtree_control"
    if "" not in groups or not controllers.exists() or "io" not in controllers.read_text().split():
        raise HostError(
            "no control group limits disks here",
            hint="version 2 needs the controller io: `echo +io > /sys/fs/cgroup/"
            "cgroup.subtree_control`; or leave out cgroup_iops and cgroup_bps",
        )
    return _Group(root / name, root / groups[""], is_v2=True)


def _disk_below(file: Path) -> str:
    """MAJOR:MINOR of the whole disk below a file, or of the device itself."""
    number = counters.device_below(file)
    if number is None:
        raise HostError(
            f"{file} is not on a disk that the kernel can limit",
            hint="cgroup_iops and cgroup_bps work on ext4, xfs and block devices",
        )
    place = Path(f"/sys/dev/block/{number[0]}:{number[1]}").resolve()
    if (place / "partition").exists():
        return (place.parent / "dev").read_text().strip()
    return f"{number[0]}:{number[1]}"


def _line(text: str, device: str) -> str:
    """The rest of the line that begins with the device; empty without such a line."""
    lines = (line.partition(" ") for line in text.splitlines())
    return next((rest.strip() for name, _, rest in lines if name == device), "")


def remove_cgroup(_host: command.Host, entry: ledger.Entry) -> None:
    """Moves a control group's processes back to where they came from, and removes it."""
    group = Path(entry.name)

    def is_gone() -> bool:
        if not group.is_dir():
            return True
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                (Path(entry.detail["parent"]) / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    # A process that was killed stays in its group until the kernel has taken it apart, and cannot
    # be moved: that of a large QEMU takes a while on a busy machine.
    try:
        wait_until(is_gone, timeout=_DYING_SECONDS, what="the end of its processes")
    except (OSError, HostError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is in use"
        raise DirtyHostError(f"{group} cannot be removed: {reason}") from error


CGROUP = Removable("control group", remove_cgroup)
