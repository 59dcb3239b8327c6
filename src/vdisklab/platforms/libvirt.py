"""libvirt: domain XML (formatdomain.html), as written for libvirt 9.0 and later and QEMU 7.2.

Written: cache mode `default` omits the attribute; all other settings are written, because libvirt's
defaults differ from QEMU's (it opens files with discard=unmap). `write-cache` has no attribute: it
is a property override of libvirt 8.2. A disk that libvirt cannot describe (vhdx; NVMe before 11.5)
goes to QEMU as arguments; libvirt then neither labels the image nor gives QEMU access to it.

The element `metadata` holds the disk path; from it a reader knows what the other elements cannot
express: the host layers and the options of the image.

`libvirt_domain` reads them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vdisklab.errors import CommandError, HostError
from vdisklab.guest.qemu.block_nodes import FORMAT_MEMBERS, format_options
from vdisklab.path.bus_options import IN_THE_GUEST, without_options
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.segments import SHARED_MEMORY, Bus, CacheMode, ImageFormat, WriteCache
from vdisklab.platforms import dialect, writing
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.guest_disks import CACHE_MODES_OF_LIBVIRT, NotExpressibleError
from vdisklab.platforms.libvirt_domain import LIMITS, PATH_NAMESPACE, QEMU_NAMESPACE, read_domains
from vdisklab.platforms.qemu import DIRECTORY, SERIAL, arguments, daemon_sentence, served_by
from vdisklab.platforms.reading import GuestText, Tree
from vdisklab.platforms.request import DOMAIN_TYPES, ExportRequest
from vdisklab.platforms.storage_pools import pools_of

ALIAS = "ua-disk0"
TARGETS = {
    Bus.VIRTIO: "vda", Bus.SCSI: "sda", Bus.IDE: "hda", Bus.SATA: "sda", Bus.USB: "sda",
    Bus.NVME: "nvme0n1",
}  # fmt: skip
"""The target's name by bus."""

NVME_SINCE = (11, 5)
"""libvirt's NEWS of 11.5.0 (July 2025): "qemu: Add support for NVMe disks"."""

_NAMESPACES_SINCE = (11, 6)
"""libvirt's NEWS of 11.6.0: "qemu: Add support for RBD namespaces". Before, one is a part of the
image's name, which Ceph does not find."""

_THREADS_SINCE = (10, 0)
"""formatdomain.html, `iothreads` of a disk: "Since 10.0.0 (QEMU 9.0, virtio disks only)"."""

_NO_UNREF = FORMAT_MEMBERS["discard_no_unref"]
_NO_UNREF_SINCE = (9, 5)
"""formatdomain.html, `discard_no_unref`: "Since 9.5.0 (QEMU 8.1)"."""

_OLDEST = (9, 0)
_UNKNOWN_FORMATS = (ImageFormat.VHDX,)
_THREAD_OPTIONS = ("iothreads", "poll", "aio_max_batch", "discard_granularity")
_FOREIGN_OPTIONS = {
    Bus.SCSI: (*_THREAD_OPTIONS, "queue_size"), Bus.NVME: ("block_size",),
}  # fmt: skip
"""The options that need a libvirt newer than 9.0, or that no libvirt has, by bus."""


_SECRETS = {"iscsi": "iscsi", "rbd": "ceph"}
"""libvirt's type of secret by protocol."""

_COLD_BUSES = (Bus.IDE, Bus.SATA, Bus.NVME)
"""Disks on these buses cannot be attached while the guest runs (qemu_hotplug.c)."""

_CLIENT_OPTIONS = ("cache", "msize")
"""The options that a guest gives to its mount of 9p."""

SYSTEM = "qemu:///system"
_DUMPED_TOGETHER = 500
"""Guests whose XML one virsh prints: a connection for each of thousands would take minutes."""


def _is_xml(text: GuestText) -> bool:
    return text.text[:4096].lstrip("\ufeff \t\r\n").startswith("<")


def _reader(texts: Sequence[GuestText], _documents: Sequence[Tree]) -> dialect.Reader:
    served = served_by(texts)
    pools = {pool.name: pool for text in texts for pool in pools_of(text)}

    def read(text: GuestText) -> Iterator[ConfiguredDisk]:
        return read_domains(text.text, text.origin, served, pools)

    return read


