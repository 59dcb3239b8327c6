"""Recognises whose configuration a text is, and reads the disks of all guests in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.domain import read_domain
from vdisklab.audit.incus_instance import is_incus, read_incus
from vdisklab.audit.kubevirt_machine import is_kubernetes, read_kubevirt
from vdisklab.audit.proxmox_guest import Storage, is_proxmox, read_proxmox, read_storages
from vdisklab.audit.qemu_arguments import (
    DiskArguments,
    Served,
    disks_of_arguments,
    served_disks,
    shared_directories,
)
from vdisklab.audit.yaml_documents import Tree, read_documents
from vdisklab.errors import PlanError
from vdisklab.path.managers import Manager

STORAGES = "storage.cfg"
"""The name of Proxmox's file of storages."""

_LONGEST = 4096  # PATH_MAX
_QEMU = re.compile(r"(?:qemu-system-(?P<arch>\w+)|qemu-kvm|kvm)")
_DAEMON = re.compile(
    r"^(?:# run this first: )?[^\s\0]*(?:(?P<storage>qemu-storage-daemon)|virtiofsd)"
    r"(?P<arguments>[ \t\0].*)",
    re.MULTILINE,
)
_DOMAIN = re.compile(r"\s*(<\?[^>]*>\s*)?(<!--.*?-->\s*)?<domain[\s>]", re.DOTALL)
_END = "</domain>"
_ARCHITECTURES = {"i386": "i686", "arm": "armv7l"}


@dataclass(frozen=True, slots=True)
class GuestText:
    """A configuration of one or more guests, and where it comes from.

    A text that is not `required` may be anything, as a file of a directory is.
    """

    text: str
    origin: str
    required: bool = True

    @property
    def name(self) -> str:
        """The name of its file without directory and extension."""
        return PurePath(self.origin).stem


def read_guests(
    texts: Sequence[GuestText], notes: list[str] | None = None
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of all guests in these texts: libvirt's XML, Proxmox's files, YAML, commands.

    Claims, storages and pools may stand in other texts than the guests. Raises PlanError for a text
    that is none of these; if it is not required, `notes` gets the message instead.
    """
    served = dict(_served(texts))
    storages: dict[str, Storage] = {}
    for text in filter(_is_storages, texts):
        storages |= read_storages(text.text)
    disks: list[ConfiguredDisk] = []
    documents: list[tuple[GuestText, tuple[Tree, ...]]] = []
    for text in texts:
        try:
            if _is_xml(text.text):
                for xml in _domains(text.text):
                    disks += read_domain(xml, text.origin, served)
            elif (words := _command(text.text)) is not None:
                disks += read_command(words, text.name, served)
            elif is_proxmox(text.text) and not re.search(r"^apiVersion:", text.text, re.MULTILINE):
                disks += read_proxmox(text.text, text.name, storages)
            elif not (_is_storages(text) or _DAEMON.match(text.text)):
                documents.append((text, _documents(text)))
        except PlanError as error:
            if text.required or notes is None:
                raise
            notes.append(f"{error}: skipped.")
    return tuple(map(_readable, (*disks, *_disks_of_documents(documents))))


def _served(texts: Sequence[GuestText]) -> Iterator[tuple[str, DiskArguments]]:
    """What the daemons in the texts serve; an exported command names its daemon in a comment."""
    for text in texts:
        for match in _DAEMON.finditer(text.text):
            line = match["arguments"]
            try:
                words = line.split("\0") if "\0" in line else shlex.split(line)
            except ValueError:  # a quotation without its end
                continue
            yield from (served_disks if match["storage"] else shared_directories)(words)


def _readable(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk with its texts cut to what a table can hold: a hostile file has megabytes."""
    return replace(
        disk,
        domain=_cut(disk.domain),
        target=_cut(disk.target),
        source=disk.source and _cut(disk.source),
        problem=disk.problem and _cut(disk.problem),
        limits=tuple(map(_cut, disk.limits)),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:100]}…"


def _is_storages(text: GuestText) -> bool:
    return PurePath(text.origin).name == STORAGES


def _is_xml(text: str) -> bool:
    return text[:4096].lstrip("\ufeff \t\r\n").startswith("<")


def _domains(text: str) -> Sequence[str]:
    """The XML of each domain; `virsh dumpxml` of several guests prints one after another."""
    *domains, rest = text.split(_END)
    if len(domains) < 2 or not _DOMAIN.match(text):
        return (text,)
    return [xml.lstrip() + _END for xml in domains[:-1]] + [domains[-1].lstrip() + _END + rest]


def _documents(text: GuestText) -> tuple[Tree, ...]:
    documents = read_documents(text.text, text.origin)
    if not any(is_kubernetes(document) or is_incus(document) for document in documents):
        raise PlanError(
            f"{text.origin} holds no guest that vdisklab knows",
            hint="it reads `virsh dumpxml`, /etc/pve/qemu-server/VMID.conf, `kubectl get vm,pvc -o "
            "yaml`, `incus list --format yaml`, and command lines of QEMU",
        )
    return documents


def _disks_of_documents(
    read: Sequence[tuple[GuestText, tuple[Tree, ...]]],
) -> Iterator[ConfiguredDisk]:
    everything = tuple(document for _, documents in read for document in documents)
    yield from read_kubevirt(everything)
    pools = tuple(document for document in everything if "driver" in document)
    for text, documents in read:
        instances = tuple(
            document
            for document in documents
            if "driver" not in document and not is_kubernetes(document)
        )
        yield from read_incus((*pools, *instances), text.name)


def _command(text: str) -> Sequence[str] | None:
    """The words of a QEMU command line, also of /proc/PID/cmdline; None for any other text."""
    if not re.search(r"qemu-system-|qemu-kvm|\bkvm\b", text[:4096]):
        return None
    if "\0" in text:
        words = text.split("\0")
    else:
        try:
            words = shlex.split(text, comments=True)
        except ValueError:  # a quotation without its end
            return None
    start = next((at for at, word in enumerate(words[:8]) if _qemu(word)), None)
    return None if start is None else words[start:]


def _qemu(word: str) -> re.Match[str] | None:
    return _QEMU.fullmatch(PurePath(word).name)


def read_command(
    words: Sequence[str], name: str, served: Served | None = None
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a QEMU command line; its guest has the name of `-name`, else `name`."""
    program = _qemu(words[0])
    arch = None if program is None else program["arch"]
    values = dict(pairwise(words))
    named = re.sub(r"^guest=", "", values.get("-name", "").split(",")[0]) or name
    return tuple(
        ConfiguredDisk(
            domain=named,
            target=disk.device,
            source=disk.filename,
            path=disk.path,
            problem=disk.problem,
            read_only=disk.read_only,
            manager=Manager.QEMU,
            guest=named,
            architecture=_ARCHITECTURES.get(arch or "", arch),
            probed=disk.probed,
            limits=disk.limits,
        )
        for disk in disks_of_arguments(words, served)
    )
