"""libvirt: domain XML (formatdomain.html), as written for libvirt 9.0 and later and QEMU 7.2.

Written: cache mode `default` omits the attribute; all other settings are written, because libvirt's
defaults differ from QEMU's (it opens files with discard=unmap). `write-cache` has no attribute: it
is a property override of libvirt 8.2. A disk that libvirt cannot describe (vhdx; NVMe before 11.5)
goes to QEMU as arguments; libvirt then neither labels the image nor gives QEMU access to it.

The element `metadata` holds the disk path; from it a reader knows what the other elements cannot
express: the host layers and the options of the image.

Read: disks that libvirt passes to QEMU as arguments, too. Guests of other hypervisors are
recognised, and their disks have no path. The XML is not trusted: defusedxml refuses document types
and entities, so no other file is read and memory use is bounded.
"""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from vdisklab.errors import CommandError, HostError, PlanError
from vdisklab.guest.qemu.block_nodes import format_options
from vdisklab.path.disk_path import Attachment, DiskPath, Image, parse_path
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import (
    SHARED_MEMORY,
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    WriteCache,
)
from vdisklab.plan.guest import IN_THE_GUEST, without_options
from vdisklab.platforms import writing
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import (
    Change,
    CommandRunner,
    Configuration,
    Dialect,
    ExportRequest,
    Form,
    Gap,
    Location,
    NotExpressibleError,
    Reader,
    lacks,
)
from vdisklab.platforms.qemu import DIRECTORY, SERIAL, arguments, daemon_sentence, served_by
from vdisklab.platforms.qemu_arguments import Served, disks_of_arguments
from vdisklab.platforms.reading import (
    MAP_IT,
    SCSI_PASSED,
    SERVED_ELSEWHERE,
    GuestText,
    Tree,
    attachment_of,
    image_of,
    joined,
    limit_words,
    one_of,
    parsed_options,
    queues_of,
    shared_group,
)

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
PATH_NAMESPACE = "urn:vdisklab:disk-path:1"
ALIAS = "ua-disk0"
TARGETS = {
    Bus.VIRTIO: "vda", Bus.SCSI: "sda", Bus.IDE: "hda", Bus.SATA: "sda", Bus.USB: "sda",
    Bus.NVME: "nvme0n1",
}  # fmt: skip
"""The target's name by bus."""

NVME_SINCE = (11, 5)
"""libvirt's NEWS of 11.5.0 (July 2025): "qemu: Add support for NVMe disks"."""

_THREADS_SINCE = (10, 0)
"""formatdomain.html, `iothreads` of a disk: "Since 10.0.0 (QEMU 9.0, virtio disks only)"."""

_OLDEST = (9, 0)
CACHE_MODES = tuple(mode for mode in CacheMode if mode is not CacheMode.DIRECTUNSAFE)
_UNKNOWN_FORMATS = (ImageFormat.VHDX,)
_THREAD_OPTIONS = ("iothreads", "poll", "aio_max_batch", "discard_granularity")
_FOREIGN_OPTIONS = {
    Bus.SCSI: (*_THREAD_OPTIONS, "queue_size"), Bus.NVME: ("block_size",),
}  # fmt: skip
"""The options that need a libvirt newer than 9.0, or that no libvirt has, by bus."""

LIMITS = limit_words(
    {"throttle_bps": ("total_bytes_sec",), "throttle_iops": ("total_iops_sec",)},
    joined(("total", "read", "write"), ("_bytes", "_iops"), ("_sec",), ("", "_max", "_max_length")),
    ("size_iops_sec",),
)
"""The elements of <iotune> and <throttlegroup> (formatdomain.html)."""

LARGEST = 4 << 20
"""Maximum number of characters of a domain's XML."""

Word = TypeVar("Word", bound=StrEnum)
_Q = f"{{{QEMU_NAMESPACE}}}"
_V = f"{{{PATH_NAMESPACE}}}"


def read_domain(text: str, origin: str, served: Served | None = None) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a domain. Raises PlanError if the text is not a domain's XML."""
    if len(text) > LARGEST:
        raise PlanError(
            f"{origin} is larger than any domain's XML",
            hint="create it again: `virsh dumpxml DOMAIN > FILE`",
        )
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise PlanError(
            f"{origin} declares a document type or entities, which no domain has",
            hint="vdisklab does not read such files; create it again: `virsh dumpxml DOMAIN`",
        ) from error
    except (
        ET.ParseError,
        ValueError,
    ) as error:  # ValueError: an encoding that the text contradicts
        raise PlanError(
            f"{origin} is not XML: {error}", hint="create it again: `virsh dumpxml DOMAIN`"
        ) from error
    # The XML of a snapshot or a saved state contains the domain.
    domain = root if root.tag == "domain" else root.find(".//domain")
    if domain is None:
        raise PlanError(
            f"{origin} is XML, but not a libvirt domain: its root is <{root.tag}>",
            hint="`virsh dumpxml DOMAIN` prints one",
        )
    return tuple(_disks(domain, served))


