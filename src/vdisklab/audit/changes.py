"""The command that gives an existing guest's disk other settings, and the one that undoes it.

Only settings that leave the image and the guest's view of the bus as they are: cache mode, aio and
I/O thread. Everything else needs a conversion, or a driver in the guest.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.errors import PlanError
from vdisklab.export.configuration import ExportRequest, require_configurable
from vdisklab.export.qemu import arguments
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.managers import Manager, incus_aio
from vdisklab.path.segments import Aio, Bus, CacheMode

_CHANGEABLE = ("aio", "iothread")


@dataclass(frozen=True, slots=True)
class Change:
    """One line that changes the settings from the guest's next start on, and one that undoes it."""

    paste: str
    undo: str


class NotChangeableError(PlanError):
    """The manager cannot give the disk these settings without touching image, bus or guest."""


def same_image_and_bus(path: DiskPath, other: DiskPath) -> bool:
    """True for two paths that differ only in settings that a change can make."""
    return _fixed(path) == _fixed(other)


def _fixed(path: DiskPath) -> DiskPath:
    kept = tuple(option for option in path.attachment.options if option[0] not in _CHANGEABLE)
    attachment = Attachment(path.attachment.bus, kept)
    return replace(path, cache=CacheMode.NONE, attachment=attachment)


def change_of(disk: ConfiguredDisk, wanted: DiskPath) -> Change:
    """The change of a disk to the settings of a path.

    Raises NotChangeableError if its manager has no such setting, PlanError if nobody has.
    """
    if disk.path is None:
        raise NotChangeableError("the disk has no path", hint="see why with `vdisklab audit`")
    if wanted.image is not None or wanted.layers:  # else a whole device of the guest's own
        require_configurable(wanted)
    if wanted.cache.spelled_out not in disk.manager.cache_modes:
        raise _refuse(disk.manager, f"cache mode {wanted.cache}")
    return _CHANGES[disk.manager](disk, disk.path, wanted)


def _refuse(manager: Manager, what: str) -> NotChangeableError:
    return NotChangeableError(f"{manager.full_name} has no {what}", hint="choose another path")


