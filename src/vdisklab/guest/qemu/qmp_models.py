"""What QEMU says of a disk, as far as it is read here; anything else is an error, not a guess."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.probe import Version


class CacheModes(BaseModel):
    """BlockdevCacheInfo of qapi/block-core.json."""

    direct: bool
    no_flush: bool = Field(alias="no-flush")
    writeback: bool


class Inserted(BaseModel):
    """BlockDeviceInfo: the node below a device. `drv` is the driver, that is, the format."""

    drv: str
    cache: CacheModes


class Statistics(BaseModel):
    """BlockDeviceStats: what a device did since it was plugged."""

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

    stats: Statistics


class _IoThread(BaseModel):
    """IOThreadInfo, an element of query-iothreads."""

    id: str


_Of = TypeVar("_Of", bound=_Device)
_Element = TypeVar("_Element", bound=BaseModel)


def inserted_node(machine: Machine, device: str) -> Inserted:
    """The node below a device that was plugged. Raises GuestError when QEMU does not list it."""
    found = _of_device(_asked(machine, "query-block", _Block), device)
    if found is None or found.inserted is None:
        raise GuestError(f"QEMU does not list the disk {device} that it accepted")
    return found.inserted


def device_statistics(machine: Machine, device: str) -> Statistics | None:
    """What a device did since it was plugged; None when QEMU does not list it."""
    found = _of_device(_asked(machine, "query-blockstats", _BlockStats), device)
    return None if found is None else found.stats


def running_version(machine: Machine) -> str:
    """What the running QEMU says of its version, spelled as `guest.emulator` does."""
    answer = machine.query("query-version")
    try:
        return str(Version.model_validate(answer))
    except ValidationError as error:
        raise GuestError(f"QEMU's answer to query-version is not as expected: {answer}") from error


def count_iothreads(machine: Machine) -> int:
    """How many event loops QEMU has beside its main loop."""
    return len(_asked(machine, "query-iothreads", _IoThread))


def _of_device(each: Sequence[_Of], device: str) -> _Of | None:
    """virtio-blk-pci is shown by the path of its inner virtio device, hence the parts."""
    return next((one for one in each if device in one.qdev.split("/")), None)


@cache
def _list_of(kind: type[_Element]) -> TypeAdapter[list[_Element]]:
    """Made once for each kind: that takes longer than reading an answer."""
    return TypeAdapter(list[kind])  # type: ignore[valid-type]


def _asked(machine: Machine, query: str, kind: type[_Element]) -> list[_Element]:
    answer = machine.query(query)
    try:
        return _list_of(kind).validate_python(answer)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise GuestError(
            f"QEMU's answer to {query} is not as expected: {where} {error.errors()[0]['msg']}"
        ) from error
