"""Reads KubeVirt's machines, their pools and replica sets, with their claims.

The opposite of `export.kubevirt`. Defaults are those of KubeVirt 1.9 (SetDriverCacheMode and
SetOptimalIOMode of virt-launcher's converter; pkg/defaults/amd64.go): bus sata, cache none, io
native on block devices, discard=unmap. Whether O_DIRECT works, on which `cache` depends, only the
cluster knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.qemu_arguments import SCSI_PASSED, attachment_of, one_of, parsed_options
from vdisklab.audit.yaml_documents import Tree, branches, tree, word
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.managers import Manager
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import (
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
)

_POOL = "VirtualMachinePool"
_MACHINES = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", _POOL)
_NO_DISKS = (
    "cloudInitNoCloud", "cloudInitConfigDrive", "configMap", "secret", "serviceAccount",
    "downwardAPI", "downwardMetrics", "sysprep", "memoryDump",
)  # fmt: skip
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


def is_kubernetes(document: Tree) -> bool:
    """True for an object of Kubernetes."""
    return "apiVersion" in document and "kind" in document


def read_kubevirt(documents: tuple[Tree, ...]) -> Iterator[ConfiguredDisk]:
    """The hard disks of all machines; the documents may include their claims."""
    modes = dict(_volume_modes(documents))
    for document in documents:
        if document.get("kind") in _MACHINES:
            yield from _disks(document, modes)


def _volume_modes(documents: tuple[Tree, ...]) -> Iterator[tuple[tuple[str, str], str]]:
    """The volumeMode by namespace and name of a claim; without one Kubernetes uses Filesystem."""
    for document in documents:
        namespace = word(document, "metadata", "namespace") or ""
        spec = _spec(document)
        match document.get("kind"):
            case "PersistentVolumeClaim":
                yield _named(document, namespace), word(spec, "volumeMode") or "Filesystem"
            case "DataVolume":
                yield _named(document, namespace), _mode_of_data_volume(spec)
            case "VirtualMachine" | "VirtualMachinePool":
                for template in branches(spec, "dataVolumeTemplates"):
                    mode = _mode_of_data_volume(tree(template, "spec"))
                    yield _named(template, namespace), mode
            case _:
                pass


def _spec(document: Tree) -> Tree:
    """The machine's specification; for a pool that of the machines it makes."""
    of_pool = ("virtualMachineTemplate", "spec") if document.get("kind") == _POOL else ()
    return tree(document, "spec", *of_pool)


def _named(document: Tree, namespace: str) -> tuple[str, str]:
    return namespace, word(document, "metadata", "name") or ""


def _mode_of_data_volume(spec: Tree) -> str:
    """With `storage` CDI takes the mode from the storage class's profile: not known here."""
    named = word(spec, "pvc", "volumeMode") or word(spec, "storage", "volumeMode")
    return named or ("Filesystem" if "pvc" in spec else "")


