"""Incus and LXD: disk devices of virtual machines (devices_disk in Incus's documentation).

Defaults are those of Incus 7.3 (addDriveConfig in internal/server/instance/drivers/driver_qemu.go;
alike in 6.0): virtio-scsi, cache none, io_uring, discards passed on; image files on ZFS and btrfs
get writeback and threads. io_uring is for pools whose driver says so (IOUring in Info() of
internal/server/storage/drivers: not zfs, and no source of the host), else native. Volumes on Ceph
are opened by librbd, with writeback. A block device without direct I/O in its driver's Info(), as
truenas and any device of the host, gets unsafe ("Using unsafe cache I/O"). `io.cache` is none,
writeback or unsafe. Every file is opened as raw; since 7.3 a root disk's is the data file of a
qcow2 image (ensureMetadataImage). A pool's driver is in `incus storage list --format yaml`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from vdisklab.path import mount_options
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.memory_names import memory_by_name
from vdisklab.path.named_target import names_device
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.platforms import dialect, writing
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.drive_arguments import (
    Changes,
    beside_arguments,
    json_object,
    split_arguments,
)
from vdisklab.platforms.guest_disks import disks_of
from vdisklab.platforms.guest_edge import read_each
from vdisklab.platforms.network import ServerDisk, placed, server_disk
from vdisklab.platforms.no_guests import CONTAINER, OTHERS
from vdisklab.platforms.qemu_arguments import disks_of_arguments
from vdisklab.platforms.reading import (
    MAP_IT,
    DisklessGuest,
    GuestText,
    LimitWords,
    Tree,
    UnseenStorageError,
    attachment_of,
    first_of,
    ignored_errors,
    one_of,
    refused_word,
    tree,
    way_to_see,
    word,
)
from vdisklab.platforms.request import ExportRequest
from vdisklab.value import replace

CACHE_MODES = disks_of(Platform.INCUS).cache_modes
LIMITS = LimitWords({}, ("limits.read", "limits.write", "limits.max"))
"""The limits of a disk device; limits.max limits reads and writes, each on its own."""

_INSTANCE = "INSTANCE"
"""Stands for the name of an instance in a command: `incus config show` does not print it."""

_NOT_HERE = "profiles that are not here"
"""A key that no document of Incus has."""

_WORDS = {
    Bus.VIRTIO: "virtio-blk", Bus.SCSI: "virtio-scsi", Bus.NVME: "nvme", Bus.USB: "usb",
}  # fmt: skip
_MOST_NAMED = 5
_CHANGE_QEMU = (
    "raw.qemu.conf", "raw.qemu.scriptlet", "raw.qemu.qmp.early", "raw.qemu.qmp.pre-start",
    "raw.qemu.qmp.post-start",
)  # fmt: skip
"""Settings that may give QEMU's disks other options, or replace them (Incus's "Instance options",
"Raw instance configuration overrides")."""

_MOUNT_OPTIONS = "btrfs.mount_options"
_THROTTLES = ("throttle_iops", "throttle_bps")
_BUSES = {name: bus for bus, name in _WORDS.items()}
_BLOCK_LAYERS = {"zfs": LayerKind.ZVOL, "lvm": LayerKind.LVMTHIN}
_CEPH = "ceph"
_WITHOUT_DIRECT_IO = ("truenas",)
"""Drivers of block devices for which Incus ignores flushes if io.cache does not say otherwise
(DirectIO in Info() of driver_truenas.go)."""

_UNSAFE_BY_DEFAULT = "io.cache is not set, and unsafe is Incus's own default for a block device {}"
_OF_HOST = "of the host, as only a pool's driver tells it that direct I/O works"
_OF_POOL = "in a pool of type {}, whose driver has no direct I/O"
"""addDriveConfig in internal/server/instance/drivers/driver_qemu.go: a block device without the
option DiskDirectIO, which device/disk.go sets for a pool whose driver's Info() has DirectIO."""

