"""KubeVirt: machines, their pools and replica sets, with their claims (kubevirt.io/v1).

Defaults are those of KubeVirt 1.9 (SetDriverCacheMode and SetOptimalIOMode of virt-launcher's
converter; pkg/defaults/amd64.go): bus sata, cache none, io native on block devices, discard=unmap.
`cache` depends on whether O_DIRECT works, which only the cluster knows.

Its disks on volumes are raw. `blockMultiQueue` gives as many queues as CPUs. With a policy or one
`dedicatedIOThread` each virtio disk has an I/O thread, or all of the `supplementalPool` (since
1.5); one SCSI disk that asks for a thread gives the controller one, and a queue for each CPU
(pkg/virt-launcher/virtwrap/converter: iothreads, storage, compute/controllers.go).

A `discardGranularity` stands in a `blockSize` only
(staging/src/kubevirt.io/api/core/v1/schema.go).
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from vdisklab.path.architecture import AARCH64, Architecture, architecture_of
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import ERROR_POLICY, Aio, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.platforms import dialect, writing
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.guest_disks import KUBERNETES_NAME, disks_of, kubernetes_name
from vdisklab.platforms.guest_edge import read_each
from vdisklab.platforms.kubernetes_claims import (
    NFS_DRIVER,
    RBD_DRIVER,
    Documents,
    claims_named,
    kind_of_class,
    kind_of_driver,
    mount_without_flushes,
    soft_mount,
    usual_mode,
)
from vdisklab.platforms.network import placed
from vdisklab.platforms.reading import (
    SCSI_PASSED,
    GuestText,
    Tree,
    UnseenStorageError,
    attachment_of,
    branches,
    error_words,
    ignored_errors,
    one_of,
    parsed_options,
    refused_word,
    tree,
    way_to_see,
    word,
)
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.writing import Node
from vdisklab.units import whole_number
from vdisklab.value import replace

_READ = "`kubectl get vm,pvc,dv,pv -A -o yaml > guests.yaml`"
READ_ALL = f"run {_READ} and name guests.yaml instead of this file"
"""How to read machines with their claims and volumes."""
_NOT_BOUND = "its claim is not bound to a volume yet (some are bound when the guest starts)"
_PENDING = f"{_NOT_BOUND}; once it is, run {_READ} again and name guests.yaml"
"""The same for a claim that has no volume in what was read of the cluster."""
_PENDING_WITHOUT_CLASS = (
    f"{_NOT_BOUND}, but its class may tell: run "
    "`kubectl get vm,pvc,dv,pv,sc -A -o yaml > guests.yaml` and name guests.yaml"
)
"""The same if no StorageClass was read, either."""

_DISKS = disks_of(Platform.KUBEVIRT)
_POOL = "VirtualMachinePool"
_MACHINES = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", _POOL)
_NO_DISKS = (
    "cloudInitNoCloud", "cloudInitConfigDrive", "configMap", "secret", "serviceAccount",
    "downwardAPI", "downwardMetrics", "sysprep", "memoryDump",
)  # fmt: skip


_KNOWN = (
    "name", "disk", "lun", "bootOrder", "serial", "dedicatedIOThread", "cache", "io", "tag",
    "blockSize", "shareable", "errorPolicy", "changedBlockTracking",
)  # fmt: skip

_OF_NODE = ("kubernetes.io/hostname", "metadata.name")
"""Keys by which an affinity names a node; one of a volume may name any label."""
_TEMPORARY = ("containerDisk", "ephemeral", "emptyDisk")
_MOST_CPUS = 10_000
_ACCEPTED = {
    "bus": _DISKS.buses, "cache": _DISKS.cache_modes, "io": ("native", "threads"),
    "errorPolicy": ("stop", "ignore", "report", "enospace"),
}  # fmt: skip
"""What its webhook admits (ValidateDisks of virt-api: validateBusSupport, validateCacheMode,
validateIOMode, validateErrorPolicy); a machine with another word is not created."""


def is_kubernetes(document: Tree) -> bool:
    """True for an object of Kubernetes."""
    return "apiVersion" in document and "kind" in document


def _volume_modes(documents: Sequence[Tree]) -> Iterator[tuple[tuple[str, str], str]]:
    """The volumeMode by namespace and name of a claim; without one Kubernetes uses Filesystem."""
    for document in documents:
        namespace = word(document, "metadata", "namespace") or ""
        spec = _spec(document)
        match document.get("kind"):
            case "PersistentVolumeClaim":
                yield _named(document, namespace), word(spec, "volumeMode") or "Filesystem"
            case "DataVolume":
                # Without one it leaves the mode to its claim, which may stand before it.
                if stated := _mode_of_data_volume(spec):
                    yield _named(document, namespace), stated
            case "VirtualMachineInstance":
                for volume in branches(document, "status", "volumeStatus"):
                    claim = tree(volume, "persistentVolumeClaimInfo")
                    named = word(claim, "claimName") or word(volume, "name") or ""
                    if mode := word(claim, "volumeMode"):
                        yield (namespace, named), mode
            case "VirtualMachine" | "VirtualMachinePool":
                for template in branches(spec, "dataVolumeTemplates"):
                    if stated := _mode_of_data_volume(tree(template, "spec")):
                        yield _named(template, namespace), stated
            case _:
                pass


def _spec(document: Tree) -> Tree:
    """The machine's specification; a pool's is that of the machines it creates."""
    of_pool = ("virtualMachineTemplate", "spec") if document.get("kind") == _POOL else ()
    return tree(document, "spec", *of_pool)


def _named(document: Tree, namespace: str) -> tuple[str, str]:
    return namespace, word(document, "metadata", "name") or ""


def _mode_of_data_volume(spec: Tree) -> str:
    """The volume's mode; empty if CDI takes it from the storage class's profile (`storage`), which
    is not known here.
    """
    named = word(spec, "pvc", "volumeMode") or word(spec, "storage", "volumeMode")
    return named or ("Filesystem" if "pvc" in spec else "")


def _referred(
    spec: Tree, key: str, namespace: str, documents: Documents
) -> tuple[Tree, str | None]:
    """The specification of the machine's preference or instance type, and its name if it is not
    among the documents."""
    reference = tree(spec, key)
    if not reference:
        return {}, None
    of_all = f"VirtualMachineCluster{key.capitalize()}"
    kind, name = word(reference, "kind") or of_all, word(reference, "name") or "?"
    for document in documents.get(kind.lower(), ()):
        found, where = word(document, "metadata", "name"), word(document, "metadata", "namespace")
        if found == name and (kind == of_all or (where or namespace) == namespace):
            return tree(document, "spec"), None
    return {}, name


def _with_preferences(disk: Tree, preferred: Tree, missing: str | None) -> Tree:
    """The disk with what its machine prefers where it says nothing (applyDiskPreferences of
    pkg/instancetype/preference/apply). Raises ValueError if that is not known."""
    inner = tree(disk, "disk")
    if missing is not None and not ("bus" in inner and "cache" in disk):
        raise ValueError(
            f"its machine's preference {missing!r} sets what the disk leaves out, but is not "
            "here: give its YAML too (`kubectl get vmclusterpreference,vmpreference -A -o yaml`)"
        )
    names = {"cache": "preferredDiskCache", "io": "preferredDiskIO"}
    bus = {"bus": preferred["preferredDiskBus"]} if "preferredDiskBus" in preferred else {}
    target = {**bus, **inner}
    if word(target, "bus") == Bus.VIRTIO:
        names["dedicatedIOThread"] = "preferredDiskDedicatedIoThread"
    wished = {key: preferred[name] for key, name in names.items() if name in preferred}
    return {**wished, **disk, **({} if "lun" in disk else {"disk": target})}


_BY_SIDECAR = (
    "a hook sidecar (the annotation hooks.kubevirt.io/hookSidecars) rewrites the domain's XML "
    "before the guest starts: `virsh dumpxml` in its virt-launcher pod shows what it has"
)
"""KubeVirt's "Hook Sidecar Container" (docs/user_workloads/hook-sidecar.md of its user guide)."""


