"""What a user asks for, from a plan file or the command line; None where nothing was said."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.guest import AcceleratorChoice, Firmware, SystemBus
from vdisklab.plan.qemu import AskedQemu


@dataclass(frozen=True, slots=True)
class GuestRequest:
    """The virtual machine, as far as the user has a say in it."""

    cpus: int | None = None
    memory_bytes: int | None = None
    accelerator: AcceleratorChoice | None = None
    kernel: str | None = None
    image: Path | None = None
    firmware: Firmware | None = None
    system_bus: SystemBus | None = None
    boot_seconds: float | None = None
    diskspd: Path | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A campaign as asked for, before defaults: see `vdisklab.plan.build` for them.

    `paths` are patterns, `profile` a name, `baseline` a path or `none`, `runtime` and `ramp`
    seconds. An empty tuple counts as nothing said. `devices` to `arc_bytes` are those of
    `BackingDevices`; `destroy` never comes from a file. With `qemu` each path that has
    a guest is measured with each of them.
    """

    paths: tuple[str, ...] = ()
    profile: str | None = None
    blocks: int | None = None
    runtime: float | None = None
    ramp: float | None = None
    size_bytes: int | None = None
    directory: Path | None = None
    devices: tuple[Path, ...] = ()
    destroy: tuple[Path, ...] = ()
    disks: int | None = None
    arc_bytes: int | None = None
    db: str | None = None
    seed: int | None = None
    page_cache: PageCacheChoice | None = None
    baseline: str | None = None
    label: str | None = None
    scale: float | None = None
    qemu: tuple[AskedQemu, ...] = ()
    guest: GuestRequest = field(default_factory=GuestRequest)


_Asked = TypeVar("_Asked", Request, GuestRequest)


def merge(file: Request, command_line: Request) -> Request:
    """One request of two: what the command line says wins, key by key; paths win as a whole."""
    guest = _over(file.guest, command_line.guest)
    return replace(_over(file, command_line), guest=guest)


def _over(below: _Asked, above: _Asked) -> _Asked:
    said = {key.name: getattr(above, key.name) for key in fields(above)}
    return replace(
        below, **{key: value for key, value in said.items() if value is not None and value != ()}
    )
