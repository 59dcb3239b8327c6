"""Models of QEMU's answers about a disk, with the members used here; other data is an error."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.probe import QemuVersion
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.results.model import IoCounters
from vdisklab.validation import first_problem


class BlockLayer(Protocol):
    """A process with QEMU's block layer: QEMU with a guest, or its storage daemon."""

    @property
    def pid(self) -> int:
        """The process."""

    @property
    def monitor(self) -> Channel:
        """Its monitor."""

    def query(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """What a QMP query returns."""


class CacheModes(BaseModel):
    """BlockdevCacheInfo of qapi/block-core.json."""

    direct: bool
    no_flush: bool = Field(alias="no-flush")
    writeback: bool


class Inserted(BaseModel):
    """BlockDeviceInfo: the node below a device. `drv` is the driver, that is, the format."""

    drv: str
    cache: CacheModes


class NamedNode(BaseModel):
    """An element of query-named-block-nodes: `drv` is the node's driver."""

    node_name: str = Field("", alias="node-name")
    drv: str
    detect_zeroes: str
    cache: CacheModes


class _Statistics(BaseModel):
    """BlockDeviceStats: a device's counters since it was plugged, in the order of `IoCounters`."""

    rd_bytes: int
    wr_bytes: int
    rd_operations: int
    wr_operations: int
    flush_operations: int


class _Device(BaseModel):
    qdev: str = ""


class _Block(_Device):
    """BlockInfo, an element of query-block."""

    inserted: Inserted | None = None


class _BlockStats(_Device):
    """BlockStats, an element of query-blockstats."""

    stats: _Statistics


class IoThread(BaseModel):
    """IOThreadInfo, an element of query-iothreads; `settings` by QEMU's names."""

    id: str
    poll_max_ns: int = Field(0, alias="poll-max-ns")
    aio_max_batch: int = Field(0, alias="aio-max-batch")

    @property
    def settings(self) -> dict[str, int]:
        """The properties that a path may set."""
        return {"poll-max-ns": self.poll_max_ns, "aio-max-batch": self.aio_max_batch}


_Of = TypeVar("_Of", bound=_Device)
_Element = TypeVar("_Element", bound=BaseModel)


def inserted_node(machine: Machine, device: str) -> Inserted:
    """The node below a plugged device. Raises GuestError when QEMU does not list the device."""
    device_answer = _of_device(_query(machine, "query-block", _Block), device)
    if device_answer is None or device_answer.inserted is None:
        raise GuestError(f"QEMU accepted the disk {device} but does not list it")
    return device_answer.inserted


def device_statistics(machine: Machine, device: str) -> IoCounters | None:
    """A device's counters since it was plugged; None when QEMU does not list it."""
    answer = _of_device(_query(machine, "query-blockstats", _BlockStats), device)
    return None if answer is None else IoCounters(*answer.stats.model_dump().values())


def running_version(machine: BlockLayer) -> str:
    """The version of the running QEMU, in the same form as `probe_qemu` returns."""
    answer = machine.query("query-version")
    try:
        return str(QemuVersion.model_validate(answer))
    except ValidationError as error:
        raise GuestError(f"QEMU's answer to query-version is not as expected: {answer}") from error


def named_node(machine: BlockLayer, name: str) -> NamedNode:
    """A block node. Raises GuestError when QEMU does not list it."""
    nodes = _query(machine, "query-named-block-nodes", NamedNode)
    node = next((node for node in nodes if node.node_name == name), None)
    if node is None:
        raise GuestError(f"QEMU does not list the block node {name}")
    return node


def iothreads(machine: Machine) -> list[IoThread]:
    """QEMU's event loops besides the main loop."""
    return _query(machine, "query-iothreads", IoThread)


def _of_device(answers: Sequence[_Of], device: str) -> _Of | None:
    """QEMU lists virtio-blk-pci under the path of its inner virtio device, so the path is split."""
    return next((answer for answer in answers if device in answer.qdev.split("/")), None)


@cache
def _list_of(kind: type[_Element]) -> TypeAdapter[list[_Element]]:
    """The validator of a list. Cached: making one takes longer than parsing an answer."""
    return TypeAdapter(list[kind])  # type: ignore[valid-type]


def _query(machine: BlockLayer, query: str, kind: type[_Element]) -> list[_Element]:
    answer = machine.query(query)
    try:
        return _list_of(kind).validate_python(answer)
    except ValidationError as error:
        raise GuestError(
            f"QEMU's answer to {query} is not as expected: {first_problem(error)}"
        ) from error