_WITH_IO_URING = ("btrfs", "dir", "lvm", "lvmcluster", "linstor")
"""Drivers whose Info() has IOUring (Incus 7.3)."""


_NO_DIRECTORY = re.compile(
    r"/dev/(?!shm/).+|/.+\.(?:img|raw|qcow2?|vmdk|vdi|vhdx?|bin|dsk)", re.IGNORECASE
)
"""Sources on the host that are block devices or, by their names, image files."""

_TRUE = ("true", "1", "yes", "on")
"""Incus's shared/util.IsTrue."""

_KNOWN = re.compile(
    r"type|source|path|pool|size(\.state)?|readonly|required|boot\.priority|initial\..*|io\.(bus|cache)|"
    r"limits\..*|shift|recursive|propagation|raw\.mount\.options|ceph\..*|wwn|attached|dependent|"
    r"security\..*|name|description"
)
"""The options of a disk device that are read, or that change no speed of a guest's disk."""


_OF_DISKS = {
    "io.bus": (*_WORDS.values(), "auto"),
    "io.cache": CACHE_MODES,
}
_OF_DIRECTORIES = {
    "io.bus": ("virtiofs", "9p", "auto"),
    "io.cache": ("none", "metadata", "unsafe"),
}
"""The words that the API accepts (validateConfig in device/disk.go); an instance with another one
is not saved."""

_OF_EITHER = {
    key: tuple(dict.fromkeys((*_OF_DISKS[key], *_OF_DIRECTORIES[key]))) for key in _OF_DISKS
}
"""The words of a source of which only its host knows whether it is a directory."""


def aio_of(disk: ConfiguredDisk, cache: CacheMode) -> Aio:
    """The aio mode that Incus chooses for a disk with a cache mode; threads where it chooses
    none."""
    path = disk.path or disk.assumed
    if path is None or path.opened_by_qemu:
        return Aio.THREADS
    on_pool = "pool" in (json_object(disk.text) or {})  # the device, as `_disks` writes it
    on_zfs = any(layer.kind is LayerKind.ZVOL for layer in path.layers)
    return _aio(cache, by_io_uring=on_pool and not on_zfs)


def _aio(cache: CacheMode, *, by_io_uring: bool) -> Aio:
    if not cache.direct:
        return Aio.THREADS
    return Aio.IO_URING if by_io_uring else Aio.NATIVE


def is_incus(document: Tree) -> bool:
    """True for an instance, profile or storage pool of Incus or LXD, and for devices alone, as
    `vdisklab export` writes them."""
    devices = document.get("devices", document.get("expanded_devices"))
    return _is_pool(document) or (
        isinstance(devices, dict) and isinstance(document.get("config", {}), dict)
    )


def _is_pool(document: Tree) -> bool:
    return "driver" in document and isinstance(document.get("config"), dict)


def _reader(_texts: Sequence[GuestText], documents: Sequence[Tree]) -> dialect.Reader:
    pools = {
        word(document, "name") or "default": document
        for document in documents
        if _is_pool(document)
    }

    instances = [each for each in documents if is_incus(each) and not _is_profile(each)]
    profiles = {
        word(document, "name") or "": document for document in documents if _is_profile(document)
    }
    used = {name for each in instances for name in _profiles_of(each)}

    def read(text: GuestText) -> Iterator[ConfiguredDisk]:
        guests = (
            _expanded(document, profiles)
            for document in text.documents
            if not _is_pool(document)
            and is_incus(document)
            and not _is_container(document)
            and not (_is_profile(document) and word(document, "name") in used)
        )
        yield from read_each(
            Platform.INCUS,
            (
                (word(guest, "name") or text.name, partial(_disks, guest, pools, text.name))
                for guest in guests
            ),
        )

    return read


def _profiles_of(document: Tree) -> tuple[str, ...]:
    """The profiles whose devices an instance has beside its own; none if it is expanded."""
    listed = document.get("profiles")
    if "expanded_devices" in document or not isinstance(listed, list):
        return ()
    return tuple(map(str, listed))


