"""Where a disk's paths are measured: on its own file system, on its server, on the host that has
it, or in a directory that stands in for its storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vdisklab.answers.disks import ExistingDisk, StandIn
from vdisklab.inspection.disk_on_host import is_mounted
from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.named_target import as_typed, names_device
from vdisklab.plan.settings import Request
from vdisklab.platforms.network import SpareTarget, spare_target
from vdisklab.platforms.risk_kinds import ProbablyVolume
from vdisklab.value import Value, replace

_DEVICE, _MOUNT = Path("DEVICE"), Path("DIR")


class MeasuringPlace(Value):
    """A place, and what the words of its command stand for.

    `node` has the disk, if its name is known. `spare` is beside the disk on its server, `device`
    one of the disk's kind that may be overwritten. `builds` is true if host layers are built.
    """

    stands_in: StandIn | None
    directory: Path | None = None
    node: str = ""
    spare: SpareTarget | None = None
    device: Path | None = None
    builds: bool = False

    @classmethod
    def of(
        cls, row: ExistingDisk, stands_in: StandIn | None, directory: Path | None
    ) -> MeasuringPlace:
        """The place of a disk; `directory` is that of what stands in for its storage."""
        disk, path, source = row.disk, row.path, row.disk.source or ""
        match stands_in:
            case None:
                return cls(None, row.advised.directory)
            case StandIn.STORAGE:
                return cls(stands_in, directory)
            case StandIn.SERVER:
                assert path is not None  # noqa: S101 - its layer is the server
                return cls(stands_in, spare=spare_target(path.layers[0].kind, source, disk.server))
            case StandIn.NODE | StandIn.KIND:
                there = directory
                if stands_in is StandIn.NODE:
                    holds_files = row.advised.far or row.advised.measurable
                    is_file = source.startswith("/") and not names_device(source)
                    there = Path(source).parent if holds_files and is_file else None
                    there = _MOUNT if row.advised.far and there is None else there
                way = row.advised.path or disk.assumed
                is_device = way is not None and not way.layers and way.image is None
                return cls(
                    stands_in, there, disk.node, device=_DEVICE if is_device else None,
                    builds=way is not None and bool(way.layers),
                )  # fmt: skip

    @property
    def is_here(self) -> bool:
        """False if the command is run on another host, whose stored times are not known."""
        return self.stands_in is not StandIn.NODE

    @property
    def said(self) -> tuple[str, ...]:
        """What the words of the command stand for, as clauses."""
        if self.directory == _MOUNT:
            return (f"{_MOUNT} is the directory of its image there",)
        if self.device is not None:
            spare = "a spare one of the same kind, never the guest's: it is overwritten"
            return (f"{self.device} is {spare}",)
        if self.builds:
            there = "here" if self.is_here else "there"
            on_file = f"its layers are built on a file {there}"
            return (f"{on_file}, or with --on {_DEVICE} on a spare device, which is overwritten",)
        return () if self.spare is None else self.spare.said

    @property
    def to_name(self) -> str | None:
        """The directory that is named again to advise from what was measured in it; None if the
        disk's file says it."""
        return str(self.directory) if self.directory == _MOUNT else None

    def can_hold(self, path: DiskPath) -> bool:
        """False for an image where only devices are compared: `run` would put it elsewhere."""
        return self.device is None or (path.image is None and not path.layers)

    def named(self, path: DiskPath) -> DiskPath:
        """The path with the name of the server's target."""
        if self.spare is None or self.spare.target.kind is None:
            return path
        layer = Layer(self.spare.target.kind, (("at", self.spare.target.name),))
        return replace(path, layers=(layer,))

    def requested(self, request: Request, paths: Iterable[DiskPath]) -> Request:
        """The request with these paths in this place."""
        names = tuple(as_typed(str(self.named(path))) for path in paths)
        asked = replace(request, paths=names, baseline=names[0], directory=self.directory)
        if self.spare is not None:
            asked = replace(asked, target=(self.spare.target,), secret=self.spare.secret)
        if self.device is not None:
            asked = replace(asked, devices=(self.device,))
        # This host's database is not there.
        return asked if self.is_here else replace(asked, db=None)


def is_on_server(row: ExistingDisk) -> bool:
    """True for a disk that one of QEMU's drivers opens on a server."""
    path = row.path
    has_place = row.disk.source is not None
    return path is not None and path.target is not None and has_place and not is_mounted(path)


def is_on_node(row: ExistingDisk) -> bool:
    """True for a file or a volume of LVM that only another host has, by its name or its node's, or
    that it mounts from a server: it is measured there, and no storage of this host stands in."""
    source = row.disk.source or ""
    is_file = source.startswith("/") and not names_device(source)
    by_name = any(isinstance(risk, ProbablyVolume) for risk in row.risks)
    return row.advised.far or is_file or by_name or bool(row.disk.node and source)


def stand_in(row: ExistingDisk) -> StandIn | None:
    """What is measured for a disk; None for its own storage."""
    if is_on_server(row):
        return StandIn.SERVER
    if row.advised.directory is not None and row.advised.measurable:
        return None
    if row.advised.on_device_here:
        return StandIn.KIND
    on_node = is_on_node(row) or not row.advised.measurable
    return StandIn.NODE if on_node else StandIn.STORAGE
