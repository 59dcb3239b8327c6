"""The block devices below stacks: slices of the work directory, or the user's whole devices.

A device of the user is used only if it is idle and empty, and is left empty.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from vdisklab.errors import CommandError, DirtyHostError, HostError, PlanError
from vdisklab.host.blockdevice import BlockDevice, identity, is_same, open_device, signatures, usage
from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry, Kind
from vdisklab.path.backing import BackingDevices
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.storage.undo import Removable
from vdisklab.units import format_bytes

_WRITE_BACK = "write back"

# A file system that cannot reserve blocks writes zeros instead.
_RESERVE_SECONDS = 3600.0


@contextmanager
def loop_device(site: Site, name: str, size: int, *, allocate: bool = True) -> Iterator[Device]:
    """A loop device of `size` bytes on a new file in the site's directory.

    The device uses direct I/O if the kernel agrees (property `loop.direct_io`), so that the file
    below is not cached twice. `allocate` reserves the file's blocks, so that a measurement cannot
    run out of room.
    """
    file = site.directory / f"{name}.slice"
    with site.tracked(Kind.FILE, file):
        site.new_file(file)
        _make_file(site, file, size, allocate=allocate)
        with site.tracked(Kind.LOOP, file):
            shown = site.run("losetup", "--find", "--show", "--direct-io=on", file).stdout.strip()
            device = site.observe(lambda: Path(shown), planned=Path(f"/dev/loop-{name}"))
            direct = site.observe(partial(_confirm, site.host, device), planned=True)
            below = () if direct else (file,)
            yield Device(device, {"loop.direct_io": "on" if direct else "off"}, below)


def _confirm(host: Host, device: Path) -> bool:
    require_flushes(device)
    return read_direct_io(host, device)


def side_by_side(slices: Sequence[Device]) -> Device:
    """Several slices as the bottom of one stack; a property that differs becomes `mixed`."""
    first = slices[0]
    if len(slices) == 1:
        return first
    properties = {
        name: value if all(member.properties[name] == value for member in slices) else "mixed"
        for name, value in first.properties.items()
    }
    cached = tuple(file for member in slices for file in member.cached_below)
    return Device(first.path, properties, cached, disks=tuple(member.path for member in slices))


def require_flushes(device: Path, block: Path = Path("/sys/block")) -> None:
    """Ensures that the kernel passes flushes to the file below a loop device.

    A loop device keeps queue/write_cache "write through" when it is attached to another file
    (observed with Linux 6.18). The kernel then drops every flush, so a guest's flushes cost nothing
    and do nothing. Raises HostError if it cannot be reset.
    """
    setting = block / device.name / "queue" / "write_cache"
    try:
        if setting.read_text().strip() != _WRITE_BACK:
            setting.write_text(_WRITE_BACK)
        mode = setting.read_text().strip()
    except FileNotFoundError:
        return  # kernels before 4.7 do not have this setting
    except OSError as error:
        raise HostError(
            f"{setting} cannot be set: {error.strerror}",
            hint="another program may use the loop device (`losetup -l`), or this kernel "
            "does not allow it",
        ) from error
    if mode != _WRITE_BACK:
        raise HostError(
            f"the kernel drops flushes to {device}: its write cache is `{mode}`",
            hint=f"echo {_WRITE_BACK} > {setting}",
        )


def read_direct_io(host: Host, device: Path) -> bool:
    """True if a loop device bypasses the page cache of the file below, according to the kernel."""
    text = host.run("losetup", "--json", "--list", "--output", "NAME,DIO", device).stdout
    (row,) = json.loads(text)["loopdevices"]
    return str(row["dio"]).lower() in ("1", "true")


def _make_file(site: Site, file: Path, size: int, *, allocate: bool) -> None:
    reserve = ("fallocate", "--posix", "--length") if allocate else ("truncate", "--size")
    try:
        site.run(*reserve, str(size), file, timeout=_RESERVE_SECONDS)
    except CommandError as error:
        raise HostError(
            f"{file} cannot be created: {error}",
            hint="choose a smaller --size, fewer paths, or another --dir",
        ) from error


def require_usable(host: Host, backing: BackingDevices, needed: int = 0) -> None:
    """Raises HostError unless every device may be overwritten and has `needed` bytes.

    Raises PlanError for options that contradict each other. Writes nothing.
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
    identity_read = site.read_back(lambda: identity(open_device(path)))
    detail = {**identity_read, "label": site.label}
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

    Leaves a device alone if its size or serial number has changed.
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
