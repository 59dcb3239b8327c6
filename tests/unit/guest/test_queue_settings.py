"""The I/O scheduler in the guest is set, read back, or refused with those that there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.agent import CompletedInGuest
from vdisklab.guest.hotplug import with_scheduler
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.read_back import guest_queue_checks
from vdisklab.guest.systems import Family, GuestDisk, GuestSystem, MicroGuest
from vdisklab.path.disk_path import parse_path


@dataclass
class FakeGuest:
    """A guest whose kernel has these schedulers; it is its own agent."""

    schedulers: tuple[str, ...] = ("none", "mq-deadline")
    chosen: str = "none"
    system: GuestSystem = field(default_factory=MicroGuest)

    @property
    def agent(self) -> FakeGuest:
        return self

    def run(self, argv: tuple[str, ...], **_options: object) -> CompletedInGuest:
        if argv[0] == "sh":
            wanted = argv[2].split()[1]
            assert argv[2] == f"echo {wanted} > /sys/block/vda/queue/scheduler"
            if wanted not in self.schedulers:
                raise WorkloadError("sh: write error: Invalid argument")
            self.chosen = wanted
        return CompletedInGuest(argv, 0, "[none] mq-deadline\n", "", 0.1)

    def find_disk(self, _serial: str) -> GuestDisk:
        return GuestDisk("/dev/vda", {"scheduler": self.chosen, "nr_requests": "256"})


def disk(text: str) -> Disk:
    path = parse_path(text)
    return Disk(
        "vdl1", 1 << 25, {"driver": "file", "filename": "/i"}, "raw", path.cache, path.attachment
    )


def test_a_scheduler_is_set_and_read_back() -> None:
    guest = FakeGuest()
    wanted = disk("raw/none/virtio:guest_scheduler=mq-deadline")
    after = with_scheduler(cast(Machine, guest), wanted, guest.find_disk(""))
    checks = {check.name: check for check in guest_queue_checks(wanted, after)}
    assert (
        checks["guest.scheduler"].requested == checks["guest.scheduler"].observed == "mq-deadline"
    )
    assert checks["guest.nr_requests"].requested is None


def test_a_scheduler_that_was_not_set_is_not_confirmed() -> None:
    wanted = disk("raw/none/virtio:guest_scheduler=mq-deadline")
    checks = guest_queue_checks(wanted, FakeGuest().find_disk(""))
    assert [check.name for check in checks if not check.confirmed] == ["guest.scheduler"]


def test_a_scheduler_that_the_kernel_lacks() -> None:
    guest = FakeGuest()
    with pytest.raises(GuestError, match=r"does not have .* bfq: it has \[none\] mq-deadline"):
        with_scheduler(
            cast(Machine, guest), disk("raw/none/scsi:guest_scheduler=bfq"), guest.find_disk("")
        )


def test_without_the_option_nothing_is_set() -> None:
    guest = FakeGuest(schedulers=())
    before = guest.find_disk("")
    assert with_scheduler(cast(Machine, guest), disk("raw/none"), before) is before


def test_windows_has_none() -> None:
    class Windows(MicroGuest):
        family = Family.WINDOWS

    guest = FakeGuest(system=Windows())
    with pytest.raises(GuestError, match="Windows guest has no I/O schedulers"):
        with_scheduler(
            cast(Machine, guest), disk("raw/none/virtio:guest_scheduler=none"), guest.find_disk("")
        )
