"""The user's whole block devices: used only if idle and empty, and left empty."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError, PlanError
from vdisklab.host.blockdevice import BlockDevice, identity, is_same, open_device, signatures, usage
from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry
from vdisklab.path.backing import BackingDevices
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.storage.undo import Removable
from vdisklab.units import format_bytes


def require_usable(host: Host, backing: BackingDevices, needed: int = 0) -> None:
    """Raises HostError (PlanError for a contradiction) unless every device may be overwritten.

    `needed` is the bytes that each must have. Nothing is written.
    """
    devices = [open_device(path) for path in backing.devices]
    _require_distinct(devices)
    spared = _allowed_to_destroy(backing, devices)
    for device in devices:
        _require_idle(device, needed)
        if device.number in spared:
            continue
        existing = signatures(host, device.path)
        if existing:
            raise HostError(
                f"{device.path} has {', '.join(map(str, existing))}, and its use would destroy "
                "the contents",
                hint=f"name another device, or add --destroy {device.path} if its contents are "
                "not needed",
            )


def _require_distinct(devices: Collection[BlockDevice]) -> None:
    paths_by_number: dict[tuple[int, int], Path] = {}
    for device in devices:
        if device.number in paths_by_number:
            raise PlanError(
                f"{paths_by_number[device.number]} and {device.path} are one device"
                if paths_by_number[device.number] != device.path
                else f"{device.path} is listed twice",
                hint="list each device once",
            )
        paths_by_number[device.number] = device.path
    wholes = {device.sysfs: device.path for device in devices if device.whole == device.sysfs}
    for device in devices:
        if device.whole != device.sysfs and device.whole in wholes:
            raise PlanError(
                f"{device.path} is part of {wholes[device.whole]}", hint="list one of the two"
            )


def _allowed_to_destroy(
    backing: BackingDevices, devices: Collection[BlockDevice]
) -> set[tuple[int, int]]:
    used = {device.number for device in devices}
    allowed: set[tuple[int, int]] = set()
    for path in backing.destroy:
        number = open_device(path).number
        if number not in used:
            raise PlanError(
                f"--destroy {path} names a device that is not used",
                hint=f"add --on {path}, or leave out --destroy",
            )
        allowed.add(number)
    return allowed


def _require_idle(device: BlockDevice, needed: int) -> None:
    if device.read_only:
        raise HostError(f"{device.path} is read-only", hint="name another device")
    user = usage(device)
    if user is not None:
        raise HostError(f"{device.path} is in use: {user}", hint="name another device, or free it")
    if device.size == 0:
        raise HostError(
            f"{device.path} has no medium: its size is 0", hint="attach one, or name another device"
        )
    if device.size < needed:
        raise HostError(
            f"{device.path} has {format_bytes(device.size)}, but needs {format_bytes(needed)}",
            hint="choose a smaller --size or a larger device",
        )


@contextmanager
def whole_devices(site: Site, backing: BackingDevices, count: int, needed: int) -> Iterator[Device]:
    """The first `count` of the user's devices, without signatures at the start and at the end.

    Raises HostError before changing any if one of them cannot be used.
    """
    if count > len(backing.devices):
        raise HostError(
            f"{count} devices are needed, but {len(backing.devices)} were given",
            hint="name more with --on, or use slices of the work directory",
        )
    site.check(lambda: require_usable(site.host, backing, needed))
    chosen = backing.devices[:count]
    with ExitStack() as built:
        for path in chosen:
            built.enter_context(_held(site, path))
        first, *others = chosen
        yield Device(first, {"device.path": str(first)}, disks=(first, *others))


@contextmanager
def _held(site: Site, path: Path) -> Iterator[None]:
    known = site.read_back(lambda: identity(open_device(path)))
    detail = {**known, "label": site.label}
    with site.tracked(DEVICE, path.resolve(), **detail):
        wipe_command = ("wipefs", "--all", "--quiet", str(path))
        site.run(*wipe_command)
        try:
            yield
        finally:
            # Guests write signatures without vdisklab's label. They are wiped here, not in
            # `wipe_device`, because `clean` may run much later.
            site.host.run(*wipe_command, allowed=(0, 1))


def wipe_device(host: Host, entry: Entry) -> None:
    """Removes only vdisklab's signatures from one of the user's devices.

    A device whose size or serial number has changed is left alone.
    """
    path = Path(entry.name)
    if not path.is_block_device():
        return
    device = open_device(path)
    if not is_same(device, entry.detail):
        return
    present = signatures(host, path)
    if not present:
        return
    strange = [signature for signature in present if signature.label != entry.detail["label"]]
    user = usage(device)
    if strange or user:
        raise DirtyHostError(
            f"{path} is not wiped: {user or f'it has {strange[0]}, which vdisklab did not write'}",
            hint=f"check its contents; `wipefs --all {path}` if you do not need them",
        )
    host.run("wipefs", "--all", "--quiet", path)


DEVICE = Removable("device", wipe_device)
"""One of the user's whole devices, which vdisklab writes on."""