def export(request: ExportRequest) -> dialect.Configuration:
    """A domain that can be defined and started; the disk is its only one."""
    place = request.place(DIRECTORY)
    foreign = foreign_reason(request) is not None
    gaps = tuple(_foreign_gaps(request))
    requirements = tuple(_access(request, place) if foreign else _of_server(request))
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
    _add_system(domain, request)
    devices = ET.SubElement(domain, "devices")
    if foreign:
        _add_arguments(domain, arguments(request, place))
    else:
        disk = add_disk(devices, request, place, TARGETS[attachment.bus])
        ET.SubElement(disk, "alias", {"name": ALIAS})
        _add_controller(devices, request)
        _add_override(domain, request)
    ET.indent(domain)
    return dialect.Configuration(ET.tostring(domain, encoding="unicode") + "\n", gaps, requirements)


def _add_system(domain: ET.Element, request: ExportRequest) -> None:
    """Appends the machine. Without a BIOS, firmware boots the guest and describes the machine to it
    (ACPI, which libvirt turns off unless asked), and the default CPU has 32 bits."""
    guest = request.guest
    system = ET.SubElement(domain, "os", {} if guest.has_bios else {"firmware": "efi"})
    described = {"arch": guest.name, "machine": request.machine}
    ET.SubElement(system, "type", described).text = "hvm"
    if request.cpu is None:
        return
    ET.SubElement(ET.SubElement(domain, "features"), "acpi")
    if request.domain_type == DOMAIN_TYPES[0]:
        ET.SubElement(domain, "cpu", {"mode": "host-passthrough"})
    else:
        cpu = ET.SubElement(domain, "cpu", {"mode": "custom", "match": "exact", "check": "none"})
        ET.SubElement(cpu, "model").text = request.cpu


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
    if reason := _foreign_options(image, version):
        return reason
    if request.path.cache not in CACHE_MODES_OF_LIBVIRT:
        return f"libvirt has no cache mode {request.path.cache}"
    if request.url is not None and (reason := _foreign_server(request.url.node, version)):
        return reason
    return _foreign_attachment(request.path.attachment, version)


def _foreign_options(image: Image | None, version: tuple[int, ...]) -> str | None:
    members = dict(format_options(image))
    if members.pop(_NO_UNREF, None) and version < _NO_UNREF_SINCE:
        return _before(version, "discard_no_unref of qcow2", _NO_UNREF_SINCE)
    if members:
        return "libvirt's <metadata_cache> is one size for all tables, not l2_cache, refcount_cache"
    return None


def _foreign_server(node: Mapping[str, Any], version: tuple[int, ...]) -> str | None:
    if node["driver"] == "ssh":
        return "libvirt has no disk that QEMU itself opens over ssh"
    if "namespace" in node and version < _NAMESPACES_SINCE:
        return "libvirt before 11.6 has no namespaces of Ceph"
    return "libvirt has no NBD with a pre-shared key" if "tls-creds" in node else None


def _foreign_attachment(attachment: Attachment, version: tuple[int, ...]) -> str | None:
    bus = attachment.bus
    if bus.is_served:
        return "libvirt's vhostuser disk names only the socket of the daemon that opens the image"
    foreign = _FOREIGN_OPTIONS.get(bus, _THREAD_OPTIONS)
    for option, _ in attachment.options:
        mapped = option == "iothreads" and bus is Bus.VIRTIO
        if option in foreign and not (mapped and version >= _THREADS_SINCE):
            return _before(version, f"{option} on {bus}", _THREADS_SINCE if mapped else None)
    if bus is Bus.NVME and version < NVME_SINCE:
        return _before(version, "NVMe disks", NVME_SINCE)
    return None