def _expanded(document: Tree, profiles: Mapping[str, Tree]) -> Tree:
    """The instance with what its profiles say, as far as they are here: a later one wins, and the
    instance's own over all (Incus's "Instance options"). `profiles` are those that are not here."""
    names = _profiles_of(document)
    found = [profiles[name] for name in names if name in profiles]
    if not names:
        return document
    parts: dict[str, dict[str, object]] = {"expanded_devices": {}, "expanded_config": {}}
    for each in found:
        parts["expanded_devices"] |= tree(each, "devices")
        parts["expanded_config"] |= tree(each, "config")
    return {**document, **parts, _NOT_HERE: [name for name in names if name not in profiles]}


def _is_profile(document: Tree) -> bool:
    """True for what `incus profile show` prints: devices for all instances that use it."""
    return "used_by" in document and not {"type", "architecture", "profiles"} & document.keys()


def _is_container(document: Tree) -> bool:
    return document.get("type") == "container" or (
        word(document, "config", "image.type") == "squashfs"
    )


def _without_disk(text: GuestText) -> DisklessGuest | None:
    """The containers of a text; None for a text without containers."""
    names = [word(each, "name") or text.name for each in text.documents if _is_container(each)]
    if not names:
        return None
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return DisklessGuest(f"{', '.join(names[:_MOST_NAMED])}{more}", CONTAINER, OTHERS)


def _disks(document: Tree, pools: Mapping[str, Tree], origin: str) -> Iterator[ConfiguredDisk]:
    drivers = {name: str(pool.get("driver")) for name, pool in pools.items()}
    devices = tree(document, "devices")
    settings: dict[str, object] = {}
    for key in ("expanded_config", "config"):
        settings |= tree(document, key)
    name = word(document, "name") or origin
    profile = name if _is_profile(document) else None
    name = name if profile is None else f"profile {profile}"
    member = word(document, "location") or "none"
    empty = ConfiguredDisk(
        name, "?", None, None, platform=Platform.INCUS, guest=name,
        architecture=word(document, "architecture"), node="" if member == "none" else member,
    )  # fmt: skip
    expanded = {**tree(document, "expanded_devices"), **devices}
    argv = split_arguments(str(settings.get("raw.qemu", "")))
    changes = Changes(argv)
    raw = first_of(
        [*(key for key in settings if key.startswith("raw.qemu.")), *beside_arguments(argv)]
    )
    changing = [key for key in _CHANGE_QEMU if str(settings.get(key) or "").strip()]
    doubt = f"{changing[0]} changes its QEMU in ways that are not read" if changing else ""
    for key, device in expanded.items():
        if isinstance(device, dict) and device.get("type") == "disk":
            volume = _volume_on_ceph(device, pools, document)
            disk = _disk(device, drivers, changes, volume)
            if disk is not None:
                yield replace(
                    empty,
                    target=str(key),
                    source=disk.source
                    or _file_in_pool(device, pools, document, disk.path)
                    or word(device, "source")
                    or f"{device.get('pool', '?')}:{name}",
                    path=disk.path,
                    server=disk.server,
                    problem=disk.problem,
                    unseen=disk.unseen,
                    assumed=disk.assumed,
                    read_only=str(device.get("readonly")).lower() in _TRUE,
                    text=json.dumps(
                        {
                            "profile": profile,
                            "instance": word(document, "name"),
                            "inherited": key not in devices,
                            "project": word(document, "project") or "default",
                            **device,
                        },
                        default=str,
                    ),
                    limits=(*disk.limits, *raw),
                    drops_flushes=disk.drops_flushes,
                    drops_by_default=disk.drops_by_default,
                    lost_below=_without_flushes(device, pools) or _in_memory(device, pools),
                    may_differ=doubt,
                    below_instead=_with_flushes(device, pools),
                    refused=disk.refused,
                    ignored_errors=disk.ignored_errors,
                    volume="" if profile else _custom_volume(device, document),
                    unlocked=True,
                )
    if profiles := document.get(_NOT_HERE):
        problem = (
            f"the devices of its profiles ({', '.join(profiles)}) are not here, and one "
            "may be a disk: give `incus list --format yaml`, which says what is expanded"
        )
        yield replace(empty, problem=problem)
    for argument in disks_of_arguments(argv):
        yield replace(argument, domain=name, guest=name, architecture=empty.architecture)


