"""Terraform and OpenTofu: guests of the providers bpg/proxmox, Telmate/proxmox, dmacvicar/libvirt.

Defaults: bpg's docs/resources/virtual_environment_vm.md (cache none, aio io_uring, discard ignore,
virtio-scsi-pci); libvirt's own where the provider writes none.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from vdisklab.path.architecture import X86_64, architecture_of
from vdisklab.path.segments import CacheMode
from vdisklab.platforms.hcl import HclBlock, read_hcl
from vdisklab.platforms.qm_commands import as_conf
from vdisklab.platforms.reading import (
    DisklessGuest,
    GuestText,
    UnreadDisk,
    clone_of,
    is_variable,
)
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import set_by_variable, set_in
from vdisklab.units import whole_number
from vdisklab.value import replace

_RESOURCE = re.compile(
    r'^[ \t]*resource\s+"(?:proxmox_virtual_environment_vm|proxmox_vm_qemu|libvirt_domain)"\s+"',
    re.MULTILINE,
)


_SLOT = re.compile(r"(?:virtio|scsi|sata|ide)[0-9]+")
_VOLUME = re.compile(
    r"(?:\$\{)?(?P<address>libvirt_volume\.[\w-]+(?:\[(?:[0-9]+|\"[^\"$]*\")\])?)\.id\}?"
)
_LONGEST = 200
_MOST_FILES = 20
_MOST_NAMED = 4
_FILE = re.compile(r"\"(?:\$\{path\.(?:module|root|cwd)\}/)?(?P<name>[^\"$\n]+)\"")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_DROPS_FLUSHES = re.compile(r"\bunsafe\b|\bno-flush\W{1,4}(?:on|true)\b|LD_PRELOAD")
"""What makes a disk lossy wherever a style sheet puts it."""
_SPEEDS = {
    "iops_read": "iops_rd", "iops_write": "iops_wr", "read": "mbps_rd", "write": "mbps_wr",
    "iops_read_burstable": "iops_rd_max", "iops_write_burstable": "iops_wr_max",
    "read_burstable": "mbps_rd_max", "write_burstable": "mbps_wr_max",
}  # fmt: skip


def _recognises(text: GuestText) -> bool:
    return _RESOURCE.search(text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    whole = read_hcl(text.text, text.origin, [file.text for file in _given(text)])
    note = _modules_of(whole, text)
    for each in _guests_of(whole, text):
        yield replace(each, note=note)


def _modules_of(whole: HclBlock, text: GuestText) -> str:
    """A sentence that names the modules whose guests are not in the file; empty without one."""
    called = [block for block in whole.all("module") if block.labels]
    if not called:
        return ""
    named = [f"{block.labels[0]} ({block.text('source', '?')})"[:_LONGEST] for block in called]
    shown = ", ".join(named[:_MOST_NAMED]) + (", …" if len(named) > _MOST_NAMED else "")
    return (
        f"{text.origin} calls modules whose guests are not read here: {shown}; name their files, "
        "or what their platform prints of the guests."
    )


def _guests_of(whole: HclBlock, text: GuestText) -> Iterator[GuestText]:
    """Each guest of the file's resources, in its platform's words."""
    resources = [block for block in whole.all("resource") if len(block.labels) == 2]
    volumes = {
        resource.labels[1]: resource
        for resource in resources
        if resource.labels[0] == "libvirt_volume"
    }
    for resource in resources:
        kind, label = resource.labels
        match kind:
            case "proxmox_virtual_environment_vm":
                yield _of_bpg(resource, label, text)
            case "proxmox_vm_qemu":
                yield _of_telmate(resource, label, text)
            case "libvirt_domain":
                yield _domain(resource, label, volumes, text)
            case _:
                pass


_GIVEN = ("*.tfvars", "*.tfvars.json")
"""Files beside a module's own that may set its variables."""


_OVERRIDDEN = "-var, -var-file and TF_VAR_{}"


def _given(text: GuestText) -> list[GuestText]:
    """The texts that Terraform reads by itself for its variables, the last of which wins:
    terraform.tfvars, its JSON form, and `*.auto.tfvars` by name (Terraform's "Input Variables",
    "Variable Definition Precedence"). The environment and `-var` are not seen."""
    first = [name for name in ("terraform.tfvars", "terraform.tfvars.json") if name in text.files]
    by_name = re.compile(r".+\.auto\.tfvars(\.json)?")
    names = (*first, *sorted(filter(by_name.fullmatch, text.files)))
    return [GuestText(text.files[name], name) for name in names]


