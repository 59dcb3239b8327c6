"""A host directory shared with a guest, as each platform configures it.

libvirt: <filesystem> (formatdomain.html), whose accessmode `squash` is QEMU's security_model=none,
as measured. Proxmox VE 8.4 and later: `virtiofsN` (qm.conf(5)). KubeVirt: `filesystems`, behind a
feature gate. Incus: a disk device with a path; `io.cache` chooses virtiofsd's cache
(DiskVMVirtiofsdStart). What the guest mounts it with stands in a comment.
"""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping

from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    Node,
    NotExpressibleError,
    commented,
    require_configurable,
    to_yaml,
)
from vdisklab.export.kubevirt import name_of
from vdisklab.export.libvirt import add_comments, add_metadata, add_shared_memory
from vdisklab.export.qemu import machine_arguments
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.plugging import (
    VIRTIOFSD,
    mount_command,
    share_arguments,
    spell_arguments,
    virtiofsd_arguments,
)
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import IN_THE_GUEST, without_options

TAG = "share0"
"""The name by which the guest mounts the directory."""


def share_of(request: ExportRequest) -> str:
    """The source, or a default directory."""
    return f"/srv/{request.name}" if request.source is None else request.source


_CLIENT_OPTIONS = ("cache", "msize")
"""The options that a guest gives to its mount of 9p."""


def _is_9p(request: ExportRequest) -> bool:
    return request.path.attachment.bus is Bus.P9


def _cache(request: ExportRequest) -> str:
    return str(request.path.attachment.option("cache"))


def _comments(request: ExportRequest) -> Iterator[str]:
    attachment = request.path.attachment
    yield f"vdisklab {request.path}"
    if request.path.layers:
        yield f"{share_of(request)} is on the file system {request.path.stack}"
    mount = mount_command(TAG, attachment.bus.value, attachment.guest_mount, "/mnt")
    yield f"in the guest: {shlex.join(mount)}"


def _require_virtiofs(platform: str, request: ExportRequest) -> None:
    if _is_9p(request):
        raise NotExpressibleError(platform, "9p", "use virtiofs, or --to qemu")


def _filesystem(request: ExportRequest) -> ET.Element:
    virtiofs = not _is_9p(request)
    mode = "passthrough" if virtiofs else "squash"
    element = ET.Element("filesystem", {"type": "mount", "accessmode": mode})
    ET.SubElement(element, "driver", {"type": "virtiofs" if virtiofs else "path"})
    if virtiofs and _cache(request) != "auto":  # auto is virtiofsd's own, and has no word here
        binary = ET.SubElement(element, "binary")
        ET.SubElement(binary, "cache", {"mode": _cache(request)})
    ET.SubElement(element, "source", {"dir": share_of(request)})
    ET.SubElement(element, "target", {"dir": TAG})
    return element


def _libvirt(request: ExportRequest) -> Configuration:
    domain = ET.Element("domain", {"type": request.domain_type})
    add_comments(domain, _comments(request))
    ET.SubElement(domain, "name").text = request.name
    options = (*IN_THE_GUEST, *(_CLIENT_OPTIONS if _is_9p(request) else ()))
    add_metadata(domain, without_options(request.path, options), TAG)
    ET.SubElement(domain, "memory", {"unit": "MiB"}).text = "1024"
    ET.SubElement(domain, "vcpu").text = "2"
    add_shared_memory(domain, request.path.attachment.bus)
    system = ET.SubElement(domain, "os")
    ET.SubElement(system, "type", {"arch": "x86_64", "machine": "q35"}).text = "hvm"
    ET.SubElement(domain, "devices").append(_filesystem(request))
    ET.indent(domain)
    return Configuration(ET.tostring(domain, encoding="unicode") + "\n")


def _libvirt_element(request: ExportRequest) -> Configuration:
    virtiofs = not _is_9p(request)
    memory = (
        'the guest needs shared memory: <memoryBacking><source type="memfd"/>'
        '<access mode="shared"/></memoryBacking>'
    )
    attach = "attach it with: virsh attach-device GUEST FILE --config; the guest sees it after its "
    requirements = (f"{attach}next start", *((memory,) if virtiofs else ()))
    container = ET.Element("devices")
    add_comments(container, (*_comments(request), *requirements))
    container.append(_filesystem(request))
    ET.indent(container)
    lines = ET.tostring(container, encoding="unicode").splitlines()[1:-1]
    return Configuration("".join(f"{line[2:]}\n" for line in lines), (), requirements)