_QEMU_TYPES = ("kvm", "qemu", "hvf")
"""The domain types that run QEMU (libvirt's src/conf/virconftypes.h, virDomainVirtType)."""

_HARD_DISKS = ("disk", "lun")


def _disks(domain: ET.Element, served: Served | None) -> Iterator[ConfiguredDisk]:
    name = (domain.findtext("name") or "unnamed").strip()
    notes = dict(_notes(domain))
    for disk in domain.iterfind("./devices/disk"):
        if disk.get("device", "disk") in _HARD_DISKS:
            yield _disk(domain, name, disk, notes)
    for shared in domain.iterfind("./devices/filesystem"):
        if shared.get("type", "mount") == "mount":
            yield _share(domain, name, shared, notes)
    words = [word.get("value", "") for word in domain.iterfind(f"./{_Q}commandline/{_Q}arg")]
    for argument in disks_of_arguments(words, served):
        yield replace(
            argument,
            domain=name,
            guest=name,
            noted=notes.get(""),
            architecture=_architecture(domain),
        )


def _architecture(domain: ET.Element) -> str | None:
    return _attributes(domain, "os/type").get("arch")


def _notes(domain: ET.Element) -> Iterator[tuple[str, DiskPath]]:
    """The paths that vdisklab wrote into the metadata, by target ("": a disk in arguments)."""
    for note in domain.iterfind(f"./metadata/{_V}disks/{_V}disk"):
        try:
            yield note.get("target", ""), parse_path(note.get("path", ""))
        except PlanError:
            continue  # the note was edited; the XML itself still has nearly everything


_IN_POOL = (
    "its source is the volume {0!r} of the pool {1!r}: name its file in a copy of the XML, "
    "<disk type='file'> and <source file='PATH'/>, with the path that `virsh vol-path` prints"
)


def _disk(
    domain: ET.Element, name: str, disk: ET.Element, notes: Mapping[str, DiskPath]
) -> ConfiguredDisk:
    target = _attributes(disk, "target").get("dev", "?")
    location = _attributes(disk, "source")
    source = location.get("file") or location.get("dev")
    kind = disk.get("type", "file")
    path, problem = None, None
    drops_flushes = False
    try:
        _require_qemus_disk(domain, disk)
        drops_flushes = _attributes(disk, "driver").get("cache") == CacheMode.UNSAFE
        if kind == "volume":
            raise ValueError(_IN_POOL.format(*map(location.get, ("volume", "pool"))))
        if kind not in ("file", "block"):
            protocol = f" ({location['protocol']})" if "protocol" in location else ""
            raise ValueError(f"its source is of type {kind}{protocol}: {MAP_IT}")
        path = _path(domain, disk, on_device=kind == "block")
    except ValueError as error:
        problem = str(error)
    read_only = disk.find("readonly") is not None
    return ConfiguredDisk(
        name,
        target,
        source,
        path,
        notes.get(target),
        problem,
        read_only,
        guest=name,
        text=" ".join(ET.tostring(disk, encoding="unicode").split()),
        architecture=_architecture(domain),
        io_thread=_free_io_thread(domain),
        limits=tuple(_limits_beyond(domain, disk)),
        drops_flushes=drops_flushes,
        transient=disk.find("transient") is not None,
        shareable=disk.find("shareable") is not None,
    )


def _limit_groups(domain: ET.Element, disk: ET.Element) -> list[ET.Element]:
    """The disk's <iotune>, or the <throttlegroup>s that its filters name."""
    named = [each.get("group") for each in disk.iterfind("./throttlefilters/throttlefilter")]
    groups = domain.iterfind("./throttlegroups/throttlegroup")
    return [
        *disk.iterfind("./iotune"),
        *(group for group in groups if (group.findtext("group_name") or "").strip() in named),
    ]


def _words(limits: ET.Element) -> Mapping[str, str]:
    return {str(limit.tag): (limit.text or "").strip() for limit in limits}


def _only_limits(domain: ET.Element, disk: ET.Element) -> Mapping[str, str]:
    """The limits of a disk with one group; a path cannot express a chain of several groups."""
    groups = _limit_groups(domain, disk)
    return _words(groups[0]) if len(groups) == 1 else {}


