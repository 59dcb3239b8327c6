"""A full backup of a running guest's disk, as of the moment at which it begins.

QEMU copies a cluster to the backup before the guest may overwrite it, so a guest's first write to a
cluster waits for the backup's target. With a queue of `workers` copies ahead of it, the write waits
for these, too (block/backup.c, block/block-copy.c).

With fleecing the old data goes to an image on this host instead (block/copy-before-write.c), and
the backup is read from there: the guest waits for that image, not for the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vdisklab.errors import OperationError
from vdisklab.operations.block_jobs import JOB, JobOperation
from vdisklab.operations.operation import SCRATCH, TARGET, DiskOperation, OperationKind
from vdisklab.operations.relief import LIBVIRT, PROXMOX, QEMU, Felt, Relief, qmp
from vdisklab.path.needs import NeedKind
from vdisklab.path.options import Number, OptionValue, Size, Switch
from vdisklab.path.platforms import Platform

TARGET_NODE, _FILTER, _FLEECE, _SNAPSHOT = (
    f"during-{name}" for name in ("target", "filter", "fleece", "snapshot")
)
_MOST_WORKERS = 1024

BACKUP_OPTIONS = {
    "workers": Number(1, _MOST_WORKERS),
    "speed": Size(1, 1 << 50, power_of_two=False),
    "compress": Switch(),
}
"""`workers` is x-perf.max-workers: 64 by default (block/block-copy.c, BLOCK_COPY_MAX_WORKERS);
Proxmox VE's vzdump sets 16. `speed` is in bytes a second."""


BY_PLATFORM: Mapping[Platform, Mapping[str, OptionValue]] = {
    Platform.PROXMOX: {"workers": 16},
    Platform.LIBVIRT: {},
}
"""Proxmox VE: vzdump.conf(5), `performance`: max-workers, 16 by default; bwlimit and fleecing are
off by default. libvirt: src/qemu/qemu_backup.c, qemuBackupDiskPrepareDataOnePush, sends neither
x-perf nor speed, so QEMU's 64 hold."""


_DISCARDS_SINCE = (9, 1)
"""The first QEMU with `discard-source` (qapi/block-core.json, BackupCommon)."""

_FLEECE_ON_PROXMOX = "--fleecing enabled=1,storage=local-lvm"
_COMPRESSED_ON_PROXMOX = " --compress zstd"
_PULL = (
    "echo \"<domainbackup mode='pull'>{}<server name='localhost' port='10809'/>"
    "<disks><disk name='vda' type='file'><driver type='qcow2'/>"
    "<scratch file='/fast/scratch.qcow2'/></disk></disks></domainbackup>\" > pull.xml && "
    "virsh backup-begin DOMAIN pull.xml"
)
# A job that another began must not be ended, so the last command depends on the first.
_READ = " && {{ qemu-img convert{} -O qcow2 nbd://localhost/vda FILE; virsh domjobabort DOMAIN; }}"


class Backup(JobOperation):
    """QMP's `blockdev-backup` of the whole disk to a new image."""

    source: str | None = None

    def prepare(self) -> None:
        """Makes and opens the target."""
        made = self.access.new_image(TARGET, self.order.copy_driver(self.disk.driver))
        self.monitor.execute("blockdev-add", {**made, "node-name": TARGET_NODE})

    def start(self) -> None:
        """Begins to copy; from here on the backup holds what the disk held now."""
        self.monitor.execute("blockdev-backup", self._job())

    def _job(self) -> dict[str, Any]:
        return {
            "job-id": JOB,
            "device": self.source or self.disk.node,
            "target": TARGET_NODE,
            "sync": "full",
            "auto-dismiss": False,
            **_options(self.order),
        }

    def undo(self) -> None:
        """Ends the job and closes the target."""
        super().undo()
        close(self, TARGET_NODE)


class FleecingBackup(Backup):
    """The same, read through a filter that saves old data to an image on this host first.

    What the backup has copied is discarded from that image, where QEMU can (`discard-source`).
    """

    source = _SNAPSHOT

    def prepare(self) -> None:
        """Makes and opens the target and the image for old data."""
        super().prepare()
        made = self.access.new_image(SCRATCH, "raw")
        self.monitor.execute("blockdev-add", {**made, "node-name": _FLEECE})

    def start(self) -> None:
        """Puts the filter between the guest's device and its disk, and begins to copy."""
        add = self.monitor.execute
        filtered = {"driver": "copy-before-write", "node-name": _FILTER}
        add("blockdev-add", {**filtered, "file": self.disk.node, "target": _FLEECE})
        self.access.use_node(_FILTER)
        add("blockdev-add", {"driver": "snapshot-access", "node-name": _SNAPSHOT, "file": _FILTER})
        super().start()

    def _job(self) -> dict[str, Any]:
        version = self.monitor.execute("query-version").get("qemu", {})
        discards = (version.get("major", 0), version.get("minor", 0)) >= _DISCARDS_SINCE
        return {**super()._job(), **({"discard-source": True} if discards else {})}

    def undo(self) -> None:
        """Takes the filter away; from then on no write is copied any more."""
        super().undo()
        close(self, _SNAPSHOT)
        if _FILTER in _open_nodes(self):
            self.access.use_node(self.disk.node)
        close(self, _FILTER)
        close(self, _FLEECE)


def _open_nodes(running: Backup) -> set[str]:
    nodes = running.monitor.execute("query-named-block-nodes", {"flat": True})
    return {str(node["node-name"]) for node in nodes}


