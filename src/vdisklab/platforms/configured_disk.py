"""One disk of an existing guest, as its configuration describes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated

from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Bus, LayerKind
from vdisklab.platforms.machine_buses import NoSuchBus, verdict_on
from vdisklab.platforms.network import ServerDisk
from vdisklab.value import HIDDEN, Value, replace

THROWN_AWAY = "what the guest writes is thrown away when it stops"
"""Why a transient disk loses what the guest has flushed."""

_SERVED = re.compile(r"/dev/disk/by-path/.*(-iscsi-|-fc-)|/dev/nbd[0-9]")


class ConfiguredDisk(Value):
    """A disk as a guest's configuration describes it."""

    domain: str
    """The guest's name in its configuration."""
    target: str
    """The guest's name for the disk, such as `vda`."""
    source: str | None
    """The disk's file or device, or its place on a `server` as `--target` spells it; None for an
    empty disk.
    """
    path: Annotated[
        DiskPath | None,
        "as configured, without host layers, except what a server has; null with `problem`",
    ]
    """Computed from the configuration."""
    noted: DiskPath | None = None
    """The path that vdisklab wrote into the configuration."""
    problem: Annotated[str | None, "why there is no disk path"] = None
    read_only: Annotated[bool, "the guest cannot write, so a power cut loses nothing"] = False
    """Nothing is ever written to the disk, so it loses nothing in a power cut."""
    platform: Platform = Platform.LIBVIRT
    """The platform whose configuration it is."""
    guest: Annotated[str, "its platform's name for the guest"] = ""
    """That platform's name for the guest: a VMID, NAMESPACE/NAME."""
    origin: Annotated[str, HIDDEN] = ""
    """The file, or what else has the configuration, as the user named it."""
    text: Annotated[str, HIDDEN] = ""
    """The disk as the configuration spells it."""
    assumed: Annotated[DiskPath | None, HIDDEN] = None
    """With `problem`, the path if its unknown storage were a directory: bus and cache mode hold."""
    by_policy: Annotated[DiskPath | None, HIDDEN] = None
    """With `problem`, a path with the disk's bus and error policy, by which alone the needs of
    failing storage are judged."""
    server: Annotated[ServerDisk | None, HIDDEN] = None
    controller: Annotated[str, HIDDEN] = ""
    """The model of its SCSI controller."""
    io_thread: Annotated[str | None, HIDDEN] = None
    """An I/O thread that the guest has already."""
    architecture: str | None = None
    """The guest's; None if the configuration does not say."""
    on_file_volume: Annotated[bool, HIDDEN] = False
    """True for a Kubernetes claim that holds a file system with an image file."""
    probed: Annotated[bool, HIDDEN] = False
    """True if the configuration names no format, and QEMU looks for one in the file."""
    limits: Annotated[
        tuple[str, ...], "I/O limits and other settings that a path cannot express, as written"
    ] = ()
    drops_flushes: Annotated[bool, HIDDEN] = False
    """True if the cache mode ignores flushes, which is known without a path."""
    drops_by_default: Annotated[str, HIDDEN] = ""
    """The platform's rule by which flushes are dropped, if the configuration does not say it."""
    on_thin_volume: Annotated[bool, HIDDEN] = False
    """True if the disk's storage makes thin volumes."""
    lost_below: Annotated[str | None, HIDDEN] = None
    """Why what is below the image loses flushed data, as the configuration tells."""
    below_instead: Annotated[str, HIDDEN] = ""
    """What to change there, as a sentence without a stop; empty if that is not known."""
    lost_if: Annotated[tuple[str, str] | None, HIDDEN] = None
    """On which condition, which is not known here, a server that the user named has the disk and
    loses flushed data, as a clause; and what to change there, as a sentence without a stop."""
    soft_mount: Annotated[tuple[str, str] | None, HIDDEN] = None
    """How the configuration has a server's directory mounted, as a sentence begins, if requests
    fail once the server does not answer in time; and how to change it, as a clause."""
    idle_aio: Annotated[str, HIDDEN] = ""
    """The I/O mode that the configuration asks for where QEMU has none: on a server's disk."""
    serial: Annotated[str, HIDDEN] = ""
    """The serial number that a QEMU's arguments give it; empty without one."""
    refused: Annotated[tuple[str, str] | None, HIDDEN] = None
    """Why the platform does not start a guest with the disk, and the way out."""
    past: Annotated[str | None, HIDDEN] = None
    """What the configuration is, if it is not the guest's of today."""
    may_differ: Annotated[str, HIDDEN] = ""
    """Why its settings may be others, as a clause: a file that sets some was not read."""
    written_by: Annotated[str, HIDDEN] = ""
    """Other disks that have its image, which QEMU does not open for both; empty without one."""
    volume: Annotated[str, HIDDEN] = ""
    """What its platform calls the volume, if several disks may have it and no file tells it."""
    same_volume: Annotated[str, HIDDEN] = ""
    """Other disks of Incus that have its volume, which no lock of QEMU's keeps apart."""
    unlocked: Annotated[bool, HIDDEN] = False
    """True if QEMU does not lock its image (locking=off)."""
    was_unsafe: Annotated[bool, HIDDEN] = False
    """True if an earlier start of the guest, in the same log, lost what the guest flushed."""
    changed_in: Annotated[str, HIDDEN] = ""
    """What a program writes the guest from anew: a change belongs there."""
    whole: Annotated[tuple[str, str] | None, HIDDEN] = None
    """The command that sets all arguments of its guest, and these: it is one disk in them."""
    changed_at: Annotated[str, HIDDEN] = ""
    """Where its cache mode is set there, as a noun; empty if that is not known."""
    transient: Annotated[bool, "what the guest writes is thrown away when it stops"] = False
    node: Annotated[str, HIDDEN] = ""
    """The node of a cluster of Kubernetes or Proxmox VE that has the disk; empty if not known."""
    template: Annotated[bool, "no guest runs on it: clones are made of it, with its settings"] = (
        False
    )
    ephemeral: Annotated[str, HIDDEN] = ""
    """The kind of volume that is made for a guest's pod and deleted with it, by design."""
    shareable: Annotated[bool, "several guests may have the disk at once"] = False
    unseen: Annotated[
        str | None,
        "what makes its storage known, which what was read does not say: a command, and what to do "
        "with its output",
    ] = None
    pending: Annotated[str, "settings that hold from the guest's next start on"] = ""
    pending_loss: Annotated[str | None, "how they lose what the guest writes"] = None
    ignored_errors: Annotated[
        tuple[str, ...],
        "failed requests that QEMU reports as successful: writes (and flushes), reads",
    ] = ()
    held: Annotated[frozenset[tuple[int, int]] | None, HIDDEN] = None
    """Device and inode of the files that the guest's process has open, if a process's arguments are
    the configuration: no other file is opened for it.
    """

    @property
    def bus(self) -> Bus | None:
        """The disk's bus, which may be known without its path."""
        path = self.path or self.assumed or self.by_policy
        return None if path is None else path.attachment.bus

    @property
    def on_served_device(self) -> bool:
        """True for a device of this host that is a disk of a server: by the name that udev gives
        one of iSCSI or Fibre Channel (systemd, udev-builtin-path_id.c) or a client of NBD, or as a
        device of a storage, as Proxmox VE's of type iscsi."""
        layers = () if self.path is None else self.path.layers
        by_storage = [layer.kind for layer in layers] == [LayerKind.DEVICE]
        return by_storage or _SERVED.match(self.source or "") is not None

    @property
    def is_thrown_away(self) -> bool:
        """True if a guest's administrator has the writes thrown away: with QEMU's `snapshot`,
        libvirt's <transient/>, Proxmox's snapshot=1."""
        return self.transient and not self.ephemeral and not self.read_only

    @property
    def known_once_running(self) -> bool:
        """True if a variable, or a file that was not read, decides settings of the disk: the
        arguments of the running QEMU have the values."""
        return self.held is None and bool(self.may_differ or "$" in (self.problem or ""))

    @property
    def stale_note(self) -> DiskPath | None:
        """The noted path if the configuration was changed after vdisklab wrote it; else None."""
        if self.noted is None or self.path is None:
            return None
        stated, noted = (
            image.options if image else () for image in (self.path.image, self.noted.image)
        )
        # That the data lie in a file of their own is stated, and not whether it is raw.
        given = dict(noted) | ({"data_file": "on"} if "data_file" in dict(noted) else {})
        alike = self.noted.guest_side == self.path.guest_side and {*stated} <= {*given.items()}
        return None if alike else self.noted

    @property
    def valid_note(self) -> DiskPath | None:
        """The noted path, with all its layers, if the configuration still agrees; else None."""
        return None if self.stale_note is not None or self.path is None else self.noted


