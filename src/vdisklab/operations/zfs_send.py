"""`zfs send` of a snapshot below a running guest: what a backup or a replication of ZFS reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vdisklab.errors import OperationError
from vdisklab.operations.operation import OperationKind, RunningOperation
from vdisklab.operations.relief import EVERYWHERE, PROXMOX, Felt, Relief
from vdisklab.operations.volume_commands import zfs_destroyed, zfs_sent, zfs_snapshot
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.needs import NeedKind
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind
from vdisklab.units import whole_number

_NAME = "during"
_ENDED = "ended "
# In a session of its own, so that all of it can be ended.
_BEGIN = (
    'setsid sh -c \'{ "$@" >"$0"; echo "ended $?"; } >"$0.log" 2>&1\' "$@" '
    "</dev/null >/dev/null 2>&1 & echo $!"
)
# The snapshot is busy until the last of its readers has ended: at most ten seconds.
_END = (
    "kill -TERM -- -$0; for n in $(seq 100); do kill -0 -- -$0 2>/dev/null || break; "
    "sleep 0.1; done; true"
)
_ZFS = (LayerKind.ZFS, LayerKind.ZVOL)


class ZfsSend(RunningOperation):
    """A snapshot is made and sent whole to a file; the snapshot is destroyed at the end."""

    _snapshot: str | None = None
    _process: str | None = None
    _file: Path | None = None
    _copied: int | None = None

    @property
    def copied(self) -> int | None:
        """The bytes that the file has, as of the last look."""
        return self._copied

    def prepare(self) -> None:
        """Finds the file's place."""
        if not self.access.volume:
            raise OperationError("the image lies on no ZFS", hint="write zfs or zvol in the path")
        self._file = self.access.new_file("stream", (".log",))

    def start(self) -> None:
        """Makes the snapshot and begins to send it."""
        volume, run = self.access.volume, self.access.on_host
        self._snapshot = f"{volume}@{_NAME}"
        run(*zfs_snapshot(volume, _NAME))
        send = zfs_sent(volume, _NAME)
        self._process = run("sh", "-c", _BEGIN, "send", str(self._file), *send).strip()

    def ready(self) -> bool:
        """Looks whether all is sent. Raises OperationError if that failed."""
        run = self.access.on_host
        self._copied = int(run("stat", "--format=%s", str(self._file)) or 0)
        said = run("cat", f"{self._file}.log").strip()
        before, _, text = said.rpartition(_ENDED)
        status = whole_number(text)
        if status is None:
            return False
        self._process = None
        if status:
            reason = before.strip() or f"zfs send ended with {status}"
            raise OperationError(f"the {self.order.in_words} failed: {reason}")
        return True

    def finish(self) -> None:
        """Destroys the snapshot."""
        self._destroy()

    def undo(self) -> None:
        """Ends a send that still runs."""
        if self._process:
            self.access.on_host("sh", "-c", _END, self._process)
            self._process = None
        self._destroy()

    def _destroy(self) -> None:
        if self._snapshot is not None:
            name, self._snapshot = self._snapshot, None
            self.access.on_host(*zfs_destroyed(name))


def _refusal(path: DiskPath) -> Impossible | None:
    if path.target is not None:
        return Impossible(
            "lies on storage of yours, of which nothing but the disk is touched",
            "let vdisklab build the layer: leave out the name of the target",
        )
    if not path.layers or path.layers[-1].kind not in _ZFS:
        return Impossible("is not on ZFS", "put it on zfs or zvol, as zfs/raw")
    return None


def _relief(_felt: Felt) -> Iterator[Relief]:
    yield Relief(f"{PROXMOX}'s replication, in MB/s", "pvesr update VMID-0 --rate 50")
    yield Relief(
        f"by hand, below {EVERYWHERE}", "zfs send POOL/DISK@NAME | pv --rate-limit 50m | …"
    )


ZFS_SEND = OperationKind(
    "zfs-send",
    "a snapshot of ZFS is made and sent whole to a file (zfs send)",
    ZfsSend,
    _refusal,
    need=NeedKind.BACKUP,
    copies=True,
    keeps_old=True,
    relief=_relief,
)
