"""OpenStack: servers, their images' and flavours' properties, and nova.conf of a compute host.

Nova's libvirt driver decides: `[libvirt] disk_cachemodes` of the host by the kind of source (none
where O_DIRECT works), `images_type` where the disk lies, `hw_disk_bus` and `hw_scsi_model` of the
image on which bus, `quota:disk_*` of the flavour on limits (nova/virt/libvirt: driver.py,
imagebackend.py, blockinfo.py). A qcow2 disk is an overlay on a cached base image. io=native is used
for files that are allocated (`preallocate_images = space`) and opened with O_DIRECT.

A path is written as lines of nova.conf, with the commands for image and flavour as comments, which
are read back. Guests of a compute host itself are libvirt's.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.memory_names import memory_by_name
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.platforms import dialect, writing
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.guest_disks import disks_of
from vdisklab.platforms.guest_edge import read_each
from vdisklab.platforms.network import ServerDisk, placed, server_disk
from vdisklab.platforms.reading import (
    MAP_IT,
    GuestText,
    Tree,
    UnseenStorageError,
    attachment_of,
    branches,
    joined,
    limit_words,
    one_of,
    parsed_options,
    tree,
    way_to_see,
    word,
)
from vdisklab.platforms.request import ExportRequest
from vdisklab.value import Value, field, replace

LIMITS = limit_words(
    {
        "throttle_iops": ("quota:disk_total_iops_sec",),
        "throttle_bps": ("quota:disk_total_bytes_sec",),
    },
    joined(("quota:disk_",), ("read", "write", "total"), ("_bytes", "_iops"), ("_sec",)),
)
_HOST_FILE = "nova.conf"
_VOLUME_FILE = "cinder.conf"
_OPTION = re.compile(r"^(images_type|disk_cachemodes)\s*=", re.MULTILINE)
_COMMAND = re.compile(r"^# (openstack (?:image|flavor) set .*)$", re.MULTILINE)
_DISKS = disks_of(Platform.OPENSTACK)


_BACKEND = "os-vol-host-attr:host"
"""A volume's `HOST@BACKEND#POOL`, where BACKEND is a section of cinder.conf."""


class _ComputeHost(Value):
    """The options of nova.conf; [libvirt] takes precedence over [DEFAULT]."""

    options: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str, otherwise: str) -> str:
        return self.options.get(name, otherwise).strip().strip("\"'")

    @property
    def modes(self) -> Mapping[str, str]:
        """The cache modes by kind of source: `file`, `block`, `network`."""
        pairs = self.option("disk_cachemodes", "").split(",")
        return dict(pair.strip().partition("=")[::2] for pair in pairs)

    def cache(self, kind: str) -> CacheMode:
        """The mode for a source of that kind. Raises ValueError."""
        return CacheMode(one_of(self.modes.get(kind, "none"), tuple(CacheMode), "cache mode"))

    def is_unsafe(self, *kinds: str) -> bool:
        """True if a source of one of these kinds has no flushes."""
        return any(self.modes.get(kind) == CacheMode.UNSAFE for kind in kinds)


def _is_host_file(text: GuestText) -> bool:
    return text.file_name == _HOST_FILE or _OPTION.search(text.text) is not None


def _is_volume_file(text: GuestText) -> bool:
    return (
        text.file_name == _VOLUME_FILE
        or re.search(r"^volume_driver\s*=", text.text, re.MULTILINE) is not None
    )


