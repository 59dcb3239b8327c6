"""Proxmox VE: /etc/pve/qemu-server/VMID.conf (qm.conf(5)) and /etc/pve/storage.cfg.

Defaults are those of qemu-server 9.2 (PVE::QemuServer::Drive): cache=none (writeback on btrfs with
checksums; drive_uses_cache_direct), aio=io_uring (not on LVM and CIFS, nor on krbd in the page
cache), detect_zeroes=on (unmap with discard=on), and controller lsi without `scsihw`. So all are
always written.

Proxmox opens a volume of a storage, called `STORAGE` where it is written, which must have the
path's host layers; `VMID` is the number of the guest. A storage of files names volumes
`VMID/vm-VMID-disk-N.FORMAT` (pve-storage-dir.adoc), one of block devices `vm-VMID-disk-N`. LVM may
hold qcow2, in a volume whose name ends so (PVE::Storage::LVMPlugin::parse_volname). A guest does
not start if `format` differs from the volume's (Drive.pm: get_path_and_format).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.path.architecture import X86_64, Architecture
from vdisklab.path.disk_path import Attachment, DiskPath, Image, Layer
from vdisklab.path.mount_options import SOFT
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import PRINTED, Platform
from vdisklab.path.segments import (
    ERROR_POLICY,
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    LayerKind,
    WriteCache,
)
from vdisklab.platforms import dialect, reading, writing
from vdisklab.platforms.configured_disk import ConfiguredDisk, with_pending
from vdisklab.platforms.drive_arguments import (
    Changes,
    drops_flushes,
    split_arguments,
)
from vdisklab.platforms.guest_disks import disks_of
from vdisklab.platforms.network import ServerDisk, placed, server_disk
from vdisklab.platforms.qemu_arguments import disks_of_arguments
from vdisklab.platforms.request import WHOLE_DEVICE, ExportRequest
from vdisklab.units import GIB, decimal_number, whole_number
from vdisklab.value import Value, field, replace

STORAGES = "storage.cfg"
_READ_STORAGES = (
    "run `scp root@NODE:/etc/pve/storage.cfg .`, where NODE has the guest, and name storage.cfg "
    "beside the guest's file"
)
LIMITS = reading.limit_words(
    {"throttle_iops": ("iops",), "throttle_bps": ("bps",)},
    reading.joined(("iops", "bps"), ("", "_rd", "_wr"), ("", "_max", "_max_length", "_length")),
    reading.joined(("mbps",), ("_rd", "_wr"), ("", "_max")),
    ("mbps_max",),
)
"""PVE::QemuServer::Drive; `mbps` is a path's too, but in megabytes."""

_SLOT = re.compile(r"(virtio|scsi|sata|ide)[0-9]+")
_SHARE = re.compile(r"virtiofs[0-9]+")
_LINE = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*)")
_DIRECTORIES: Mapping[str, LayerKind | None] = {
    "dir": None, "btrfs": None, "nfs": LayerKind.NFS, "cifs": LayerKind.SMB,
    "cephfs": LayerKind.CEPHFS,
}  # fmt: skip
"""What a storage of files is mounted from; QEMU itself opens images on glusterfs."""

_BLOCK_LAYERS = {
    "lvmthin": LayerKind.LVMTHIN, "lvm": LayerKind.LVM, "zfspool": LayerKind.ZVOL,
}  # fmt: skip


_CHAINS = "snapshot-as-volume-chain"
_VOLUME = re.compile(
    r"(^|,)(size=|((file|volume)=)?(/dev/|[A-Za-z][\w.-]*:[\w./-]*(vm|base)-[0-9]))"
)

_NO_SLOT = re.compile(r"(efidisk|tpmstate|unused|mp)[0-9]+")
_CLOUD_INIT = re.compile(r"(^|[:/])(vm-[0-9]+-)?cloudinit(\.\w+)?$")
_DRIVERS = {
    Bus.VIRTIO: "virtio-blk-pci", Bus.SCSI: "scsi-hd", Bus.SATA: "ide-hd", Bus.IDE: "ide-hd",
}  # fmt: skip

_PROPERTIES = ("write-cache", "werror", "rerror")
_KNOWN = re.compile(
    "file|aio|backup|cache|cyls|heads|secs|trans|detect_zeroes|discard|format|iothread|media|model|"
    "product|queues|replicate|rerror|ro|scsiblock|serial|shared|size|snapshot|ssd|vendor|volume|"
    "werror|wwn|import-from|(bps|iops|mbps)(_.*)?"
)
"""The options of a disk (PVE::QemuServer::Drive) that are read, or that change no speed."""

_OF_NODE = re.compile(r"(?:^|/)nodes/([A-Za-z0-9-]+)/qemu-server/[0-9]+\.conf$")
"""Where pmxcfs(8) keeps the guests of each node of a cluster."""

_ACCEPTED = {
    "cache": ("none", "writethrough", "writeback", "unsafe", "directsync"),
    "aio": ("io_uring", "native", "threads"),
    "discard": ("ignore", "on"),
    "werror": ("enospc", "ignore", "report", "stop"),
    "rerror": ("report", "ignore", "stop"),
    "format": ("raw", "qcow2", "vmdk", "qed", "qcow", "cloop"),
}
"""The words of a disk's options (src/PVE/QemuServer/Drive.pm of qemu-server 9.2: drivedesc_base,
and pve-qm-image-format for `format`): Proxmox VE drops a line with another one ("unable to parse
value of 'scsi0'"), so the guest starts without the disk."""

_SLOTS_OF = {Bus.VIRTIO: 16, Bus.SCSI: 31, Bus.SATA: 6, Bus.IDE: 4}
"""How many disks each bus has (Drive.pm: MAX_VIRTIO_DISKS and so on)."""

_OPTIONS_OF = {
    "iothread": (Bus.VIRTIO, Bus.SCSI), "ro": (Bus.VIRTIO, Bus.SCSI), "queues": (Bus.SCSI,),
    "scsiblock": (Bus.SCSI,), "ssd": (Bus.SCSI, Bus.SATA, Bus.IDE),
}  # fmt: skip
"""The buses that have an option which others lack (Drive.pm: scsi_fmt, virtio_fmt and so on)."""