def _disks(
    document: Tree, modes: Mapping[tuple[str, str], str], documents: Documents
) -> Iterator[ConfiguredDisk]:
    """The disks of a machine; `documents` has all objects by their kind in small letters."""
    spec = _spec(document)
    inner = tree(spec, "template", "spec") or spec
    domain = tree(inner, "domain")
    where = word(document, "metadata", "namespace") or ""
    preference, missing = _referred(spec, "preference", where, documents)
    preferred = tree(preference, "devices")
    kind, missing_type = _referred(spec, "instancetype", where, documents)
    policy = {"ioThreadsPolicy": kind["ioThreadsPolicy"]} if "ioThreadsPolicy" in kind else {}
    domain = {**policy, **domain}
    if kind:
        domain["cpu"] = {"cores": tree(kind, "cpu").get("guest"), **tree(domain, "cpu")}
    beyond = [f"instancetype={missing_type}"] if missing_type else []
    volumes = {word(volume, "name"): volume for volume in branches(inner, "volumes")}
    guest = _guest(document, word(inner, "architecture")
                   or word(preference, "requirements", "architecture") or "")  # fmt: skip
    row = architecture_of(guest.architecture or "")
    yield from _shares(domain, volumes, guest, where, documents)
    disks = branches(domain, "devices", "disks")
    used = {word(disk, "name") for disk in (*disks, *branches(domain, "devices", "filesystems"))}
    # KubeVirt gives a volume that nothing uses a disk of its own (SetDefaultVolumeDisk).
    added = tuple({"name": name} for name in volumes if name not in used)
    alone = [word(disk, "name") or "?" for disk in disks if _without_volume(disk, volumes)]
    for number, disk in enumerate((*disks, *added)):
        volume = volumes.get(word(disk, "name"), {})
        if "cdrom" in disk or "floppy" in disk or any(kind in volume for kind in _NO_DISKS):
            continue
        chosen, path, assumed, problem, mode, unseen = disk, None, None, None, "", None
        try:
            mode = _mode(volume, where, modes, documents)
            chosen = _with_preferences(disk, preferred, missing)
            path = _path(domain, chosen, _usual_bus(row), on_device=mode == "Block")
        except ValueError as error:
            problem, unseen = str(error), way_to_see(error)
            with suppress(ValueError):
                chosen = _with_preferences(disk, preferred, missing)
                assumed = _path(domain, chosen, _usual_bus(row), on_device=False)
        host_file = word(volume, "hostDisk", "path")
        found = _volume_of(_claim(volume), where, documents)
        below, node = (None, "") if found is None else _place_on_node(found, mode)
        server = kind_of_class(_claim(volume), where, documents)
        if found is not None:
            server = _mounted_from(tree(found, "spec"))
        is_mounted = server in (LayerKind.NFS, LayerKind.CEPHFS)
        if path is not None and server is not None and (is_mounted or mode == "Block"):
            path = placed(path, server)
        if path is not None and found is None and host_file is None and server is None:
            # Which of the cluster's storage holds the claim.
            unseen = _way_to_volume(_claim(volume), where, documents)
        lost = (
            mount_without_flushes(found, _claim(volume), where, documents)
            if mode != "Block" and not is_mounted and host_file is None
            else None
        )
        yield replace(
            guest,
            target=word(disk, "name") or str(number),
            source=host_file or below or _claim(volume),
            path=path,
            assumed=assumed,
            problem=problem,
            unseen=unseen,
            read_only=tree(disk, "disk").get("readonly") is True,
            text=json.dumps(
                {
                    "at": number,
                    "kind": document["kind"] if number < len(disks) else "volume without a disk",
                    "threads_of_others": _has_threads(domain, disk),
                    "without_volume": alone,
                    **disk,
                },
                default=str,
            ),
            on_file_volume=mode == "Filesystem" and host_file is None and not is_mounted,
            node="" if host_file else node,
            limits=(
                *beyond,
                *(f"{key}={value}" for key, value in disk.items() if key not in _KNOWN),
                *(["matchVolume"] if "matchVolume" in tree(disk, "blockSize") else []),
            ),
            drops_flushes=word(disk, "cache") == CacheMode.UNSAFE,
            transient=bool(_temporary(volume)),
            ephemeral=_temporary(volume),
            shareable=disk.get("shareable") is True,
            lost_below=lost and lost[0],
            below_instead=lost[1] if lost else "",
            soft_mount=soft_mount(found, _claim(volume), where, documents) if is_mounted else None,
            refused=_without_volume(disk, volumes)
            or _refused(chosen, row, word(chosen, "disk", "bus") or _usual_bus(row)),
            ignored_errors=ignored_errors(*_error_policy(disk)),
        )


