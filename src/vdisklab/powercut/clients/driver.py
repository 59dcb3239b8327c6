"""What a guest may do to its disk's write cache by itself, and what it then has."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.blockdev import AttachedNames
from vdisklab.guest.qemu.qmp_models import inserted_node
from vdisklab.path.segments import Bus
from vdisklab.powercut.clients.guestprogram import PERL, guest_script

_SECONDS = 30.0


class DriverSetting(StrEnum):
    """A setting of the guest's driver.

    `queue` tells the block layer only: it sends no more flushes, and the device is told nothing
    (Documentation/block/writeback_cache_control.rst). `cache-type` and `hdparm` tell the device.
    """

    AS_FOUND = "as-found"
    QUEUE = "queue"
    CACHE_TYPE = "cache-type"
    HDPARM = "hdparm"

    @property
    def buses(self) -> frozenset[Bus]:
        """The buses whose driver has it."""
        match self:
            case DriverSetting.HDPARM:
                return frozenset({Bus.IDE, Bus.SATA})
            case DriverSetting.CACHE_TYPE:
                return frozenset(Bus) - {Bus.NVME}
            case _:
                return frozenset(Bus)

    @property
    def shown(self) -> str:
        """How a person would do it."""
        return {
            DriverSetting.AS_FOUND: "nothing",
            DriverSetting.QUEUE: "echo write through > /sys/block/DISK/queue/write_cache",
            DriverSetting.CACHE_TYPE: "echo write through > …/cache_type",
            DriverSetting.HDPARM: "hdparm -W0 DISK",
        }[self]


def apply_setting(
    machine: Machine, serial: str, device: str, setting: DriverSetting
) -> Mapping[str, str]:
    """Sets it in the guest; returns what guest and QEMU then say of the disk's write cache.

    Raises WorkloadError when the guest's kernel refuses it, GuestError when the setting that was
    written is not the one that is read.
    """
    argv = (PERL, "-e", guest_script("driver.pl"), device, setting.value)
    ended = machine.agent.run(argv, timeout=_SECONDS)
    seen = dict(line.split("=", 1) for line in ended.stdout.splitlines())
    cache = inserted_node(machine, AttachedNames(serial).device).cache
    seen["qemu.write_cache"] = "on" if cache.writeback else "off"
    key, wanted = _EVIDENCE[setting]
    if key is not None and seen.get(key) != wanted:
        raise GuestError(
            f"the guest was told `{setting.shown}`, and {key} is {seen.get(key, 'not there')}",
            hint="this kernel's driver has no such setting: leave --driver out, or take "
            "another bus",
        )
    return seen


_EVIDENCE = {
    DriverSetting.AS_FOUND: (None, ""),
    DriverSetting.QUEUE: ("guest.queue.write_cache", "write through"),
    DriverSetting.CACHE_TYPE: ("guest.cache_type", "write through"),
    DriverSetting.HDPARM: ("guest.ata.write_cache", "off"),
}