_WITHOUT_EFFECT = ("iothread", "queues", "ssd")
"""Those of them that a line may leave out where they are refused: `ro` would become writable."""

_MOST_BELOW = 200  # of a disk path
_FORMATS = (ImageFormat.RAW, ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.QED)
_FEWEST_QUEUES = 2
"""The least that `queues` accepts (Drive.pm: queues_fmt)."""

_NAMED_LATER = re.compile(r"-disk-(?:scsi|virtio|sata|ide)[0-9]+(?:\.\w+)?$")
"""The volume that stands for one that Proxmox VE makes and names (`qm_commands`): its own names end
in a number (PVE::Storage::Plugin: get_next_vm_diskname)."""

_OF_GUEST = "?"
"""Stands before why the SCSI controller of a guest is not known."""

_ANY_VIRTIO = "virtio-scsi-single"

_OWNER = re.compile(r"\b(?:vm|base)-([0-9]+)-|(?::|/images/)([0-9]+)/")
_SLOTS = {Bus.VIRTIO: "virtio0", Bus.SCSI: "scsi0", Bus.IDE: "ide0", Bus.SATA: "sata0"}
_ADDED = {
    LayerKind.NFS: "nfs STORAGE --server SERVER --export EXPORT",
    LayerKind.SMB: "cifs STORAGE --server SERVER --share SHARE --username USER --password",
    LayerKind.CEPHFS: "cephfs STORAGE",
    LayerKind.GLUSTERFS: "dir STORAGE --path DIR --is_mountpoint yes",
    LayerKind.KRBD: "rbd STORAGE --pool POOL --krbd 1",
}
"""What `pvesm add` is told for storage that the host's kernel opens. QEMU itself opens the images
on Proxmox's own storage of glusterfs."""

_LOGGED_IN = "iscsi STORAGE --portal HOST --target TARGET --content images"


def _is_true(word: str | None) -> bool:
    """Proxmox's ways to say yes (PVE::JSONSchema::parse_boolean)."""
    return (word or "").lower() in ("1", "on", "yes", "true")


class Storage(Value):
    """A storage of storage.cfg: its name, type and options."""

    name: str
    type: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def makes_thin(self) -> bool:
        """True if its volumes grow when the guest writes: Ceph's always, ZFS's with `sparse`."""
        return self.type == "rbd" or _is_true(self.options.get("sparse"))

    @property
    def disabled(self) -> tuple[str, str] | None:
        """Why no guest starts with a volume of it, and the way out (PVE::Storage:
        storage_check_enabled, which activate_storage calls)."""
        if not _is_true(self.options.get("disable")):
            return None
        return (
            f"its storage {self.name} is disabled",
            f"run `pvesm set {shlex.quote(self.name)} --disable 0`",
        )

    @property
    def without_disks(self) -> tuple[str, str] | None:
        """That its `content` is given and allows no disk, so that no guest starts with one
        (QemuServer.pm: check_volume_storage_type), and the way out."""
        given = self.options.get("content", "")
        allowed = re.findall(r"[^\s,;]+", given)
        if not allowed or "images" in allowed:
            return None
        content = ",".join(["images", *(kind for kind in allowed if kind != "none")])
        return (
            f"its storage {self.name} may hold no disks (its content is {given})",
            f"run `pvesm set {shlex.quote(self.name)} --content {shlex.quote(content)}`",
        )

    def absent_on(self, node: str) -> tuple[str, str] | None:
        """That its `nodes` leave out a node, whose guests then do not start with it (PVE::Storage:
        storage_check_node), and the way out."""
        nodes = re.findall(r"[^\s,;]+", self.options.get("nodes", ""))
        if not node or not nodes or node in nodes:
            return None
        everywhere = ",".join((*nodes, node))
        return (
            f"its storage {self.name} is not on node {node} (its nodes are {','.join(nodes)})",
            f"move the guest, or run `pvesm set {shlex.quote(self.name)} --nodes "
            f"{shlex.quote(everywhere)}` if {node} has the storage, too",
        )

    @property
    def soft_mount(self) -> tuple[str, str] | None:
        """That it is mounted with `soft`, as a sentence begins, and how to change that: by its
        `options`, of which the last counts; CIFS is so without any (CIFSPlugin: cifs_mount)."""
        given = [word for word in self.options.get("options", "").split(",") if word]
        mounted = ["soft", *given] if self.type == "cifs" else given
        chosen = [word for word in mounted if word in ("hard", *SOFT)]
        if self.type not in ("nfs", "cifs") or not chosen or chosen[-1] == "hard":
            return None
        hard = ",".join([*(word for word in given if word not in SOFT), "hard"])
        place = shlex.quote(self.options.get("path", f"/mnt/pve/{self.name}"))
        return (
            f"Storage {self.name} is {self.type} mounted with `{chosen[-1]}`",
            f"`pvesm set {shlex.quote(self.name)} --options {shlex.quote(hard)}`; stop its guests "
            f"and run `umount {place}` on each node, and Proxmox VE mounts it anew",
        )


_LOCAL = Storage("local", "dir", {"path": "/var/lib/vz"})
"""The storage that every node has, written or not (PVE::Storage::Plugin::parse_config)."""


def read_storages(text: str) -> Mapping[str, Storage]:
    """The storages of a storage.cfg by name; lines that are not understood are left out."""
    storages: dict[str, Storage] = {}
    options: dict[str, str] = {}
    for line in text.splitlines():
        heading = re.fullmatch(r"(\w+):\s*(\S+)\s*", line)
        if heading:
            options = {}
            storages[heading[2]] = Storage(heading[2], heading[1], options)
        elif line[:1].isspace() and line.strip():
            key, _, value = line.strip().partition(" ")
            options[key] = value.strip() or "1"
    return storages


def is_proxmox(text: reading.GuestText) -> bool:
    """True for the storages, and for a text of nothing but `key: value` lines, comments and
    sections of snapshots."""
    if text.file_name == STORAGES:
        return True
    lines = [line for line in text.text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0].startswith("["):
        return False
    if any(re.match(r"apiVersion:|\w+:\s*[{\[]", line) for line in lines):  # YAML
        return False
    return all(line.startswith("[") or _LINE.fullmatch(line) for line in lines)