def _vmid(resource: HclBlock, label: str) -> str:
    named = resource.text("vm_id") or resource.text("vmid") or label
    return named if re.fullmatch(r"[\w-]{1,64}", named) else label


def _cache_of(disk: HclBlock, text: GuestText) -> str:
    """Where a disk's cache mode is set; without one, where its block begins."""
    line = disk.lines.get("cache")
    reference = disk.references.get("cache", "")
    by_variable = set_by_variable(reference, text, _given(text), _OVERRIDDEN)
    if by_variable is not None:
        return by_variable
    lines = text.text.splitlines()
    if line and line <= len(lines) and re.search(r"=\s*\w+\.value\b", lines[line - 1]):
        # One line for all disks of a `dynamic` block; each has its value in the block's list.
        shared = f"not line {line}, which all its disks share"
        return f"the disk's entry in the list of the dynamic block ({shared})"
    whose = f"the {disk.type} block in line {disk.line}"
    return set_in(text, "cache", line, whose)


def _of_bpg(resource: HclBlock, label: str, text: GuestText) -> GuestText:
    vmid = _vmid(resource, label)
    settings = {"scsihw": resource.text("scsi_hardware", "virtio-scsi-pci")}
    settings |= {"name": resource.text("name")} if resource.text("name") else {}
    settings |= {"args": resource.text("kvm_arguments")} if resource.text("kvm_arguments") else {}
    unread: list[UnreadDisk] = []
    places: dict[str, str] = {}
    for disk, target in _with_targets(resource):
        slot = disk.text("interface", "?")
        if not _SLOT.fullmatch(slot):
            unread.append(_not_read(disk, resource, target, f"its interface is {slot}"))
            continue
        datastore, form = disk.text("datastore_id", "local-lvm"), disk.text("file_format")
        place = disk.text("path_in_datastore")
        volume = place or f"vm-{vmid}-disk-{slot}" + (f".{form}" if form not in ("", "raw") else "")
        options = {
            "cache": disk.text("cache", "none"), "aio": disk.text("aio", "io_uring"),
            "discard": disk.text("discard", "ignore"),
            **_iothread(slot, disk.text("iothread", "0")),
            **({} if form or place else {"file_format": "of-the-storage"}),
        }  # fmt: skip
        for speed in disk.all("speed"):
            options |= {
                _SPEEDS.get(key, key): str(value) for key, value in speed.attributes.items()
            }
        places[slot] = _cache_of(disk, text)
        settings[slot] = _line(f"{datastore}:{volume}" if datastore else volume, options)
    settings |= {"template": "1"} if resource.text("template") == "1" else {}
    clone = next(resource.all("clone"), None)
    return replace(
        as_conf(settings, f"{text.origin}/{vmid}.conf"),
        changed_at=places,
        unread=tuple(unread),
        diskless=_cloned(resource, label, "" if clone is None else clone.text("vm_id", "?")),
    )


def _cloned(resource: HclBlock, label: str, template: str) -> DisklessGuest | None:
    """A clone whose resource may name no disk; None for a guest that is not a clone."""
    return clone_of(resource.text("name", label), template) if template else None


def _with_targets(resource: HclBlock) -> Iterator[tuple[HclBlock, str]]:
    """The blocks of disks, with what a row of one that cannot be read is called."""
    for block in resource.blocks:
        target = "dynamic disk" if block.type == "dynamic" else "disk"
        for disk in HclBlock("", blocks=[block]).all("disk"):
            yield disk, target


def _not_read(disk: HclBlock, resource: HclBlock, target: str, what: str) -> UnreadDisk:
    return UnreadDisk(
        resource.text("name"), target, f"{what[:_LONGEST]}, which only Terraform knows",
        drops_flushes=disk.text("cache") == CacheMode.UNSAFE,
    )  # fmt: skip


def _iothread(slot: str, value: str) -> Mapping[str, str]:
    """bpg's provider sends iothread for no sata disk (its proxmoxtf/resource/vm/disk/disk.go), and
    without one for another bus Proxmox VE needs no setting."""
    on_sata = slot.startswith("sata")
    return {} if on_sata or value in ("0", "false") else {"iothread": value}


def _line(volume: str, options: Mapping[str, str]) -> str:
    """The line of VMID.conf, where a comma ends a setting: an expression may have some."""
    parts = (f"{key}={value}" for key, value in options.items() if value)
    return ",".join(part.replace(",", " ") for part in (volume, *parts))