def _with_flushes(device: Tree, pools: Mapping[str, Tree]) -> str:
    """What to change at a pool that sends no flushes, as a sentence without a stop; empty for
    another pool."""
    name = word(device, "pool") or ""
    text = word(pools.get(name, {}), "config", _MOUNT_OPTIONS) or ""
    options = [option.strip() for option in text.split(",")]
    left_out: list[str] = []
    while lossy := mount_options.without_flushes(options):
        left_out.append(lossy)
        options = [option for option in options if option != lossy]
    if not left_out:
        return ""
    setting = f"{_MOUNT_OPTIONS}={','.join(options)}"
    command = f"set {shlex.quote(name)} {shlex.quote(setting)}"
    command = command if any(options) else f"unset {shlex.quote(name)} {_MOUNT_OPTIONS}"
    return (
        f"Leave {' and '.join(left_out)} out: `incus storage {command}`; it holds once the pool is "
        "mounted anew, with no guest on it"
    )


def _without_flushes(device: Tree, pools: Mapping[str, Tree]) -> str | None:
    """Why a pool on btrfs sends no flushes to its disk, as a clause; None if it does, or is not
    known (btrfs.mount_options: Incus's "Btrfs - btrfs")."""
    name = word(device, "pool") or ""
    options = (word(pools.get(name, {}), "config", _MOUNT_OPTIONS) or "").split(",")
    option = mount_options.without_flushes(options)
    return option and f"the pool {name} is mounted with {option}, so no flush reaches the disk"


def _in_memory(device: Tree, pools: Mapping[str, Tree]) -> str | None:
    """Why a pool on a loop file or device loses all in a power cut, as a clause: its source is
    memory by its name (`source` in Incus's "Storage drivers"); None for another pool."""
    name = word(device, "pool") or ""
    source = word(pools.get(name, {}), "config", "source") or ""
    memory = memory_by_name(source) or memory_by_name(f"{source}/FILE")
    return memory and f"the pool {name} is on {source}, which is memory ({memory})"


def _volume_on_ceph(device: Tree, pools: Mapping[str, Tree], document: Tree) -> ServerDisk | None:
    """Where librbd finds a volume in a pool of Ceph; None for another one.

    Incus gives QEMU the volume's name in Ceph's pool (addRootDriveConfig in driver_qemu.go, startVM
    in device/disk.go). Names: CephGetRBDImageName in storage/drivers/utils_ceph.go, with the
    prefixes `virtual-machine_` and `custom_` and the suffix `.block`; `PROJECT_` stands before an
    instance of another project than `default`, and before every custom volume (Instance and
    StorageVolume in project/project.go). Ceph's pool is ceph.osd.pool_name, else the pool's own
    name (Create in driver_ceph.go).
    """
    name = word(device, "pool") or ""
    pool = pools.get(name, {})
    if word(pool, "driver") != _CEPH:
        return None
    project, volume = word(document, "project") or "default", word(device, "source")
    guest = word(document, "name") or _INSTANCE
    guest = guest if project == "default" else f"{project}_{guest}"
    image = f"custom_{project}_{volume}" if volume else f"virtual-machine_{guest}"
    of_ceph = word(pool, "config", "ceph.osd.pool_name") or word(pool, "config", "source") or name
    return _librbd(of_ceph, f"{image}.block", tree(pool, "config"), "ceph.user.name")