def _before(version: tuple[int, ...], what: str, since: tuple[int, ...] | None) -> str:
    later = f" ({_dotted(since)} and later have)" if since else ""
    return f"libvirt {_dotted(version)} has no {what}{later}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _foreign_gaps(request: ExportRequest) -> Iterator[dialect.Gap]:
    reason = foreign_reason(request)
    if reason is not None:
        yield dialect.Gap(
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
    if request.url is not None:
        for secret in request.url.objects:
            yield f"QEMU must be allowed to read {secret.get('file') or secret.get('dir')}"
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
    kind = "block" if request.on_device else "file" if request.url is None else "network"
    disk = ET.SubElement(devices, "disk", {"type": kind, "device": "disk"})
    format_of_image = {"name": "qemu", "type": request.driver}
    element = ET.SubElement(disk, "driver", format_of_image | _driver(request))
    if attachment.iothreads is not None:
        threads = ET.SubElement(element, "iothreads")
        for number in range(1, attachment.iothreads + 1):
            ET.SubElement(threads, "iothread", {"id": str(number)})
    if request.url is None:
        ET.SubElement(disk, "source", {"dev" if request.on_device else "file": place})
    else:
        _add_server(disk, request.url.node, request)
    ET.SubElement(disk, "target", {"dev": target, "bus": attachment.bus.value})
    if attachment.block_size is not None:
        size = str(attachment.block_size)
        ET.SubElement(disk, "blockio", {"logical_block_size": size, "physical_block_size": size})
    _add_throttle(disk, attachment)
    return disk


def _driver(request: ExportRequest) -> dict[str, str]:
    """The attributes of the `<driver>` beside the image's format."""
    attachment, driver = request.path.attachment, {}
    if request.path.cache is not CacheMode.DEFAULT:
        driver["cache"] = request.path.cache.value
    driver |= {} if request.url is not None else {"io": attachment.aio.value}
    driver["discard"] = str(attachment.option("discard"))
    if attachment.detect_zeroes != "off":
        driver["detect_zeroes"] = attachment.detect_zeroes
    driver |= _error_policy(attachment)
    if _NO_UNREF in dict(format_options(request.path.image)):
        driver["discard_no_unref"] = "on"
    if attachment.bus is Bus.VIRTIO:
        driver |= threading(request)
    return driver


def _settings(request: ExportRequest) -> str:
    """What the path sets in the `<driver>` of a disk that the guest has. The ignored discards of a
    new disk would take them from a guest that has them."""
    changed = [item for item in _driver(request).items() if item != ("discard", "ignore")]
    return " ".join(f'{name}="{value}"' for name, value in changed)


def _error_policy(attachment: Attachment) -> dict[str, str]:
    """The attributes of failed requests: without rerror_policy, libvirt uses error_policy for reads
    too, unless it is `enospace` (formatdomain, Hard drives)."""
    if not attachment.error_policy:
        return {}
    writes, reads = attachment.option("werror"), str(attachment.option("rerror"))
    policy = {} if writes is None else {
        "error_policy": "enospace" if writes == "enospc" else str(writes)
    }  # fmt: skip
    usual = "report" if writes in (None, "enospc") else writes
    return policy if reads == usual else {**policy, "rerror_policy": reads}


def _add_server(disk: ET.Element, node: Mapping[str, Any], request: ExportRequest) -> None:
    """The <source> of a network disk: the opposite of `libvirt_domain`'s reader."""
    protocol, server = str(node["driver"]), node.get("server", {})
    host, port = (server.get("host"), server.get("port")) if server else ("", None)
    match protocol:
        case "iscsi":
            name = f"{node['target']}/{node['lun']}"
            host, _, port = str(node["portal"]).rpartition(":")
        case "rbd":
            name = "/".join(str(node[key]) for key in ("pool", "namespace", "image") if key in node)
        case _:
            name = str(node.get("path", node.get("export", "")))
    named = {"name": name} if name else {}
    source = ET.SubElement(disk, "source", {"protocol": protocol, **named})
    if "path" in server:
        ET.SubElement(source, "host", {"transport": "unix", "socket": server["path"]})
    elif host:
        plain = {"name": str(host).strip("[]"), **({"port": str(port)} if port else {})}
        ET.SubElement(source, "host", plain)
    if "conf" in node:
        ET.SubElement(source, "config", {"file": str(node["conf"])})
    if protocol == "nfs":
        ET.SubElement(source, "identity", {"user": "+0", "group": "+0"})
    if protocol in _SECRETS and ("user" in node or request.secret is not None):
        auth = ET.SubElement(source, "auth", {"username": str(node.get("user", "admin"))})
        ET.SubElement(auth, "secret", {"type": _SECRETS[protocol], "usage": _usage(request)})


def _usage(request: ExportRequest) -> str:
    layer = request.path.layers[0]
    return str(layer.option("at") or f"my{layer.kind}")


def _of_server(request: ExportRequest) -> Iterator[str]:
    """What libvirt needs for a network disk: the secret, or the user on an NFS server."""
    url = request.url
    if url is None:
        return
    protocol = str(url.node["driver"])
    if protocol == "nfs":
        yield "<identity> is the user on the NFS server; +0 is root, as which vdisklab measured"
    if protocol in _SECRETS and ("user" in url.node or request.secret is not None):
        kind, owner = _SECRETS[protocol], "target" if protocol == "iscsi" else "name"
        usage, file = _usage(request), request.secret or "FILE"
        plain = " --plain" if kind == "iscsi" else ""  # a cephx key is in base64 as it is
        yield (
            f"define the secret: virsh secret-define FILE.xml, with <secret ephemeral='no' "
            f"private='yes'><usage type='{kind}'><{owner}>{usage}</{owner}></usage></secret>; then "
            f"virsh secret-set-value UUID --file {file}{plain}"
        )


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
            driver = threading(request)
            if driver:
                ET.SubElement(controller, "driver", driver)
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


def _add_arguments(domain: ET.Element, argv: Iterable[str]) -> None:
    line = ET.SubElement(domain, "qemu:commandline")
    for word in argv:
        ET.SubElement(line, "qemu:arg", {"value": word})


def export_element(request: ExportRequest) -> dialect.Configuration:
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
    gaps = tuple(_element_gaps(request))
    requirements = (*_of_server(request), *_requirements(request, target))
    container = ET.Element("devices")
    add_comments(container, (*writing.preparation(request, place), *map(str, gaps), *requirements))
    add_disk(container, request, place, target)
    ET.indent(container)
    lines = ET.tostring(container, encoding="unicode").splitlines()[1:-1]
    text = "".join(f"{line[2:]}\n" for line in lines)
    return dialect.Configuration(text, gaps, requirements, _settings(request))


def _element_gaps(request: ExportRequest) -> Iterator[dialect.Gap]:
    write_cache = request.path.attachment.write_cache
    if write_cache is not WriteCache.MODE:
        yield dialect.Gap(
            f"write_cache={write_cache}",
            "the disk's write cache follows the cache mode; --to libvirt writes the override",
        )


def _requirements(request: ExportRequest, target: str) -> Iterator[str]:
    attachment = request.path.attachment
    when = "--config" if attachment.bus in _COLD_BUSES else "--live --config"
    later = "; the guest sees it after its next start" if attachment.bus in _COLD_BUSES else ""
    if not request.pasted:
        yield f"attach it with: virsh attach-device GUEST FILE {when}{later}"
    yield f"if the guest already has {target}, change the target in the file"
    if attachment.bus is Bus.SCSI:
        attributes = "".join(f' {name}="{value}"' for name, value in threading(request).items())
        driver = f"<driver{attributes}/>" if attributes else ""
        yield (
            "the guest's SCSI controller must be "
            f'<controller type="scsi" model="virtio-scsi">{driver}</controller>; no controller of '
            "a running guest can be changed: change it with virsh edit GUEST, then shut the guest "
            "down and start it"
        )
    # What the changed controller needs is there at the guest's next start, as the controller is.
    when = "--config" if attachment.bus is Bus.SCSI else "--live --config"
    for number in range(1, 1 + (attachment.iothreads or int(attachment.iothread))):
        needed = f"virsh iothreadadd GUEST {number} {when}"
        yield f"the guest needs the I/O thread {number}: {needed}"
    if attachment.bus is Bus.NVME:
        yield "the guest's NVMe controller needs a <serial>, and decides on the number of queues"


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


def _export_share(request: ExportRequest) -> dialect.Configuration:
    domain = ET.Element("domain", {"type": request.domain_type})
    add_comments(domain, writing.share_comments(request))
    ET.SubElement(domain, "name").text = request.name
    options = (*IN_THE_GUEST, *(_CLIENT_OPTIONS if writing.is_9p(request) else ()))
    add_metadata(domain, without_options(request.path, options), writing.TAG)
    ET.SubElement(domain, "memory", {"unit": "MiB"}).text = "1024"
    ET.SubElement(domain, "vcpu").text = "2"
    add_shared_memory(domain, request.path.attachment.bus)
    _add_system(domain, request)
    ET.SubElement(domain, "devices").append(_filesystem(request))
    ET.indent(domain)
    return dialect.Configuration(ET.tostring(domain, encoding="unicode") + "\n")


def _export_share_element(request: ExportRequest) -> dialect.Configuration:
    virtiofs = not writing.is_9p(request)
    memory = (
        'the guest needs shared memory: <memoryBacking><source type="memfd"/>'
        '<access mode="shared"/></memoryBacking>'
    )
    attach = "attach it with: virsh attach-device GUEST FILE --config; the guest sees it after its "
    attached = () if request.pasted else (f"{attach}next start",)
    requirements = (*attached, *((memory,) if virtiofs else ()))
    container = ET.Element("devices")
    add_comments(container, (*writing.share_comments(request), *requirements))
    container.append(_filesystem(request))
    ET.indent(container)
    lines = ET.tostring(container, encoding="unicode").splitlines()[1:-1]
    return dialect.Configuration("".join(f"{line[2:]}\n" for line in lines), (), requirements)


def _change(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> dialect.Change:
    """virt-xml(1) edits the definition; the saved one restores it exactly.

    A line that is pasted twice keeps the definition that it saved first: the second one would be
    the changed one. The file's name stands for this change of this disk, and the undo removes the
    file, so that no file of an earlier change is taken for the definition of today.
    """
    if disk.refused is not None:  # no word of cache or io, with which the disk has no path
        raise dialect.still_refused(disk.refused)
    settings = {"driver.cache": wanted.cache.value}
    settings |= {} if wanted.opened_by_qemu else {"driver.io": wanted.attachment.aio.value}
    guest, threads, connection = shlex.quote(disk.guest), "", _connection(disk)
    if wanted.attachment.iothread != now.attachment.iothread:
        if wanted.attachment.bus is not Bus.VIRTIO or not wanted.attachment.iothread:
            raise dialect.lacks(disk.platform, "one line that changes the I/O thread of this disk")
        settings["driver.iothread"] = disk.io_thread or "1"
        if disk.io_thread is None:
            # `--edit --iothreads 1` fails where the guest has none yet (virt-xml 4.1).
            threads = f" && virt-xml{connection} {guest} --edit --xml ./iothreads=1"
    options = ",".join(f"{key}={value}" for key, value in settings.items())
    of_change = hashlib.sha256(f"{disk.text}\0{options}".encode()).hexdigest()[:6]
    saved = shlex.quote(f"{disk.guest}.{disk.target}.before-{of_change}.xml")
    # -s: a `virsh` that fails leaves an empty file.
    return dialect.Change(
        # Without --security-info the definition lacks the passwords of VNC and SPICE.
        f"test -s {saved} || (umask 077; virsh{connection} dumpxml --inactive --security-info "
        f"{guest} > {saved}){threads} && "
        f"virt-xml{connection} {guest} --edit target={disk.target} --disk {options}",
        f"virsh{connection} define {saved} && rm {saved}",
    )


def _connection(disk: ConfiguredDisk) -> str:
    """The option of virsh and virt-xml that names the libvirt of a guest, for a user who is not
    root: without it they ask the user's own libvirt, qemu:///session (libvirt's uri.html).

    Empty for root, for a user whose environment names a libvirt, and for a guest whose image lies
    where the user's own libvirt and GNOME Boxes keep theirs.
    """
    of_session = "/.local/share/" in (disk.source or "")
    named = any(map(os.environ.get, ("LIBVIRT_DEFAULT_URI", "VIRSH_DEFAULT_CONNECT_URI")))
    return "" if of_session or named or os.geteuid() == 0 else f" -c {SYSTEM}"


def domains_of(run: dialect.CommandRunner, uri: str = SYSTEM) -> Iterator[GuestText]:
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
        # What runs, then what is defined: the reader names the difference.
        forms = (f"dumpxml {uuid}; dumpxml --inactive {uuid}" for uuid in together)
        yield GuestText(run("virsh", "-q", "-c", uri, "; ".join(forms)), uri)


DIALECT = dialect.Dialect(
    cache_modes=CACHE_MODES_OF_LIBVIRT,
    below=("libvirt/qemu", "libvirt/storage", "qemu", "storage"),
    change=_change,
    forms=(
        dialect.Form("libvirt", export, _export_share, absolute=True, disk="libvirt-disk"),
        dialect.Form(
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
    # Debian and Ubuntu; Fedora, RHEL and openSUSE
    location=dialect.Location(
        domains_of,
        users=("libvirt-qemu", "qemu"),
        printed_at=domains_of,
    ),
    left_out={
        "EFI variables": r"<nvram\b",
        "TPM state": r"<tpm\b",
        "CD-ROMs": r"\bdevice=.cdrom\b",
        dialect.HOST_DEVICES: r"<hostdev\b[^>]{0,200}\btype=.(?:pci|usb|mdev|storage)\b"
        r"[^>]{0,200}(?:(?<!/)>(?:(?!</hostdev)[\s\S]){0,900}?<source\b[^>]{0,200}>\s*<(?P<device>\w[^>]{0,200}?)\s*/?>)?",
        "floppies": r"\bdevice=.floppy\b",
    },
)