def with_pending(
    now: Sequence[ConfiguredDisk],
    then: Sequence[ConfiguredDisk],
    say: Callable[[ConfiguredDisk], str] = lambda disk: f"{disk.path or disk.problem}",
) -> tuple[ConfiguredDisk, ...]:
    """A guest's disks. `say` words the changes that take effect at the guest's next start."""
    later = {disk.target: disk for disk in then}
    targets = {disk.target for disk in now}
    changed = (_with_change(disk, later.get(disk.target), say) for disk in now)
    new = (replace(disk, pending="it is new") for disk in then if disk.target not in targets)
    return (*changed, *new)


def _with_change(
    disk: ConfiguredDisk, later: ConfiguredDisk | None, say: Callable[[ConfiguredDisk], str]
) -> ConfiguredDisk:
    if later is None:
        return replace(disk, pending="it is gone")
    if _settings(disk) == _settings(later):
        return disk
    loss = loses_writes(later) or ("its cache mode drops flushes" if later.drops_flushes else None)
    said = say(later)
    if said == say(disk):  # something beside the disk's own settings changes it
        said = f"{later.path or later.problem}"
    said = said if loss is None else f"{said}: {loss}"
    return replace(disk, pending=said, pending_loss=loss)


def _settings(disk: ConfiguredDisk) -> tuple[object, ...]:
    return (
        disk.path and disk.path.guest_side, disk.problem, disk.source, disk.limits,
        disk.drops_flushes, disk.transient, disk.shareable, disk.ignored_errors, disk.lost_below,
        disk.soft_mount,
    )  # fmt: skip