def _file_in_pool(
    device: Tree, pools: Mapping[str, Tree], document: Tree, path: DiskPath | None
) -> str | None:
    """The image file of a volume in a pool of directories; None if its name is not known.

    It is root.img in the volume's directory (generic_vfs.go, GetVolumeMountPath in utils.go and
    BaseDirectories in volume.go of internal/server/storage/drivers); the directory of a pool of
    type dir is its source, and a btrfs pool in a loop file is mounted beside that.
    """
    if path is None or path.image is None:
        return None
    name, volume = word(device, "pool") or "", word(device, "source")
    pool, guest = pools.get(name, {}), word(document, "name")
    top = word(pool, "config", "source") or ""
    if word(pool, "driver") == "btrfs":
        above, disks, _ = top.rpartition("/disks/")
        top = f"{above}/storage-pools/{name}" if disks else ""
    elif word(pool, "driver") != "dir":
        return None
    if not top.startswith("/") or guest is None or _is_profile(document):
        return None
    project = word(document, "project") or "default"
    in_project = guest if project == "default" else f"{project}_{guest}"
    place = f"custom/{project}_{volume}" if volume else f"virtual-machines/{in_project}"
    return f"{top.rstrip('/')}/{place}/root.img"


def _custom_volume(device: Tree, document: Tree) -> str:
    """The pool, project and name of a custom volume, which several instances may have if its
    security.shared is true (validateConfig in internal/server/device/disk.go); empty for another
    disk."""
    pool, volume = word(device, "pool"), word(device, "source")
    if not pool or not volume:
        return ""
    return f"{pool}/{word(document, 'project') or 'default'}/{volume}"


def _librbd(pool: str, image: str, settings: Tree, user: str) -> ServerDisk | None:
    """An image as DiskGetRBDFormat in device/device_utils_disk.go names it to QEMU."""
    cluster = word(settings, "ceph.cluster_name") or _CEPH
    node = {"pool": pool, "image": image, "user": word(settings, user) or "admin"}
    return server_disk({"driver": "rbd", "conf": f"/etc/ceph/{cluster}.conf", **node})


def _disk(
    device: Tree, drivers: Mapping[str, str], changes: Changes, volume: ServerDisk | None
) -> ConfiguredDisk | None:
    """A disk device without its guest; None for a CD-ROM and a drive that configures the guest.

    A source whose name ends in `.iso` is a CD-ROM for Incus (iso9660 in device/disk.go).
    """
    place = word(device, "path")
    if re.fullmatch(r"(cloud-init|agent):config|.*\.iso", word(device, "source") or ""):
        return None
    has_place = place not in (None, "", "/")
    is_unknown = has_place and _may_be_either(device)
    shared = has_place and not is_unknown and not _is_disk(device)
    path, problem, assumed, unseen = None, None, None, None
    try:
        if is_unknown:
            raise ValueError(
                f"only its host knows if {word(device, 'source')} is a directory or an image: ask "
                "there, or write io.bus into its device (virtiofs: a directory, virtio-scsi: an "
                "image)"
            )
        path = _share(device) if shared else _path(device, drivers)
    except ValueError as error:
        problem, unseen = str(error), way_to_see(error)
        # A directory has no io.cache of these.
        as_disk = not is_unknown or word(device, "io.cache") in ("writeback", "unsafe")
        with suppress(ValueError):
            cache = {"io.cache": _usual_cache(device, drivers).value}
            pool = {key: value for key, value in {**cache, **device}.items() if key != "pool"}
            assumed = _path(pool, drivers) if as_disk and not shared else None
    server = None if path is None or shared else volume or _server(device)
    rule = "" if shared or is_unknown else _rule_of_unsafe(device, drivers)
    bus = _BUSES.get(word(device, "io.bus") or "virtio-scsi")
    driver = {Bus.VIRTIO: "virtio-blk-pci", Bus.SCSI: "scsi-hd", Bus.NVME: "nvme"}.get(
        bus or Bus.USB
    )
    properties, _ = changes.properties_of({"driver": driver})
    accepted = _OF_EITHER if is_unknown else _OF_DIRECTORIES if shared else _OF_DISKS
    others = [f"{key}={value}" for key, value in device.items() if not _KNOWN.fullmatch(str(key))]
    others += (f"{key}={value}" for key, value in properties.items())
    return ConfiguredDisk(
        "", "?", None if server is None else server.place, path, problem=problem,
        unseen=unseen, assumed=assumed, server=server,
        limits=(*LIMITS.beyond(device), *others),
        refused=_refused(device, accepted),
        drops_by_default=rule,
        drops_flushes=bool(rule) or (word(device, "io.cache") == CacheMode.UNSAFE and not shared),
        ignored_errors=ignored_errors(properties.get("werror"), properties.get("rerror")),
    )  # fmt: skip


