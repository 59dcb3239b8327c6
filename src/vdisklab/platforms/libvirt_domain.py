"""Reads a libvirt domain's XML (formatdomain.html): each disk as a disk path.

Disks that libvirt passes to QEMU as arguments are read, too. Guests of other hypervisors are
recognised, and their disks have no path. The XML is not trusted: defusedxml refuses document types
and entities, so no other file is read and memory use is bounded.
"""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import PurePath
from types import MappingProxyType

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import Attachment, DiskPath, Image, parse_path
from vdisklab.path.memory_names import memory_below
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, WriteCache
from vdisklab.platforms import drive_arguments, reading
from vdisklab.platforms.configured_disk import ConfiguredDisk, with_pending
from vdisklab.platforms.guest_edge import read_apart
from vdisklab.platforms.network import ServerDisk, beyond_server, placed, server_disk
from vdisklab.platforms.qemu_arguments import Served, disks_of_arguments
from vdisklab.platforms.storage_pools import StoragePool, resolved
from vdisklab.units import whole_number
from vdisklab.value import Value, replace

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
PATH_NAMESPACE = "urn:vdisklab:disk-path:1"

LIMITS = reading.limit_words(
    {"throttle_bps": ("total_bytes_sec",), "throttle_iops": ("total_iops_sec",)},
    reading.joined(
        ("total", "read", "write"), ("_bytes", "_iops"), ("_sec",), ("", "_max", "_max_length")
    ),
    ("size_iops_sec",),
)
"""The elements of <iotune> and <throttlegroup> (formatdomain.html)."""

_DEEPEST = 256
"""libxml2's own limit (xmlParserMaxDepth), which libvirt does not lift; it allows 200 images."""

LARGEST = 4 << 20
"""Maximum number of characters of a domain's XML."""

_Q = f"{{{QEMU_NAMESPACE}}}"
_V = f"{{{PATH_NAMESPACE}}}"


_OF_THE_PAST = {
    "domainsnapshot": "the definition of a snapshot",
    "domaincheckpoint": "the definition of a checkpoint",
}
"""Roots that hold a guest's definition of the time when they were made (formatsnapshot.html)."""

_DOMAIN = re.compile(r"\s*(<\?[^>]*>\s*)?(<!--.*?-->\s*)?<domain[\s>]", re.DOTALL)
_END = "</domain>"
_MOST_THREADS = 1000
"""I/O threads of a guest that are looked at; a hostile one counts billions."""

_QEMU_TYPES = ("kvm", "qemu", "hvf")
"""The domain types that run QEMU (libvirt's src/conf/virconftypes.h, virDomainVirtType)."""

_QEMU_NAME = re.compile(r"\.?(?:qemu|kvm)(?:-(?:system|kvm|spice)[\w-]*)?(?:-wrapped)?")
"""The names of QEMU's program in distributions."""

_PRELOAD = "LD_PRELOAD"
_NOT_READ = "which <qemu:override> or -set gives it in place of the disk's own"

_DRIVERS = {
    "virtio": "virtio-blk-pci", "scsi": "scsi-hd", "ide": "ide-hd", "sata": "ide-hd",
    "usb": "usb-storage", "nvme": "nvme-ns",
}  # fmt: skip
"""QEMU's device by bus."""

_READ = ("name", "type", "cache", "io", "discard", "detect_zeroes", "iothread", "queues",
         "queue_size", "packed", "discard_no_unref", "error_policy", "rerror_policy")  # fmt: skip

_HARMLESS = ("ats", "iommu", "page_per_vq")
_USUAL = {"ioeventfd": "on", "event_idx": "on", "copy_on_read": "off"}
"""The attributes of a <driver> that are read, that change no speed, and others' defaults."""

_MODES = ("none", "writeback", "writethrough", "directsync", "default", "unsafe")
_FORMATS = (
    "raw", "qcow2", "qed", "vmdk", "vdi", "vpc", "qcow", "cow", "bochs", "cloop", "dmg", "iso",
    "vhd", "fat", "dir", "ploop",
)  # fmt: skip
_ACCEPTED = {
    "type": (*_FORMATS, "aio"),
    "bus": ("virtio", "scsi", "sata", "ide", "usb", "nvme", "fdc", "sd", "xen", "uml"),
    "cache": _MODES,
    "io": ("native", "threads", "io_uring", "default"),
    "discard": ("unmap", "ignore", "default"),
    "detect_zeroes": ("off", "on", "unmap", "default"),
    "error_policy": ("stop", "report", "ignore", "enospace", "default"),
    "rerror_policy": ("stop", "report", "ignore", "default"),
}
"""The words of a disk (libvirt's src/conf/domain_conf.c, virDomainDiskBus and so on; `type` in
storage_source_conf.c, virStorageFileFormat, and Xen's `aio`): a domain with another one is not
defined."""

