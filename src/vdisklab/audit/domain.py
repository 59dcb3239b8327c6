"""Reads libvirt's domain XML: each disk as a disk path. The opposite of `export.libvirt`.

Disks that libvirt passes to QEMU as arguments are read too, if these are JSON as `export.qemu`
writes them. Guests of other hypervisors are recognised, and their disks have no path. The XML is
not trusted: defusedxml refuses document types and entities, so no other file is read and memory use
is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeVar
from xml.etree.ElementTree import Element, ParseError, tostring

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.limit_words import LIBVIRT, shared_group
from vdisklab.audit.qemu_arguments import (
    MAP_IT,
    SCSI_PASSED,
    SERVED_ELSEWHERE,
    Served,
    attachment_of,
    disks_of_arguments,
    image_of,
    one_of,
    parsed_options,
    queues_of,
)
from vdisklab.errors import PlanError
from vdisklab.export.libvirt import PATH_NAMESPACE, QEMU_NAMESPACE
from vdisklab.path.disk_path import Attachment, DiskPath, Image, parse_path
from vdisklab.path.managers import Manager
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import (
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    WriteCache,
)

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
    except (ParseError, ValueError) as error:  # ValueError: an encoding that the text contradicts
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


def _disks(domain: Element, served: Served | None) -> Iterator[ConfiguredDisk]:
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
        yield ConfiguredDisk(
            name,
            argument.device,
            argument.filename,
            argument.path,
            notes.get(""),
            argument.problem,
            argument.read_only,
            manager=Manager.QEMU,
            guest=name,
            architecture=_architecture(domain),
            probed=argument.probed,
            limits=argument.limits,
        )


def _architecture(domain: Element) -> str | None:
    return _attributes(domain, "os/type").get("arch")


def _notes(domain: Element) -> Iterator[tuple[str, DiskPath]]:
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
    domain: Element, name: str, disk: Element, notes: Mapping[str, DiskPath]
) -> ConfiguredDisk:
    target = _attributes(disk, "target").get("dev", "?")
    location = _attributes(disk, "source")
    source = location.get("file") or location.get("dev")
    kind = disk.get("type", "file")
    path, problem = None, None
    try:
        _require_qemus_disk(domain, disk)
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
        text=" ".join(tostring(disk, encoding="unicode").split()),
        architecture=_architecture(domain),
        io_thread=_free_io_thread(domain),
        limits=tuple(_limits_beyond(domain, disk)),
    )


def _limit_groups(domain: Element, disk: Element) -> list[Element]:
    """The disk's <iotune>, or the <throttlegroup>s that its filters name."""
    named = [each.get("group") for each in disk.iterfind("./throttlefilters/throttlefilter")]
    groups = domain.iterfind("./throttlegroups/throttlegroup")
    return [
        *disk.iterfind("./iotune"),
        *(group for group in groups if (group.findtext("group_name") or "").strip() in named),
    ]


def _words(limits: Element) -> Mapping[str, str]:
    return {str(limit.tag): (limit.text or "").strip() for limit in limits}


def _only_limits(domain: Element, disk: Element) -> Mapping[str, str]:
    """The limits of a disk with one group; a path cannot express a chain of several groups."""
    groups = _limit_groups(domain, disk)
    return _words(groups[0]) if len(groups) == 1 else {}


def _group_names(domain: Element) -> list[str | None]:
    """The group of each disk that has one, once for each disk."""
    return [
        *(tune.findtext("group_name", "").strip() for tune in domain.iterfind(".//iotune")),
        *(each.get("group") for each in domain.iterfind(".//throttlefilter")),
    ]


def _limits_beyond(domain: Element, disk: Element) -> Iterator[str]:
    """The disk's limits that a path cannot express, and those of the guest's cgroup."""
    groups = _limit_groups(domain, disk)
    for words in map(_words, groups):
        yield from LIBVIRT.beyond(words) if len(groups) == 1 else LIBVIRT.all(words)
        if words.get("group_name"):
            yield from shared_group("group_name", words["group_name"], _group_names(domain))
    for device in domain.iterfind("./blkiotune/device"):
        words = _words(device)
        for limit in LIBVIRT.all(words):
            yield f"blkiotune {words.get('path', '?')} {limit}"


def _free_io_thread(domain: Element) -> str | None:
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
    domain: Element, name: str, shared: Element, notes: Mapping[str, DiskPath]
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
        text=" ".join(tostring(shared, encoding="unicode").split()),
        architecture=_architecture(domain),
    )


def _require_qemus_disk(domain: Element, disk: Element) -> None:
    """Raises ValueError for the disk of another hypervisor, and for one that QEMU only forwards."""
    kind = domain.get("type", "kvm")
    if kind not in _QEMU_TYPES:
        raise ValueError(f"its guest is of type {kind}: name a guest of QEMU")
    if disk.get("device") == "lun":
        raise ValueError(SCSI_PASSED)


def _attributes(element: Element, child: str) -> Mapping[str, str]:
    child_element = element.find(child)
    return {} if child_element is None else child_element.attrib


def _path(domain: Element, disk: Element, *, on_device: bool) -> DiskPath:
    """The path that the disk's element describes. Raises ValueError if no path can express it."""
    driver = _attributes(disk, "driver")
    image = image_of(_known(ImageFormat, driver.get("type", "raw"), "format"), on_device=on_device)
    for encryption in (*disk.iterfind("./encryption"), *disk.iterfind("./source/encryption")):
        image = image or Image(ImageFormat.RAW)
        options = parsed_options(image.format, {"encrypt": encryption.get("format")})
        image = Image(image.format, tuple(options.items()))
    cache = _known(CacheMode, driver.get("cache", "default"), "cache mode")
    return DiskPath((), image, cache, _attachment(domain, disk, driver))


def _attachment(domain: Element, disk: Element, driver: Mapping[str, str]) -> Attachment:
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
        **LIBVIRT.of_path(_only_limits(domain, disk)),
    }
    return attachment_of(bus, options | parsed_options(bus, words))


def _bus_by_name(device: str) -> str:
    """libvirt's bus for a disk without one: by the first letter (virDiskNameToBusIndex)."""
    return {"v": "virtio", "h": "ide", "s": "scsi"}.get(device[:1], "ide")


def _threading(
    domain: Element, disk: Element, bus: Bus, driver: Mapping[str, str]
) -> Mapping[str, str]:
    """The settings for threads and queues, which a controller may have instead of the disk."""
    match bus:
        case Bus.SCSI:
            controller = _controller(domain, disk, "scsi")
            model = "virtio-scsi" if controller is None else controller.get("model")
            one_of(model or "virtio-scsi", ("virtio-scsi", "auto"), "controller")
        case Bus.NVME:
            controller = _controller(domain, disk, "nvme")
        case _:
            return driver
    return {} if controller is None else _attributes(controller, "driver")


def _controller(domain: Element, disk: Element, kind: str) -> Element | None:
    index = _attributes(disk, "address").get("controller", "0")
    for controller in domain.iterfind(f"./devices/controller[@type='{kind}']"):
        if controller.get("index", "0") == index:
            return controller
    return None


def _write_cache(domain: Element, disk: Element) -> WriteCache:
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
