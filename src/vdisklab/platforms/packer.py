"""Packer: the guests that its builders qemu and proxmox start (builder/qemu/config.go: disk_cache
writeback, disk_interface virtio, format qcow2, disk_discard ignore, disk_detect_zeroes off, vm_name
packer-BUILD; step_create_disk.go: the disks of disk_additional_size beside it, with -1, -2 …)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vdisklab.path.architecture import X86_64
from vdisklab.platforms.hcl import HclBlock, read_hcl
from vdisklab.platforms.qm_commands import as_conf
from vdisklab.platforms.reading import GuestText, clone_of
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import set_by_variable, set_in
from vdisklab.value import replace

_SOURCE = re.compile(
    r'^[ \t]*source\s+"(?:qemu|proxmox-iso|proxmox-clone|proxmox)"\s+"', re.MULTILINE
)
_ARGUMENTS = "qemuargs"
_MOST_DISKS = 50
_BUILDERS = re.compile(r'"builders"\s*:\s*\[')


def _recognises(text: GuestText) -> bool:
    return _SOURCE.search(text.text) is not None or (
        _BUILDERS.search(text.text) is not None and text.text.lstrip().startswith("{")
    )


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    for kind, name, source in _sources(text):
        if kind == "qemu":
            whose = f"source {name}"
            place = set_in(text, "disk_cache", source.lines.get("disk_cache"), whose)
            place = _by_variable(source, "disk_cache", text) or place
            if _has_drives(source):  # Packer writes none of its own then
                place = (
                    f"`cache=` of {set_in(text, _ARGUMENTS, source.lines.get(_ARGUMENTS), whose)}"
                )
            yield GuestText(
                "\0".join(_command(source, name)),
                f"{text.origin}/{name}",
                changed_at={"": place},
            )
        elif kind.startswith("proxmox"):
            yield _conf(source, name, text)


def _sources(text: GuestText) -> Iterator[tuple[str, str, HclBlock]]:
    """The builders: HCL's sources, or those of a JSON template."""
    if _SOURCE.search(text.text):
        given = [file.text for file in _given(text)]
        for block in read_hcl(text.text, text.origin, given).all("source"):
            if len(block.labels) == 2:
                yield block.labels[0], block.labels[1], block
        return
    try:
        template = json.loads(text.text)
    except (ValueError, RecursionError):
        return
    builders = template.get("builders") if isinstance(template, dict) else None
    for builder in builders if isinstance(builders, list) else []:
        if isinstance(builder, dict):
            kind = str(builder.get("type"))
            yield kind, str(builder.get("name", kind)), _block(builder)


_GIVEN = "*.auto.pkrvars.hcl"
_OVERRIDDEN = "-var, -var-file and PKR_VAR_{}"


def _given(text: GuestText) -> list[GuestText]:
    """The texts that Packer reads by itself for its variables, by name, of which the last wins
    (Packer's "Input Variables", "Assigning Values to input Variables"). The environment and `-var`
    are not seen."""
    names = sorted(name for name in text.files if name.endswith(_GIVEN.removeprefix("*")))
    return [GuestText(text.files[name], name) for name in names]


def _by_variable(block: HclBlock, name: str, text: GuestText) -> str | None:
    """Where a variable sets an attribute; None if none does."""
    return set_by_variable(block.references.get(name, ""), text, _given(text), _OVERRIDDEN)


def _names(text: GuestText) -> Iterator[str]:
    """The files that set variables."""
    if "var." in text.text and _recognises(text):
        yield _GIVEN


def _block(builder: Mapping[str, Any]) -> HclBlock:
    disks = builder.get("disks")
    inner = [each for each in disks if isinstance(each, dict)] if isinstance(disks, list) else []
    return HclBlock("", (), dict(builder), [HclBlock("disks", (), dict(each)) for each in inner])


def _command(source: HclBlock, name: str) -> Iterator[str]:
    yield from (source.text("qemu_binary", X86_64.emulator), "-name", _vm_name(source, name))
    yield from ("-machine", source.text("machine_type", X86_64.default_machine))
    if not _has_drives(source):
        yield from _drives(source, name)
    for flag, *rest in _arguments(source):
        yield flag
        yield from filter(None, ["".join(rest)])


