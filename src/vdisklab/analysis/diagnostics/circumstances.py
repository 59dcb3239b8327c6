"""Doubts by what plan and host alone give away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vdisklab.analysis.diagnostics.doubt import FitsInMemory, FrequencyGovernor, HostChanged
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Campaign

FITS_BELOW = 0.8

_SAVING = {"powersave", "ondemand", "conservative", "schedutil"}


def host_findings(
    campaigns: Sequence[Campaign], cells: Iterable[MeasuredCell]
) -> tuple[FitsInMemory | FrequencyGovernor | HostChanged, ...]:
    """What plan and host alone give away, of none to many campaigns of one machine.

    `cells` are those that are shown.
    """
    found: list[FitsInMemory | FrequencyGovernor | HostChanged] = []
    if not campaigns:
        return ()
    host = campaigns[0].host
    size, memory = campaigns[0].plan.get("size_bytes"), host.memory_bytes
    cached = sum(cell.page_cache is not PageCache.BYPASSED for cell in cells)
    if isinstance(size, int) and memory and cached and size < FITS_BELOW * memory:
        found.append(FitsInMemory(cached, size, memory))
    governor = host.more.get("governor")
    if governor in _SAVING:
        found.append(FrequencyGovernor(governor))
    facts = [_facts(campaign) for campaign in campaigns]
    for name in dict.fromkeys(name for each in facts for name in each):
        values = tuple(dict.fromkeys(each.get(name, "unknown") for each in facts))
        if len(values) > 1:
            found.append(HostChanged(name.replace("_", " "), values))
    return tuple(found)


def _facts(campaign: Campaign) -> dict[str, str]:
    """The facts of a machine that decide its numbers and can change."""
    host = campaign.host
    named = {
        "kernel": host.kernel,
        "cpu": host.cpu,
        "cpus": str(host.cpus),
        "memory": str(host.memory_bytes),
        "QEMU": host.qemu or "none",
        "fio": host.fio or "none",
    }
    return {**named, **{name: value for name, value in host.more.items() if name in _DECIDING}}


_DECIDING = ("governor", "mitigations", "smt", "microcode", "qemu_img", "virtualised")