def _guest(document: Tree, named: str) -> ConfiguredDisk:
    """What a machine's disks have in common; `named` is its architecture, as it is written."""
    name = word(document, "metadata", "name") or "unnamed"
    where = word(document, "metadata", "namespace")
    row = architecture_of(named)
    of_template = tree(_spec(document), "template", "metadata", "annotations")
    annotations = of_template or tree(document, "metadata", "annotations")
    return ConfiguredDisk(
        name,
        "",
        None,
        None,
        platform=Platform.KUBEVIRT,
        guest=f"{where}/{name}" if where else name,
        architecture=(named or None) if row is None else row.name,
        may_differ=_BY_SIDECAR if "hooks.kubevirt.io/hookSidecars" in annotations else "",
    )


def _shares(
    domain: Tree, volumes: Mapping[str | None, Tree], guest: ConfiguredDisk, where: str,
    documents: Documents,
) -> Iterator[ConfiguredDisk]:  # fmt: skip
    """The directories that a guest of the namespace `where` gets by virtiofs: claims' volumes."""
    for number, shared in enumerate(branches(domain, "devices", "filesystems")):
        claim = _claim(volumes.get(word(shared, "name"), {}))
        found = _volume_of(claim, where, documents)
        place, node = (None, "") if found is None else _place_on_node(found, "")
        lost = mount_without_flushes(found, claim, where, documents)
        yield replace(
            guest,
            target=word(shared, "name") or str(number),
            source=place or claim,
            path=DiskPath(attachment=Attachment(Bus.VIRTIOFS)),
            text=json.dumps({"at": number, **shared}, default=str),
            lost_below=lost and lost[0],
            below_instead=lost[1] if lost else "",
            node=node,
        )