def _group_names(domain: ET.Element) -> list[str | None]:
    """The group of each disk that has one, once for each disk."""
    return [
        *(tune.findtext("group_name", "").strip() for tune in domain.iterfind(".//iotune")),
        *(each.get("group") for each in domain.iterfind(".//throttlefilter")),
    ]


def _limits_beyond(domain: ET.Element, disk: ET.Element) -> Iterator[str]:
    """The disk's limits that a path cannot express, and those of the guest's cgroup."""
    groups = _limit_groups(domain, disk)
    for words in map(_words, groups):
        yield from LIMITS.beyond(words) if len(groups) == 1 else LIMITS.all(words)
        if words.get("group_name"):
            yield from shared_group("group_name", words["group_name"], _group_names(domain))
    for device in domain.iterfind("./blkiotune/device"):
        words = _words(device)
        for limit in LIMITS.all(words):
            yield f"blkiotune {words.get('path', '?')} {limit}"


def _free_io_thread(domain: ET.Element) -> str | None:
    """An I/O thread of the guest, one that no disk uses if there is one; None if it has none.

    <iothreads> counts them; those without an <iothread id> get the lowest free numbers
    (formatdomain.html, "IOThreads Allocation").
    """
    named = [thread.get("id", "") for thread in domain.iterfind("./iothreadids/iothread")]
    count = (domain.findtext("iothreads") or "").strip()
    unnamed = range(1, int(count) + 1) if count.isdecimal() and len(count) < 6 else ()
    threads = list(dict.fromkeys([*named, *map(str, unnamed)]))[: max(len(named), len(unnamed))]
    used = {driver.get("iothread") for driver in domain.iterfind("./devices//driver")}
    return next((thread for thread in threads if thread not in used), next(iter(threads), None))


def _share(
    domain: ET.Element, name: str, shared: ET.Element, notes: Mapping[str, DiskPath]
) -> ConfiguredDisk:
    """A host directory: virtiofs, or 9p, whose other options are set by the guest's mount."""
    target, driver = _attributes(shared, "target").get("dir", "?"), _attributes(shared, "driver")
    bus = Bus.VIRTIOFS if driver.get("type") == "virtiofs" else Bus.P9
    source = _attributes(shared, "source")
    path, problem = None, None
    try:
        if "socket" in source:
            raise ValueError(SERVED_ELSEWHERE)
        cache = _attributes(shared, "binary/cache").get("mode") if bus is Bus.VIRTIOFS else None
        path = DiskPath(attachment=attachment_of(bus, parsed_options(bus, {"cache": cache})))
    except ValueError as error:
        problem = str(error)
    return ConfiguredDisk(
        name,
        target,
        source.get("dir") or source.get("socket"),
        path,
        notes.get(target),
        problem,
        shared.find("readonly") is not None,
        guest=name,
        text=" ".join(ET.tostring(shared, encoding="unicode").split()),
        architecture=_architecture(domain),
    )


def _require_qemus_disk(domain: ET.Element, disk: ET.Element) -> None:
    """Raises ValueError for the disk of another hypervisor, and for one that QEMU only forwards."""
    kind = domain.get("type", "kvm")
    if kind not in _QEMU_TYPES:
        raise ValueError(f"its guest is of type {kind}: name a guest of QEMU")
    if disk.get("device") == "lun":
        raise ValueError(SCSI_PASSED)


def _attributes(element: ET.Element, child: str) -> Mapping[str, str]:
    child_element = element.find(child)
    return {} if child_element is None else child_element.attrib


def _path(domain: ET.Element, disk: ET.Element, *, on_device: bool) -> DiskPath:
    """The path that the disk's element describes. Raises ValueError if no path can express it."""
    driver = _attributes(disk, "driver")
    image = image_of(_known(ImageFormat, driver.get("type", "raw"), "format"), on_device=on_device)
    for encryption in (*disk.iterfind("./encryption"), *disk.iterfind("./source/encryption")):
        image = image or Image(ImageFormat.RAW)
        options = parsed_options(image.format, {"encrypt": encryption.get("format")})
        image = Image(image.format, tuple(options.items()))
    image = _with_chain(disk, image)
    # libvirt turns the cache of a disk off that guests share (qemuDomainDeviceDiskDefPostParse).
    usual = "default" if disk.find("shareable") is None else "none"
    word = driver.get("cache", usual)
    cache = _known(CacheMode, usual if word == "default" else word, "cache mode")
    return DiskPath((), image, cache, _attachment(domain, disk, driver))