def _may_be_either(device: Tree) -> bool:
    """True for a source with a `path` of which neither its name nor `io.bus` says what it is.

    Incus looks whether the source is a directory (startVM in device/disk.go); if it is none, a
    `path` changes nothing.
    """
    source = word(device, "source") or ""
    said = word(device, "pool") is not None or word(device, "io.bus") is not None
    return source.startswith("/") and not (said or source.endswith("/") or _is_disk(device))


def _is_disk(device: Tree) -> bool:
    """True for a file or block device of the host, which a virtual machine gets as a disk."""
    bus = word(device, "io.bus")
    if word(device, "pool") is not None or bus in (Bus.VIRTIOFS, Bus.P9):
        return False
    if bus in _BUSES:
        return True
    return _NO_DIRECTORY.fullmatch(word(device, "source") or "") is not None


def _share(device: Tree) -> DiskPath:
    """A directory. Raises ValueError where Incus decides between virtiofs and 9p."""
    if (word(device, "io.bus") or "auto") == "auto":
        raise ValueError(
            "it is a directory, which Incus offers by virtiofs and by 9p: set io.bus to one"
        )
    bus = Bus(one_of(word(device, "io.bus") or "", (Bus.VIRTIOFS, Bus.P9), "bus"))
    named = one_of(word(device, "io.cache") or "none", ("none", "unsafe"), "cache of a directory")
    cache = "always" if named == "unsafe" else "none"
    return DiskPath(attachment=attachment_of(bus, {"cache": cache}))


def _path(device: Tree, drivers: Mapping[str, str]) -> DiskPath:
    pool = word(device, "pool")
    driver = "" if pool is None else drivers.get(pool, "?")
    if driver == "?":
        raise UnseenStorageError(
            f"the driver of its pool {pool!r} is not known",
            "run `incus storage list --format yaml > pools.yaml` and name pools.yaml beside the "
            "guest's file",
        )
    on_ceph = driver == _CEPH or _server(device) is not None
    if not on_ceph and pool is None and re.match("ceph(fs)?:", word(device, "source") or ""):
        raise ValueError(f"its source is {word(device, 'source')}: {MAP_IT}")
    layers: tuple[Layer, ...] = ()
    image = None
    if driver in _BLOCK_LAYERS:
        layers = (Layer(_BLOCK_LAYERS[driver]),)
    elif driver in ("dir", "btrfs") or not (word(device, "source") or "").startswith("/dev/"):
        image = Image(ImageFormat.RAW)
    if driver not in ("", "dir", "btrfs", _CEPH, *_BLOCK_LAYERS):
        raise ValueError(f"its pool {pool!r} is of type {driver}: {MAP_IT}")
    bus = _BUSES[one_of(word(device, "io.bus") or "virtio-scsi", tuple(_BUSES), "bus")]
    usual = _usual_cache(device, drivers)
    cache = CacheMode(one_of(word(device, "io.cache") or usual, tuple(CacheMode), "cache mode"))
    aio = _aio(cache, by_io_uring=driver in _WITH_IO_URING)
    options: dict[str, OptionValue] = {"aio": aio.value, "discard": "unmap"}
    path = DiskPath(layers, image, cache, attachment_of(bus, options))
    return placed(path, LayerKind.RBD) if on_ceph else path