def _without_volume(disk: Tree, volumes: Mapping[str | None, Tree]) -> tuple[str, str] | None:
    """Why a machine does not start with a hard disk that no volume has the name of, and the way
    out; None for another disk.

    The webhook refuses the whole machine ("Validate disks match volumes correctly",
    pkg/storage/admitters).
    """
    name = word(disk, "name") or "?"
    if "cdrom" in disk or "floppy" in disk or name in volumes:
        return None
    reason = f"KubeVirt refuses the machine, as its disk {name!r} has no volume of this name"
    return reason, f"add a volume named {name} to spec.template.spec.volumes, or leave the disk out"


def _temporary(volume: Tree) -> str:
    """The kind of a volume that ends with its pod; empty for another one."""
    return next((kind for kind in _TEMPORARY if kind in volume), "")


def _has_threads(domain: Tree, disk: Tree) -> bool:
    """True if the machine's virtio disks have I/O threads whatever this disk asks for."""
    others = (each for each in branches(domain, "devices", "disks") if each is not disk)
    asked = any(each.get("dedicatedIOThread") is True for each in others)
    return asked or "ioThreadsPolicy" in domain


def _refused(disk: Tree, guest: Architecture | None, on: str) -> tuple[str, str] | None:
    """Why no guest starts with the disk, and the way out; `on` is its bus, also if it names none.

    The webhook, which puts in the defaults first, does not admit the machine (validateBusSupport:
    since 1.3 only a virtio disk has a dedicatedIOThread, before any but one on sata), or
    virt-launcher does not start it (Convert_v1_Disk_To_api_Disk; before 1.7 a shareable disk has
    cache none only). What an Arm machine has is said by `machine_buses`.
    """
    inner = tree(disk, "disk")
    bus = None if guest is AARCH64 else word(inner, "bus")
    written = {**{key: word(disk, key) for key in _ACCEPTED}, "bus": bus}
    if (refused := refused_word(Platform.KUBEVIRT.full_name, _ACCEPTED, written)) is not None:
        return refused
    if bus == Bus.SATA and inner.get("readonly") is True:
        return "KubeVirt refuses readonly on bus sata", "write bus virtio"
    if on != Bus.VIRTIO and "lun" not in disk and disk.get("dedicatedIOThread") is True:
        reason = f"KubeVirt refuses dedicatedIOThread on bus {on}"
        return reason, "leave dedicatedIOThread out, or write bus virtio"
    cache = word(disk, "cache") or CacheMode.NONE
    if disk.get("shareable") is not True or cache == CacheMode.NONE:
        return None
    reason = f"a shareable disk requires cache none, and its cache is {cache}"
    return f"KubeVirt does not start the guest: {reason}", "write cache: none"


def _error_policy(disk: Tree) -> tuple[str | None, str | None]:
    """QEMU's words for failed writes and reads (setErrorPolicy of virtwrap/converter); without any
    KubeVirt stops the guest, which is left to the platform's own facts."""
    policy = word(disk, "errorPolicy")
    return ("enospc", None) if policy == "enospace" else (policy, policy)


def _claim(volume: Tree) -> str | None:
    return word(volume, "persistentVolumeClaim", "claimName") or word(volume, "dataVolume", "name")


def _volume_of(claim: str | None, namespace: str, documents: Documents) -> Tree | None:
    """The volume to which a claim is bound; None if it is not among the documents."""
    if claim is None:
        return None
    claims = claims_named(claim, namespace, documents)
    bound = {word(each, "spec", "volumeName") for each in claims}
    for volume in documents.get("persistentvolume", ()):
        owner = tree(volume, "spec", "claimRef")
        owns = (word(owner, "namespace"), word(owner, "name")) == (namespace, claim)
        if owns or word(volume, "metadata", "name") in bound - {None}:
            return volume
    return None


def _mounted_from(volume: Tree) -> LayerKind | None:
    """The kind of server on which a volume is a directory; None for other volumes."""
    kind = kind_of_driver(word(volume, "csi", "driver"))
    if _nfs_of(volume) is not None or kind is LayerKind.NFS:
        return LayerKind.NFS
    return LayerKind.CEPHFS if kind is LayerKind.CEPHFS or "cephfs" in volume else None


