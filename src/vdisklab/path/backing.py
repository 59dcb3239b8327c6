"""The disks below host stacks: slices of the work directory, or whole devices of the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind

# Members that an array of each kind needs: md(4) and zpoolconcepts(7).
_MD_FEWEST = {"0": 2, "1": 2, "5": 3, "10": 4}
_ZFS_FEWEST = {"single": 1, "mirror": 2, "raidz1": 3, "raidz2": 4}
_SPREADING = frozenset(
    {LayerKind.LVM, LayerKind.LVMTHIN, LayerKind.MD, LayerKind.ZFS, LayerKind.ZVOL}
)


@dataclass(frozen=True, slots=True)
class BackingDevices:
    """The disks below all stacks of a campaign.

    `devices` are whole block devices that are used instead of slices of the work directory;
    `destroy` lists the devices whose contents may be overwritten. `disks` is the number of slices
    (None: as few as the layer needs) or devices (None: all) for a layer that can use several.
    `arc_bytes` limits ZFS's cache while stacks exist; None leaves the limit unchanged.
    """

    devices: tuple[Path, ...] = ()
    destroy: tuple[Path, ...] = ()
    disks: int | None = None
    arc_bytes: int | None = None

    def on_devices(self, layers: tuple[Layer, ...]) -> bool:
        """True when a stack uses the user's devices; a stack in memory never does."""
        return bool(self.devices) and not in_memory(layers)

    def disks_for(self, layers: tuple[Layer, ...]) -> int:
        """The number of disks for the lowest layer; one if it cannot use more."""
        if not layers or layers[0].kind not in _SPREADING:
            return 1
        if self.disks is not None:
            return self.disks
        return max(fewest_disks(layers[0]), len(self.devices))

    def ends_on_device(self, layers: tuple[Layer, ...]) -> bool:
        """True when the top of a stack is a block device, False for a directory."""
        if not layers:
            return bool(self.devices)
        return not layers[-1].kind.holds_files

    def as_json(self) -> dict[str, Any]:
        """The parts that influence measurements, as plain JSON values."""
        return {
            "devices": [str(device) for device in self.devices],
            "disks": self.disks,
            "arc_bytes": self.arc_bytes,
        }


WORK_DIRECTORY = BackingDevices()
"""Slices of the work directory: for each layer the smallest number that it accepts."""


def in_memory(layers: tuple[Layer, ...]) -> bool:
    """True for a stack in memory: it needs no device, and loses all data in a power cut."""
    return bool(layers) and layers[0].kind.is_memory


def fewest_disks(layer: Layer) -> int:
    """The smallest number of disks that a layer accepts."""
    fewest: Mapping[str, int]
    match layer.kind:
        case LayerKind.MD:
            fewest, option = _MD_FEWEST, "level"
        case LayerKind.ZFS | LayerKind.ZVOL:
            fewest, option = _ZFS_FEWEST, "raid"
        case _:
            return 1
    return fewest[str(layer.option(option))]
