"""A memory for QEMU and its page cache: a control group of its own for each cell.

Pages of a file belong to the group of the process that first touched them
(Documentation/admin-guide/cgroup-v1/memory.rst, 2.3; cgroup-v2.rst, "Memory Ownership"), and a
process that moves leaves its memory behind. So the group's limit is what QEMU's own memory takes in
it now, plus what its pages may take; it is set anew before each measurement. Version 2 reclaims
pages above `memory.high` and never kills; version 1 has only a hard limit. There XFS may find no
page to free while all of them are being written to a slow disk, and the kernel kills QEMU. And
there all of these pages may be dirty, as only the host's limit holds for them: version 2 lets a
fifth of a group's memory be dirty (cgroup-v2.rst, "Writeback"; sysctl/vm.rst, `dirty_ratio`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError, VdisklabError
from vdisklab.results.model import MAY_BE_DIRTY, Check
from vdisklab.storage.io_limits import CGROUP, ROOT
from vdisklab.storage.site import Site
from vdisklab.units import format_bytes
from vdisklab.value import Value


class BoundedMemory(Value):
    """The group of a QEMU whose pages may take `amount` bytes."""

    path: Path
    is_v2: bool
    amount: int

    @property
    def _file(self) -> Path:
        return self.path / ("memory.high" if self.is_v2 else "memory.limit_in_bytes")

    def renew(self) -> None:
        """Sets the limit to QEMU's own memory in the group, plus the amount. Raises HostError."""
        counted = dict(
            line.split(maxsplit=1) for line in (self.path / "memory.stat").read_text().splitlines()
        )
        # Version 2 counts the kernel's memory, too; before Linux 5.18 without a line of its own.
        used = int(counted["anon" if self.is_v2 else "rss"]) + int(counted.get("kernel", 0))
        try:
            self._file.write_text(str(used + self.amount))
        except OSError as error:
            raise HostError(
                f"the memory of {self.path} cannot be limited: {error.strerror}",
                hint="choose more --cache-memory",
            ) from error

    def check(self) -> Check:
        """The limit as it was read back, and how much of it is for pages."""
        limit = self._file.read_text().strip()
        observed = f"limit {limit} bytes, of these {self.amount} for pages"
        return Check("host.cache_memory", None, observed + ("" if self.is_v2 else MAY_BE_DIRTY))

    def killed(self) -> bool:
        """Whether the kernel killed a process of the group for lack of memory."""
        events = self.path / ("memory.events" if self.is_v2 else "memory.oom_control")
        lines = (line.partition(" ") for line in events.read_text().splitlines())
        return any(name == "oom_kill" and int(count) > 0 for name, _, count in lines)


@contextmanager
def bounded(
    site: Site, pid: int, amount: int | None, root: Path = ROOT
) -> Iterator[BoundedMemory | None]:
    """Puts a process into a group of its own, whose pages may take `amount` bytes.

    Nothing happens without an amount. Raises HostError if no control group limits memory here, and
    for an error in the block if it came because the kernel killed the process in this memory.
    """
    if amount is None:
        yield None
        return
    try:
        memory, parent = _group_for(pid, site.ledger.run_id, amount, root)
        with site.tracked(CGROUP, memory.path, parent=str(parent)):
            memory.path.mkdir()
            (memory.path / "cgroup.procs").write_text(str(pid))
            memory.renew()
            try:
                yield memory
            except VdisklabError as error:
                if memory.killed():
                    raise HostError(
                        "the kernel killed QEMU, whose page cache may take "
                        f"{format_bytes(amount)}: it found no page to free",
                        hint="choose more --cache-memory: pages that are being written to a slow "
                        "disk cannot be freed",
                    ) from error
                raise
    except OSError as error:
        raise HostError(
            f"the kernel does not limit the memory of process {pid}: {error.strerror}",
            hint="--cache-memory needs root and the controller memory",
        ) from error


def _group_for(pid: int, run_id: str, amount: int, root: Path) -> tuple[BoundedMemory, Path]:
    """The group to make below the root group, and the one that the process is in."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    groups = {controllers: name.lstrip("/") for _, controllers, name in lines}
    name = f"vdisklab-{run_id}-memory-{pid}"
    v1 = root / "memory"
    if "memory" in groups and (v1 / "cgroup.procs").exists():
        return BoundedMemory(v1 / name, is_v2=False, amount=amount), v1 / groups["memory"]
    controllers = root / "cgroup.subtree_control"
    if "" not in groups or not controllers.exists() or "memory" not in controllers.read_text():
        raise HostError(
            "no control group limits memory here",
            hint="version 2 needs the controller memory: `echo +memory > /sys/fs/cgroup/"
            "cgroup.subtree_control`; or leave out --cache-memory",
        )
    if "vdisklab-" in groups[""]:
        raise HostError(
            "with control groups of version 2 a process is in one group, and QEMU is already in "
            "the group of its I/O limits",
            hint="leave out --cache-memory, or cgroup_iops and cgroup_bps",
        )
    return BoundedMemory(root / name, is_v2=True, amount=amount), root / groups[""]
