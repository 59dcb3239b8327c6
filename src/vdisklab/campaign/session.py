"""Everything that a campaign needs around its cells, opened in order and closed in reverse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from vdisklab.campaign.bootguests import disk_boots
from vdisklab.campaign.cell import CampaignContext
from vdisklab.campaign.estimate import memory_needed, room_needed
from vdisklab.campaign.host_stacks import open_host_stacks
from vdisklab.campaign.packages import carried_disks, gather_packages
from vdisklab.campaign.programs import programs_of
from vdisklab.campaign.user_guest import own_boot
from vdisklab.guest.factory import GuestContext, prepare_guests
from vdisklab.guest.machine import Machine
from vdisklab.guest.pool import GuestPool, StartGuest
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.host.facts import memory_bytes
from vdisklab.host.memory import available_memory
from vdisklab.path.segments import Bus
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator, Qemu
from vdisklab.storage.room import require_guest_memory, require_memory, require_room
from vdisklab.storage.site import Site, open_site


@contextmanager
def open_campaign(around: GuestContext, plan: CampaignPlan) -> Iterator[CampaignContext]:
    """A bench with every stack built, every image filled and the guest ready to boot.

    Raises HostError when there is no room for all that, before any of it is made.
    """
    require_space(plan)
    with open_site(around.host, around.ledger, plan.directory) as site:
        packages = gather_packages(around.host, around.cache, plan.profile, around.progress)
        accelerator, start = campaign_guests(around, plan, site, carried_disks(packages))
        boots = disk_boots(around, plan, accelerator, guest_buses(plan), site.directory)
        with (
            open_host_stacks(
                site, plan, around.progress, None if boots is None else boots.write
            ) as workshop,
            GuestPool(start, around.progress, programs_of(plan)) as guests,
        ):
            yield CampaignContext(
                plan,
                workshop,
                guests,
                accelerator,
                around.progress,
                packages,
                None if boots is None else boots.start,
            )


def require_space(plan: CampaignPlan) -> None:
    """Raises HostError when the work directory or the memory is too small for a campaign."""
    require_room(plan.directory, room_needed(plan), "the campaign")
    require_memory(memory_needed(plan), available_memory(), "the campaign")
    if guest_buses(plan):
        require_guest_memory(plan.guest.memory_bytes, memory_bytes())


def campaign_guests(
    around: GuestContext,
    plan: CampaignPlan,
    site: Site,
    carried: tuple[CarriedDisk, ...] = (),
) -> tuple[Accelerator | None, StartGuest]:
    """The accelerator that runs our guest here, and what starts one; None without guests."""
    buses = guest_buses(plan)
    if not buses:
        return None, _no_guest
    own = plan.guest.own
    own_boots = None if own is None else partial(own_boot, site, own)
    return prepare_guests(
        around,
        plan.guest,
        buses,
        site.directory,
        carried=carried,
        qemus=qemus_of(plan),
        own_boots=own_boots,
    )


def qemus_of(plan: CampaignPlan) -> tuple[Qemu | None, ...]:
    """The QEMUs that run the plan's guests, each once; None is the installed one."""
    names = (cell.path.attachment.qemu for cell in plan.cells if not cell.path.on_host)
    return tuple(plan.qemu(name) for name in dict.fromkeys(names))


def guest_buses(plan: CampaignPlan) -> frozenset[Bus]:
    """The buses that the plan's guests need drivers for; empty without guests."""
    return frozenset(cell.path.attachment.bus for cell in plan.cells if not cell.path.on_host)


def _no_guest(
    _machine: str, _disks: tuple[Disk, ...], _qemu: str | None
) -> AbstractContextManager[Machine]:
    raise AssertionError("a campaign without guests started one")