def works_for(disk: ConfiguredDisk, path: DiskPath) -> bool:
    """True if the disk's own guest, whatever runs here, could have the path."""
    bus = path.attachment.bus
    verdict = verdict_on(disk.architecture, disk.platform, bus, disk.controller)
    possible = impossible(path, backing_below(path), guest=None) is None
    return possible and not isinstance(verdict, NoSuchBus)


def loses_writes(disk: ConfiguredDisk) -> str | None:
    """Why a disk's settings lose what the guest has flushed, whatever its path is; None if not."""
    if disk.read_only:
        return None
    if disk.transient:
        return THROWN_AWAY
    if "writes" in disk.ignored_errors:
        return "a write or flush that fails is called good (its error policy is ignore)"
    if drops_beside_path(disk):
        return "its cache mode drops flushes"
    if disk.lost_below is not None:
        return disk.lost_below
    later = disk.pending_loss
    return None if later is None else f"from the guest's next start on {later}"


def in_doubt(disk: ConfiguredDisk) -> str:
    """Why it is not known whether a disk keeps what its settings promise, as a clause; empty if no
    text puts it in doubt."""
    if disk.may_differ or disk.lost_if is None or disk.read_only:
        return disk.may_differ
    return disk.lost_if[0]


def drops_beside_path(disk: ConfiguredDisk) -> bool:
    """True if flushes are dropped where the path does not show it: there is none, or a data file
    has another cache mode."""
    shown = disk.path is not None and disk.path.cache.no_flush
    return disk.drops_flushes and not shown