def close(running: Backup, node: str) -> None:
    """Closes a node if it is open. Raises OperationError if something still uses it."""
    if node in _open_nodes(running):
        running.monitor.execute("blockdev-del", {"node-name": node})
        if node in _open_nodes(running):
            raise OperationError(f"QEMU still has {node} open after the {running.order.in_words}")


def relief_of(felt: Felt) -> Iterator[Relief]:
    """Fleecing, fewer copies at once, or a limit: what the measured backup had not.

    libvirt's fleecing is the pull backup: QEMU saves old data to the scratch file, which only a
    pull backup has (formatbackup.rst), and a client reads. So its limit is the client's; a limit of
    the job does nothing. The job of a push backup is the disk's (qemuBlockJobDiskNewBackup), so
    `virsh blockjob` finds it.

    vzdump compresses the whole archive in a program of its own, QEMU each cluster in its job: both
    write a compressed copy, and vzdump's default is none.
    """
    packed = _COMPRESSED_ON_PROXMOX if felt.order.compresses else ""
    fleeces, full = felt.order.kind is FLEECING, felt.order.kind in (BACKUP, FLEECING)
    if not fleeces:
        speed = felt.order.option("speed")
        limited = "" if speed is None else f" --bwlimit {max(1, int(speed) // 1024)}"
        line = f"vzdump VMID {_FLEECE_ON_PROXMOX}{limited}{packed}"
        yield Relief(f"{PROXMOX} 8.2 and later", line)
    if felt.order.option("workers") != 1:
        yield Relief(f"{PROXMOX}, /etc/vzdump.conf", "performance: max-workers=1")
    kept = f"{_FLEECE_ON_PROXMOX} " if fleeces else ""
    yield felt.limited(PROXMOX, f"vzdump VMID {kept}--bwlimit {felt.limit_kib}{packed}")
    yield from _on_libvirt(felt)
    job: dict[str, Any] = {"job-id": "backup", "device": "NODE", "target": "TARGET", "sync": "full"}
    if not full:
        job |= {"sync": "incremental", "bitmap": "BITMAP"}
    measured = {**job, **_options(felt.order)}
    milder = {**measured, "x-perf": {"max-workers": 1}, "speed": felt.limit}
    if fleeces:
        yield from (felt.limited(f"{QEMU} 7.1 and later", line) for line in _fleecing(milder))
        return
    yield felt.limited(QEMU, qmp("blockdev-backup", milder))
    if felt.order.kind is BACKUP:  # the bitmap of an incremental one is not in what is read
        yield from (Relief(f"{QEMU} 7.1 and later, fleecing", line) for line in _fleecing(measured))


def _on_libvirt(felt: Felt) -> Iterator[Relief]:
    """A pull backup, which fleeces; with a limit if the measured backup fleeced already. Then the
    limit of a push backup, which never fleeces."""
    fleeces, speed = felt.order.kind is FLEECING, felt.order.option("speed")
    limit = felt.limit if fleeces else speed
    read = (" -c" if felt.order.compresses else "") + ("" if limit is None else f" -r {limit}")
    if felt.order.kind in (BACKUP, FLEECING):
        line = _PULL.format("") + _READ.format(read)
        basis = felt.basis if fleeces else ""
        yield Relief(f"{LIBVIRT}, a pull backup", line, basis=basis)
    else:
        line = _PULL.format("<incremental>CHECKPOINT</incremental>")
        yield Relief(f"{LIBVIRT}, a pull backup, for a client that reads what changed", line)
    if not fleeces:
        bandwidth = f"virsh blockjob DOMAIN vda --bandwidth {felt.limit_mib}"
        yield felt.limited(f"{LIBVIRT}, while a push backup runs", bandwidth)


def _options(order: DiskOperation) -> dict[str, Any]:
    """The arguments of `blockdev-backup` for the options that the user wrote."""
    workers, speed = order.option("workers"), order.option("speed")
    return {
        **({"compress": True} if order.option("compress") else {}),
        **({} if speed is None else {"speed": speed}),
        **({} if workers is None else {"x-perf": {"max-workers": workers}}),
    }


def _fleecing(job: Mapping[str, Any]) -> Iterator[str]:
    """The commands of a backup that reads old data from FILE on this host, in order."""
    fleece = {"driver": "raw", "file": {"driver": "file", "filename": "FILE"}}
    saved = {"driver": "copy-before-write", "file": "NODE", "target": "fleece"}
    reading = {"driver": "snapshot-access", "file": "filter"}
    yield qmp("blockdev-add", {"node-name": "fleece", **fleece})
    yield qmp("blockdev-add", {"node-name": "filter", **saved})
    yield qmp("qom-set", {"path": "DEVICE", "property": "drive", "value": "filter"})
    yield qmp("blockdev-add", {"node-name": "snapshot", **reading})
    yield qmp("blockdev-backup", {**job, "device": "snapshot"})


BACKUP = OperationKind(
    "backup",
    "a full backup: the disk as it was when the backup began",
    Backup,
    options=BACKUP_OPTIONS,
    by_platform=BY_PLATFORM,
    copies=True,
    only_reads=True,
    relief=relief_of,
    need=NeedKind.BACKUP,
)
FLEECING = OperationKind(
    "backup:fleecing",
    "the same, with old data saved to a file on this host first",
    FleecingBackup,
    noun="backup with fleecing",
    options=BACKUP_OPTIONS,
    by_platform=BY_PLATFORM,
    copies=True,
    only_reads=True,
    relief=relief_of,
    need=NeedKind.BACKUP,
)