def _way_to_volume(claim: str | None, namespace: str, documents: Documents) -> str:
    """What makes the storage of a claim known whose volume is not among the documents."""
    claims = claims_named(claim, namespace, documents)
    if any(word(each, "spec", "volumeName") for each in claims):
        return READ_ALL  # it is bound, to a volume that was not given
    # A manifest has no status: nothing of the cluster was read then, unless volumes were.
    is_pending = any(word(each, "status", "phase") == "Pending" for each in claims)
    if not (is_pending or documents.get("persistentvolume")):
        return READ_ALL
    return _PENDING if documents.get("storageclass") else _PENDING_WITHOUT_CLASS


def _place_on_node(volume: Tree, mode: str) -> tuple[str | None, str]:
    """The device or image file of a volume, None unless it is local, a hostPath, on NFS or an image
    of Ceph; and the node's name, if the volume has one. The image is disk.img (KubeVirt's
    docs/filesystem-pv-disks.md)."""
    spec = tree(volume, "spec")
    place = word(spec, "local", "path") or word(spec, "hostPath", "path") or _nfs_of(spec)
    if place is None:
        return (_rbd_of(spec) if mode == "Block" else None), ""
    image = f"{place.rstrip('/')}/disk.img" if mode == "Filesystem" else place
    return image, _node_of(spec)


def _rbd_of(volume: Tree) -> str | None:
    """The device that ceph-csi's node has the kernel map (the attributes of its RBD driver); Rook
    puts its namespace before the driver's name."""
    given = tree(volume, "csi", "volumeAttributes")
    parts = [word(given, key) for key in ("pool", "radosNamespace", "imageName")]
    is_rbd = (word(volume, "csi", "driver") or "").endswith(RBD_DRIVER)
    if not is_rbd or parts[0] is None or parts[2] is None:
        return None
    return "/".join(["/dev/rbd", *filter(None, parts)])


def _nfs_of(volume: Tree) -> str | None:
    """The server and directory of a volume on NFS: Kubernetes' own, or of csi-driver-nfs."""
    given = tree(volume, "csi", "volumeAttributes")
    server, share = word(volume, "nfs", "server"), word(volume, "nfs", "path")
    if word(volume, "csi", "driver") == NFS_DRIVER:
        server, share = word(given, "server"), word(given, "share")
    if server is None or share is None:
        return None
    below = word(given, "subdir")
    return f"{server}:{share.rstrip('/')}" + (f"/{below}" if below else "")


def _node_of(volume: Tree) -> str:
    """The one node that a volume's affinity names (Kubernetes' "Local" volumes); empty for none or
    several."""
    names = [
        str(name)
        for term in branches(volume, "nodeAffinity", "required", "nodeSelectorTerms")
        for rule in (*branches(term, "matchExpressions"), *branches(term, "matchFields"))
        if rule.get("key") in _OF_NODE and rule.get("operator") == "In"
        for name in rule.get("values") or ()
    ]
    return names[0] if len(set(names)) == 1 and re.fullmatch(KUBERNETES_NAME, names[0]) else ""


def _mode(
    volume: Tree, namespace: str, modes: Mapping[tuple[str, str], str], documents: Documents
) -> str:
    """The volumeMode of a disk's volume. Raises ValueError if it has none that is known."""
    if not volume:
        raise ValueError("the machine has no volume of its name")
    if "hostDisk" in volume:
        return "Filesystem"
    if kind := _temporary(volume):
        raise ValueError(f"its volume ({kind}) is ephemeral, and ends with its pod")
    claim = _claim(volume)
    if claim is None:
        kinds = ", ".join(sorted(volume.keys() - {"name"})) or "nothing"
        raise ValueError(f"its volume is of a kind that vdisklab does not know ({kinds[:60]})")
    mode = modes.get((namespace, claim)) or modes.get(("", claim))
    mode = mode or usual_mode(claim, namespace, documents)
    if not mode:
        raise UnseenStorageError(f"the volumeMode of its claim {claim!r} is not known", READ_ALL)
    return mode


def _usual_bus(guest: Architecture | None) -> str:
    """The bus of a disk without one: sata, and virtio on Arm (setDefaultAmd64DisksBus,
    setDefaultArm64DisksBus in pkg/defaults).

    A guest without an architecture gets the cluster's, which is amd64 as a rule.
    """
    return "virtio" if guest is AARCH64 else "sata"


