"""The disks that each platform can give a guest: a row of facts each, known without its file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto

from vdisklab.errors import PlanError
from vdisklab.path.architecture import AARCH64, GUEST, Architecture
from vdisklab.path.backing import backing_below
from vdisklab.path.bus_options import IN_THE_GUEST, without_options, without_qemu
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.platforms.request import ExportRequest
from vdisklab.value import Value, field, replace

CACHE_MODES_OF_LIBVIRT = tuple(mode for mode in CacheMode if mode is not CacheMode.DIRECTUNSAFE)
"""Other platforms have them too: those that start guests through libvirt, or have its words."""

NOT_CONFIGURED: Mapping[str, str] = {
    "qemu": "the installed QEMU runs the guest; libvirt's <emulator> names another program",
    "guests": "give each guest a disk of its own like this one",
    "made": "it is how the disk was made from a template",
    "during": "it is what was done while the guest was measured",
    **dict.fromkeys(IN_THE_GUEST, "set it inside the guest"),
    "cgroup_iops": "set IOReadIOPSMax and IOWriteIOPSMax of QEMU's systemd unit",
    "cgroup_bps": "set IOReadBandwidthMax and IOWriteBandwidthMax of QEMU's systemd unit",
}
"""Options that no platform's configuration can express, and what to do instead."""

_BY_THE_KERNEL = {
    LayerKind.RBD: "map it (`rbd map`) and name the device: --target NAME=/dev/rbd0",
    LayerKind.ISCSI: "log in (`iscsiadm`) and name the device: --target NAME=/dev/sdb",
    LayerKind.NBD: "attach it (`nbd-client`) and name the device: --target NAME=/dev/nbd0",
}
"""How the host's kernel reaches the same storage, by another path."""

KUBERNETES_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONGEST_NAME = 253


class NotExpressibleError(PlanError):
    """The platform lacks the cache mode, bus or format; a substitute would be a different path."""

    def __init__(self, platform: str, what: str, instead: str) -> None:
        super().__init__(f"{platform} has no {what}", hint=instead)


class ErrorPolicies(Enum):
    """What a guest's disk can do after a failed request: `werror=` and `rerror=`."""

    BOTH = auto()
    SAME = auto()
    """One word for both, or QEMU's default pair."""
    NONE = auto()


class GuestDisks(Value, kw_only=True):
    """The disks and directories that a platform can give a guest."""

    cache_modes: tuple[CacheMode, ...] = CACHE_MODES_OF_LIBVIRT
    buses: tuple[Bus, ...]
    buses_on: Mapping[str, tuple[Bus, ...]] = field(default_factory=dict)
    """By the name of another architecture, whose guests have fewer."""
    formats: tuple[ImageFormat, ...] = (ImageFormat.RAW,)
    encrypted: bool = False
    """True where QEMU may encrypt an image."""
    formats_on_devices: bool = True
    """False where a block device is always raw."""
    policies: ErrorPolicies = ErrorPolicies.NONE
    servers: tuple[LayerKind, ...] = ()
    """The storage that QEMU's own driver may open."""
    namespaces: bool = False
    """True where an image may be in a namespace of Ceph's."""
    not_on: Mapping[LayerKind, str] = field(default_factory=dict)
    """Storage below that it cannot use, and what to do instead."""
    directories: tuple[Bus, ...] = (Bus.VIRTIOFS,)
    """How it shares a directory of the host."""
    in_claims: bool = False
    """True where a source is the name of a claim of Kubernetes, not of a file or device."""


_ALL = GuestDisks(
    cache_modes=tuple(CacheMode),
    buses=tuple(Bus),
    formats=tuple(ImageFormat),
    encrypted=True,
    policies=ErrorPolicies.BOTH,
    servers=tuple(LayerKind),
    namespaces=True,
    directories=tuple(Bus),
)
_CINDER = "images on Ceph are rbd/none there; a Cinder volume is what its backend gives"
_GUEST_DISKS: Mapping[Platform, GuestDisks] = {
    Platform.PROXMOX: GuestDisks(
        buses=(Bus.VIRTIO, Bus.SCSI, Bus.IDE, Bus.SATA),
        formats=(ImageFormat.RAW, ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.QED),
        policies=ErrorPolicies.BOTH,
        servers=(LayerKind.RBD, LayerKind.ISCSI),
        namespaces=True,
    ),
    Platform.KUBEVIRT: GuestDisks(
        cache_modes=(CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.WRITETHROUGH),
        buses=(Bus.VIRTIO, Bus.SCSI, Bus.SATA, Bus.USB),
        buses_on={AARCH64.name: (Bus.VIRTIO, Bus.SCSI)},
        policies=ErrorPolicies.SAME,
        in_claims=True,
    ),
    Platform.INCUS: GuestDisks(
        cache_modes=(CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.UNSAFE),
        buses=(Bus.VIRTIO, Bus.SCSI, Bus.NVME, Bus.USB),
        servers=(LayerKind.RBD,),
        directories=(Bus.P9, Bus.VIRTIOFS),
    ),
    Platform.OPENSTACK: GuestDisks(
        buses=(Bus.VIRTIO, Bus.SCSI, Bus.SATA, Bus.IDE, Bus.USB),
        formats=(ImageFormat.RAW, ImageFormat.QCOW2),
        formats_on_devices=False,
        servers=(LayerKind.RBD,),
        not_on={LayerKind.KRBD: _CINDER, LayerKind.DEVICE: _CINDER},
        directories=(),
    ),
    Platform.LIBVIRT: _ALL,  # what it has no words for goes to QEMU as arguments
    Platform.QEMU: _ALL,
}