def _with_chain(disk: ET.Element, image: Image | None) -> Image | None:
    """The image with the chain below it that the XML states. Raises ValueError for data elsewhere.

    A running guest's XML has the whole chain; without it the images' headers say it.
    """
    store = disk.find("./source/dataStore")
    if store is not None and store.get("type", "file") not in ("file", "block"):
        kind = store.get("type")
        raise ValueError(f"its data lie in a store of type {kind}, not in the image: {MAP_IT}")
    depth = sum(len(below) > 0 for below in disk.iter("backingStore"))
    if image is None or image.format is not ImageFormat.QCOW2:
        return image
    data_file = "off" if store is None else "on"
    return Image(image.format, (*image.options, ("backing", depth), ("data_file", data_file)))


def _attachment(domain: ET.Element, disk: ET.Element, driver: Mapping[str, str]) -> Attachment:
    target = _attributes(disk, "target")
    bus = _known(Bus, target.get("bus") or _bus_by_name(target.get("dev", "")), "bus")
    threading = _threading(domain, disk, bus, driver)
    options: dict[str, OptionValue] = {
        "aio": _known(Aio, driver.get("io", "threads"), "io mode").value,
        "discard": one_of(driver.get("discard", "ignore"), ("ignore", "unmap"), "discard"),
        "write_cache": _write_cache(domain, disk).value,
    }
    owner = disk if bus is not Bus.SCSI else _controller(domain, disk, "scsi")
    mapped = [] if owner is None else owner.findall("./driver/iothreads/iothread")
    if "iothread" in threading:
        options["iothread"] = True
    if threading.get("queues"):
        options["queues"] = queues_of(threading["queues"], admin=1 if bus is Bus.NVME else 0)
    zeroes = driver.get("detect_zeroes")
    words = {
        # Without discard=unmap libvirt turns it into "on" (virDomainDiskGetDetectZeroesMode).
        "detect_zeroes": "on" if zeroes == "unmap" != options["discard"] else zeroes,
        "queue_size": threading.get("queue_size"),
        "packed": threading.get("packed"),
        "block_size": _attributes(disk, "blockio").get("logical_block_size"),
        "discard_granularity": _attributes(disk, "blockio").get("discard_granularity"),
        "iothreads": len(mapped) or None,
        **LIMITS.of_path(_only_limits(domain, disk)),
    }
    return attachment_of(bus, options | parsed_options(bus, words))


def _bus_by_name(device: str) -> str:
    """libvirt's bus for a disk without one: by the first letter (virDiskNameToBusIndex)."""
    return {"v": "virtio", "h": "ide", "s": "scsi"}.get(device[:1], "ide")


def _threading(
    domain: ET.Element, disk: ET.Element, bus: Bus, driver: Mapping[str, str]
) -> Mapping[str, str]:
    """The settings for threads and queues, which a controller may have instead of the disk."""
    match bus:
        case Bus.SCSI:
            controller = _controller(domain, disk, "scsi")
            model = None if controller is None else controller.get("model")
            one_of(model or _usual_scsi(domain), _SCSI_MODELS, "controller")
        case Bus.NVME:
            controller = _controller(domain, disk, "nvme")
        case _:
            return driver
    return {} if controller is None else _attributes(controller, "driver")


_SCSI_MODELS = ("virtio-scsi", "virtio-transitional", "virtio-non-transitional", "auto")


def _usual_scsi(domain: ET.Element) -> str:
    """The controller that libvirt adds to a PC: qemuDomainDefaultSCSIControllerModel."""
    machine = _attributes(domain, "os/type").get("machine", "")
    return "lsilogic" if re.match(r"pc(-i440fx|$)", machine) else "virtio-scsi"


def _controller(domain: ET.Element, disk: ET.Element, kind: str) -> ET.Element | None:
    index = _attributes(disk, "address").get("controller", "0")
    for controller in domain.iterfind(f"./devices/controller[@type='{kind}']"):
        if controller.get("index", "0") == index:
            return controller
    return None


def _write_cache(domain: ET.Element, disk: ET.Element) -> WriteCache:
    """The property override of the disk's device; without one the cache mode decides."""
    name = _attributes(disk, "alias").get("name")
    for device in domain.iterfind(f"./{_Q}override/{_Q}device"):
        if name is None or device.get("alias") != name:
            continue
        for setting in device.iterfind(f"./{_Q}frontend/{_Q}property"):
            if setting.get("name") == "write-cache" and setting.get("type") != "remove":
                value = one_of(setting.get("value", ""), ("on", "off", "auto"), "write-cache")
                return WriteCache(value)
    return WriteCache.MODE


def _known(kind: type[Word], word: str, what: str) -> Word:
    return kind(one_of(word, tuple(kind), what))


