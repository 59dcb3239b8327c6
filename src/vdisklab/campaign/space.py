"""Whether the work directory and the memory are large enough for a campaign."""

from __future__ import annotations

from vdisklab.campaign.host_stacks import guests_of
from vdisklab.campaign.schedule import memory_needed, room_needed
from vdisklab.host.facts import available_memory, memory_bytes
from vdisklab.path.disk_path import DiskPath
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.storage.site import (
    require_guest_memory,
    require_memory,
    require_memory_for_all,
    require_room,
)


def require_space(plan: CampaignPlan) -> None:
    """Raises HostError when the work directory or the memory is too small for a campaign."""
    require_room(plan.directory, room_needed(plan), "the campaign")
    require_memory(memory_needed(plan), available_memory(), "the campaign")
    if plan.guest_buses:
        require_guest_memory(plan.guest.memory_bytes, memory_bytes())
        guests = most_guests(plan, 1) if plan.searches_guests else most_guests(plan)
        require_memory_for_all(plan.guest.memory_bytes, guests, available_memory())


def kind_of_guest(path: DiskPath) -> tuple[str, str, str | None]:
    """A key: paths with the same key use the same guests, and guests with other keys are frozen
    meanwhile.
    """
    bus = path.attachment
    return bus.bus.machine, bus.aio.value, bus.qemu


def most_guests(plan: CampaignPlan, largest_group: int | None = None) -> int:
    """The largest number of guests that exist at once, frozen ones included.

    With `largest_group` no cell is measured in more guests at once.
    1 for a campaign without groups of guests: it measures one guest after the other.
    """
    keys: dict[tuple[str, str, str | None], int] = {}
    grouped = False
    for cell in plan.cells:
        if not cell.path.on_host:
            grouped = grouped or cell.path.attachment.guests is not None
            key = kind_of_guest(cell.path)
            keys[key] = max(keys.get(key, 1), guests_of(cell.path))
    if largest_group is not None:
        keys = {key: min(guests, largest_group) for key, guests in keys.items()}
    return sum(keys.values()) if grouped else 1