def _of_telmate(resource: HclBlock, label: str, text: GuestText) -> GuestText:
    """`disk` with a `slot`, and since 3.0 `disks { scsi { scsi0 { disk {` (its docs)."""
    vmid = _vmid(resource, label)
    settings = {"scsihw": resource.text("scsihw", "lsi")}
    settings |= {"args": resource.text("args")} if resource.text("args") else {}
    settings |= {"name": resource.text("name")} if resource.text("name") else {}
    numbers: dict[str, int] = {}
    places: dict[str, str] = {}
    unread: list[UnreadDisk] = []
    for disk, target in _with_targets(resource):
        slot, bus = disk.text("slot"), disk.text("type", "scsi")
        if is_variable(slot) or (not slot and is_variable(bus)):
            unread.append(_not_read(disk, resource, target, f"its slot is {slot or bus}"))
            continue
        if not re.fullmatch(r"[a-z]+[0-9]+", slot):
            named = whole_number(slot)
            number = numbers.setdefault(bus, 0) if named is None else named
            numbers[bus] = number + 1
            slot = f"{bus}{number}"
        if disk.text("type") not in ("cdrom", "cloudinit"):
            settings[slot] = _telmate(disk, vmid, slot)
            places[slot] = _cache_of(disk, text)
    for bus_block in (inner for disks in resource.all("disks") for inner in disks.blocks):
        for slot_block in bus_block.blocks:
            for disk in (*slot_block.all("disk"), *slot_block.all("passthrough")):
                settings[slot_block.type] = _telmate(disk, vmid, slot_block.type)
                places[slot_block.type] = _cache_of(disk, text)
        unread += (
            _not_read(block, resource, f"dynamic {' '.join(block.labels)}", "it is a dynamic block")
            for block in (bus_block, *bus_block.blocks)
            if block.type == "dynamic"
        )
    return replace(
        as_conf(settings, f"{text.origin}/{vmid}.conf"),
        changed_at=places,
        unread=tuple(unread),
        diskless=_cloned(resource, label, resource.text("clone") or resource.text("clone_id")),
    )


def _telmate(disk: HclBlock, vmid: str, slot: str) -> str:
    form = disk.text("format")
    ending = f".{form}" if form not in ("", "raw") else ""
    volume = disk.text("file") or disk.text("volume")
    volume = volume or f"{disk.text('storage', '?')}:vm-{vmid}-disk-{slot}{ending}"
    discard = {"1": "on", "0": "ignore"}.get(disk.text("discard"), disk.text("discard"))
    names = {"cache": "cache", "aio": "aio", "asyncio": "aio", "iothread": "iothread",
             "mbps": "mbps", "mbps_rd": "mbps_rd", "mbps_wr": "mbps_wr", "iops": "iops",
             "iops_rd": "iops_rd", "iops_wr": "iops_wr"}  # fmt: skip
    options = {to: disk.text(name) for name, to in names.items() if disk.text(name)}
    return _line(volume, {**options, "discard": discard})


def _domain(
    resource: HclBlock, label: str, volumes: Mapping[str, HclBlock], text: GuestText
) -> GuestText:
    domain = ET.Element("domain", {"type": resource.text("type", "kvm")})
    ET.SubElement(domain, "name").text = resource.text("name", label)
    arch = resource.text("arch", X86_64.name)
    row = architecture_of(arch) or X86_64
    usual = row.default_machine or row.machines["virtio"]
    system = {"arch": arch, "machine": resource.text("machine", usual)}
    ET.SubElement(ET.SubElement(domain, "os"), "type", system).text = "hvm"
    devices = ET.SubElement(domain, "devices")
    changes = _stylesheet(resource, text)
    lossy = changes is not None and _DROPS_FLUSHES.search(changes) is not None
    unread: list[UnreadDisk] = []
    for number, (disk, target) in enumerate(_with_targets(resource)):
        given = [disk.text(key) for key in ("file", "block_device", "volume_id", "url")]
        place = next(filter(None, given), "not named")
        if is_variable(place) and "libvirt_volume." not in place:
            unread.append(_not_read(disk, resource, target, f"its volume is {place}"))
        elif changes is not None and not disk.text("file").endswith(".iso"):
            unread.append(_changed(resource, label, _target_of(disk, number)))
        else:
            _add_disk(devices, disk, number, volumes)
    listed = resource.attributes.get("devices")  # since 0.9 the domain's XML in HCL's words
    disks = listed.get("disks") if isinstance(listed, dict) else None
    for number, entry in enumerate(disks if isinstance(disks, list) else []):
        if isinstance(entry, dict) and changes is not None:
            unread.append(_changed(resource, label, f"disk {number}"))
        elif isinstance(entry, dict):
            _add_entry(devices, entry, number)
    ET.SubElement(devices, "controller", {"type": "scsi", "index": "0", "model": "virtio-scsi"})
    xml = ET.tostring(domain, encoding="unicode")
    unread = [replace(disk, drops_flushes=lossy or disk.drops_flushes) for disk in unread]
    return GuestText(xml, f"{text.origin}/{label}.xml", unread=tuple(unread))


