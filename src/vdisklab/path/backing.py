"""The disks below host stacks: slices of the work directory, or whole devices of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.segments import Members
from vdisklab.units import MIB
from vdisklab.value import Value

ON = "--on"
"""The device below a stack on the campaign's own devices."""


class BackingDevices(Value):
    """The disks below all stacks of a campaign.

    `devices` are whole block devices that are used instead of slices of the work directory;
    `destroy` lists the devices whose contents may be overwritten. `disks` is the number of slices
    (None: as few as the layer needs) or devices (None: all) for a layer that can use several.
    `arc_bytes` limits ZFS's cache while stacks exist; None leaves the limit unchanged. `targets`
    are those that the user named, of which the `spendable` ones may lose their contents; `secrets`
    has files with their passwords or keys, by name.
    """

    devices: tuple[Path, ...] = ()
    destroy: tuple[Path, ...] = ()
    disks: int | None = None
    arc_bytes: int | None = None
    targets: tuple[NamedTarget, ...] = ()
    spendable: frozenset[str] = frozenset()
    secrets: tuple[tuple[str, Path], ...] = ()

    def target_of(self, layers: tuple[Layer, ...]) -> NamedTarget | None:
        """The named target below a stack; None for one that vdisklab builds."""
        name = layers[0].option("at") if layers else None
        return next((target for target in self.targets if target.name == name), None)

    def may_destroy(self, target: NamedTarget) -> bool:
        """True if the contents of a target that is a disk may be overwritten."""
        return target.name in self.spendable

    def device_below(self, layers: tuple[Layer, ...]) -> str | None:
        """A name for the user's disk below a stack, which can hold only one stack at a time.

        None for a stack in memory or on files, of which many can exist side by side.
        """
        if in_memory(layers):
            return None
        if layers and layers[0].kind.facts.target is not None:
            return None if layers[0].kind.facts.holds_files else str(layers[0])
        return ON if self.devices else None

    def on_devices(self, layers: tuple[Layer, ...]) -> bool:
        """True when a stack uses the user's devices; a stack in memory never does."""
        return self.device_below(layers) is not None

    def disks_for(self, layers: tuple[Layer, ...]) -> int:
        """The number of disks for the lowest layer; one if it cannot use more."""
        if not layers or members_of(layers[0]) is None:
            return 1
        if self.disks is not None:
            return self.disks
        return max(fewest_disks(layers[0]), len(self.devices))

    def ends_on_device(self, layers: tuple[Layer, ...]) -> bool:
        """True when the top of a stack is a block device, False for a directory."""
        if not layers:
            return bool(self.devices)
        return not layers[-1].kind.facts.holds_files

    def as_json(self) -> dict[str, Any]:
        """The fields that influence measurements, as plain JSON values."""
        return {
            "devices": [str(device) for device in self.devices],
            "disks": self.disks,
            "arc_bytes": self.arc_bytes,
            **({"target": list(map(str, self.targets))} if self.targets else {}),
        }


WORK_DIRECTORY = BackingDevices()
"""Slices of the work directory: for each layer the smallest number that it accepts."""


def in_memory(layers: tuple[Layer, ...]) -> bool:
    """True for a stack in memory: it needs no device, and loses all data in a power cut."""
    return bool(layers) and layers[0].kind.facts.in_memory


def fewest_disks(layer: Layer) -> int:
    """The smallest number of disks that a layer accepts."""
    members = members_of(layer)
    return 1 if members is None else members.fewest


def members_of(layer: Layer) -> Members | None:
    """How a layer arranges several disks; None if it uses only one."""
    facts = layer.kind.facts
    arrangement = None if facts.arranged_by is None else layer.option(facts.arranged_by)
    return facts.members.get(arrangement)


def size_for(layers: tuple[Layer, ...], capacity: int, disks: int = 1) -> int:
    """The bytes that each device at the bottom needs, so that the top holds `capacity`."""
    if len(layers) == 1 and layers[0].kind.facts.target is not None:
        return capacity
    size = float(capacity)
    for layer in reversed(layers[1:]):
        size = size * layer.kind.facts.share + layer.kind.facts.room
    if layers:
        lowest, members = layers[0].kind.facts, members_of(layers[0])
        share = lowest.share / (1.0 if members is None else members.data(disks))
        size = size * share + lowest.room
    return (int(size) // MIB + 1) * MIB


def capacity_above(layers: tuple[Layer, ...], number: int, capacity: int) -> int:
    """The bytes that layer `number` (from 0) must provide to the layers above it."""
    return size_for(layers[number + 1 :], capacity)


def backing_below(path: DiskPath) -> BackingDevices:
    """A device for a path that starts with one, as its layers are unknown or it has none."""
    whole = path.image is None and not path.layers and not path.shares_directory
    return BackingDevices(devices=(Path("DEVICE"),)) if whole else WORK_DIRECTORY