def _parsed(text: str, file: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(f"its {file} is broken: {error.message.splitlines()[0]}") from error
    return parser


def _host_of(text: str) -> _ComputeHost:
    parser = _parsed(text, _HOST_FILE)
    options = dict(parser["libvirt"]) if "libvirt" in parser else dict(parser.defaults())
    return _ComputeHost({key: value or "" for key, value in options.items()})


def _is_server(document: Tree) -> bool:
    return "flavor" in document and ("image" in document or "volumes_attached" in document)


def _is_ours(document: Tree) -> bool:
    """True for a server, an image and a flavour as the client prints them."""
    is_image = "disk_format" in document and "container_format" in document
    is_flavor = "vcpus" in document and "ram" in document
    return _is_server(document) or is_image or is_flavor or _BACKEND in document


def _properties(owner: Tree, key: str = "properties") -> Mapping[str, object]:
    """The properties, which older clients print as `key='value', …`."""
    text = word(owner, key)
    return (
        tree(owner, key)
        if text is None
        else dict(re.findall(r"(?<![\w:])([\w:]++)='([^']*)'", text))
    )


def _reader(texts: Sequence[GuestText], documents: Sequence[Tree]) -> dialect.Reader:
    hosts = [text for text in texts if _is_host_file(text)]
    named = {
        name: document
        for document in documents
        if not _is_server(document)
        for name in (word(document, "id"), word(document, "name"))
        if name
    }

    cinder = next((text.text for text in texts if _is_volume_file(text)), "")

    def read(text: GuestText) -> Iterator[ConfiguredDisk]:
        if _is_host_file(text):
            yield _new_guests_disk(text)
        elif not _is_volume_file(text):
            host = hosts[0].text if hosts else ""
            yield from read_each(
                Platform.OPENSTACK,
                (
                    (
                        word(server, "name") or text.name,
                        partial(_disks, server, named, host, cinder),
                    )
                    for server in filter(_is_server, text.documents)
                ),
            )

    return read


def _new_guests_disk(text: GuestText) -> ConfiguredDisk:
    """The disk that the host gives a guest with the properties in the comments, if any."""
    parts = [part for command in _COMMAND.findall(text.text) for part in command.split()]
    properties = dict(part.partition("=")[::2] for part in parts if "=" in part)
    return _disk(text.name, "", properties, text.text)


def _disks(
    server: Tree, named: Mapping[str, Tree], host: str, cinder: str
) -> Iterator[ConfiguredDisk]:
    image, flavor = _referred(server, "image", named), _referred(server, "flavor", named)
    name, uuid = word(server, "name") or "unnamed", word(server, "id") or ""
    specs = _properties(flavor, "extra_specs") or _properties(flavor)
    if image or not (word(server, "image") or "N/A").startswith("N/A"):
        yield _disk(name, uuid, {**_properties(image), **specs}, host)
    for what, target in (("ephemeral", "eph0"), ("swap", "swap")):
        size = next(
            (word(owner, key) for owner in (flavor, server)
             for key in (what, f"OS-FLV-EXT-DATA:{what}") if word(owner, key)), "0",
        )  # fmt: skip
        if size not in ("0", ""):
            disk = _disk(name, uuid, {**_properties(image), **specs}, host, f"disk.{target}")
            yield replace(disk, target=target)
    unsafe = _compute(host).is_unsafe("block", "network")  # the backend decides which it is
    volumes = [word(volume, "id") or "?" for volume in branches(server, "volumes_attached")]
    for volume in volumes or re.findall(r"id='([^']+)'", word(server, "volumes_attached") or ""):
        path, problem, found, document = None, None, None, named.get(volume, {})
        unseen = None
        # Nova turns the cache of a shared disk off (nova/virt/libvirt/driver.py, _set_cache_mode).
        shared = str(document.get("multiattach")).lower() == "true"
        try:
            properties = {**_properties(image), **specs}
            path, found = _volume(document, volume, _host_of(host), cinder, properties)
            path = replace(path, cache=CacheMode.NONE) if shared else path
        except ValueError as error:
            problem, unseen = str(error), way_to_see(error)
        yield ConfiguredDisk(
            name,
            volume,
            None if found is None else found.place,
            path,
            problem=problem,
            unseen=unseen,
            server=found,
            platform=Platform.OPENSTACK,
            guest=name,
            drops_flushes=(unsafe and not shared) if path is None else path.cache.no_flush,
            shareable=shared,
        )


def _volume(
    volume: Tree, uuid: str, host: _ComputeHost, cinder: str, properties: Mapping[str, object]
) -> tuple[DiskPath, ServerDisk | None]:
    """The path of a volume of Cinder, and where librbd finds it (nova/virt/libvirt/volume).

    Raises ValueError for a backend that is not known.
    """
    backend = (word(volume, _BACKEND) or "").partition("@")[2].partition("#")[0]
    parser = _parsed(cinder, _VOLUME_FILE)
    options = dict(parser[backend]) if backend in parser else {}
    driver = (options.get("volume_driver") or "").rpartition(".")[2]
    if driver == "RBDDriver":
        node = {"pool": options.get("rbd_pool"), "image": f"volume-{uuid}",
                "conf": options.get("rbd_ceph_conf"), "user": options.get("rbd_user")}  # fmt: skip
        secret = {"key-secret": ""} if options.get("rbd_user") else {}
        server = server_disk({"driver": "rbd", **node, **secret})
        return _path(host, (Layer(LayerKind.RBD),), None, properties), server
    if driver == "NfsDriver":
        form = ImageFormat.QCOW2 if options.get("nfs_qcow2_volumes") == "True" else ImageFormat.RAW
        path = _path(host, (Layer(LayerKind.NFS),), Image(form), properties)
        threads = {**dict(path.attachment.options), "aio": Aio.THREADS.value}
        return replace(path, attachment=attachment_of(path.attachment.bus, threads)), None
    what = f"whose backend is {driver}" if driver else "whose backend decides where it lies"
    if driver:
        raise ValueError(f"it is a volume of Cinder, {what}: {MAP_IT}")
    file = shlex.quote(f"volume-{uuid.replace('/', '_')}.json")  # one for each volume
    show = shlex.join(["openstack", "volume", "show", uuid, "-f", "json"])
    raise UnseenStorageError(
        f"it is a volume of Cinder, {what}",
        f"run `{show} > {file}` and name {file} and the volume node's {_VOLUME_FILE} beside the "
        "guest's file",
    )


def _compute(host: str) -> _ComputeHost:
    """The host's options; none if its file cannot be read, which its root disk says."""
    try:
        return _host_of(host)
    except ValueError:
        return _ComputeHost()


def _referred(server: Tree, key: str, named: Mapping[str, Tree]) -> Tree:
    """The server's image or flavour. The server contains it, or names it as `NAME (ID)`; then it
    was printed separately.
    """
    inner = tree(server, key)
    text = word(server, key) or ""
    match = re.fullmatch(r"(.*?)(?: \(([^()]+)\))?", text)
    names = (inner.get("id"), inner.get("original_name"), *(match.groups() if match else ()))
    found = next((named[str(name)] for name in names if str(name) in named), {})
    return {**found, **inner}


def _disk(
    name: str, uuid: str, properties: Mapping[str, object], host: str, file: str = "disk"
) -> ConfiguredDisk:
    path, problem, source, server = None, None, None, None
    try:
        compute = _host_of(host)
        layers, image, source, server = _place(compute, uuid, file)
        path = _path(compute, layers, image, properties)
    except ValueError as error:
        problem = str(error)
    memory = memory_by_name(source or "")  # of a guest to come: the file of another says it itself
    named = ("hw_emulation_architecture", "hw_architecture", "architecture")
    architecture = next((properties[key] for key in named if key in properties), None)
    return ConfiguredDisk(
        domain=name,
        target="root",
        source=source if uuid else None,
        path=path,
        server=server if uuid else None,
        problem=problem,
        platform=Platform.OPENSTACK,
        guest=name,
        lost_below=f"{source} is memory ({memory})" if not uuid and memory else None,
        architecture=None if architecture is None else str(architecture),
        controller=_scsi_model(properties) if properties.get("hw_disk_bus") == Bus.SCSI else "",
        limits=LIMITS.beyond(properties),
        drops_flushes=_compute(host).is_unsafe(
            _kind_of(path) if path is not None else "block",
            *(("network", "file") if path is None else ()),
        ),
    )


def _kind_of(path: DiskPath) -> str:
    """Nova's kind of source, which has a cache mode of its own."""
    return "network" if path.opened_by_qemu else "file" if path.image is not None else "block"


def _place(
    host: _ComputeHost, uuid: str, file: str
) -> tuple[tuple[Layer, ...], Image | None, str, ServerDisk | None]:
    """Host layers, image, and file, device or server of a root disk. Raises ValueError."""
    kind = host.option("images_type", "default")
    if kind == "default":
        overlay = host.option("use_cow_images", "true").lower() in ("true", "1", "yes", "on")
        kind = "qcow2" if overlay else "raw"
    if kind == "lvm":
        group = host.option("images_volume_group", "VG")
        return (Layer(LayerKind.LVM),), None, f"/dev/{group}/{uuid}_{file}", None
    if kind == "rbd":
        user, conf = host.option("rbd_user", ""), host.option("images_rbd_ceph_conf", "")
        node = {"pool": host.option("images_rbd_pool", "rbd"), "image": f"{uuid}_{file}",
                "user": user, "conf": conf, **({"key-secret": ""} if user else {})}  # fmt: skip
        server = server_disk({"driver": "rbd", **node})
        return (Layer(LayerKind.RBD),), None, server.place if server else "", server
    if kind not in ("qcow2", "raw", "flat"):
        raise ValueError(f"its images_type is {kind}: {MAP_IT}")
    form = ImageFormat.QCOW2 if kind == "qcow2" else ImageFormat.RAW
    options: dict[str, OptionValue] = {"backing": 1} if kind == "qcow2" else {}
    allocated = host.option("preallocate_images", "")
    if allocated:
        options["preallocation"] = "falloc" if allocated == "space" else "off"
    directory = host.option("instances_path", "/var/lib/nova/instances")
    return (), Image(form, tuple(options.items())), f"{directory}/{uuid}/{file}", None


def _path(
    host: _ComputeHost,
    layers: tuple[Layer, ...],
    image: Image | None,
    properties: Mapping[str, object],
) -> DiskPath:
    bus = Bus(one_of(str(properties.get("hw_disk_bus", "virtio")), _DISKS.buses, "bus"))
    if bus is Bus.SCSI:
        one_of(_scsi_model(properties), ("virtio-scsi",), "controller")
    cache = host.cache(_kind_of(DiskPath(layers, image)))
    discard = one_of(host.option("hw_disk_discard", "ignore"), ("ignore", "unmap"), "discard")
    allocated = image is not None and host.option("preallocate_images", "none") == "space"
    settings: dict[str, OptionValue] = {"aio": _aio(cache, allocated).value, "discard": discard}
    limits = parsed_options(bus, LIMITS.of_path(properties))
    path = DiskPath(layers, image, cache, attachment_of(bus, settings | limits))
    return placed(path, layers[0].kind) if path.opened_by_qemu else path


def _scsi_model(properties: Mapping[str, object]) -> str:
    """The model of the guest's SCSI controller: Nova leaves the usual one to libvirt, which takes
    LSI where QEMU has it (before 11.6 on Arm, too)."""
    return str(properties.get("hw_scsi_model", "lsilogic"))


def _aio(cache: CacheMode, allocated: bool) -> Aio:
    return Aio.NATIVE if allocated and cache.direct else Aio.THREADS


def export(request: ExportRequest) -> dialect.Configuration:
    """Lines of nova.conf; the commands for the image and the flavour are comments."""
    path = request.path
    image, url = path.image, request.url
    allocated = image is not None and image.option("preallocation") != "off"
    kind = "rbd" if url is not None else "lvm" if image is None else image.format.value
    ceph = {} if url is None else {
        "images_rbd_pool": url.node["pool"],
        "images_rbd_ceph_conf": url.node.get("conf", "/etc/ceph/ceph.conf"),
        **({"rbd_user": url.node["user"], "rbd_secret_uuid": "UUID"} if "user" in url.node else {}),
    }  # fmt: skip
    lines = {
        "images_type": kind,
        **({"images_volume_group": "VG"} if kind == "lvm" else ceph),
        "disk_cachemodes": f"{_kind_of(path)}={path.cache}",
        "hw_disk_discard": str(path.attachment.option("discard")),
    }
    gaps = tuple(_gaps(request, _aio(path.cache, allocated)))
    text = "[DEFAULT]\n"
    text += "" if image is None else f"preallocate_images = {'space' if allocated else 'none'}\n"
    text += "[libvirt]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())
    return dialect.Configuration(writing.commented(_comments(request), gaps) + text, gaps)


def _comments(request: ExportRequest) -> Iterator[str]:
    path, guest = request.path, request.guest
    yield f"vdisklab {path}"
    if path.layers and not path.opened_by_qemu:
        yield f"the host's instances_path or volume group is on {path.stack}"
    yield f"in {_HOST_FILE} of the compute hosts, for all their guests; restart nova-compute"
    bus = path.attachment.bus
    model = {"hw_scsi_model": "virtio-scsi"} if bus is Bus.SCSI else {}
    machine = {} if guest.has_bios else {
        "hw_architecture": guest.name, "hw_machine_type": request.machine,
        "hw_firmware_type": "uefi",
    }  # fmt: skip
    yield _set_command("image", {"hw_disk_bus": bus.value, **model, **machine})
    limits = LIMITS.written(path.attachment)
    if limits:
        yield _set_command("flavor", limits)


def _set_command(owner: str, properties: Mapping[str, object]) -> str:
    arguments = [
        word for item in properties.items() for word in ("--property", "{}={}".format(*item))
    ]
    return shlex.join(["openstack", owner, "set", *arguments, owner.upper()])


def _gaps(request: ExportRequest, aio: Aio) -> Iterator[dialect.Gap]:
    attachment, image = request.path.attachment, request.path.image
    if request.source is not None:
        yield dialect.Gap(
            f"the source {request.source}", "Nova names the disks of its guests itself"
        )
    if image is not None and image.format is ImageFormat.QCOW2 and image.backing != 1:
        yield dialect.Gap(
            f"backing={image.backing}", "Nova makes an overlay on its cached base image"
        )
    for name, value in () if image is None else image.options:
        if name == "preallocation" and value in ("metadata", "full"):
            yield dialect.Gap(f"preallocation={value}", "Nova allocates with fallocate")
        elif name not in ("preallocation", "backing"):
            yield dialect.Gap(
                f"{name}={value}", "Nova makes the image, and leaves it at the default"
            )
    if attachment.aio is not aio:
        yield dialect.Gap(f"aio={attachment.aio}", f"Nova uses {aio} here")
    if attachment.iothread:
        yield dialect.Gap("iothread=on", "Nova gives its disks no I/O thread")
    if attachment.queues is not None:
        yield dialect.Gap(f"queues={attachment.queues}", "the guest gets one for each CPU")
    yield from writing.write_cache_gaps(request.path)
    yield from writing.other_gaps(request.path, tuple(LIMITS.expressible))


def _change(disk: ConfiguredDisk, _now: DiskPath, _wanted: DiskPath) -> dialect.Change:
    what = "setting of one disk: see [libvirt]disk_cachemodes in nova.conf"
    raise dialect.lacks(disk.platform, what)


DIALECT = dialect.Dialect(
    cache_modes=_DISKS.cache_modes,
    change=_change,
    forms=(dialect.Form("openstack", export),),
    reader=_reader,
    recognises=lambda text: _is_host_file(text) or _is_volume_file(text),
    recognises_document=_is_ours,
    beside=(_HOST_FILE, _VOLUME_FILE),
    left_out={dialect.HOST_DEVICES: r"pci_passthrough:alias\W+(?P<device>[\w:-]+)"},
)
