"""KubeVirt: a VirtualMachine (kubevirt.io/v1, staging/src/kubevirt.io/api/core/v1/schema.go).

Its cache modes are none, writethrough and writeback; without one it takes none where O_DIRECT
works, else writethrough. Its disks on volumes are raw. `blockMultiQueue` gives as many queues as
CPUs; `dedicatedIOThread` is of virtio disks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from vdisklab.errors import PlanError
from vdisklab.export.form import Exported, Gap, NotExpressibleError, Wish, check
from vdisklab.export.preparation import commented
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, WriteCache

_CACHES = (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.WRITETHROUGH)
_BUSES = (Bus.VIRTIO, Bus.SCSI, Bus.SATA, Bus.USB)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253

Node = Mapping[str, "Node"] | Sequence["Node"] | str | int | bool


def export(wish: Wish) -> Exported:
    """A virtual machine with the disk on a claim named like it."""
    check(wish.path)
    claim = _name(wish.source or wish.name, "a claim")
    path, attachment = wish.path, wish.path.attachment
    cache = CacheMode.WRITEBACK if path.cache is CacheMode.DEFAULT else path.cache
    if cache not in _CACHES:
        raise NotExpressibleError("KubeVirt", f"cache mode {cache}", f"it has {', '.join(_CACHES)}")
    if attachment.bus not in _BUSES:
        raise NotExpressibleError(
            "KubeVirt", f"bus {attachment.bus}", f"it has {', '.join(_BUSES)}"
        )
    if path.image is not None and path.image.format is not ImageFormat.RAW:
        raise NotExpressibleError(
            "KubeVirt", f"format {path.image.format} on a volume", "its disk.img is raw"
        )
    disk: dict[str, Node] = {
        "name": "disk0",
        "disk": {"bus": attachment.bus.value},
        "cache": cache.value,
    }
    if attachment.aio is not Aio.IO_URING:
        disk["io"] = attachment.aio.value
    if attachment.iothread and attachment.bus is Bus.VIRTIO:
        disk["dedicatedIOThread"] = True
    devices: dict[str, Node] = {"disks": [disk]}
    if attachment.queues is not None and attachment.bus is Bus.VIRTIO:
        devices["blockMultiQueue"] = True
    volume: Node = {
        "name": "disk0",
        "persistentVolumeClaim": {"claimName": claim},
    }
    machine: Node = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": _name(wish.name, "a virtual machine")},
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "spec": {
                    "domain": {
                        "cpu": {"cores": attachment.queues or 2},
                        "memory": {"guest": "1Gi"},
                        "devices": devices,
                    },
                    "volumes": [volume],
                }
            },
        },
    }
    gaps = _gaps(wish)
    lines = [f"vdisklab {path}"]
    if path.layers:
        lines.append(f"the claim's volume is on {path.stack}")
    return Exported(commented(iter(lines), gaps) + to_yaml(machine), gaps)


def _name(text: str, whose: str) -> str:
    """A name that Kubernetes takes (RFC 1123 subdomain). Raises PlanError for any other."""
    if len(text) > _LONGEST_NAME or not _NAME.fullmatch(text):
        raise PlanError(
            f"{text!r} cannot be the name of {whose} in Kubernetes",
            hint="write lower-case letters, digits, - and ., such as --source web-disk --name web",
        )
    return text


def _gaps(wish: Wish) -> tuple[Gap, ...]:
    attachment = wish.path.attachment
    gaps: list[Gap] = []
    if wish.path.cache is CacheMode.DEFAULT:
        gaps.append(Gap("cache mode default", "written as writeback, which QEMU takes it for"))
    if attachment.aio is Aio.IO_URING:
        gaps.append(Gap("aio=io_uring", "KubeVirt chooses native or threads"))
    if attachment.write_cache is not WriteCache.MODE:
        gaps.append(Gap(f"write_cache={attachment.write_cache}", "the disk follows its cache mode"))
    if attachment.option("discard") == "ignore":
        gaps.append(Gap("discard=ignore", "KubeVirt passes discards on"))
    if attachment.bus is Bus.SCSI and (attachment.iothread or attachment.queues is not None):
        gaps.append(Gap("iothread and queues of a SCSI disk", "they are of virtio disks"))
    if attachment.bus is Bus.VIRTIO and attachment.queues is not None:
        gaps.append(Gap("a number of queues", "it follows the number of CPUs, set alike here"))
    return tuple(gaps)


def to_yaml(node: Node) -> str:
    """Block-style YAML; every text is quoted as JSON quotes it, which is YAML, too."""
    return "".join(f"{line}\n" for line in _lines(node))


def _lines(node: Node) -> list[str]:
    if isinstance(node, Mapping):
        found: list[str] = []
        for key, value in node.items():
            if isinstance(value, str | bool | int):
                found.append(f"{key}: {json.dumps(value)}")
            else:
                found += [f"{key}:", *(f"  {line}" for line in _lines(value))]
        return found
    if isinstance(node, str | bool | int):
        return [json.dumps(node)]
    return [
        f"{'- ' if place == 0 else '  '}{line}"
        for item in node
        for place, line in enumerate(_lines(item))
    ]