def _changed(resource: HclBlock, label: str, target: str) -> UnreadDisk:
    """A disk of a domain whose XML is changed by what is not understood."""
    why = "an xslt changes its settings: name what `virsh dumpxml` prints"
    return UnreadDisk(resource.text("name", label), target, why)


def _stylesheet(resource: HclBlock, text: GuestText) -> str | None:
    """What is known of the XSLT that changes the domain's XML: its text without comments, or that
    of the files that it names; None if the domain has none."""
    inside = resource.attributes.get("xml")
    given = inside.get("xslt") if isinstance(inside, dict) else inside
    if given is None:
        given = next((block.text("xslt") for block in resource.all("xml")), None)
    if given is None:
        return None
    written = str(given)
    files = (text.files.get(name, "") for name in _files_in(written))
    return _COMMENT.sub("", "\n".join((written, *files)))


def _files_in(expression: str) -> Iterator[str]:
    """The names of files in an expression, as `file("${path.module}/a.xsl")`, from its own
    directory."""
    if is_variable(expression):
        yield from (match["name"] for match in islice(_FILE.finditer(expression), _MOST_FILES))


def _names(text: GuestText) -> Iterator[str]:
    """The style sheets that change domains, and the files that set variables."""
    if "var." in text.text and _recognises(text):
        yield from _GIVEN
    if "xslt" in text.text and _recognises(text):
        for resource in read_hcl(text.text, text.origin).all("resource"):
            if resource.labels[:1] == ("libvirt_domain",):
                yield from _files_in(_stylesheet(resource, text) or "")


def _target_of(disk: HclBlock, number: int) -> str:
    scsi = disk.text("scsi") == "1"
    return f"{'s' if scsi else 'v'}d{chr(ord('a') + number % 26)}"


def _volume_of(disk: HclBlock) -> str:
    """Terraform's address of the one volume that a disk names; empty for what may be several."""
    match = _VOLUME.fullmatch(disk.text("volume_id"))
    return "" if match is None else match["address"]


def _add_disk(
    devices: ET.Element, disk: HclBlock, number: int, volumes: Mapping[str, HclBlock]
) -> None:
    file, device = disk.text("file"), disk.text("block_device")
    if file.endswith(".iso"):
        return
    named = re.search(r"libvirt_volume\.([\w-]+)", disk.text("volume_id"))
    volume = volumes.get(named[1]) if named else None
    form = "raw" if device or file.endswith((".img", ".raw")) else "qcow2"
    form = form if volume is None else volume.text("format", "qcow2")
    scsi = disk.text("scsi") == "1"
    element = ET.SubElement(
        devices, "disk", {"type": "block" if device else "file", "device": "disk"}
    )
    ET.SubElement(element, "driver", {"name": "qemu", "type": form})
    place = file or device or _volume_of(disk) or (named[1] if named else "?")
    ET.SubElement(element, "source", {"dev" if device else "file": place})
    target = _target_of(disk, number)
    ET.SubElement(element, "target", {"dev": target, "bus": "scsi" if scsi else "virtio"})
    based = volume is not None and any(key.startswith("base_volume") for key in volume.attributes)
    if based:
        below = ET.SubElement(element, "backingStore", {"type": "file"})
        ET.SubElement(below, "format", {"type": "qcow2"})


def _add_entry(devices: ET.Element, entry: Mapping[str, Any], number: int) -> None:
    def attributes(key: str) -> dict[str, str]:
        inner = entry.get(key)
        pairs = inner.items() if isinstance(inner, dict) else ()
        return {name: str(value) for name, value in pairs if isinstance(value, str | bool | float)}

    named = entry.get("source")
    source: Mapping[str, Any] = named if isinstance(named, dict) else {}
    if entry.get("device", "disk") != "disk":
        return
    device = "block" in source
    element = ET.SubElement(
        devices, "disk", {"type": "block" if device else "file", "device": "disk"}
    )
    ET.SubElement(element, "driver", attributes("driver"))
    ET.SubElement(element, "source", {"dev" if device else "file": str(source)[:200]})
    target = {"dev": f"vd{chr(ord('a') + number % 26)}", "bus": "virtio", **attributes("target")}
    ET.SubElement(element, "target", target)


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, changed_in="Terraform", names=_names)
