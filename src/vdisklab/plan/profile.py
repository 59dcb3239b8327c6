"""A profile: the measurements that each cell goes through, in order; `profile_file` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vdisklab.path.cell import PageCacheChoice
from vdisklab.units import MIB
from vdisklab.value import Value, replace

_LOAD_FILE = 256 * MIB

RATE = "rate_iops"
"""The setting of fio's measurements that makes an open load: the requests per second."""

BOOT = "boot"
"""The program of a measurement that boots a guest from the measured disk."""

DISCARD = "discard"
"""The program of a measurement that deletes a file, and trims the guest's file system."""

REPLAY = "replay"
"""The program of a measurement that repeats a recorded load on the disk itself."""

LIFE = "life"
"""The program of a measurement that makes disks from a template, and deletes them."""

IN_GUEST = "guest"
"""The setting of a life: False for disks that no guest uses."""

Setting = str | int | float | bool | tuple[str, ...]


class MeasurementPlan(Value):
    """One program with its settings, which the program's own module reads and checks.

    `name` is unique within the profile and names the result: `randread-4k-q1`. `filesystem` is
    created in the guest for the program's files; with None the program uses the disk itself. If
    there is a `neighbour`, the first guest of a group runs this measurement and yields the numbers;
    all other guests run the neighbour.
    """

    name: str
    program: str
    settings: Mapping[str, Setting]
    filesystem: str | None = None
    neighbour: MeasurementPlan | None = None


class Usual(Value):
    """The defaults of a profile; None keeps the general default. `interval` is the pause before
    each measurement; all times are in seconds. `paths` are measured if the user names none.
    """

    rounds: int | None = None
    runtime: float | None = None
    ramp: float | None = None
    size_bytes: int | None = None
    interval: float = 0.0
    paths: tuple[str, ...] = ()
    guest_memory: int | None = None
    page_cache: PageCacheChoice | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The campaign's settings, by field of `Request`, that the profile has a default for."""
        names = ("rounds", "runtime", "ramp", "size_bytes", "guest_memory", "page_cache")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Profile(Value):
    """A named list of measurements."""

    name: str
    title: str
    measurements: tuple[MeasurementPlan, ...]
    description: str = ""
    usual: Usual = Usual()

    @property
    def boots(self) -> bool:
        """True when guests are booted from the measured disks, which therefore hold a system."""
        return any(measurement.program == BOOT for measurement in self.measurements)

    @property
    def trims(self) -> bool:
        """True when a file system is trimmed, which must therefore be the guest's own."""
        return any(measurement.program == DISCARD for measurement in self.measurements)

    @property
    def replays(self) -> bool:
        """True when a recorded load is repeated, which works on the disk itself."""
        return any(measurement.program == REPLAY for measurement in self.measurements)

    @property
    def makes_disks(self) -> bool:
        """True when the measured disks are made from a template, and deleted."""
        return any(measurement.program == LIFE for measurement in self.measurements)

    @property
    def without_guests(self) -> bool:
        """True when no guest is started, whatever the paths are."""
        return any(
            measurement.program == LIFE and measurement.settings.get(IN_GUEST) is False
            for measurement in self.measurements
        )

    @property
    def is_open_load(self) -> bool:
        """True when a measurement sends requests at a rate, which needs a group of guests."""
        return any(RATE in measurement.settings for measurement in self.measurements)

    def beside(self, neighbour: Profile) -> Profile:
        """The profile in one guest, while the others run `neighbour`'s first measurement."""
        other = neighbour.measurements[0]
        pairs = tuple(replace(measurement, neighbour=other) for measurement in self.measurements)
        return replace(self, measurements=pairs)


def load_file_bytes(disk: int) -> int:
    """The bytes of the file in which a load works beside an operation, in a guest's file system on
    a disk of so many bytes."""
    return min(_LOAD_FILE, disk // 4)