def _arguments(source: HclBlock) -> list[list[str]]:
    """The pairs of `qemuargs`."""
    given = source.attributes.get(_ARGUMENTS)
    pairs = [pair for pair in given if isinstance(pair, list)] if isinstance(given, list) else []
    return [[str(part) for part in pair] for pair in pairs if pair]


def _has_drives(source: HclBlock) -> bool:
    return any(pair[0] in ("-drive", "--drive", "-device") for pair in _arguments(source))


def _vm_name(source: HclBlock, name: str) -> str:
    return source.text("vm_name") or f"packer-{name}"


def _drives(source: HclBlock, name: str) -> Iterator[str]:
    """The arguments of the drives, as getDeviceAndDriveArgs of builder/qemu/step_run.go writes
    them."""
    interface = source.text("disk_interface", "virtio")
    is_scsi = interface == "virtio-scsi"
    place = f"{source.text('output_directory', f'output-{name}')}/{_vm_name(source, name)}"
    more = source.attributes.get("disk_additional_size")
    count = min(len(more), _MOST_DISKS) if isinstance(more, list) else 0
    if is_scsi:
        yield from ("-device", "virtio-scsi-pci,id=scsi0")
    for number in range(count + 1):
        settings = {
            "file": place if number == 0 else f"{place}-{number}",
            "if": "none" if is_scsi else interface,
            "cache": source.text("disk_cache", "writeback"),
            "discard": source.text("disk_discard", "ignore"),
            "format": source.text("format", "qcow2"),
        }
        if source.text("disk_detect_zeroes", "off") != "off":
            settings["detect-zeroes"] = source.text("disk_detect_zeroes")
        if is_scsi:
            yield from ("-device", f"scsi-hd,bus=scsi0.0,drive=drive{number}")
            settings["id"] = f"drive{number}"
        escaped = (f"{key}={value.replace(',', ',,')}" for key, value in settings.items())
        yield from ("-drive", ",".join(escaped))


def _conf(source: HclBlock, name: str, text: GuestText) -> GuestText:
    """`disks` of the builders proxmox-iso and proxmox-clone, in their order: of the template that
    they make (builder/proxmox/common: stepConvertToTemplate)."""
    vmid = source.text("vm_id") or name
    settings = {"scsihw": source.text("scsi_controller", "lsi")}
    settings |= {} if source.text("skip_convert_to_template") == "1" else {"template": "1"}
    numbers: dict[str, int] = {}
    places: dict[str, str] = {}
    for disk in source.all("disks"):
        bus = disk.text("type", "scsi")
        number = numbers.get(bus, 0)
        numbers[bus] = number + 1
        form = disk.text("format", "raw")
        ending = "" if form == "raw" else f".{form}"
        options = {
            "cache": disk.text("cache_mode", "none"),
            # Only on these buses (generateProxmoxDisks of builder/proxmox/common).
            **({"iothread": disk.text("io_thread", "0")} if bus in ("scsi", "virtio") else {}),
            "discard": "on" if disk.text("discard") == "1" else "ignore",
            "aio": disk.text("asyncio", "io_uring"),
        }  # fmt: skip
        volume = f"{disk.text('storage_pool', '?')}:vm-{vmid}-disk-{bus}{number}{ending}"
        line = disk.lines.get("cache_mode")
        whose = f"a disks block of {name}"
        place = _by_variable(disk, "cache_mode", text)
        places[f"{bus}{number}"] = place or set_in(text, "cache_mode", line, whose)
        settings[f"{bus}{number}"] = ",".join((volume, *(f"{k}={v}" for k, v in options.items())))
    plain = re.sub(r"[^\w-]", "_", vmid)
    cloned = source.text("clone_vm") or source.text("clone_vm_id")
    return replace(
        as_conf(settings, f"{text.origin}/{plain}.conf"),
        changed_at=places,
        diskless=clone_of(name, cloned) if cloned else None,
    )


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, changed_in="Packer", names=_names)