_OF_VIRTIO = ("iothread", "queues", "queue_size", "packed")
"""The attributes of a disk's <driver> that libvirt takes on virtio only
(qemuValidateDomainDeviceDefDiskFrontend, qemuValidateCheckDiskIOThreads)."""

_OF_SHARES = ("type", "name", *_HARMLESS)
_SCSI_MODELS = ("virtio-scsi", "virtio-transitional", "virtio-non-transitional")


_NO_POOLS: Mapping[str, StoragePool] = MappingProxyType({})


def read_domain(
    text: str,
    origin: str,
    served: Served | None = None,
    pools: Mapping[str, StoragePool] = _NO_POOLS,
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a domain; `pools` are those that were read, by name.

    Raises PlanError if the text is not a domain's XML.
    """
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
    _require_shallow(root, origin)
    # The XML of a snapshot or a saved state contains the domain, the next one beside it.
    domain = root if root.tag == "domain" else root.find(".//domain")
    if domain is None:
        raise PlanError(
            f"{origin} is XML, but not a libvirt domain: its root is <{root.tag}>",
            hint="`virsh dumpxml DOMAIN` prints one",
        )
    for each in root.iter("domain"):
        resolved(each, pools)
    for each in root.iter("inactiveDomain"):
        resolved(each, pools)
    past, names = _OF_THE_PAST.get(root.tag), frozenset(pools)
    now = tuple(replace(disk, past=past) for disk in _Guest(domain, served, names).disks())
    then = None if root is domain else root.find(".//inactiveDomain")
    return now if then is None else with_pending(now, tuple(_Guest(then, served, names).disks()))


def _require_shallow(root: ET.Element, origin: str) -> None:
    """Raises PlanError for elements nested deeper than libvirt itself reads: writing one back as
    text recurses."""
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for element in level for child in element]
        if not level:
            return
    raise PlanError(
        f"{origin} has elements nested more than {_DEEPEST} deep, which libvirt does not read",
        hint="create it again: `virsh dumpxml DOMAIN > FILE`",
    )


def _refused(bus: str, driver: Mapping[str, str]) -> tuple[str, str] | None:
    """Why libvirt does not define a domain with the disk, and the way out; None if it does."""
    name = Platform.LIBVIRT.full_name
    refused = reading.refused_word(name, _ACCEPTED, {**driver, "bus": bus or None})
    on_others = next((key for key in _OF_VIRTIO if key in driver), None)
    if refused is not None or bus == Bus.VIRTIO or on_others is None:
        return refused
    return (
        f"{name} refuses {on_others} in the <driver> of a disk on {bus}",
        "write it into the controller" if bus == Bus.SCSI else "leave it out, or use bus virtio",
    )


def read_domains(
    text: str,
    origin: str,
    served: Served | None = None,
    pools: Mapping[str, StoragePool] = _NO_POOLS,
) -> Iterator[ConfiguredDisk]:
    """The disks of all domains; `virsh dumpxml` of several guests prints one after another.

    A domain that follows under the same name is the same guest's from its next start on.
    """
    *domains, rest = text.split(_END)
    texts = [text]
    if len(domains) > 1 and _DOMAIN.match(text):
        texts = [xml.lstrip() + _END for xml in domains]
        texts[-1] += rest
    if len(texts) == 1:  # its errors are the text's
        yield from read_domain(text, origin, served, pools)
        return
    read: dict[str, tuple[ConfiguredDisk, ...]] = {}
    for number, xml in enumerate(texts, 1):
        found = read_apart(partial(read_domain, xml, origin, served, pools))
        named, uuid = re.search("<name>(.*?)<", xml), re.search("<uuid>(.*?)<", xml)
        key = next((match[1] for match in (uuid, named) if match), str(number))
        if found.error is None and key in read:
            read[key] = with_pending(read[key], found.disks)
        else:
            disks = found.all(named[1] if named else f"guest {number}", Platform.LIBVIRT)
            read[key] = (*read.get(key, ()), *disks)
    for disks in read.values():
        yield from disks


def _in_pool(volume: str, pool: str) -> reading.UnseenStorageError:
    """A volume of a pool of libvirt whose XML was not read: only libvirt knows what the pool is."""
    name = re.sub(r"[^\w.-]", "_", pool)
    return reading.UnseenStorageError(
        f"its source is the volume {volume!r} of the pool {pool!r}",
        f"run `virsh pool-dumpxml {shlex.quote(pool)} > {name}.xml`, and name {name}.xml beside "
        "the guest's file",
    )


def _of_scsi(volume: str, pool: str) -> reading.UnseenStorageError:
    """A volume of a pool of libvirt whose XML does not tell its device."""
    command = shlex.join(("virsh", "vol-path", "--pool", pool, volume))
    return reading.UnseenStorageError(
        f"its source is the volume {volume!r} of the pool {pool!r}",
        f"run `{command}` and name the device that it prints in a copy of the XML, <disk "
        "type='block'> and <source dev='PATH'/>",
    )


class _Guest(Value, dict=True):
    """A domain's element, with the values that its disks need."""

    element: ET.Element
    served: Served | None = None
    pools: frozenset[str] = frozenset()
    """The names of the pools that were read."""

    @cached_property
    def name(self) -> str:
        return (self.element.findtext("name") or "unnamed").strip()

    @cached_property
    def architecture(self) -> str | None:
        return _attributes(self.element, "os/type").get("arch")

    @cached_property
    def argv(self) -> Sequence[str]:
        """The arguments that libvirt passes to QEMU as they are."""
        found = self.element.iterfind(f"./{_Q}commandline/{_Q}arg")
        return [word.get("value", "") for word in found]

    @cached_property
    def without_fsync(self) -> str | None:
        """Why QEMU's flushes do nothing: a variable that libvirt gives it loads such a library."""
        variables = self.element.iterfind(f"./{_Q}commandline/{_Q}env")
        preloaded = [each.get("value", "") for each in variables if each.get("name") == _PRELOAD]
        return reading.without_fsync([*preloaded, self.emulator])

    @cached_property
    def emulator(self) -> str:
        """The program that libvirt starts, as the domain names it; empty if it does not."""
        return (self.element.findtext("./devices/emulator") or "").strip()

    @cached_property
    def doubt(self) -> str:
        """Why QEMU may get other arguments than the domain's; empty if it does not. The domain
        may name a wrapper, whose name is not QEMU's."""
        name = PurePath(self.emulator).name
        is_qemu = not name or _QEMU_NAME.fullmatch(name) is not None
        if is_qemu or self.element.get("type", "kvm") not in _QEMU_TYPES:
            return ""
        return f"its <emulator> {self.emulator[:100]} may change QEMU's arguments and was not read"

    @cached_property
    def changes(self) -> drive_arguments.Changes:
        """What these arguments change of the domain's disks."""
        return drive_arguments.Changes(self.argv)

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """The limits of the guest's cgroup and the words that change every disk, as written."""
        devices = map(_texts, self.element.iterfind("./blkiotune/device"))
        limits = (
            f"blkiotune {device.get('path', '?')} {limit}"
            for device in devices
            for limit in LIMITS.all(device)
        )
        return reading.first_of([*limits, *drive_arguments.beside_arguments(self.argv)])

    @cached_property
    def group_names(self) -> Mapping[str, int]:
        """How many disks name each throttle group."""
        names = [
            *(
                tune.findtext("group_name", "").strip()
                for tune in self.element.iterfind(".//iotune")
            ),
            *(each.get("group", "") for each in self.element.iterfind(".//throttlefilter")),
        ]
        return Counter(names)

    @cached_property
    def throttle_groups(self) -> Mapping[str, Mapping[str, str]]:
        """The limits of each <throttlegroup>, by name."""
        groups = map(_texts, self.element.iterfind("./throttlegroups/throttlegroup"))
        return {group.get("group_name", ""): group for group in groups}

    @cached_property
    def overrides(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of each <qemu:override>, by its device's alias."""
        found: dict[str, dict[str, str]] = {}
        for changed in self.element.iterfind(f"./{_Q}override/{_Q}device"):
            properties = found.setdefault(changed.get("alias", ""), {})
            for setting in changed.iterfind(f"./{_Q}frontend/{_Q}property"):
                if setting.get("type") != "remove":
                    properties[setting.get("name", "?")] = setting.get("value", "")
        return found

    @cached_property
    def controllers(self) -> Mapping[tuple[str, str], ET.Element]:
        """The first controller of each type and index."""
        found: dict[tuple[str, str], ET.Element] = {}
        for each in self.element.iterfind("./devices/controller"):
            found.setdefault((each.get("type", ""), each.get("index", "0")), each)
        return found

    @cached_property
    def notes(self) -> Mapping[str, DiskPath]:
        """The paths that vdisklab wrote into the metadata, by target ("": a disk in arguments)."""
        notes: dict[str, DiskPath] = {}
        for note in self.element.iterfind(f"./metadata/{_V}disks/{_V}disk"):
            try:
                notes[note.get("target", "")] = parse_path(note.get("path", ""))
            except PlanError:
                continue  # the note was edited; the XML itself still has nearly everything
        return notes

    @cached_property
    def free_io_thread(self) -> str | None:
        """An I/O thread of the guest, one that no disk uses if there is one; None if it has none.

        <iothreads> counts them; those without an <iothread id> get the lowest free numbers
        (formatdomain.html, "IOThreads Allocation").
        """
        domain = self.element
        named = [thread.get("id", "") for thread in domain.iterfind("./iothreadids/iothread")]
        count = (domain.findtext("iothreads") or "").strip()
        unnamed = range(1, min(whole_number(count) or 0, _MOST_THREADS) + 1)
        threads = list(dict.fromkeys([*named, *map(str, unnamed)]))
        threads = threads[: max(len(named), len(unnamed))]
        used = {driver.get("iothread") for driver in domain.iterfind("./devices//driver")}
        return next((thread for thread in threads if thread not in used), next(iter(threads), None))

    def disks(self) -> Iterator[ConfiguredDisk]:
        """Each hard disk and directory, and each device that may hold one."""
        for disk in self._disks():
            yield replace(
                disk,
                lost_below=self.without_fsync or disk.lost_below,
                may_differ=disk.may_differ or self.doubt,
            )

    def _disks(self) -> Iterator[ConfiguredDisk]:
        for number, device in enumerate(self.element.iterfind("./devices/*")):
            match device.tag:
                case "disk" if device.get("device") not in ("cdrom", "floppy"):
                    yield self._disk(device)
                case "filesystem":
                    yield self._share(device)
                case "hostdev" if device.get("type") in ("scsi", "scsi_host"):
                    yield self._unmeasured(device, number, reading.SCSI_PASSED)
                case "memory" if device.get("model") in ("nvdimm", "virtio-pmem"):
                    memory = f"it is persistent memory ({device.get('model')}), not a disk"
                    yield self._unmeasured(device, number, memory)
                case _:
                    pass
        for argument in disks_of_arguments(self.argv, self.served):
            yield replace(
                argument,
                domain=self.name,
                guest=self.name,
                noted=self.notes.get(""),
                architecture=self.architecture,
            )

    def _configured(
        self, element: ET.Element, target: str, source: str | None, path: DiskPath | None,
        problem: str | None,
    ) -> ConfiguredDisk:  # fmt: skip
        return ConfiguredDisk(
            self.name,
            target,
            source,
            path,
            self.notes.get(target),
            problem,
            element.find("readonly") is not None,
            guest=self.name,
            text=" ".join(ET.tostring(element, encoding="unicode").split()),
            architecture=self.architecture,
        )

    def _unmeasured(self, element: ET.Element, number: int, problem: str) -> ConfiguredDisk:
        name = _attributes(element, "alias").get("name", f"{element.tag}{number}")
        source = element.findtext("./source/path")
        return self._configured(element, name, source, None, problem)

    def _share(self, shared: ET.Element) -> ConfiguredDisk:
        """A host directory: virtiofs, or 9p, whose other options are set by the guest's mount."""
        target = _attributes(shared, "target").get("dir", "?")
        driver, source = _attributes(shared, "driver"), _attributes(shared, "source")
        bus = Bus.VIRTIOFS if driver.get("type") == "virtiofs" else Bus.P9
        path, problem = None, None
        try:
            reading.one_of(shared.get("type", "mount"), ("mount",), "file system")
            reading.one_of(driver.get("type", "path"), ("path", "handle", "virtiofs"), "driver")
            if "socket" in source:
                raise ValueError(reading.SERVED_ELSEWHERE)
            mode = _attributes(shared, "binary/cache").get("mode") if bus is Bus.VIRTIOFS else None
            path = DiskPath(
                attachment=reading.attachment_of(bus, reading.parsed_options(bus, {"cache": mode}))
            )
        except ValueError as error:
            problem = str(error)
        place = source.get("dir") or source.get("socket")
        beyond = {name: value for name, value in driver.items() if name not in _OF_SHARES}
        for part in ("thread_pool", "lock"):
            beyond |= {
                f"{part} {name}": value
                for name, value in _attributes(shared, f"binary/{part}").items()
            }
        found = self._configured(shared, target, place, path, problem)
        return replace(found, limits=tuple(f"{name}={value}" for name, value in beyond.items()))

    def _disk(self, disk: ET.Element) -> ConfiguredDisk:
        target, location = _attributes(disk, "target"), _attributes(disk, "source")
        driver = _attributes(disk, "driver")
        bus = target.get("bus") or _bus_by_name(target.get("dev", ""))
        properties = self._properties(disk, bus, driver)
        path, problem, server, unseen = None, None, None, None
        beyond: tuple[str, ...] = ()
        try:
            self._require_qemus_disk(disk)
            if "drive" in properties:  # QEMU's device has another node than libvirt's
                raise ValueError(f"its device has the drive {properties['drive']}, {_NOT_READ}")
            path = self._path(disk, Bus(reading.one_of(bus, tuple(Bus), "bus")), driver, properties)
            if disk.get("type") == "network":
                server = _on_server(disk)
                beyond, path = beyond_server(path.image), placed(path, server.kind)
        except ValueError as error:
            path, problem, unseen = None, str(error), reading.way_to_see(error)
        # Nothing is said of the disks of other hypervisors, and of those that QEMU only forwards.
        opens = self.element.get("type", "kvm") in _QEMU_TYPES and disk.get("device") != "lun"
        changes = self.changes.of_drive(f"drive-{_alias(disk, bus)}")
        policy = tuple(self._error_words(driver, disk, bus, properties))
        found = self._configured(
            disk,
            target.get("dev", "?"),
            location.get("file") or location.get("dev") if server is None else server.place,
            path,
            problem,
        )
        return replace(
            found,
            unseen=unseen,
            server=server,
            # libvirt gives QEMU the mode of files and devices alone (qemu_block.c).
            idle_aio=driver.get("io", "") if server is not None else "",
            io_thread=self.free_io_thread,
            controller=self._scsi_model(disk) if bus == Bus.SCSI else "",
            limits=(*self._limits(disk, bus, driver, properties), *beyond),
            refused=_refused(bus, driver) if opens else None,
            drops_flushes=opens
            and (driver.get("cache") == CacheMode.UNSAFE or drive_arguments.drops_flushes(changes)),
            ignored_errors=reading.ignored_errors(*policy),
            by_policy=reading.policy_path(bus, *policy) if opens and path is None else None,
            transient=disk.find("transient") is not None
            or drive_arguments.is_on(changes.get("snapshot")),
            shareable=disk.find("shareable") is not None,
            lost_below=memory_below(_files_below(disk)),
        )

    def _error_words(
        self, driver: Mapping[str, str], disk: ET.Element, bus: str, properties: Mapping[str, str]
    ) -> Iterator[object]:
        """QEMU's words for failed writes and reads; libvirt's error_policy is for both, except that
        `enospace` is a policy for writes only (qemuBuildDiskGetErrorPolicy)."""
        policy = driver.get("error_policy")
        policy = "enospc" if policy == "enospace" else policy
        reads = driver.get("rerror_policy", None if policy == "enospc" else policy)
        changes = self.changes.of_drive(f"drive-{_alias(disk, bus)}")
        for word, said in (("werror", policy), ("rerror", reads)):
            yield changes.get(word, properties.get(word, said))

    def _require_qemus_disk(self, disk: ET.Element) -> None:
        """Raises ValueError for another hypervisor's disk, and for what QEMU does not open."""
        kind = self.element.get("type", "kvm")
        if kind not in _QEMU_TYPES:
            raise ValueError(f"its guest is of type {kind}: name a guest of QEMU")
        if reading.one_of(disk.get("device", "disk"), ("disk", "lun"), "device") == "lun":
            raise ValueError(reading.SCSI_PASSED)
        location, kind = _attributes(disk, "source"), disk.get("type", "file")
        if kind == "volume":
            unseen = _of_scsi if location.get("pool") in self.pools else _in_pool
            raise unseen(location.get("volume", "?"), location.get("pool", "?"))
        if kind == "vhostuser":
            raise ValueError(reading.SERVED_ELSEWHERE)
        if kind not in ("file", "block", "network"):
            raise ValueError(f"its source is of type {kind}: {reading.MAP_IT}")
        store = disk.find("./source/dataStore")
        if store is not None and store.get("type", "file") not in ("file", "block"):
            kind = store.get("type", "?")
            raise ValueError(
                f"its data lie in a store of type {kind}, not in the image: {reading.MAP_IT}"
            )

    def _properties(
        self, disk: ET.Element, bus: str, driver: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The properties of QEMU's device that the domain sets beside libvirt: <qemu:override>,
        -set, and -global, which does not change what libvirt sets."""
        name = _alias(disk, bus)
        device = {"driver": _DRIVERS.get(bus, "?"), "id": name}
        every, of_device = self.changes.properties_of(device)
        cache_is_set = driver.get("cache", "default") != "default"
        every = {
            key: value for key, value in every.items() if key != "write-cache" or not cache_is_set
        }
        return {**every, **of_device, **self.overrides.get(name, {})}

    def _limits(
        self, disk: ET.Element, bus: str, driver: Mapping[str, str], properties: Mapping[str, str]
    ) -> Iterator[str]:
        """The limits and settings that a path cannot express, and limits of the guest's cgroup."""
        groups = self._limit_groups(disk)
        for group in groups:
            yield from LIMITS.beyond(group) if len(groups) == 1 else LIMITS.all(group)
            if name := group.get("group_name"):
                yield from reading.shared_group("group_name", name, self.group_names)
        for name, value in driver.items():
            if name not in (*_READ, *_HARMLESS) and value != _USUAL.get(name):
                yield f"{name}={value}"
        yield from self._of_controller(disk, bus)
        for name, value in properties.items():
            if name not in ("write-cache", "werror", "rerror"):
                yield f"{name}={value}"
        yield from self.beside
        librbds = (
            encryption for encryption in _encryptions(disk) if encryption.get("engine") == "librbd"
        )
        yield from (f"encryption={librbd.get('format')}" for librbd in librbds)
        for tag in ("driver/metadata_cache", "source/slices", "mirror"):
            if disk.find(tag) is not None:
                yield tag.rpartition("/")[2]
        blocks = _attributes(disk, "blockio")
        if bus in tuple(Bus):
            yield from reading.beyond_schema(Bus(bus), reading.block_words(blocks))
        if blocks.get("physical_block_size", "0") not in (
            "0",
            blocks.get("logical_block_size", "512"),
        ):
            yield f"physical_block_size={blocks['physical_block_size']}"

    def _of_controller(self, disk: ET.Element, bus: str) -> Iterator[str]:
        """The settings of a disk's controller that no path has."""
        owner = self._controller(disk, bus) if bus in (Bus.SCSI, Bus.NVME) else None
        for name, value in {} if owner is None else _attributes(owner, "driver").items():
            if name not in (*_READ, *_HARMLESS) and value != _USUAL.get(name):
                yield f"{name}={value}"

    def _limit_groups(self, disk: ET.Element) -> list[Mapping[str, str]]:
        """The disk's <iotune>, or the <throttlegroup>s that its filters name."""
        named = [
            each.get("group", "") for each in disk.iterfind("./throttlefilters/throttlefilter")
        ]
        groups = self.throttle_groups
        return [
            *map(_texts, disk.iterfind("./iotune")),
            *(groups[name] for name in dict.fromkeys(named) if name in groups),
        ]

    def _path(
        self, disk: ET.Element, bus: Bus, driver: Mapping[str, str], properties: Mapping[str, str]
    ) -> DiskPath:
        """The path that the disk's element describes. Raises ValueError if none can express it."""
        # libvirt turns the cache of a shared disk off (qemuDomainDeviceDiskDefPostParse).
        usual = "default" if disk.find("shareable") is None else "none"
        word = driver.get("cache", usual)
        cache = reading.one_of(usual if word == "default" else word, tuple(CacheMode), "cache mode")
        attachment = self._attachment(disk, bus, driver, properties)
        return DiskPath((), _image(disk, driver), CacheMode(cache), attachment)

    def _attachment(
        self, disk: ET.Element, bus: Bus, driver: Mapping[str, str], properties: Mapping[str, str]
    ) -> Attachment:
        owner: ET.Element | None = disk
        if bus is Bus.SCSI:
            owner = self._controller(disk, "scsi")
            reading.one_of(self._scsi_model(disk), _SCSI_MODELS, "controller")
        elif bus is Bus.NVME:
            owner = self._controller(disk, "nvme")
        threading = {} if owner is None else _attributes(owner, "driver")
        mapped = [] if owner is None else owner.findall("./driver/iothreads/iothread")
        write_cache = properties.get("write-cache", WriteCache.MODE)
        options: dict[str, OptionValue] = {
            "aio": reading.one_of(driver.get("io", Aio.THREADS), tuple(Aio), "io mode"),
            "discard": reading.one_of(
                driver.get("discard", "ignore"), ("ignore", "unmap"), "discard"
            ),
            "write_cache": reading.one_of(write_cache, tuple(WriteCache), "write-cache"),
        }
        if "iothread" in threading:
            options["iothread"] = True
        if threading.get("queues"):
            options["queues"] = reading.queues_of(
                threading["queues"], admin=1 if bus is Bus.NVME else 0
            )
        zeroes = driver.get("detect_zeroes")
        groups = self._limit_groups(disk)
        settings = {
            # Without discard=unmap libvirt turns it into "on" (virDomainDiskGetDetectZeroesMode).
            "detect_zeroes": "on" if zeroes == "unmap" != options["discard"] else zeroes,
            "queue_size": threading.get("queue_size"),
            "packed": threading.get("packed"),
            **reading.block_words(_attributes(disk, "blockio")),
            **reading.error_words(*self._error_words(driver, disk, bus, properties)),
            "iothreads": len(mapped) or None,
            # A path cannot express a chain of several groups.
            **LIMITS.of_path(groups[0] if len(groups) == 1 else {}),
        }
        return reading.attachment_of(bus, options | reading.parsed_options(bus, settings))

    def _controller(self, disk: ET.Element, kind: str) -> ET.Element | None:
        index = _attributes(disk, "address").get("controller", "0")
        return self.controllers.get((kind, index))

    def _scsi_model(self, disk: ET.Element) -> str:
        owner = self._controller(disk, "scsi")
        model = None if owner is None else owner.get("model")
        return self._usual_scsi if model in (None, "auto") else str(model)

    @property
    def _usual_scsi(self) -> str:
        """The controller that libvirt adds: LSI where QEMU has it, as on x86, and on Arm
        before libvirt 11.6 (qemuDomainGetSCSIControllerModel)."""
        machine = _attributes(self.element, "os/type").get("machine", "")
        if machine.startswith("pseries"):
            return "ibmvscsi"
        architecture = self.architecture or ""
        return "virtio-scsi" if re.match("s390|loongarch", architecture) else "lsilogic"


def _on_server(disk: ET.Element) -> ServerDisk:
    """Where a network disk is, by the members of the node that libvirt makes for it
    (qemu_block.c). Raises ValueError for a protocol that no target has."""
    source = _attributes(disk, "source")
    protocol, name = source.get("protocol", "?"), source.get("name", "")
    hosts = [dict(host.attrib) for host in disk.iterfind("./source/host")]
    first = hosts[0] if hosts else {}
    host = {"host": first.get("name", "localhost"), "port": first.get("port")}
    auth = next(iter([*disk.iterfind("./source/auth"), *disk.iterfind("./auth")]), None)
    user = auth.get("username") if auth is not None else None
    user = user or _attributes(disk, "source/identity").get("username")
    node: dict[str, object] = {"driver": protocol, **({"user": user} if user else {})}
    match protocol:
        case "nbd":
            socket = first.get("socket")
            node |= {"server": {"path": socket} if socket else host, "export": name}
            node |= {"tls-creds": ""} if source.get("tls") == "yes" else {}
        case "iscsi":
            target, _, lun = name.partition("/")
            portal = ":".join(filter(None, (host["host"], host["port"])))
            node |= {"portal": portal, "target": target, "lun": lun or "0"}
            node |= {} if auth is None else {"password-secret": ""}
            node |= {"initiator-name": _attributes(disk, "source/initiator/iqn").get("name")}
        case "rbd":
            parts = name.split("/")
            namespace = {"namespace": parts[1]} if len(parts) == 3 else {}
            node |= {"pool": parts[0], "image": "/".join(parts[-1:]), **namespace}
            monitors = [{"host": host.get("name"), "port": host.get("port")} for host in hosts]
            conf = _attributes(disk, "source/config").get("file")
            node |= {"server": monitors, "conf": conf} if hosts or conf else {}
            node |= {} if auth is None else {"key-secret": ""}
            node |= {"snapshot": _attributes(disk, "source/snapshot").get("name")}
        case "nfs" | "ssh":
            node |= {"server": host, "path": name if name.startswith("/") else f"/{name}"}
        case _:
            pass
    server = server_disk(node)
    if server is None:
        raise ValueError(f"its source is of type network ({protocol}): {reading.MAP_IT}")
    return server


def _attributes(element: ET.Element, child: str) -> Mapping[str, str]:
    child_element = element.find(child)
    return {} if child_element is None else child_element.attrib


def _texts(limits: ET.Element) -> Mapping[str, str]:
    return {str(limit.tag): (limit.text or "").strip() for limit in limits}


def _bus_by_name(device: str) -> str:
    """libvirt's bus for a disk without one (virDomainDiskDefParseXML)."""
    buses = {"hd": "ide", "sd": "scsi", "vd": "virtio", "xv": "xen", "ub": "uml"}
    return buses.get(device[:2], "ide")


def _alias(disk: ET.Element, bus: str) -> str:
    """The id of the disk's device: its <alias>, or libvirt's own (qemuAssignDeviceDiskAlias)."""
    if name := _attributes(disk, "alias").get("name"):
        return name
    place = _attributes(disk, "address")
    if place.get("type") == "drive":
        keys = (
            ("controller", "bus", "target", "unit")
            if bus == Bus.SCSI
            else ("controller", "bus", "unit")
        )
        return bus + "-".join(place.get(key, "0") for key in keys)
    number = 0
    for letter in _attributes(disk, "target").get("dev", "")[2:8].lower():
        number = number * 26 + ord(letter) - ord("a") + 1
    return f"{bus}-disk{number - 1}"


def _files_below(disk: ET.Element) -> Iterator[str]:
    """The backing files and data files that the XML names, of the whole chain."""
    for below in ("backingStore", "dataStore"):
        for store in disk.iter(below):
            source = store.find("source")
            if source is not None:
                yield source.get("file") or source.get("dev") or ""


def _encryptions(disk: ET.Element) -> Sequence[ET.Element]:
    return [*disk.iterfind("./encryption"), *disk.iterfind("./source/encryption")]


def _image(disk: ET.Element, driver: Mapping[str, str]) -> Image | None:
    """The image, with the encryption and the chain below it that the XML states.

    A running guest's XML has the whole chain; without it the images' headers say it.
    """
    named = {"aio": "raw"}.get(driver.get("type", "raw"), driver.get("type", "raw"))
    form = ImageFormat(reading.one_of(named, tuple(ImageFormat), "format"))
    by_qemu = (
        encryption.get("format")
        for encryption in _encryptions(disk)
        if encryption.get("engine") != "librbd"
    )
    settings = {
        "encrypt": next(by_qemu, None),
        "data_file": None if disk.find("./source/dataStore") is None else "on",
        "discard_no_unref": driver.get("discard_no_unref"),
        "backing": sum(len(below) > 0 for below in disk.iter("backingStore")) or None,
    }
    options = reading.parsed_options(form, settings)
    on_device = disk.get("type") == "block" and not options
    return reading.image_of(form, on_device=on_device) and Image(form, tuple(options.items()))