def _path(domain: Tree, disk: Tree, usual_bus: str, *, on_device: bool) -> DiskPath:
    if "lun" in disk:
        raise ValueError(SCSI_PASSED)
    buses = tuple(bus for bus in Bus if not bus.shares_directory)
    bus = Bus(one_of(word(disk, "disk", "bus") or usual_bus, buses, "bus"))
    cache = CacheMode(one_of(word(disk, "cache") or "none", tuple(CacheMode), "cache mode"))
    usual = Aio.NATIVE if on_device and cache is CacheMode.NONE else Aio.THREADS
    io = word(disk, "io") or usual.value
    pool = word(domain, "ioThreadsPolicy") == "supplementalPool"
    asking = {
        word(each, "disk", "bus") or usual_bus
        for each in branches(domain, "devices", "disks")
        if each.get("dedicatedIOThread") is True
    } | ({bus.value} if disk.get("dedicatedIOThread") is True else set())
    threads = not pool and (
        (bus is Bus.VIRTIO and (bool(asking) or "ioThreadsPolicy" in domain))
        or (bus is Bus.SCSI and bus in asking)
    )
    options: dict[str, OptionValue] = {
        "aio": Aio.THREADS.value if io == "default" else Aio(one_of(io, tuple(Aio), "io")).value,
        "discard": "unmap",
        "iothread": threads,
    }
    many = tree(domain, "devices").get("blockMultiQueue") is True and bus is Bus.VIRTIO
    many |= bus is Bus.SCSI and threads
    settings = {
        "queues": _cpus(domain) if many else None,
        "block_size": word(disk, "blockSize", "custom", "logical"),
        "discard_granularity": word(disk, "blockSize", "custom", "discardGranularity"),
        **error_words(*_error_policy(disk)),
        "iothreads": word(domain, "ioThreads", "supplementalPoolThreadCount")
        if pool and bus is Bus.VIRTIO
        else None,
    }
    image = None if on_device else Image(ImageFormat.RAW)
    return DiskPath((), image, cache, attachment_of(bus, options | parsed_options(bus, settings)))


def _cpus(domain: Tree) -> str:
    """The guest's CPUs (GetCPUTopology of virtwrap/converter/vcpu): by its topology, else by its
    resources; empty if neither is here."""
    cpu, resources = tree(domain, "cpu"), tree(domain, "resources")
    numbers = [word(cpu, key) or "" for key in ("cores", "sockets", "threads")]
    if not any(numbers):
        text = word(resources, "requests", "cpu") or word(resources, "limits", "cpu") or ""
        return text if (whole_number(text) or _MOST_CPUS) < _MOST_CPUS else ""
    counts = [whole_number(text or "1") for text in numbers]
    if not all(count is not None and count < _MOST_CPUS for count in counts):
        return next(text for text in numbers if text)
    return str(math.prod(filter(None, counts)))


def export(request: ExportRequest) -> dialect.Configuration:
    """A virtual machine whose disk is a volume on the claim that `source` names."""
    path = request.path
    claim = kubernetes_name(request.source or request.name, "a claim")
    gaps = tuple(_gaps(path))
    below = [f"the claim's volume is on {path.stack}"] if path.layers else []
    if path.target is not None:
        mode = "Filesystem" if path.image is not None else "Block"
        below.append(f"its storage class is one for {path.layers[0].kind}, its volumeMode {mode}")
    if path.image is not None:
        below.append(f"the claim's image is made by a DataVolume with {_allocation(path.image)}")
    machine = _machine(
        path, kubernetes_name(request.name, "a virtual machine"), claim, request.guest
    )
    return dialect.Configuration(
        writing.commented([f"vdisklab {path}", *below], gaps) + writing.to_yaml(machine), gaps
    )


def _allocation(image: Image) -> str:
    """CDI knows only whether to allocate, and chooses how (its doc/preallocation.md)."""
    if image.option("preallocation") == "off":
        return "preallocation: false"
    return "preallocation: true: falloc, or full where the file system lacks it"


def _machine(path: DiskPath, name: str, claim: str, guest: Architecture) -> Node:
    attachment = path.attachment
    disk: dict[str, Node] = {
        "name": "disk0",
        "disk": {"bus": attachment.bus.value},
        "cache": path.cache.spelled_out.value,
    }
    if attachment.aio is not Aio.IO_URING:
        disk["io"] = attachment.aio.value
    if attachment.error_policy:
        disk["errorPolicy"] = _policy_word(attachment)
    if attachment.iothread and attachment.bus is Bus.VIRTIO:
        disk["dedicatedIOThread"] = True
    if attachment.block_size is not None:
        granularity = attachment.discard_granularity
        disk["blockSize"] = {
            "custom": {
                "logical": attachment.block_size,
                "physical": attachment.block_size,
                **({} if granularity is None else {"discardGranularity": granularity}),
            }
        }
    devices: dict[str, Node] = {"disks": [disk]}
    if attachment.queues is not None and attachment.bus is Bus.VIRTIO:
        devices["blockMultiQueue"] = True
    domain: dict[str, Node] = {
        "cpu": {"cores": attachment.queues or max(2, attachment.iothreads or 0)},
        "memory": {"guest": "1Gi"},
        "devices": devices,
    }
    if attachment.iothreads is not None and attachment.bus is Bus.VIRTIO:
        domain["ioThreadsPolicy"] = "supplementalPool"
        domain["ioThreads"] = {"supplementalPoolThreadCount": attachment.iothreads}
    volume: Node = {"name": "disk0", "persistentVolumeClaim": {"claimName": claim}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {**_architecture(guest), "domain": domain, "volumes": [volume]}},
        },
    }