def read_proxmox(
    text: str, vmid: str, storages: Mapping[str, Storage]
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a guest as it is now; sections with snapshots are left out."""
    sections = _sections(text)
    now, changes = sections.get("", {}), dict(sections.get("PENDING", {}))
    gone = re.split("[ ,]+", changes.pop("delete", ""))
    later = {key: value for key, value in {**now, **changes}.items() if key not in gone}
    below = _Snapshots.of(sections)
    found = tuple(_disks(now, vmid, storages, below))
    if changes or gone != [""]:
        found = with_pending(
            found, tuple(_disks(later, vmid, storages, below)), lambda disk: disk.text
        )
    shares = (_share(now, vmid, key) for key in sorted(now) if _SHARE.fullmatch(key))
    template = _is_true(now.get("template"))
    return tuple(
        replace(disk, template=template) for disk in (*found, *shares, *_disks_of_args(now, vmid))
    )


def _without_disk(text: reading.GuestText) -> reading.DisklessGuest | None:
    """Why a VMID.conf has no hard disk; None for the storages."""
    if text.file_name == STORAGES:
        return None
    settings = _sections(text.text).get("", {})
    unused = next((key for key in sorted(settings) if key.startswith("unused")), None)
    lines = ", ".join(_SLOTS.values())
    why = f"no disk in {text.file_name} (a line such as {lines})"
    instead = f"name what `qm config {text.name}` prints today, or other guests: {PRINTED}"
    if unused is not None:
        why = f"{why}, only {unused}, which is attached to nothing"
        attach = shlex.join(["qm", "set", text.name, "--scsi0", _volume_of(settings[unused])])
        instead = f"`{attach}` on its node attaches it"
    return reading.DisklessGuest(settings.get("name", text.name), why, instead)


class _Snapshots(Value):
    """The snapshots that the guest is a child of, the newest first, each with its settings."""

    above: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def of(cls, sections: Mapping[str, Mapping[str, str]]) -> _Snapshots:
        """Follows `parent` from the guest as it is now."""
        above: dict[str, Mapping[str, str]] = {}
        name = sections.get("", {}).get("parent", "")
        while name and name in sections and name not in above:
            above[name] = sections[name]
            name = sections[name].get("parent", "")
        return cls(tuple(above.values()))

    def images_below(self, slot: str, volume: str, storage: Storage | None) -> int:
        """How many snapshots are images below the volume in this slot.

        With snapshot-as-volume-chain each is a qcow2 volume or file of its own
        (PVE::Storage::LVMPlugin and Plugin: volume_qemu_snapshot_method).
        """
        chained = storage is not None and _is_true(storage.options.get(_CHAINS))
        if not chained or not volume.endswith(".qcow2"):
            return 0
        return sum(_volume_of(snapshot.get(slot, "")) == volume for snapshot in self.above)


def _volume_of(text: str) -> str:
    """The volume of a disk's settings; it has two names, and may be without one (Drive.pm)."""
    options = dict(part.partition("=")[::2] for part in text.split(","))
    named = options.get("file", options.get("volume", ""))
    return next((key for key, value in options.items() if not value), named)


def _disks(
    settings: Mapping[str, str],
    vmid: str,
    storages: Mapping[str, Storage],
    snapshots: _Snapshots,
) -> Iterator[ConfiguredDisk]:
    """The disks in the guest's slots, and what looks like one in a slot that is not known."""
    argv = _arguments(settings)
    changes = Changes(argv)
    thrown_away = "-snapshot" in argv or "--snapshot" in argv
    for key in sorted(settings):
        if _SLOT.fullmatch(key):
            disk = _disk(settings, vmid, key, storages, snapshots, changes=changes)
            if disk is not None:
                yield replace(disk, transient=disk.transient or thrown_away)
        elif _VOLUME.search(settings[key]) and re.fullmatch(r"[a-z]+[0-9]+", key):
            if _NO_SLOT.fullmatch(key):
                continue
            problem = f"vdisklab does not know the slot {key!r}, which has a volume"
            yield ConfiguredDisk(
                domain=settings.get("name", vmid), target=key, source=None, path=None,
                problem=problem, platform=Platform.PROXMOX, guest=vmid, text=settings[key],
                drops_flushes=re.search(r"\bcache=unsafe\b", settings[key]) is not None,
            )  # fmt: skip


def _arguments(settings: Mapping[str, str]) -> Sequence[str]:
    """The arguments that QEMU gets as they are."""
    return split_arguments(settings.get("args", ""))


def _disks_of_args(settings: Mapping[str, str], vmid: str) -> Iterator[ConfiguredDisk]:
    """The disks in the guest's `args`, which `qm set` has as one text: qm(1), `--args`."""
    number = vmid if re.fullmatch("[0-9]+", vmid) else "VMID"
    whole = (f"qm set {number} --args", settings.get("args", ""))
    for disk in disks_of_arguments(_arguments(settings)):
        yield replace(
            disk,
            domain=settings.get("name", vmid),
            guest=vmid,
            architecture=settings.get("arch"),
            whole=whole,
        )


def _share(settings: Mapping[str, str], vmid: str, slot: str) -> ConfiguredDisk:
    """A shared directory; which one stands in the cluster's mapping, which is not here."""
    options = dict(part.partition("=")[::2] for part in settings[slot].split(","))
    mapping = next((key for key, value in options.items() if not value), options.get("dirid", ""))
    path, problem = None, None
    try:
        cache = {"cache": {"never": "none"}.get(options.get("cache", ""), options.get("cache"))}
        parsed = reading.parsed_options(Bus.VIRTIOFS, cache)
        path = DiskPath(attachment=reading.attachment_of(Bus.VIRTIOFS, parsed))
    except ValueError as error:
        problem = str(error)
    return ConfiguredDisk(
        domain=settings.get("name", vmid),
        target=slot,
        source=mapping,
        path=path,
        problem=problem,
        platform=Platform.PROXMOX,
        guest=vmid,
        text=settings[slot],
        architecture=settings.get("arch"),
        limits=tuple(
            f"{key}={value}"
            for key, value in options.items()
            if value and key not in ("dirid", "cache") and value != "0"
        ),
    )


def _sections(text: str) -> dict[str, dict[str, str]]:
    """The settings of each section; the first one, without a name, is the guest as it is now."""
    sections: dict[str, dict[str, str]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip().strip("[]")
        match = _LINE.fullmatch(line.rstrip())
        if match:
            sections.setdefault(section, {})[match[1]] = match[2]
    return sections


def _disk(
    settings: Mapping[str, str],
    vmid: str,
    slot: str,
    storages: Mapping[str, Storage],
    snapshots: _Snapshots,
    *,
    changes: Changes,
) -> ConfiguredDisk | None:
    """One disk; None for a CD-ROM, cloud-init's drive and an empty drive."""
    bus = Bus(slot.rstrip("0123456789"))
    every, of_device = changes.properties_of({"driver": _DRIVERS[bus], "id": slot})
    properties = {**every, **of_device}
    options = dict(part.partition("=")[::2] for part in settings[slot].split(","))
    volume = _volume_of(settings[slot])
    storage = storages.get(volume.partition(":")[0])
    refused = _refused(slot, bus, options) or _refused_volume(slot, volume, vmid, storage)
    options |= changes.of_drive(f"drive-{slot}")  # Proxmox has the words of -drive
    options |= {word: properties[word] for word in ERROR_POLICY if word in properties}
    if options.get("media") == "cdrom" or volume in ("none", "") or _CLOUD_INIT.search(volume):
        return None
    path, problem, source, server, assumed = None, None, volume, None, None
    unseen = None
    try:
        below = snapshots.images_below(slot, volume, storage)
        layers, image, source, server = _place(volume, options, storages, below)
        if _is_true(options.get("scsiblock")):
            raise ValueError(reading.SCSI_PASSED)
        path = _path(bus, settings.get("scsihw", "lsi"), options, (layers, image), storage)
        if path.target is not None:
            path = placed(path, layers[0].kind)
        if "write-cache" in properties:
            word = reading.one_of(properties["write-cache"], tuple(WriteCache), "write-cache")
            attachment = path.attachment
            changed = (*attachment.options, ("write_cache", word))
            path = replace(path, attachment=Attachment(attachment.bus, changed))
    except ValueError as error:
        path, problem, unseen = None, str(error), reading.way_to_see(error)
        with suppress(ValueError):
            in_directory = ((), _image(volume, options))
            controller = settings.get("scsihw", "lsi")
            controller = _ANY_VIRTIO if controller.startswith(_OF_GUEST) else controller
            assumed = _path(bus, controller, options, in_directory, storage)
    policy = options.get("werror"), options.get("rerror")
    return ConfiguredDisk(
        domain=settings.get("name", vmid),
        target=slot,
        source=_shown_source(source),
        path=path,
        assumed=assumed,
        server=server,
        problem=problem,
        unseen=unseen,
        read_only=_is_true(options.get("ro")),
        platform=Platform.PROXMOX,
        guest=vmid,
        text=settings[slot],
        controller=_controller(settings) if slot.startswith("scsi") else "",
        architecture=settings.get("arch"),
        limits=(
            *LIMITS.beyond(options),
            *(
                f"{key}={value}"
                for key, value in options.items()
                if value and (_unknown(key) or _not_filled_in(key, value))
            ),
            *(f"{key}={value}" for key, value in properties.items() if key not in _PROPERTIES),
        ),
        refused=refused,
        soft_mount=None if storage is None else storage.soft_mount,
        ignored_errors=reading.ignored_errors(*policy),
        by_policy=reading.policy_path(bus, *policy) if path is None else None,
        drops_flushes=drops_flushes(options),
        on_thin_volume=storage is not None and storage.makes_thin,
        transient=_is_true(options.get("snapshot")),
    )


def _controller(settings: Mapping[str, str]) -> str:
    """The model of the SCSI controller; empty if it is that of a guest which is not known."""
    model = settings.get("scsihw", "lsi")
    return "" if model.startswith(_OF_GUEST) else model


def _shown_source(source: str | None) -> str | None:
    """The file or device, or the volume, with the number that Proxmox VE gives a new one open."""
    if source is None or _NAMED_LATER.search(source) is None:
        return source
    storage, colon, _ = source.partition(":")
    if colon and not source.startswith("/"):
        return f"a new volume on {storage}"
    return re.sub(r"-disk-[a-z]+[0-9]+(?=(?:\.\w+)?$)", "-disk-N", source)


def _refused(slot: str, bus: Bus, written: Mapping[str, str]) -> tuple[str, str] | None:
    """Why Proxmox VE does not give the guest the disk of a slot, and the way out; None if it does.

    `written` are the options of the slot's line.
    """
    name, last = Platform.PROXMOX.full_name, _SLOTS_OF[bus] - 1
    number = whole_number(slot.removeprefix(bus))
    if number is None or number > last:
        return f"{name} has no slot {slot[:20]}", f"use {bus}0 to {bus}{last}"
    for option, buses in _OPTIONS_OF.items():
        if written.get(option) and bus not in buses:
            return f"{name} refuses {option} on bus {bus}", f"leave out {option}={written[option]}"
    return reading.refused_word(name, _ACCEPTED, written)


def _refused_volume(
    slot: str, volume: str, vmid: str, storage: Storage | None
) -> tuple[str, str] | None:
    """Why no guest starts with a volume on any node, and the way out. One to import from is no disk
    ("cannot use volume … - content type needs to be 'images' or 'iso'", PVE::API2::Qemu)."""
    if volume.partition(":")[2].startswith("import/"):
        number = vmid if re.fullmatch("[0-9]+", vmid) else "VMID"
        line = shlex.quote(f"STORAGE:0,import-from={volume}")
        return (
            "a volume below import/ is for importing, and no disk",
            f"run `qm set {number} --{slot} {line}`",
        )
    return None if storage is None else storage.disabled or storage.without_disks


def _not_filled_in(option: str, value: str) -> bool:
    """True for a switch or number that is a variable; a word that is one leaves no path."""
    return option not in _ACCEPTED and reading.is_variable(value)


def _unknown(option: str) -> bool:
    return _KNOWN.fullmatch(option) is None


def _place(
    volume: str, options: Mapping[str, str], storages: Mapping[str, Storage], below: int
) -> tuple[tuple[Layer, ...], Image | None, str, ServerDisk | None]:
    """The host layers, the image, the file or device of a volume, and where a server has it.

    `below` counts the snapshots that are images below it.

    Raises ValueError for a storage whose layers vdisklab does not build.
    """
    if volume.startswith("/"):
        on_device = volume.startswith("/dev/")
        return (), None if on_device else _image(volume, options), volume, None
    name, _, rest = volume.partition(":")
    storage = storages.get(name)
    if storage is None:
        unknown = f"its storage {name!r} is not in storage.cfg, so its layers are not known"
        way = _READ_STORAGES
        if storages:
            way = (
                f"run `pvesm status` on the guest's node; if it lists {name}, name that node's "
                "/etc/pve/storage.cfg instead of this one"
            )
        raise reading.UnseenStorageError(unknown, way)
    *base, name_of_volume = _linked(rest)
    if storage.type in _DIRECTORIES:
        file = f"{storage.options.get('path', f'/mnt/pve/{name}')}/images/{name_of_volume}"
        image = _image(rest, options)
        below += bool(base) and image.format is ImageFormat.QCOW2
        mounted = _DIRECTORIES[storage.type]
        layers = () if mounted is None else (Layer(mounted),)
        return layers, _chain(image, below), file, None
    if storage.type == "iscsi" or (storage.type == "rbd" and _is_true(storage.options.get("krbd"))):
        # The cluster's id is the cluster's to say (RBDPlugin.pm, get_rbd_dev_path).
        cluster, pool = storage.options.get("fsid", "FSID"), "/".join(_pool(storage.options))
        mapped = f"/dev/rbd-pve/{cluster}/{pool}/{name_of_volume}"
        device = mapped if storage.type == "rbd" else f"/dev/disk/by-id/{name_of_volume[6:]}"
        layer = Layer(LayerKind.KRBD if storage.type == "rbd" else LayerKind.DEVICE)
        return (layer,), None, device, None
    server = _server(storage, name_of_volume)
    if server is not None:
        return (Layer(server.kind),), Image(ImageFormat.RAW), server.place, server
    kind = _BLOCK_LAYERS.get(storage.type)
    if kind is None:
        raise ValueError(f"its storage {name!r} is of type {storage.type}: {reading.MAP_IT}")
    holds_raw = kind in (LayerKind.LVMTHIN, LayerKind.ZVOL) and "format" not in options
    image = Image(ImageFormat.RAW) if holds_raw else _image(rest, options)
    pool = storage.options.get("pool", name)
    group = storage.options.get("vgname", name)
    device = (
        f"/dev/zvol/{pool}/{name_of_volume}"
        if kind is LayerKind.ZVOL
        else f"/dev/{group}/{name_of_volume}"
    )
    chain = None if image.format is ImageFormat.RAW else _chain(image, below)
    return (Layer(kind),), chain, device, None


def _chain(image: Image, below: int) -> Image:
    """The image with the number of images `below` it; 0 means that it stands alone."""
    return Image(image.format, (("backing", min(below, _MOST_BELOW)),)) if below else image


def _pool(options: Mapping[str, str]) -> tuple[str, ...]:
    return (options.get("pool", "rbd"), *filter(None, [options.get("namespace")]))


def _server(storage: Storage, volume: str) -> ServerDisk | None:
    """Where QEMU's own driver finds a volume: qemu_blockdev_options of RBDPlugin, ISCSIDirectPlugin
    and ZFSPlugin (which asks the server for the LUN)."""
    options = storage.options
    if storage.type in ("iscsidirect", "zfs"):
        lun = volume.removeprefix("lun") if storage.type == "iscsidirect" else "LUN"
        node = {"portal": options.get("portal"), "target": options.get("target"), "lun": lun}
        return server_disk({"driver": "iscsi", **node})
    if storage.type != "rbd":
        return None
    where = {"server": options["monhost"], "key-secret": ""} if "monhost" in options else {
        "conf": "/etc/pve/ceph.conf"
    }  # fmt: skip
    user = {"user": options["username"]} if "username" in options else {}
    pool, *namespace = _pool(options)
    node = {"pool": pool, "namespace": "".join(namespace), "image": volume}
    return server_disk({"driver": "rbd", **node, **where, **user})


def _linked(volume: str) -> tuple[str, ...]:
    """The volume, after the one below a linked clone: `9/base-9-disk-0.qcow2/11/vm-11-disk-0.qcow2`
    (PVE::Storage::Plugin::parse_volname), `base-9-disk-0/vm-11-disk-1` (ZFSPoolPlugin)."""
    match = re.fullmatch(r"((?:[0-9]+/)?base-[^/]+)/((?:[0-9]+/)?[^/]+)", volume)
    return (volume,) if match is None else (match[1], match[2])


def _image(volume: str, options: Mapping[str, str]) -> Image:
    """The image by the volume's extension (PVE::Storage::Plugin: parse_volname); outside the
    storages by `format`, else raw, whatever its name is (Drive.pm: get_path_and_format)."""
    extension = volume.rpartition(".")[2] if "." in volume.rpartition("/")[2] else "raw"
    extension = "raw" if volume.startswith("/") else extension
    word = options.get("format", extension)
    return Image(ImageFormat(reading.one_of(word, tuple(ImageFormat), "format")))


def _path(
    bus: Bus,
    controller: str,
    options: Mapping[str, str],
    place: tuple[tuple[Layer, ...], Image | None],
    storage: Storage | None,
) -> DiskPath:
    if bus is Bus.SCSI and controller.startswith(_OF_GUEST):
        raise ValueError(controller.removeprefix(_OF_GUEST))
    if bus is Bus.SCSI:
        try:
            reading.one_of(controller, ("virtio-scsi-pci", "virtio-scsi-single"), "controller")
        except ValueError as error:
            way = "set scsihw to virtio-scsi-single, for which the guest needs virtio's driver"
            raise ValueError(f"{error}: {way}") from error
    kind = "" if storage is None else storage.type
    checksummed = kind == "btrfs" and not (storage and storage.options.get("nocow"))
    usual = CacheMode.WRITEBACK if checksummed else CacheMode.NONE
    cache = CacheMode(reading.one_of(options.get("cache", usual), tuple(CacheMode), "cache mode"))
    discards = options.get("discard") == "on"
    zeroes = "on" if _is_true(options.get("detect_zeroes", "1")) else "off"
    attached: dict[str, OptionValue] = {
        "aio": Aio(
            reading.one_of(options.get("aio", _usual_aio(storage, cache)), tuple(Aio), "aio")
        ).value,
        "discard": "unmap" if discards else "ignore",
        "detect_zeroes": "unmap" if zeroes == "on" and discards else zeroes,
        # Only virtio disks and a SCSI controller of their own have a thread.
        "iothread": _is_true(options.get("iothread"))
        and (bus is Bus.VIRTIO or controller == "virtio-scsi-single"),
    }
    if options.get("queues"):
        attached["queues"] = reading.queues_of(options["queues"])
    settings = dict(LIMITS.of_path(options))
    if "mbps" in options:
        settings["throttle_bps"] = _bytes(options["mbps"])
    settings |= reading.error_words(options.get("werror"), options.get("rerror"))
    attachment = reading.attachment_of(bus, attached | reading.parsed_options(bus, settings))
    return DiskPath(*place, cache, attachment)


def _bytes(megabytes: str) -> str:
    """MiB, whose fraction Proxmox allows, as bytes. Raises ValueError."""
    number = decimal_number(megabytes)
    if number is None:
        raise ValueError(f"its mbps is {megabytes!r}, but must be a number")
    return f"{number * 2**20:.0f}"


def _usual_aio(storage: Storage | None, cache: CacheMode) -> Aio:
    """The aio mode of a drive without one (Drive.pm: aio_cmdline_option and
    storage_allows_io_uring_default): io_uring, but for storages on which it hung."""
    kind = "" if storage is None else storage.type
    mapped = kind == "rbd" and storage is not None and _is_true(storage.options.get("krbd"))
    if kind in ("lvm", "cifs") or (mapped and not cache.direct):
        return Aio.NATIVE if cache.direct else Aio.THREADS
    return Aio.IO_URING


def _hangs(now: DiskPath, wanted: DiskPath) -> str:
    """The kind of storage on which guests hung with the wanted path's io_uring, so that Proxmox VE
    never uses it there unasked; empty without one.

    "io_uring with cache mode writeback or writethrough on krbd will hang"; "on LVM will hang,
    without cache only sometimes"; "causes problems when used with CIFS since kernel 5.15"
    (qemu-server, storage_allows_io_uring_default).
    """
    if wanted.opened_by_qemu or wanted.attachment.aio is not Aio.IO_URING:
        return ""
    hangs = {LayerKind.LVM, LayerKind.SMB, *([] if wanted.cache.direct else [LayerKind.KRBD])}
    return " or ".join(layer.kind for layer in now.layers[-1:] if layer.kind in hangs)


def _instead(wanted: DiskPath) -> Aio:
    """What Proxmox VE uses where it avoids io_uring (Drive.pm: aio_cmdline_option)."""
    return Aio.NATIVE if wanted.cache.direct else Aio.THREADS


def _require_aio(now: DiskPath, wanted: DiskPath) -> None:
    """Raises NotChangeableError for io_uring on storage on which guests hung."""
    where = _hangs(now, wanted)
    if where:
        raise dialect.NotChangeableError(
            f"Proxmox VE avoids aio=io_uring with cache {wanted.cache} on {where}, as guests hung",
            hint=f"choose aio={_instead(wanted)}",
        )


def _avoided_aio(path: DiskPath) -> Iterator[str]:
    """That Proxmox VE itself would not use a path's io_uring, and what it uses."""
    if where := _hangs(path, path):
        yield (
            f"guests hung with aio=io_uring and cache={path.cache.spelled_out} on {where}, so "
            f"Proxmox VE itself uses aio={_instead(path)} there: write that unless you have tested "
            "io_uring"
        )


def _other_architecture(guest: Architecture) -> Iterator[str]:
    """Proxmox VE runs on x86 only (its system requirements); qm.conf(5) has `arch`."""
    if guest is not X86_64:
        yield (
            f"Proxmox VE runs on {X86_64.aliases[0]} only: it emulates a guest of {guest.name}, "
            f"whose VMID.conf has the line `arch: {guest.name}`"
        )


def export(request: ExportRequest) -> dialect.Configuration:
    """The line of the drive, after the line of its controller if it has one."""
    path, attachment = request.path, request.path.attachment
    volume = _volume(request)
    options = [f"cache={path.cache.spelled_out}"]
    options += [] if path.opened_by_qemu else [f"aio={attachment.aio}"]
    if path.image is not None:
        options.append(f"format={path.image.format}")
    options.append(f"discard={'on' if attachment.option('discard') == 'unmap' else 'ignore'}")
    if attachment.iothread:
        options.append("iothread=1")
    if attachment.bus is Bus.SCSI and (attachment.queues or 0) >= _FEWEST_QUEUES:
        options.append(f"queues={attachment.queues}")
    options.append(f"detect_zeroes={int(attachment.detect_zeroes != 'off')}")
    options += (f"{name}={value}" for name, value in LIMITS.written(attachment).items())
    options += (f"{name}={policy}" for name, policy in attachment.error_policy)
    # Only this controller gives each disk its own thread.
    model = "virtio-scsi-single" if attachment.iothread else "virtio-scsi-pci"
    controllers = {"scsihw": model} if attachment.bus is Bus.SCSI else {}
    slot = _SLOTS[attachment.bus]
    settings = {**controllers, slot: ",".join([volume, *options])}
    fresh = {**controllers, slot: ",".join([f"STORAGE:{-(-request.size // GIB)}", *options])}
    gaps = tuple(_gaps(path))
    needed = (*_avoided_aio(path), *_other_architecture(request.guest))
    comments = writing.commented((*_comments(request, volume, settings, fresh), *needed), gaps)
    lines = "".join(f"{key}: {value}\n" for key, value in settings.items())
    return dialect.Configuration(comments + lines, gaps, needed)


def _comments(
    request: ExportRequest,
    volume: str,
    settings: Mapping[str, str],
    fresh: Mapping[str, str],
) -> Iterator[str]:
    yield f"vdisklab {request.path}"
    owner = _OWNER.search(volume)
    vmid = "VMID" if owner is None else owner[1] or owner[2]
    if owner is None:
        yield "VMID is the number of the guest"
    if "STORAGE" in volume and request.path.layers:
        yield f"STORAGE is a storage on {request.path.stack}"
        yield from _added(request)
    elif request.path.target is not None:
        yield f"all nodes of a cluster find an iSCSI disk by a storage: pvesm add {_LOGGED_IN}"
    yield "without cache=, Proxmox VE uses none (writeback on its btrfs storage)"
    image = request.path.image
    if image is not None and any(name != "preallocation" for name, _ in image.options):
        yield f"create the image yourself; FILE is what `pvesm path {volume}` prints"
        yield from writing.image_commands(image, Path("FILE"), request.size)
    elif (
        image is not None
        and _has_volume_format(request)
        and not (request.on_device or request.path.opened_by_qemu)
    ):
        yield from _allocation(image, volume)
    yield f"for a volume that exists: {_command(vmid, settings)}"
    is_new = volume.startswith("STORAGE:") and ":lun" not in volume
    if request.source is None and is_new and _has_volume_format(request):
        yield f"to create the volume: {_command(vmid, fresh)}"


def _added(request: ExportRequest) -> Iterator[str]:
    """The command that adds the storage, if it is not there yet (pvesm(1))."""
    url, target = request.url, request.path.target
    if url is not None and url.node["driver"] == "iscsi":
        portal = str(url.node["portal"]).removesuffix(":3260")
        storage = f"iscsidirect STORAGE --portal {portal} --target {url.node['target']}"
    elif url is not None:
        keys = {"pool": "pool", "namespace": "namespace", "user": "username"}
        node = url.node
        given = "".join(f" --{key} {node[name]}" for name, key in keys.items() if name in node)
        storage = f"rbd STORAGE{given} --krbd 0"
        yield "for another cluster than Proxmox VE's own, add --monhost HOSTS --keyring FILE"
    else:
        storage = _ADDED.get(request.path.layers[0].kind, "")
    if target is not None and storage:
        yield f"to add it: pvesm add {storage} --content images"


def _allocation(image: Image, volume: str) -> Iterator[str]:
    """A property of file storages, for raw and qcow2 (PVE::Storage::Plugin: preallocation)."""
    mode, (name, _, rest) = image.option("preallocation"), volume.partition(":")
    if mode is not None:
        storage = name if rest else "STORAGE"
        yield (
            "the storage decides how it allocates new images: "
            f"pvesm set {storage} --preallocation {mode}"
        )


def _command(vmid: str, settings: Mapping[str, str]) -> str:
    options = [word for key, value in settings.items() for word in (f"--{key}", value)]
    return shlex.join(["qm", "set", vmid, *options])


def _volume(request: ExportRequest) -> str:
    url = request.url
    volume = request.source or _default_volume(request)
    if url is not None:
        image = str(url.node.get("image", f"lun{url.node.get('lun')}"))
        volume = f"STORAGE:{image if image.startswith(('lun', 'vm-')) else 'vm-VMID-disk-0'}"
    if "," in volume or volume != volume.strip():
        raise PlanError(
            f"Proxmox VE cannot take the source {volume!r}: commas separate its options",
            hint="rename the file, or give --source STORAGE:VOLUME",
        )
    return volume


def _default_volume(request: ExportRequest) -> str:
    if request.path.layers and request.path.layers[-1].kind is LayerKind.DEVICE:
        return request.place("")
    if request.path.image is None and not request.path.layers:
        return WHOLE_DEVICE
    name = "vm-VMID-disk-0"
    if not (request.on_device and request.driver == "raw"):
        name = f"{name}.{request.driver}"
    if not _has_volume_format(request):  # named by its whole path
        return f"/dev/VG/{name}" if request.on_device else f"/var/lib/vz/images/VMID/{name}"
    return f"STORAGE:{name}" if request.on_device else f"STORAGE:VMID/{name}"


def _has_volume_format(request: ExportRequest) -> bool:
    """False for a format that the path's storage does not hold."""
    if not request.on_device:
        return request.driver in ("raw", "qcow2", "vmdk")
    is_lvm = any(layer.kind is LayerKind.LVM for layer in request.path.layers[-1:])
    return request.driver == "raw" or (is_lvm and request.driver == "qcow2")


def _gaps(path: DiskPath) -> Iterator[dialect.Gap]:
    yield from writing.cache_gaps(path)
    queues = path.attachment.queues
    if queues is not None and (path.attachment.bus is Bus.VIRTIO or queues < _FEWEST_QUEUES):
        yield dialect.Gap(f"queues={queues}", "QEMU gives one queue for each CPU")
    if path.attachment.detect_zeroes == "on" and path.attachment.option("discard") == "unmap":
        yield dialect.Gap("detect_zeroes=on", "with discard=on Proxmox VE uses unmap")
    yield from writing.other_gaps(path, ("detect_zeroes", *ERROR_POLICY, *LIMITS.expressible))


def _export_share(request: ExportRequest) -> dialect.Configuration:
    cache = {"none": "never"}.get(writing.cache_of_share(request), writing.cache_of_share(request))
    mapping = f"--map node=NODE,path={writing.share_of(request)}"
    comments = (
        *writing.share_comments(request),
        "Proxmox VE 8.4 and later; the directory needs a mapping: "
        f"pvesh create /cluster/mapping/dir --id {writing.TAG} {mapping}",
    )
    return dialect.Configuration(
        f"{writing.commented(comments)}virtiofs0: {writing.TAG},cache={cache}\n"
    )


def _change(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> dialect.Change:
    """qm(1): `--scsi0` replaces the whole line, so all other options are repeated."""
    _require_aio(now, wanted)
    settings = {"cache": wanted.cache.spelled_out.value}
    if disk.path is not None or "aio=" in disk.text:  # an unknown storage has its own default
        settings |= {} if wanted.opened_by_qemu else {"aio": wanted.attachment.aio.value}
    if wanted.attachment.iothread != now.attachment.iothread:
        settings["iothread"] = "1" if wanted.attachment.iothread else "0"
    policy = dict(now.attachment.error_policy)
    settings |= {
        name: str(word) for name, word in wanted.attachment.error_policy if policy.get(name) != word
    }
    bus = now.attachment.bus
    left_out = [option for option in _WITHOUT_EFFECT if bus not in _OPTIONS_OF[option]]
    parts = [
        part
        for part in disk.text.split(",")
        if part.partition("=")[0] not in (*settings, *left_out)
    ]
    line = ",".join([*parts, *(f"{key}={value}" for key, value in settings.items())])
    options = dict(part.partition("=")[::2] for part in line.split(","))
    refused = _refused(disk.target, bus, options)
    written = dict(part.partition("=")[::2] for part in disk.text.split(","))
    if _refused(disk.target, bus, written) is None:  # not its line is refused, but its storage
        refused = disk.refused
    if refused is not None:
        raise dialect.still_refused(refused)
    single = settings.get("iothread") == "1" and disk.controller == "virtio-scsi-pci"

    def command(text: str, controller: str) -> str:
        model = ["--scsihw", controller] if single else []
        command = shlex.join(["qm", "set", _number(disk), *model, f"--{disk.target}"])
        return f"{command} {_word_of(disk, text)}"

    return dialect.Change(command(line, "virtio-scsi-single"), command(disk.text, disk.controller))


def _word_of(disk: ConfiguredDisk, text: str) -> str:
    """A disk's line as a word of a command: with the volume that the guest has now, where a script
    lets Proxmox VE name it, or has its name in a variable. `import-from` and `format` are for new
    volumes: "'import-from' requires special syntax" (qemu-server, PVE::API2::Qemu)."""
    volume = _volume_of(text)
    if "$" not in volume and _NAMED_LATER.search(volume) is None:
        return shlex.quote(text)
    options = [
        part
        for part in text.split(",")
        if "=" in part and part.partition("=")[0] not in ("file", "volume", "import-from", "format")
    ]
    first = rf"s/^{disk.target}: \([^,]*\).*/\1/p"
    written = f"\"$(qm config {_number(disk)} | sed -n '{first}')\""
    return f"{written},{shlex.quote(','.join(options))}" if options else written


def _number(disk: ConfiguredDisk) -> str:
    """The guest's number: its file's name, else that in its volume's name, else `VMID`.

    `qm config 101` in a file of another name, or from a pipe, does not say it (volumes:
    PVE/Storage/Plugin.pm, get_next_vm_diskname).
    """
    if re.fullmatch("[0-9]+", disk.guest):
        return disk.guest
    owner = re.search(r"(?<![\w-])vm-([0-9]+)-", disk.text)
    return "VMID" if owner is None else owner[1]


def _reader(
    texts: Sequence[reading.GuestText], _documents: Sequence[reading.Tree]
) -> dialect.Reader:
    storages: dict[str, Storage] = {}
    controllers: dict[str, str] = {}
    for text in texts:
        if text.file_name == STORAGES:
            storages |= {"local": _LOCAL, **read_storages(text.text)}
        elif text.file_name.endswith(".conf") and not text.adds_to and is_proxmox(text):
            controllers[text.name] = _sections(text.text).get("", {}).get("scsihw", "lsi")

    def read(text: reading.GuestText) -> Sequence[ConfiguredDisk]:
        stored = text.file_name == STORAGES
        if stored:
            return ()
        of_node = _OF_NODE.search(text.place or text.origin)
        node = "" if of_node is None else of_node[1]
        disks = read_proxmox(_with_controller(text, controllers), text.name, storages)
        return [_on_node(disk, node, storages) for disk in disks]

    return read


def _with_controller(text: reading.GuestText, controllers: Mapping[str, str]) -> str:
    """The lines of a guest; those that a command adds to one which exists have its controller, or
    say that it is not known."""
    if not text.adds_to:
        return text.text
    number = text.name if re.fullmatch("[0-9]+", text.name) else "VMID"
    unknown = (
        f"{_OF_GUEST}its controller is not known, as {text.adds_to} changes a guest that exists: "
        f"run `qm config {number} > {number}.conf` on its node, and name {number}.conf, too"
    )
    return f"{text.text}scsihw: {controllers.get(text.name, unknown)}\n"


def _on_node(disk: ConfiguredDisk, node: str, storages: Mapping[str, Storage]) -> ConfiguredDisk:
    """The disk on its guest's node, which may lack its storage."""
    is_volume = disk.platform is Platform.PROXMOX and disk.refused is None
    storage = storages.get(_volume_of(disk.text).partition(":")[0]) if is_volume else None
    refused = disk.refused if storage is None else storage.absent_on(node)
    return replace(disk, node=node, refused=refused)


DIALECT = dialect.Dialect(
    cache_modes=disks_of(Platform.PROXMOX).cache_modes,
    change=_change,
    forms=(dialect.Form("proxmox", export, _export_share, title="Proxmox VE"),),
    reader=_reader,
    recognises=is_proxmox,
    beside=(STORAGES,),
    below=("nodes/*/qemu-server", "qemu-server"),
    without_disk=_without_disk,
    changes_on_node=True,
    left_out={
        "EFI variables": r"^efidisk[0-9]+:",
        "TPM state": r"^tpmstate[0-9]+:",
        "cloud-init": r"^\w+[0-9]+:.*cloudinit",
        "CD-ROMs": r"^\w+[0-9]+:.*media=cdrom",
        dialect.HOST_DEVICES: r"^(?P<device>hostpci[0-9]+:.*|usb[0-9]+:.*(?:host|mapping)=.*)",
        "unused volumes": r"^unused[0-9]+:",
        "snapshots": r"^\[(?!PENDING|special:)",
    },
)