def _usual_cache(device: Tree, drivers: Mapping[str, str]) -> CacheMode:
    """The cache mode without io.cache (addDriveConfig); none for a pool that is not known."""
    pool, source = word(device, "pool"), word(device, "source") or ""
    driver = "" if pool is None else drivers.get(pool, "")
    if driver in (_CEPH, "btrfs") or (pool is None and source.startswith("ceph:")):
        return CacheMode.WRITEBACK
    of_host = pool is None and names_device(source)
    return CacheMode.UNSAFE if of_host or driver in _WITHOUT_DIRECT_IO else CacheMode.NONE


def _rule_of_unsafe(device: Tree, drivers: Mapping[str, str]) -> str:
    """The rule by which Incus drops the flushes of a disk without io.cache, as a clause; empty if
    it passes them on."""
    if word(device, "io.cache") or _usual_cache(device, drivers) is not CacheMode.UNSAFE:
        return ""
    pool = word(device, "pool")
    whose = _OF_HOST if pool is None else _OF_POOL.format(drivers.get(pool, "?"))
    return _UNSAFE_BY_DEFAULT.format(whose)


def _server(device: Tree) -> ServerDisk | None:
    """Where librbd finds `source: ceph:POOL/IMAGE`; None for another source."""
    match = re.fullmatch("ceph:([^/]+)/(.+)", word(device, "source") or "")
    if match is None or word(device, "pool") is not None:
        return None
    return _librbd(match[1], match[2], device, "ceph.user_name")


def export(request: ExportRequest) -> dialect.Configuration:
    """The device for `incus config edit INSTANCE`."""
    path = request.path
    url, source = request.url, request.place("/srv/images")
    librbd: dict[str, str] = {}
    lines: list[str] = []
    if url is not None:
        source = f"ceph:{url.node['pool']}/{url.node['image']}"
        cluster = Path(url.node.get("conf", "ceph.conf")).stem
        librbd = {"ceph.user_name": url.node.get("user", "admin"), "ceph.cluster_name": cluster}
        usual = f"/etc/ceph/{cluster}.conf"
        if (conf := url.node.get("conf", usual)) != usual:
            lines.append(f"Incus reads {usual}: copy {conf} there")
    device = {
        "type": "disk",
        "source": source,
        **librbd,
        "io.cache": path.cache.spelled_out.value,
        "io.bus": _WORDS[path.attachment.bus],
    }
    gaps = tuple(_gaps(path))
    lines = [*writing.preparation(request, source), *lines]
    return dialect.Configuration(
        writing.commented(lines, gaps) + writing.to_yaml({"devices": {"disk0": device}}), gaps
    )


def _gaps(path: DiskPath) -> Iterator[dialect.Gap]:
    attachment = path.attachment
    yield dialect.Gap(f"aio={attachment.aio}", "Incus chooses it by cache mode and kernel")
    yield from writing.cache_gaps(path)
    yield from writing.other_gaps(path, _THROTTLES)
    for option in _THROTTLES:
        if (limit := attachment.option(option)) is not None:
            yield dialect.Gap(
                f"{option}={limit}", "Incus limits reads and writes each, with limits.max"
            )
    if attachment.option("discard") == "ignore":
        yield dialect.Gap("discard=ignore", "Incus passes discards on")
    if attachment.iothread:
        yield dialect.Gap("iothread=on", "Incus itself decides on threads")
    if attachment.queues is not None:
        yield dialect.Gap(f"queues={attachment.queues}", "Incus sets them by the number of CPUs")


def _export_share(request: ExportRequest) -> dialect.Configuration:
    bus, cache = request.path.attachment.bus, writing.cache_of_share(request)
    device = {
        "type": "disk",
        "source": writing.share_of(request),
        "path": f"/mnt/{writing.TAG}",
        "io.bus": bus.value,
    }
    gaps: tuple[dialect.Gap, ...] = ()
    if not writing.is_9p(request):
        device["io.cache"] = "unsafe" if cache == "always" else "none"
        if cache == "auto":
            gaps = (
                dialect.Gap("cache=auto", "Incus starts virtiofsd with never, metadata or always"),
            )
    mount = [word for word in request.path.attachment.guest_mount if word != "trans=virtio"]
    if mount:
        gaps += (dialect.Gap(",".join(mount), "Incus's agent mounts it in the guest"),)
    comments = tuple(writing.share_comments(request))[:-1]  # its agent mounts it
    return dialect.Configuration(
        writing.commented(comments, gaps) + writing.to_yaml({"devices": {writing.TAG: device}}),
        gaps,
    )