def _is_xml(text: GuestText) -> bool:
    return text.text[:4096].lstrip("\ufeff \t\r\n").startswith("<")


def _reader(texts: Sequence[GuestText], _documents: Sequence[Tree]) -> Reader:
    served = served_by(texts)

    def read(text: GuestText) -> Iterator[ConfiguredDisk]:
        for xml in _domains(text.text):
            yield from read_domain(xml, text.origin, served)

    return read


_DOMAIN = re.compile(r"\s*(<\?[^>]*>\s*)?(<!--.*?-->\s*)?<domain[\s>]", re.DOTALL)
_END = "</domain>"


def _domains(text: str) -> Sequence[str]:
    """The XML of each domain; `virsh dumpxml` of several guests prints one after another."""
    *domains, rest = text.split(_END)
    if len(domains) < 2 or not _DOMAIN.match(text):
        return (text,)
    return [xml.lstrip() + _END for xml in domains[:-1]] + [domains[-1].lstrip() + _END + rest]


def export(request: ExportRequest) -> Configuration:
    """A domain that can be defined and started; the disk is its only one."""
    place = request.place(DIRECTORY)
    foreign = foreign_reason(request) is not None
    gaps = tuple(_foreign_gaps(request))
    requirements = tuple(_access(request, place)) if foreign else ()
    domain = ET.Element("domain", {"type": request.domain_type, "xmlns:qemu": QEMU_NAMESPACE})
    add_comments(domain, (*writing.preparation(request, place), *map(str, gaps), *requirements))
    ET.SubElement(domain, "name").text = request.name
    target = "" if foreign else TARGETS[request.path.attachment.bus]
    add_metadata(domain, request.path, target)
    ET.SubElement(domain, "memory", {"unit": "MiB"}).text = "1024"
    ET.SubElement(domain, "vcpu").text = "2"
    attachment = request.path.attachment
    add_shared_memory(domain, attachment.bus)
    threads = attachment.iothreads or int(attachment.iothread)
    if threads and not foreign:
        ET.SubElement(domain, "iothreads").text = str(threads)
    system = ET.SubElement(domain, "os")
    machine = attachment.bus.machine.partition(",")[0]
    ET.SubElement(system, "type", {"arch": "x86_64", "machine": machine}).text = "hvm"
    devices = ET.SubElement(domain, "devices")
    if foreign:
        _add_arguments(domain, arguments(request, place))
    else:
        disk = add_disk(devices, request, place, TARGETS[attachment.bus])
        ET.SubElement(disk, "alias", {"name": ALIAS})
        _add_controller(devices, request)
        _add_override(domain, request)
    ET.indent(domain)
    return Configuration(ET.tostring(domain, encoding="unicode") + "\n", gaps, requirements)


def add_comments(element: ET.Element, lines: Iterable[str]) -> None:
    """Appends lines as comments. No XML comment may hold `--`, so a blank separates the hyphens."""
    texts = list(lines)
    if any("--" in text for text in texts):
        texts.append("XML comments cannot hold two hyphens in a row: write - - without the blank")
    for text in texts:
        element.append(ET.Comment(f" {re.sub('-(?=-)', '- ', text)} "))


def foreign_reason(request: ExportRequest) -> str | None:
    """Why this libvirt's XML cannot describe the disk; None if it can."""
    image, version = request.path.image, request.libvirt or _OLDEST
    if image is not None and image.format in _UNKNOWN_FORMATS:
        return f"libvirt has no format {image.format}"
    if image is not None and (image.encrypted or image.has_data_file):
        return f"{image} needs a file beside the image, which is described for QEMU only"
    if format_options(image):
        return "libvirt's <metadata_cache> is one size for all tables, not l2_cache, refcount_cache"
    if request.path.cache not in CACHE_MODES:
        return f"libvirt has no cache mode {request.path.cache}"
    return _foreign_attachment(request.path.attachment, version)


def _foreign_attachment(attachment: Attachment, version: tuple[int, ...]) -> str | None:
    bus = attachment.bus
    if bus.is_served:
        return "libvirt's vhostuser disk names only the socket of the daemon that opens the image"
    foreign = _FOREIGN_OPTIONS.get(bus, _THREAD_OPTIONS)
    for option, _ in attachment.options:
        mapped = option == "iothreads" and bus is Bus.VIRTIO
        if option in foreign and not (mapped and version >= _THREADS_SINCE):
            later = f" ({_dotted(_THREADS_SINCE)} and later have)" if mapped else ""
            return f"libvirt {_dotted(version)} has no {option} on {bus}{later}"
    if bus is Bus.NVME and version < NVME_SINCE:
        return (
            f"libvirt {_dotted(version)} has no NVMe disks ({_dotted(NVME_SINCE)} and later have)"
        )
    return None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _foreign_gaps(request: ExportRequest) -> Iterator[Gap]:
    reason = foreign_reason(request)
    if reason is not None:
        yield Gap(
            "this disk",
            f"{reason}, so QEMU gets the disk as arguments, and libvirt neither prepares its file "
            "nor migrates or snapshots it",
        )