def _proxmox(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    """qm(1): `--scsi0` replaces the whole line, so all other options are repeated."""
    settings = {"cache": wanted.cache.spelled_out.value, "aio": wanted.attachment.aio.value}
    if wanted.attachment.iothread != now.attachment.iothread:
        settings["iothread"] = "1" if wanted.attachment.iothread else "0"
    parts = [part for part in disk.text.split(",") if part.partition("=")[0] not in settings]
    line = ",".join([*parts, *(f"{key}={value}" for key, value in settings.items())])
    single = settings.get("iothread") == "1" and disk.controller == "virtio-scsi-pci"

    def command(text: str, controller: str) -> str:
        model = ["--scsihw", controller] if single else []
        return shlex.join(["qm", "set", disk.guest, *model, f"--{disk.target}", text])

    return Change(command(line, "virtio-scsi-single"), command(disk.text, disk.controller))


def _libvirt(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    """virt-xml(1) edits the definition; the saved one restores it exactly."""
    settings = {"driver.cache": wanted.cache.value, "driver.io": wanted.attachment.aio.value}
    guest, before = shlex.quote(disk.guest), shlex.quote(f"{disk.guest}.before.xml")
    threads = ""
    if wanted.attachment.iothread != now.attachment.iothread:
        if wanted.attachment.bus is not Bus.VIRTIO or not wanted.attachment.iothread:
            raise _refuse(disk.manager, "one line that changes the I/O thread of this disk")
        settings["driver.iothread"] = disk.io_thread or "1"
        if disk.io_thread is None:
            # `--edit --iothreads 1` fails where the guest has none yet (virt-xml 4.1).
            threads = f" && virt-xml {guest} --edit --xml ./iothreads=1"
    options = ",".join(f"{key}={value}" for key, value in settings.items())
    return Change(
        f"virsh dumpxml --inactive {guest} > {before}{threads} && "
        f"virt-xml {guest} --edit target={disk.target} --disk {options}",
        f"virsh define {before}",
    )


def _kubevirt(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    if wanted.attachment.aio is Aio.IO_URING:
        raise _refuse(disk.manager, "aio=io_uring")
    before = json.loads(disk.text)
    if before["kind"] != "VirtualMachine":
        raise NotChangeableError(
            f"no line changes the disks of a {before['kind']} and of nothing else",
            hint="name a VirtualMachine, `kubectl get vm,pvc,dv -o yaml`",
        )
    fields: dict[str, object] = {"cache": wanted.cache.spelled_out.value}
    if wanted.attachment.aio is not now.attachment.aio or "io" in before:
        fields["io"] = wanted.attachment.aio.value
    if wanted.attachment.iothread != now.attachment.iothread:
        fields["dedicatedIOThread"] = wanted.attachment.iothread
    place = f"/spec/template/spec/domain/devices/disks/{before['at']}"
    forward = [{"op": "add", "path": f"{place}/{key}", "value": fields[key]} for key in fields]
    back = [
        {"op": "replace", "path": f"{place}/{key}", "value": before[key]}
        if key in before
        else {"op": "remove", "path": f"{place}/{key}"}
        for key in fields
    ]
    return Change(_patch(disk.guest, forward), _patch(disk.guest, back))


def _patch(guest: str, operations: Sequence[Mapping[str, object]]) -> str:
    namespace, _, name = guest.rpartition("/")
    where = ["-n", namespace] if namespace else []
    patch = json.dumps(operations, separators=(",", ":"))
    return shlex.join(["kubectl", "patch", "vm", name, *where, "--type=json", "-p", patch])


def _incus(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    """Incus has io.cache alone; aio follows it."""
    if wanted.attachment.aio is not incus_aio(wanted.cache) or wanted.attachment.iothread != (
        now.attachment.iothread
    ):
        raise _refuse(disk.manager, f"aio={wanted.attachment.aio} with this cache mode")
    before = json.loads(disk.text)
    inherited, old = before["inherited"], before.get("io.cache")
    verb = "override" if inherited else "set"
    device = ["incus", "config", "device"]
    back = (
        ["remove", disk.guest, disk.target]
        if inherited
        else (
            ["unset", disk.guest, disk.target, "io.cache"]
            if old is None
            else ["set", disk.guest, disk.target, f"io.cache={old}"]
        )
    )
    setting = f"io.cache={wanted.cache.spelled_out}"
    return Change(
        shlex.join([*device, verb, disk.guest, disk.target, setting]), shlex.join([*device, *back])
    )


def _qemu(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    """A QEMU started by hand: the arguments of the disk, instead of those that it has."""
    if disk.limits:
        raise _refuse(disk.manager, f"arguments here that keep its limits ({disk.limits[0]}…)")
    place = disk.source or "FILE"
    return Change(
        shlex.join(arguments(ExportRequest(wanted, place), place)),
        shlex.join(arguments(ExportRequest(now, place), place)),
    )


def _no_openstack(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    del now, wanted
    raise _refuse(disk.manager, "setting of one disk: see [libvirt]disk_cachemodes in nova.conf")


_CHANGES: Mapping[Manager, Callable[[ConfiguredDisk, DiskPath, DiskPath], Change]] = {
    Manager.PROXMOX: _proxmox,
    Manager.LIBVIRT: _libvirt,
    Manager.VIRT_MANAGER: _libvirt,
    Manager.KUBEVIRT: _kubevirt,
    Manager.INCUS: _incus,
    Manager.QEMU: _qemu,
    Manager.OPENSTACK: _no_openstack,
}


def can_change(disk: ConfiguredDisk, wanted: DiskPath) -> bool:
    """True if one line gives the disk the settings of a path."""
    try:
        change_of(disk, wanted)
    except PlanError:
        return False
    return True