def _refused(device: Tree, accepted: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """Why Incus does not save an instance with the device, and the way out; None if it does."""
    written = {key: word(device, key) or None for key in accepted}
    return refused_word(Platform.INCUS.full_name, accepted, written)


def _change(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> dialect.Change:
    """Incus has io.cache and io.bus; aio follows the cache mode."""
    if wanted.attachment.aio is not aio_of(disk, wanted.cache) or wanted.attachment.iothread != (
        now.attachment.iothread
    ):
        raise dialect.lacks(disk.platform, f"aio={wanted.attachment.aio} with this cache mode")
    before = json.loads(disk.text)
    then = {
        "io.cache": wanted.cache.spelled_out.value,
        "io.bus": _WORDS[wanted.attachment.bus],
    }
    same = (
        now.cache.spelled_out is wanted.cache.spelled_out,
        (now.attachment.bus is wanted.attachment.bus),
    )
    if same[1]:
        del then["io.bus"]
    elif same[0]:
        del then["io.cache"]
    then = {key: value for key, value in then.items() if before.get(key) != value}
    if not then:
        raise dialect.unchanged()
    accepted = _OF_DIRECTORIES if now.shares_directory else _OF_DISKS
    if (refused := _refused({**before, **then}, accepted)) is not None:
        raise dialect.still_refused(refused)
    profile, inherited = before.get("profile"), before["inherited"]
    device = ["incus", "profile" if profile else "config", "device"]
    on = [profile or before.get("instance") or _INSTANCE, disk.target]

    project = before.get("project", "default")
    # Without it the client changes a guest of that name in its own project.
    there = [] if project == "default" else ["--project", project]

    def line(verb: str, *settings: str) -> str:
        return shlex.join([*device, verb, *on, *settings, *there])

    paste = line("override" if inherited else "set", *(f"{k}={v}" for k, v in then.items()))
    if inherited:
        return dialect.Change(paste, line("remove"))
    old = [f"{key}={before[key]}" for key in then if key in before]
    undo = [line("set", *old)] if old else []
    undo += [line("unset", key) for key in then if key not in before]
    return dialect.Change(paste, " && ".join(undo))


def _listed(run: dialect.CommandRunner) -> Iterator[GuestText]:
    for name, *command in (("pools", "storage", "list"), ("instances", "list")):
        text = run("incus", *command, "--format", "json")
        if text.strip() not in ("", "[]", "null"):
            yield GuestText(text, name)


DIALECT = dialect.Dialect(
    cache_modes=CACHE_MODES,
    change=_change,
    forms=(dialect.Form("incus", export, _export_share),),
    reader=_reader,
    recognises_document=is_incus,
    location=dialect.Location(printed=_listed, users=("incus", "lxd")),
    aio_of=aio_of,
    other_buses=(Bus.SCSI,),
    without_disk=_without_disk,
    # UpdatableFields in internal/server/device/disk.go has neither io.cache nor io.bus, so
    # devicesUpdate in instance/drivers/driver_qemu.go removes the device, and adds it.
    must_be_stopped=True,
    left_out={
        dialect.HOST_DEVICES: r"\btype\"?:\s*\"?(?:pci|usb)\b"
        r"|\baddress\"?:\s*[\"']?(?P<device>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\b)",
        "TPM state": r"\btype\"?:\s*\"?tpm\b",
        "cloud-init": r"cloud-init:config",
        "the agent's drive": r"agent:config",
        "CD-ROMs": r"source:.*\.iso[\"']?\s*(,|}|$)",
        "snapshots": r"\bsnapshots\"?:\s*(\[\s*\{|\n\s*-)",
    },
)