def _access(request: ExportRequest, place: str) -> Iterator[str]:
    """The requirements for QEMU to open an image that is not in the XML.

    libvirt runs QEMU as a user of its own, changes the owner and labels of the images in the XML
    only, and by default gives QEMU a /dev of its own (qemu.conf: user, dynamic_ownership,
    namespaces, cgroup_device_acl).
    """
    if request.path.attachment.bus.is_served:
        yield daemon_sentence(request, place)
        return
    yield (
        f"QEMU must be allowed to open {place}: chown it to libvirt-qemu (Debian, Ubuntu) or qemu "
        "(Fedora, openSUSE)"
    )
    yield (
        f'with AppArmor, add the line "{place}" rwk, to '
        "/etc/apparmor.d/local/abstractions/libvirt-qemu; with SELinux, chcon -t svirt_image_t it"
    )
    if request.on_device:
        yield (
            "in /etc/libvirt/qemu.conf, set namespaces = [] and add the device to "
            "cgroup_device_acl, then restart libvirt: otherwise QEMU does not see it"
        )


def add_shared_memory(domain: ET.Element, bus: Bus) -> None:
    """Appends memory that another process can map, if one serves the bus."""
    if SHARED_MEMORY in bus.machine:
        backing = ET.SubElement(domain, "memoryBacking")
        ET.SubElement(backing, "source", {"type": "memfd"})
        ET.SubElement(backing, "access", {"mode": "shared"})


def add_metadata(domain: ET.Element, path: DiskPath, target: str) -> None:
    """Appends the path of the disk with that target."""
    metadata = ET.SubElement(domain, "metadata")
    disks = ET.SubElement(metadata, "vdisklab:disks", {"xmlns:vdisklab": PATH_NAMESPACE})
    ET.SubElement(
        disks, "vdisklab:disk", {"target": target, "path": path.canonical}
    )  # fmt: skip


def add_disk(devices: ET.Element, request: ExportRequest, place: str, target: str) -> ET.Element:
    """Appends the `<disk>` and returns it."""
    attachment = request.path.attachment
    kind = "block" if request.on_device else "file"
    disk = ET.SubElement(devices, "disk", {"type": kind, "device": "disk"})
    driver = {"name": "qemu", "type": request.driver}
    if request.path.cache is not CacheMode.DEFAULT:
        driver["cache"] = request.path.cache.value
    driver |= {"io": attachment.aio.value, "discard": str(attachment.option("discard"))}
    if attachment.detect_zeroes != "off":
        driver["detect_zeroes"] = attachment.detect_zeroes
    if attachment.bus is Bus.VIRTIO:
        driver |= threading(request)
    element = ET.SubElement(disk, "driver", driver)
    if attachment.iothreads is not None:
        threads = ET.SubElement(element, "iothreads")
        for number in range(1, attachment.iothreads + 1):
            ET.SubElement(threads, "iothread", {"id": str(number)})
    ET.SubElement(disk, "source", {"dev" if request.on_device else "file": place})
    ET.SubElement(disk, "target", {"dev": target, "bus": attachment.bus.value})
    if attachment.block_size is not None:
        size = str(attachment.block_size)
        ET.SubElement(disk, "blockio", {"logical_block_size": size, "physical_block_size": size})
    _add_throttle(disk, attachment)
    return disk


def _add_throttle(disk: ET.Element, attachment: Attachment) -> None:
    limits = LIMITS.written(attachment)
    if limits:
        tune = ET.SubElement(disk, "iotune")
        for element, value in limits.items():
            ET.SubElement(tune, element).text = str(value)


def threading(request: ExportRequest) -> dict[str, str]:
    """The attributes of the <driver> of a virtio disk, or of the controller of a SCSI disk."""
    attachment = request.path.attachment
    queues = {} if attachment.queues is None else {"queues": str(attachment.queues)}
    threading = queues | ({"iothread": "1"} if attachment.iothread else {})
    if attachment.option("queue_size") is not None:
        threading["queue_size"] = str(attachment.option("queue_size"))
    if attachment.option("packed"):
        threading["packed"] = "on"
    return threading