def disks_of(platform: Platform) -> GuestDisks:
    """What a platform can give a guest."""
    return _GUEST_DISKS[Platform(platform.module)]


def configured_path(path: DiskPath) -> DiskPath:
    """The part of a path that is in a guest's configuration."""
    if path.shares_directory:
        return without_qemu(path)
    return without_options(path, NOT_CONFIGURED)


def can_have(platform: Platform, request: ExportRequest) -> bool:
    """True if the platform can give a guest this disk, apart from options that become gaps."""
    try:
        request = replace(request, path=configured_path(request.path))
        require_configurable(request.path, guest=request.guest)
        require_expressible(platform, request)
    except PlanError:
        return False
    return True


def require_configurable(
    path: DiskPath, *, there: bool = False, guest: Architecture = GUEST
) -> None:
    """Raises PlanError for a path that is not a guest's disk or is impossible.

    Of a disk that is already `there`, vdisklab need not be able to build it.
    """
    if path.on_host:
        raise PlanError(
            f"{path} has no guest, so there is nothing to configure",
            hint="name a path that gives a disk to a guest, such as ext4/qcow2/none",
        )
    if not path.has_storage:
        raise PlanError(
            f"{path} stores nothing: it only shows the maximum speed",
            hint="name a path with an image, such as raw/none",
        )
    reason = impossible(path, backing_below(path), guest)
    if reason is not None and not (there and reason.exists):
        raise PlanError(f"{path}: {reason.reason}", hint=reason.instead)


def require_expressible(platform: Platform, request: ExportRequest) -> None:
    """Raises NotExpressibleError for a disk or directory that the platform cannot give a guest,
    PlanError for a source that it could not name.
    """
    disks = disks_of(platform)
    if disks.in_claims:
        kubernetes_name(request.source or request.name, "a claim")
    refused = _of_directory if request.path.shares_directory else _of_disk
    for what, instead in refused(disks, request):
        raise NotExpressibleError(platform.full_name, what, instead)


def kubernetes_name(text: str, owner: str) -> str:
    """A name that Kubernetes accepts (RFC 1123 subdomain). Raises PlanError for any other."""
    if len(text) > _LONGEST_NAME or not re.fullmatch(KUBERNETES_NAME, text):
        raise PlanError(
            f"{text!r} cannot be the name of {owner} in Kubernetes",
            hint="write lower-case letters, digits, - and ., such as --source web-disk --name web",
        )
    return text


Refusals = Iterator[tuple[str, str]]
"""What a platform lacks of a disk, and what to do instead."""


def _of_directory(disks: GuestDisks, request: ExportRequest) -> Refusals:
    if not disks.directories:
        yield "directory of the host's", "use --to libvirt, or Manila"
    elif request.path.attachment.bus not in disks.directories:
        yield "9p", "use virtiofs, or --to qemu"


def _of_disk(disks: GuestDisks, request: ExportRequest) -> Refusals:
    path = request.path
    bus, guest = path.attachment.bus, request.guest
    buses = disks.buses_on.get(guest.name, disks.buses)
    if path.cache.spelled_out not in disks.cache_modes:
        yield f"cache mode {path.cache}", f"it has {', '.join(disks.cache_modes)}"
    if bus not in buses:
        where = f" on {guest.aliases[0]}" if guest.name in disks.buses_on else ""
        yield f"bus {bus}{where}", f"it has {', '.join(buses)}; or use --to qemu"
    yield from _of_image(disks, path)
    yield from _of_policies(disks, path.attachment)
    yield from _of_storage(disks, request)


def _of_image(disks: GuestDisks, path: DiskPath) -> Refusals:
    image = path.image
    if image is None:
        return
    if image.format not in disks.formats:
        names = ", ".join(disks.formats)
        several = len(disks.formats) > 1
        yield (
            f"format {image.format}",
            f"it has {names}" if several else f"it opens every file as {names}",
        )
    if image.encrypted and not disks.encrypted:
        yield "images that QEMU encrypts", "encrypt the storage below with LUKS, or use --to qemu"


def _of_policies(disks: GuestDisks, attachment: Attachment) -> Refusals:
    said = "".join(f":{name}={policy}" for name, policy in attachment.error_policy)
    if not said:
        return
    if disks.policies is ErrorPolicies.NONE:
        instead = "its guests get QEMU's default, enospc and report; or use --to libvirt or qemu"
        yield f"error policy ({said[1:]})", instead
    writes, reads = attachment.option("werror"), attachment.option("rerror")
    is_word = writes == reads or (writes, reads) == ("enospc", "report")
    if disks.policies is ErrorPolicies.SAME and not is_word:
        word = writes or reads
        yield (
            f"pair of policies (writes {writes or 'enospc'}, reads {reads})",
            f"errorPolicy is for both: write werror={word}:rerror={word}",
        )


def _of_storage(disks: GuestDisks, request: ExportRequest) -> Refusals:
    path, url = request.path, request.url
    kind = path.layers[0].kind if path.layers else None
    if path.opened_by_qemu and kind is not None:
        way = _BY_THE_KERNEL.get(kind, "mount it and name the directory: --target NAME=DIR")
        instead = f"{way}; or use --to libvirt or qemu"
        if kind not in disks.servers:
            yield f"disk that QEMU's own driver opens ({kind})", instead
        elif url is not None and "namespace" in url.node and not disks.namespaces:
            yield "namespaces of Ceph", instead
    if kind is not None and kind in disks.not_on:
        yield f"root disk on {path.stack}", disks.not_on[kind]
    on_device = request.on_device or url is not None
    if on_device and path.image is not None and not disks.formats_on_devices:
        yield f"format {path.image.format} on a device", "leave the format out: lvm/none"
