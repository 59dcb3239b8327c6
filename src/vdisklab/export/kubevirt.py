"""KubeVirt: a VirtualMachine (kubevirt.io/v1, staging/src/kubevirt.io/api/core/v1/schema.go).

Its cache modes are none, writethrough and writeback; by default it uses none if O_DIRECT works,
else writethrough. Its disks on volumes are raw. `blockMultiQueue` gives as many queues as CPUs;
`dedicatedIOThread` and, since 1.5, the `supplementalPool` of threads work for virtio disks. A
`discardGranularity` stands in a `blockSize` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vdisklab.errors import PlanError
from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    Node,
    cache_gaps,
    commented,
    other_gaps,
    require_configurable,
    require_supported,
    to_yaml,
)
from vdisklab.path.disk_path import DiskPath, Image
from vdisklab.path.managers import Manager
from vdisklab.path.segments import Aio, Bus, ImageFormat

_BUSES = (Bus.VIRTIO, Bus.SCSI, Bus.SATA, Bus.USB)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


def export(request: ExportRequest) -> Configuration:
    """A virtual machine whose disk is a volume on the claim that `source` names."""
    path = request.path
    require_configurable(path)
    claim = name_of(request.source or request.name, "a claim")
    require_supported(Manager.KUBEVIRT, path, buses=_BUSES, formats=(ImageFormat.RAW,))
    gaps = tuple(_gaps(path))
    below = [f"the claim's volume is on {path.stack}"] if path.layers else []
    if path.image is not None:
        below.append(f"the claim's image is made by a DataVolume with {_allocation(path.image)}")
    machine = _machine(path, name_of(request.name, "a virtual machine"), claim)
    return Configuration(commented([f"vdisklab {path}", *below], gaps) + to_yaml(machine), gaps)


def _allocation(image: Image) -> str:
    """CDI knows only whether to allocate, and chooses how (its doc/preallocation.md)."""
    if image.option("preallocation") == "off":
        return "preallocation: false"
    return "preallocation: true: falloc, or full where the file system lacks it"


def _machine(path: DiskPath, name: str, claim: str) -> Node:
    attachment = path.attachment
    disk: dict[str, Node] = {
        "name": "disk0",
        "disk": {"bus": attachment.bus.value},
        "cache": path.cache.spelled_out.value,
    }
    if attachment.aio is not Aio.IO_URING:
        disk["io"] = attachment.aio.value
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
            "template": {"spec": {"domain": domain, "volumes": [volume]}},
        },
    }


def name_of(text: str, owner: str) -> str:
    """A name that Kubernetes accepts (RFC 1123 subdomain). Raises PlanError for any other."""
    if len(text) > _LONGEST_NAME or not _NAME.fullmatch(text):
        raise PlanError(
            f"{text!r} cannot be the name of {owner} in Kubernetes",
            hint="write lower-case letters, digits, - and ., such as --source web-disk --name web",
        )
    return text


def _gaps(path: DiskPath) -> Iterator[Gap]:
    attachment = path.attachment
    yield from cache_gaps(path)
    written = ["iothreads"] if attachment.bus is Bus.VIRTIO else []
    if attachment.block_size is not None:
        written += ("block_size", "discard_granularity")
    yield from other_gaps(path, written)
    if attachment.aio is Aio.IO_URING:
        yield Gap("aio=io_uring", "KubeVirt chooses native or threads")
    if attachment.option("discard") == "ignore":
        yield Gap("discard=ignore", "KubeVirt passes discards on")
    if attachment.bus is Bus.SCSI and (attachment.iothread or attachment.queues is not None):
        yield Gap("iothread and queues of a SCSI disk", "only virtio disks have them")
    if attachment.bus is Bus.VIRTIO and attachment.queues is not None:
        yield Gap(
            "a number of queues",
            "it follows the number of CPUs, which is set to the same number here",
        )
