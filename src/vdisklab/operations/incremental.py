"""An incremental backup: what the guest has written since a full one, by a dirty bitmap.

The bitmap costs the guest's writes something from the full backup on, also between backups: it is
there in the window before the operation (block/dirty-bitmap.c, bdrv_set_dirty).
"""

from __future__ import annotations

from typing import Any

from vdisklab.host.waiting import wait_until
from vdisklab.operations.backup import (
    BACKUP_OPTIONS,
    BY_PLATFORM,
    TARGET_NODE,
    Backup,
    close,
    relief_of,
)
from vdisklab.operations.operation import SCRATCH, OperationKind
from vdisklab.path.needs import NeedKind

_BITMAP = "during"
_FULL_SECONDS = 600.0


class IncrementalBackup(Backup):
    """QMP's `blockdev-backup` with `sync=incremental`, after a full one with a new bitmap.

    Both begin in one transaction, so nothing that is written between them is lost, as libvirt's
    checkpoints do. In a qcow2 image the bitmap is persistent.
    """

    def prepare(self) -> None:
        """Makes the bitmap and the full backup, beside the guest's image."""
        made = self.access.new_image(SCRATCH, "raw")
        self.monitor.execute("blockdev-add", {**made, "node-name": TARGET_NODE})
        bitmap = {"node": self.disk.node, "name": _BITMAP, "persistent": self._persistent}
        actions = [
            {"type": "block-dirty-bitmap-add", "data": bitmap},
            {"type": "blockdev-backup", "data": self._full()},
        ]
        self.monitor.execute("transaction", {"actions": actions})
        wait_until(self.ready, timeout=_FULL_SECONDS, what="end of the full backup")
        self._dismiss()
        close(self, TARGET_NODE)
        super().prepare()

    @property
    def _persistent(self) -> bool:
        nodes = {node["node-name"]: node["driver"] for node in self.disk.nodes}
        return nodes.get(self.disk.node) == "qcow2"

    def _full(self) -> dict[str, Any]:
        wanted = super()._job()
        return {key: value for key, value in wanted.items() if key not in ("speed", "compress")}

    def _job(self) -> dict[str, Any]:
        return {**super()._job(), "sync": "incremental", "bitmap": _BITMAP}

    def undo(self) -> None:
        """Ends the job, closes the target and removes the bitmap."""
        super().undo()
        found = self.monitor.execute("query-named-block-nodes", {"flat": True})
        held = [bitmap for node in found if node["node-name"] == self.disk.node
                for bitmap in node.get("dirty-bitmaps", ())]  # fmt: skip
        if any(bitmap.get("name") == _BITMAP for bitmap in held):
            self.monitor.execute(
                "block-dirty-bitmap-remove", {"node": self.disk.node, "name": _BITMAP}
            )


INCREMENTAL = OperationKind(
    "backup:incremental",
    "what was written since a full backup before, by a dirty bitmap",
    IncrementalBackup,
    noun="incremental backup",
    options=BACKUP_OPTIONS,
    by_platform=BY_PLATFORM,
    copies=True,
    relief=relief_of,
    need=NeedKind.BACKUP,
)
