"""Which code builds which host layer: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.filesystem import filesystem
from vdisklab.storage.lvm import logical_volume
from vdisklab.storage.md import array
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target
from vdisklab.storage.zfs import dataset, volume

Builder = Callable[[Site, Target, Layer, str, int], AbstractContextManager[Target]]
"""(site, target below, layer, a name that is free in the site, bytes to offer) -> the target above.

The target exists for as long as the block lasts.
"""

BUILDERS: Mapping[LayerKind, Builder] = {
    LayerKind.EXT4: filesystem,
    LayerKind.XFS: filesystem,
    LayerKind.BTRFS: filesystem,
    LayerKind.LVM: logical_volume,
    LayerKind.LVMTHIN: logical_volume,
    LayerKind.MD: array,
    LayerKind.ZFS: dataset,
    LayerKind.ZVOL: volume,
}