def _architecture(guest: Architecture) -> dict[str, Node]:
    """KubeVirt's word; left out for the architecture that clusters have without one."""
    return {} if guest.has_bios else {"architecture": guest.aliases[0]}


def _policy_word(attachment: Attachment) -> str:
    """Its one word for failed writes and reads."""
    writes, reads = attachment.option("werror"), attachment.option("rerror")
    if (writes, reads) == ("enospc", "report"):
        return "enospace"
    return str(writes)


def _gaps(path: DiskPath) -> Iterator[dialect.Gap]:
    attachment = path.attachment
    yield from writing.cache_gaps(path)
    written = ["iothreads"] if attachment.bus is Bus.VIRTIO else []
    if attachment.block_size is not None:
        written += ("block_size", "discard_granularity")
    yield from writing.other_gaps(path, (*written, *ERROR_POLICY))
    if attachment.aio is Aio.IO_URING:
        yield dialect.Gap("aio=io_uring", "KubeVirt chooses native or threads")
    if attachment.option("discard") == "ignore":
        yield dialect.Gap("discard=ignore", "KubeVirt passes discards on")
    if attachment.bus is Bus.SCSI and (attachment.iothread or attachment.queues is not None):
        yield dialect.Gap("iothread and queues of a SCSI disk", "only virtio disks have them")
    if attachment.bus is Bus.VIRTIO and attachment.queues is not None:
        yield dialect.Gap(
            "a number of queues",
            "it follows the number of CPUs, which is set to the same number here",
        )


def _export_share(request: ExportRequest) -> dialect.Configuration:
    claim, name = kubernetes_name(request.source or request.name, "a claim"), request.name
    gate = "KubeVirt needs the feature gate EnableVirtioFsStorageVolumes"
    gaps = (
        ()
        if writing.cache_of_share(request) == "auto"
        else (
            dialect.Gap(
                f"cache={writing.cache_of_share(request)}",
                "KubeVirt starts virtiofsd with cache=auto",
            ),
        )
    )
    domain: Node = {
        "cpu": {"cores": 2},
        "memory": {"guest": "1Gi"},
        "devices": {"filesystems": [{"name": writing.TAG, "virtiofs": {}}]},
    }
    volume: Node = {"name": writing.TAG, "persistentVolumeClaim": {"claimName": claim}}
    machine: Node = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": kubernetes_name(name, "a virtual machine")},
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "spec": {**_architecture(request.guest), "domain": domain, "volumes": [volume]}
            },
        },
    }
    comments = [line for line in writing.share_comments(request) if not line.startswith("/srv")]
    return dialect.Configuration(
        writing.commented((*comments, gate), gaps) + writing.to_yaml(machine), gaps, (gate,)
    )


