"""What can be said of a campaign's numbers before it begins, and is better said then."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.path.cell import Cell
from vdisklab.path.segments import PageCache
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.units import GIB, format_bytes
from vdisklab.workload.bonnie import BonnieSettings, file_size
from vdisklab.workload.program import read_settings
from vdisklab.workload.registry import BONNIE


def warnings(plan: CampaignPlan, host_memory: int) -> tuple[str, ...]:
    """One sentence for each thing to know; `host_memory` in bytes, 0 where it is not known."""
    return tuple(_held_by_the_host(plan, host_memory))


def _held_by_the_host(plan: CampaignPlan, host_memory: int) -> Iterator[str]:
    """bonnie++'s rule, that its file be twice the memory, minds the guest's memory only."""
    cached = [cell.path.canonical for cell in plan.cells if _uses_page_cache(cell)]
    sizes = [
        file_size(each, read_settings(each, BonnieSettings), plan.guest.memory_bytes)
        for each in plan.profile.measurements
        if each.program == BONNIE
    ]
    if cached and sizes and min(sizes) < host_memory:
        enough = -(-host_memory // (2 * GIB))
        yield (
            f"bonnie++'s file of {format_bytes(min(sizes))} fits into the host's page cache "
            f"({format_bytes(host_memory)} of memory): reads may never reach the disk on "
            f"{', '.join(dict.fromkeys(cached))}. Ask for --guest-memory {enough}G and a --size of "
            f"more than {2 * enough}G, or measure paths that bypass it"
        )


def _uses_page_cache(cell: Cell) -> bool:
    # bonnie++ on the host reads and writes files as any program does.
    return cell.path.on_host or cell.page_cache is not PageCache.BYPASSED