def _add_controller(devices: ET.Element, request: ExportRequest) -> None:
    match request.path.attachment.bus:
        case Bus.SCSI:
            attributes = {"type": "scsi", "index": "0", "model": "virtio-scsi"}
            controller = ET.SubElement(devices, "controller", attributes)
            words = threading(request)
            if words:
                ET.SubElement(controller, "driver", words)
        case Bus.NVME:
            # One controller with one namespace. Its driver's queues are QEMU's num_queues, which
            # counts the admin queue too (hw/nvme/ctrl.c, nvme_check_params).
            controller = ET.SubElement(devices, "controller", {"type": "nvme", "index": "0"})
            ET.SubElement(controller, "serial").text = SERIAL
            queues = request.path.attachment.queues
            if queues is not None:
                ET.SubElement(controller, "driver", {"queues": str(queues + 1)})
        case Bus.USB:
            ET.SubElement(
                devices, "controller", {"type": "usb", "index": "0", "model": "qemu-xhci"}
            )
        case _:
            pass


def _add_override(domain: ET.Element, request: ExportRequest) -> None:
    write_cache = request.path.attachment.write_cache
    if write_cache is WriteCache.MODE:
        return  # libvirt itself sets the property that -drive would set for the cache mode
    override = ET.SubElement(domain, "qemu:override")
    device = ET.SubElement(override, "qemu:device", {"alias": ALIAS})
    frontend = ET.SubElement(device, "qemu:frontend")
    ET.SubElement(
        frontend,
        "qemu:property",
        {"name": "write-cache", "type": "string", "value": write_cache.value},
    )


def _add_arguments(domain: ET.Element, words: Iterable[str]) -> None:
    line = ET.SubElement(domain, "qemu:commandline")
    for word in words:
        ET.SubElement(line, "qemu:arg", {"value": word})


_COLD_BUSES = (Bus.IDE, Bus.SATA, Bus.NVME)
"""Disks on these buses cannot be attached while the guest runs (qemu_hotplug.c)."""


def export_element(request: ExportRequest) -> Configuration:
    """The `<disk>` element. Its target is the name of a second disk, because the guest already has
    a first one."""
    reason = foreign_reason(request)
    if reason is not None:
        raise NotExpressibleError(
            "libvirt's <disk>",
            f"form for this disk: {reason}",
            "use --to libvirt, which gives it to QEMU as arguments",
        )
    bus, place = request.path.attachment.bus, request.place(DIRECTORY)
    target = "nvme0n2" if bus is Bus.NVME else f"{TARGETS[bus][:2]}b"
    gaps, requirements = tuple(_element_gaps(request)), tuple(_requirements(request, target))
    container = ET.Element("devices")
    add_comments(container, (*writing.preparation(request, place), *map(str, gaps), *requirements))
    add_disk(container, request, place, target)
    ET.indent(container)
    lines = ET.tostring(container, encoding="unicode").splitlines()[1:-1]
    return Configuration("".join(f"{line[2:]}\n" for line in lines), gaps, requirements)


def _element_gaps(request: ExportRequest) -> Iterator[Gap]:
    write_cache = request.path.attachment.write_cache
    if write_cache is not WriteCache.MODE:
        yield Gap(
            f"write_cache={write_cache}",
            "the disk's write cache follows the cache mode; --to libvirt writes the override",
        )


def _requirements(request: ExportRequest, target: str) -> Iterator[str]:
    attachment = request.path.attachment
    when = "--config" if attachment.bus in _COLD_BUSES else "--live --config"
    later = "; the guest sees it after its next start" if attachment.bus in _COLD_BUSES else ""
    yield f"attach it with: virsh attach-device GUEST FILE {when}{later}"
    yield f"if the guest already has {target}, change the target in the file"
    if attachment.bus is Bus.SCSI:
        words = "".join(f' {name}="{value}"' for name, value in threading(request).items())
        driver = f"<driver{words}/>" if words else ""
        yield (
            "the guest's SCSI controller must be "
            f'<controller type="scsi" model="virtio-scsi">{driver}</controller>'
        )
    else:
        for number in range(1, 1 + (attachment.iothreads or int(attachment.iothread))):
            needed = f"virsh iothreadadd GUEST {number} --live --config"
            yield f"the guest needs the I/O thread {number}: {needed}"
    if attachment.bus is Bus.NVME:
        yield "the guest's NVMe controller needs a <serial>, and decides on the number of queues"


_CLIENT_OPTIONS = ("cache", "msize")
"""The options that a guest gives to its mount of 9p."""