def _change(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> dialect.Change:
    if wanted.attachment.aio is Aio.IO_URING:
        raise dialect.lacks(disk.platform, "aio=io_uring")
    before = json.loads(disk.text)
    if before["kind"] != "VirtualMachine":
        raise dialect.NotChangeableError(
            f"vdisklab prints lines for a VirtualMachine, and this is a {before['kind']}",
            hint="name a VirtualMachine, `kubectl get vm,pvc,dv,pv -o yaml`",
        )
    for name in before.get("without_volume", ()):
        raise dialect.NotChangeableError(
            f"KubeVirt takes no patch of a machine whose disk {name!r} has no volume",
            hint=f"first add a volume named {name} to spec.template.spec.volumes",
        )
    moved = wanted.attachment.bus is not now.attachment.bus
    inner = before.get("disk")
    if moved and not isinstance(inner, dict):
        raise dialect.NotChangeableError(
            "the disk has no `disk:` that a bus could be written into", hint="write `disk: {}`"
        )
    fields = _fields(disk.platform, now, wanted, before)
    then = {**before, **fields, "disk": {**tree(inner), "bus": wanted.attachment.bus.value}}
    if wanted.attachment.bus is not Bus.VIRTIO and before.get("dedicatedIOThread") is True:
        # The webhook refuses the machine as long as the field is there.
        fields["dedicatedIOThread"] = None
        del then["dedicatedIOThread"]
    if not fields:
        raise dialect.unchanged()
    refused = _refused(then, architecture_of(disk.architecture or ""), wanted.attachment.bus.value)
    if refused is not None:
        raise dialect.still_refused(refused)
    before |= {"disk/bus": tree(inner).get("bus")} if moved and "bus" in tree(inner) else {}
    place = f"/spec/template/spec/domain/devices/disks/{before['at']}"
    # A machine whose disks were put into another order since would get the change on another one:
    # a patch ends at a test that does not hold (RFC 6902, 4.6).
    is_this = {"op": "test", "path": f"{place}/name", "value": before.get("name")}
    forward = [
        is_this,
        *(
            {"op": "remove", "path": f"{place}/{key}"}
            if value is None
            else {"op": "add", "path": f"{place}/{key}", "value": value}
            for key, value in fields.items()
        ),
    ]
    back = [
        is_this,
        *(
            {"op": "add", "path": f"{place}/{key}", "value": before[key]}
            if fields[key] is None
            else {"op": "replace", "path": f"{place}/{key}", "value": before[key]}
            if key in before
            else {"op": "remove", "path": f"{place}/{key}"}
            for key in fields
        ),
    ]
    return dialect.Change(
        _patch(disk.guest, forward),
        _patch(disk.guest, back),
        forward=tuple(forward),
        back=tuple(back),
    )


def _together(guest: str, changes: Sequence[dialect.Change]) -> dialect.Change:
    """One patch for all disks of a machine: the webhook refuses each alone while another disk has
    a value that it refuses (ValidateDisks judges the whole machine)."""
    forward = tuple(each for change in changes for each in change.forward)
    back = tuple(each for change in reversed(changes) for each in change.back)
    return dialect.Change(_patch(guest, forward), _patch(guest, back), forward=forward, back=back)


def _fields(platform: Platform, now: DiskPath, wanted: DiskPath, before: Tree) -> dict[str, object]:
    """What a machine's disk must say for a path, without what it says `before`. Raises
    NotChangeableError for a thread that it cannot have, or cannot be without."""
    fields: dict[str, object] = {}
    attachment, is_virtio = wanted.attachment, wanted.attachment.bus is Bus.VIRTIO
    if wanted.cache.spelled_out is not now.cache.spelled_out:
        fields["cache"] = wanted.cache.spelled_out.value
    if attachment.aio is not now.attachment.aio or "io" in before:
        fields["io"] = attachment.aio.value
    if attachment.iothread and not is_virtio:
        raise dialect.lacks(platform, f"I/O thread for a disk on {attachment.bus}")
    if attachment.iothread != now.attachment.iothread and is_virtio:
        if before.get("threads_of_others") is True:
            raise dialect.NotChangeableError(
                "its machine gives every virtio disk an I/O thread (ioThreadsPolicy, or another "
                "disk's dedicatedIOThread)",
                hint="choose a path with iothread=on",
            )
        fields["dedicatedIOThread"] = attachment.iothread
    if attachment.error_policy != now.attachment.error_policy and attachment.option("werror"):
        fields["errorPolicy"] = _policy_word(attachment)
    if attachment.bus is not now.attachment.bus:
        fields["disk/bus"] = attachment.bus.value
    return {key: value for key, value in fields.items() if before.get(key) != value}


def _patch(guest: str, operations: Sequence[Mapping[str, object]]) -> str:
    namespace, _, name = guest.rpartition("/")
    where = ["-n", namespace] if namespace else []
    patch = json.dumps(operations, separators=(",", ":"))
    return shlex.join(["kubectl", "patch", "vm", name, *where, "--type=json", "-p", patch])


def _reader(_texts: Sequence[GuestText], documents: Sequence[Tree]) -> dialect.Reader:
    modes = dict(_volume_modes(documents))
    by_kind: dict[str, list[Tree]] = {}
    for document in documents:
        by_kind.setdefault(str(document.get("kind")).lower(), []).append(document)

    def read(text: GuestText) -> Iterator[ConfiguredDisk]:
        machines = (each for each in text.documents if word(each, "kind") in _MACHINES)
        yield from read_each(
            Platform.KUBEVIRT,
            (
                (
                    word(machine, "metadata", "name") or "unnamed",
                    partial(_disks, machine, modes, by_kind),
                )
                for machine in machines
            ),
        )

    return read


DIALECT = dialect.Dialect(
    cache_modes=_DISKS.cache_modes,
    change=_change,
    buses=_DISKS.buses,
    other_buses=(Bus.VIRTIO,),
    together=_together,
    forms=(dialect.Form("kubevirt", export, _export_share, title="KubeVirt"),),
    reader=_reader,
    recognises_document=is_kubernetes,
    left_out={
        "EFI variables": r"\befi\b\"?:",
        dialect.HOST_DEVICES: r"\bdeviceName\"?:\s*\"?(?P<device>[\w./-]+)",
        "TPM state": r"\btpm\b\"?:",
        "cloud-init": r"\bcloudInit\w+\"?:",
        "CD-ROMs": r"\bcdrom\b\"?:",
    },
)