def _qemu(request: ExportRequest) -> Configuration:
    path, directory = request.path, share_of(request)
    disk = Disk(TAG, 0, {"driver": "local", "path": directory}, "", path.cache, path.attachment)
    words = share_arguments(disk)
    first: tuple[str, ...] = ()
    if not _is_9p(request):
        socket = f"/run/{disk.names.served}.sock"
        words = (words[0], f"socket,id={disk.names.served},path={socket}", *words[2:])
        at = f"--socket-path={socket}"
        daemon = virtiofsd_arguments(VIRTIOFSD, directory, path.attachment, at)
        first = (f"run this first: {spell_arguments(daemon)}",)
    pairs = [shlex.join(words[at : at + 2]) for at in range(0, len(words), 2)]
    command = " \\\n  ".join([shlex.join(machine_arguments(request)), *pairs])
    return Configuration(f"{commented((*_comments(request), *first))}{command}\n")


def _proxmox(request: ExportRequest) -> Configuration:
    _require_virtiofs("Proxmox VE", request)
    cache = {"none": "never"}.get(_cache(request), _cache(request))
    mapping = f"--map node=NODE,path={share_of(request)}"
    comments = (
        *_comments(request),
        "Proxmox VE 8.4 and later; the directory needs a mapping: "
        f"pvesh create /cluster/mapping/dir --id {TAG} {mapping}",
    )
    return Configuration(f"{commented(comments)}virtiofs0: {TAG},cache={cache}\n")


def _kubevirt(request: ExportRequest) -> Configuration:
    _require_virtiofs("KubeVirt", request)
    claim, name = name_of(request.source or request.name, "a claim"), request.name
    gate = "KubeVirt needs the feature gate EnableVirtioFsStorageVolumes"
    gaps = (
        ()
        if _cache(request) == "auto"
        else (Gap(f"cache={_cache(request)}", "KubeVirt starts virtiofsd with cache=auto"),)
    )
    domain: Node = {
        "cpu": {"cores": 2},
        "memory": {"guest": "1Gi"},
        "devices": {"filesystems": [{"name": TAG, "virtiofs": {}}]},
    }
    volume: Node = {"name": TAG, "persistentVolumeClaim": {"claimName": claim}}
    machine: Node = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name_of(name, "a virtual machine")},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": domain, "volumes": [volume]}},
        },
    }
    comments = [line for line in _comments(request) if not line.startswith("/srv")]
    return Configuration(commented((*comments, gate), gaps) + to_yaml(machine), gaps, (gate,))


def _incus(request: ExportRequest) -> Configuration:
    bus, cache = request.path.attachment.bus, _cache(request)
    device = {
        "type": "disk", "source": share_of(request), "path": f"/mnt/{TAG}", "io.bus": bus.value,
    }  # fmt: skip
    gaps: tuple[Gap, ...] = ()
    if not _is_9p(request):
        device["io.cache"] = "unsafe" if cache == "always" else "none"
        if cache == "auto":
            gaps = (Gap("cache=auto", "Incus starts virtiofsd with never, metadata or always"),)
    mount = [word for word in request.path.attachment.guest_mount if word != "trans=virtio"]
    if mount:
        gaps += (Gap(",".join(mount), "Incus's agent mounts it in the guest"),)
    comments = tuple(_comments(request))[:-1]  # its agent mounts it
    return Configuration(commented(comments, gaps) + to_yaml({"devices": {TAG: device}}), gaps)


_EXPORTERS: Mapping[str, Callable[[ExportRequest], Configuration]] = {
    "libvirt": _libvirt,
    "libvirt-disk": _libvirt_element,
    "qemu": _qemu,
    "proxmox": _proxmox,
    "kubevirt": _kubevirt,
    "incus": _incus,
}


def export_share(request: ExportRequest, platform: str) -> Configuration:
    """The directory's configuration. Raises PlanError for what the platform cannot express."""
    require_configurable(request.path)
    return _EXPORTERS[platform](request)
