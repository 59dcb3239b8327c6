"""Plan files: TOML in, a `Request` out, and the JSON schema that editors check them with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from vdisklab.errors import PlanError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.guest import AcceleratorChoice, Firmware, SystemBus
from vdisklab.plan.qemu import parse_qemu
from vdisklab.plan.request import GuestRequest, Request
from vdisklab.plan.toml_file import Table, read_toml
from vdisklab.units import parse_duration, parse_size


def _bytes(value: object) -> object:
    """Bytes for a number or a text such as `2G`."""
    if isinstance(value, str):
        try:
            return parse_size(value)
        except PlanError as error:
            raise ValueError(error.message) from error
    return value


def _seconds(value: object) -> object:
    """Seconds for a number or a text such as `500ms`."""
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except PlanError as error:
            raise ValueError(error.message) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a duration")
    return value


Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]+ *[kKmMgGtT]?(i?[bB])?$"},
            ]
        }
    ),
]
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *([mM]?[sS]|[mM]|[hH])?$"},
            ]
        }
    ),
]
# TOML has no enumerations, so the words are read as such although types are not converted.
_PageCache = Annotated[PageCacheChoice, Field(strict=False)]
_Accelerator = Annotated[AcceleratorChoice, Field(strict=False)]
_Firmware = Annotated[Firmware, Field(strict=False)]
_SystemBus = Annotated[SystemBus, Field(strict=False)]


class GuestTable(Table):
    """The virtual machine."""

    cpus: int | None = Field(None, ge=1, description="number of virtual CPUs, from 1")
    memory: Bytes | None = Field(None, description="memory: bytes, or 512M, 1G")
    accelerator: _Accelerator | None = Field(
        None, description="kvm, tcg, or auto: KVM if it really runs a guest, else TCG"
    )
    kernel: str | None = Field(
        None, min_length=1, description="a kernel image to boot instead of the host's"
    )
    image: str | None = Field(
        None, min_length=1, description="disk image of a guest of your own; never written to"
    )
    firmware: _Firmware | None = Field(None, description="what boots the image: bios or uefi")
    system_bus: _SystemBus | None = Field(
        None, description="how it sees the disk that it boots from: virtio, sata or nvme"
    )
    boot: Seconds | None = Field(
        None, description="how long it may take until its agent answers: seconds, or 5m"
    )
    diskspd: str | None = Field(
        None, min_length=1, description="DISKSPD of Microsoft, which measures in a Windows guest"
    )


class PlanTable(Table):
    """What to measure, where, and how often."""

    paths: list[str] = Field(
        default_factory=list,
        description="disk paths or patterns with braces, such as {ext4,xfs}/qcow2/{none,writeback}",
    )
    profile: str | None = Field(None, min_length=1, description="name of a profile, such as quick")
    blocks: int | None = Field(
        None, ge=1, description="number of repetitions, from 1: each block measures every cell once"
    )
    runtime: Seconds | None = Field(
        None, description="how long each measurement takes: seconds, or 500ms, 1m"
    )
    ramp: Seconds | None = Field(
        None, description="how long each measurement runs before it counts: seconds, or 500ms"
    )
    size: Bytes | None = Field(
        None, description="size of the disk that the guest sees: bytes, or 512M, 1G"
    )
    dir: str | None = Field(
        None, min_length=1, description="work directory, on the file system to be measured"
    )
    devices: list[str] = Field(
        default_factory=list,
        description="whole block devices to build on instead of the work directory",
    )
    disks: int | None = Field(None, ge=1, description="how many disks lvm, md and ZFS get, from 1")
    arc: Bytes | None = Field(None, description="limit of ZFS's cache while measuring")
    db: str | None = Field(None, min_length=1, description="database: a file or a URL")
    seed: int | None = Field(None, ge=0, description="seed of the random order, from 0")
    page_cache: _PageCache | None = Field(
        None, description="state of the host's page cache: cold, warm or both"
    )
    baseline: str | None = Field(
        None, min_length=1, description="disk path that the others are related to, or none"
    )
    label: str | None = Field(None, description="a name for the campaign, for people")
    scale: float | None = Field(
        None,
        gt=0,
        description="share of the totals of measurements that are not timed, such as 0.1",
    )
    qemu: list[str] = Field(
        default_factory=list,
        description="QEMUs to measure each path with: a program, or NAME=PROGRAM",
    )
    guest: GuestTable | None = Field(None, description="a table: the virtual machine")


def parse_request(text: str, origin: str) -> Request:
    """What a plan file asks for. Raises PlanError naming `origin`, the table and the key."""
    table = read_toml(text, origin, PlanTable)
    return Request(
        paths=tuple(table.paths),
        profile=table.profile,
        blocks=table.blocks,
        runtime=table.runtime,
        ramp=table.ramp,
        size_bytes=table.size,
        directory=None if table.dir is None else Path(table.dir),
        devices=tuple(Path(device) for device in table.devices),
        disks=table.disks,
        arc_bytes=table.arc,
        db=table.db,
        seed=table.seed,
        page_cache=table.page_cache,
        baseline=table.baseline,
        label=table.label,
        scale=table.scale,
        qemu=tuple(parse_qemu(text) for text in table.qemu),
        guest=GuestRequest() if table.guest is None else _guest(table.guest),
    )


def _guest(table: GuestTable) -> GuestRequest:
    return GuestRequest(
        cpus=table.cpus,
        memory_bytes=table.memory,
        accelerator=table.accelerator,
        kernel=table.kernel,
        image=None if table.image is None else Path(table.image),
        firmware=table.firmware,
        system_bus=table.system_bus,
        boot_seconds=table.boot,
        diskspd=None if table.diskspd is None else Path(table.diskspd),
    )


def json_schema() -> dict[str, Any]:
    """The JSON schema of plan files; `docs/plan.schema.json` is this, and a test compares."""
    schema: dict[str, Any] = PlanTable.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_table_without_null(schema),
        "title": "vdisklab plan file",
    }


def _without_null(schema: object) -> object:
    """The schema without `null`, which TOML does not have: an absent key is simply not there."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    return _table_without_null(schema) if isinstance(schema, dict) else schema


def _table_without_null(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    choices = kept.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del kept["anyOf"]
        kept = {**(rest[0] if len(rest) == 1 else {"anyOf": rest}), **kept}
    return kept