def _filesystem(request: ExportRequest) -> ET.Element:
    virtiofs = not writing.is_9p(request)
    mode = "passthrough" if virtiofs else "squash"
    element = ET.Element("filesystem", {"type": "mount", "accessmode": mode})
    ET.SubElement(element, "driver", {"type": "virtiofs" if virtiofs else "path"})
    if (
        virtiofs and writing.cache_of_share(request) != "auto"
    ):  # auto is virtiofsd's own, and has no word here
        binary = ET.SubElement(element, "binary")
        ET.SubElement(binary, "cache", {"mode": writing.cache_of_share(request)})
    ET.SubElement(element, "source", {"dir": writing.share_of(request)})
    ET.SubElement(element, "target", {"dir": writing.TAG})
    return element


def _export_share(request: ExportRequest) -> Configuration:
    domain = ET.Element("domain", {"type": request.domain_type})
    add_comments(domain, writing.share_comments(request))
    ET.SubElement(domain, "name").text = request.name
    options = (*IN_THE_GUEST, *(_CLIENT_OPTIONS if writing.is_9p(request) else ()))
    add_metadata(domain, without_options(request.path, options), writing.TAG)
    ET.SubElement(domain, "memory", {"unit": "MiB"}).text = "1024"
    ET.SubElement(domain, "vcpu").text = "2"
    add_shared_memory(domain, request.path.attachment.bus)
    system = ET.SubElement(domain, "os")
    ET.SubElement(system, "type", {"arch": "x86_64", "machine": "q35"}).text = "hvm"
    ET.SubElement(domain, "devices").append(_filesystem(request))
    ET.indent(domain)
    return Configuration(ET.tostring(domain, encoding="unicode") + "\n")


def _export_share_element(request: ExportRequest) -> Configuration:
    virtiofs = not writing.is_9p(request)
    memory = (
        'the guest needs shared memory: <memoryBacking><source type="memfd"/>'
        '<access mode="shared"/></memoryBacking>'
    )
    attach = "attach it with: virsh attach-device GUEST FILE --config; the guest sees it after its "
    requirements = (f"{attach}next start", *((memory,) if virtiofs else ()))
    container = ET.Element("devices")
    add_comments(container, (*writing.share_comments(request), *requirements))
    container.append(_filesystem(request))
    ET.indent(container)
    lines = ET.tostring(container, encoding="unicode").splitlines()[1:-1]
    return Configuration("".join(f"{line[2:]}\n" for line in lines), (), requirements)


def _change(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> Change:
    """virt-xml(1) edits the definition; the saved one restores it exactly."""
    settings = {"driver.cache": wanted.cache.value, "driver.io": wanted.attachment.aio.value}
    guest, before = shlex.quote(disk.guest), shlex.quote(f"{disk.guest}.{disk.target}.before.xml")
    threads = ""
    if wanted.attachment.iothread != now.attachment.iothread:
        if wanted.attachment.bus is not Bus.VIRTIO or not wanted.attachment.iothread:
            raise lacks(disk.platform, "one line that changes the I/O thread of this disk")
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


SYSTEM = "qemu:///system"
_DUMPED_TOGETHER = 500
"""Guests whose XML one virsh prints: a connection for each of thousands would take minutes."""


def domains_of(run: CommandRunner, uri: str = SYSTEM) -> Iterator[GuestText]:
    """The XML of all guests of a libvirt. Raises HostError if it does not answer."""
    try:
        uuids = run("virsh", "-q", "-c", uri, "list", "--all", "--uuid").split()
    except CommandError as error:
        raise HostError(
            f"libvirt at {uri} does not answer: {error}",
            hint=f"check that `virsh -c {uri} list --all` works: libvirtd must run, and you need "
            "access to it",
        ) from error
    for start in range(0, len(uuids), _DUMPED_TOGETHER):
        together = uuids[start : start + _DUMPED_TOGETHER]
        commands = "; ".join(f"dumpxml --inactive {uuid}" for uuid in together)
        yield GuestText(run("virsh", "-q", "-c", uri, commands), uri)


DIALECT = Dialect(
    cache_modes=CACHE_MODES,
    change=_change,
    forms=(
        Form("libvirt", export, _export_share, absolute=True),
        Form(
            "libvirt-disk",
            export_element,
            _export_share_element,
            title="libvirt: the disk",
            leads=True,
            absolute=True,
        ),
    ),
    reader=_reader,
    recognises=_is_xml,
    location=Location("/etc/libvirt/qemu", "virsh", domains_of),
    left_out={
        "EFI variables": r"<nvram\b",
        "TPM state": r"<tpm\b",
        "CD-ROMs": r"\bdevice=.cdrom\b",
        "floppies": r"\bdevice=.floppy\b",
    },
)