def _disks(document: Tree, modes: Mapping[tuple[str, str], str]) -> Iterator[ConfiguredDisk]:
    spec = _spec(document)
    inner = tree(spec, "template", "spec") or spec
    domain = tree(inner, "domain")
    volumes = {word(volume, "name"): volume for volume in branches(inner, "volumes")}
    name = word(document, "metadata", "name") or "unnamed"
    namespace = word(document, "metadata", "namespace") or ""
    architecture = word(inner, "architecture")
    for number, shared in enumerate(branches(domain, "devices", "filesystems")):
        yield ConfiguredDisk(
            domain=name,
            target=word(shared, "name") or str(number),
            source=_claim(volumes.get(word(shared, "name"), {})),
            path=DiskPath(attachment=Attachment(Bus.VIRTIOFS)),
            manager=Manager.KUBEVIRT,
            guest=f"{namespace}/{name}" if namespace else name,
            text=json.dumps({"at": number, **shared}, default=str),
            architecture=_ARCHITECTURES.get(architecture or "", architecture),
        )
    for number, disk in enumerate(branches(domain, "devices", "disks")):
        volume = volumes.get(word(disk, "name"), {})
        if "cdrom" in disk or "floppy" in disk or any(kind in volume for kind in _NO_DISKS):
            continue
        path, problem, mode = None, None, ""
        try:
            mode = _mode(volume, namespace, modes)
            path = _path(domain, disk, on_device=mode == "Block")
        except ValueError as error:
            problem = str(error)
        host_file = word(volume, "hostDisk", "path")
        yield ConfiguredDisk(
            domain=name,
            target=word(disk, "name") or str(number),
            source=host_file or _claim(volume),
            path=path,
            problem=problem,
            read_only=tree(disk, "disk").get("readonly") is True,
            manager=Manager.KUBEVIRT,
            guest=f"{namespace}/{name}" if namespace else name,
            text=json.dumps({"at": number, "kind": document["kind"], **disk}, default=str),
            architecture=_ARCHITECTURES.get(architecture or "", architecture),
            on_file_volume=mode == "Filesystem" and host_file is None,
        )


def _claim(volume: Tree) -> str | None:
    return word(volume, "persistentVolumeClaim", "claimName") or word(volume, "dataVolume", "name")


def _mode(volume: Tree, namespace: str, modes: Mapping[tuple[str, str], str]) -> str:
    """The volumeMode of a disk's volume. Raises ValueError if it has none that is known."""
    if "hostDisk" in volume:
        return "Filesystem"
    if "containerDisk" in volume or "ephemeral" in volume or "emptyDisk" in volume:
        kind = next(key for key in ("containerDisk", "ephemeral", "emptyDisk") if key in volume)
        raise ValueError(f"its volume ({kind}) is deleted with the guest: use a claim")
    claim = _claim(volume)
    if claim is None:
        raise ValueError("it has no claim, DataVolume or hostDisk: give the whole machine")
    mode = modes.get((namespace, claim)) or modes.get(("", claim))
    if not mode:
        raise ValueError(
            f"the volumeMode of its claim {claim!r} is not known: give the claim's YAML too "
            "(`kubectl get vm,pvc,dv -o yaml`)"
        )
    return mode


def _path(domain: Tree, disk: Tree, *, on_device: bool) -> DiskPath:
    if "lun" in disk:
        raise ValueError(SCSI_PASSED)
    buses = tuple(bus for bus in Bus if not bus.shares_directory)
    bus = Bus(one_of(word(disk, "disk", "bus") or "sata", buses, "bus"))
    cache = CacheMode(one_of(word(disk, "cache") or "none", tuple(CacheMode), "cache mode"))
    usual = Aio.NATIVE if on_device and cache is CacheMode.NONE else Aio.THREADS
    io = word(disk, "io") or usual.value
    pool = word(domain, "ioThreadsPolicy") == "supplementalPool"
    threads = bus is Bus.VIRTIO and (
        disk.get("dedicatedIOThread") is True or ("ioThreadsPolicy" in domain and not pool)
    )
    options: dict[str, OptionValue] = {
        "aio": Aio.THREADS.value if io == "default" else Aio(one_of(io, tuple(Aio), "io")).value,
        "discard": "unmap",
        "iothread": threads,
    }
    cores = word(domain, "cpu", "cores") or ""
    many = tree(domain, "devices").get("blockMultiQueue") is True and bus is Bus.VIRTIO
    words = {
        "queues": cores if many else None,
        "block_size": word(disk, "blockSize", "custom", "logical"),
        "discard_granularity": word(disk, "blockSize", "custom", "discardGranularity"),
        "iothreads": word(domain, "ioThreads", "supplementalPoolThreadCount")
        if pool and bus is Bus.VIRTIO
        else None,
    }
    image = None if on_device else Image(ImageFormat.RAW)
    return DiskPath((), image, cache, attachment_of(bus, options | parsed_options(bus, words)))
