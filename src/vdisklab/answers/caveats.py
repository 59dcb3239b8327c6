"""The caveats of numbers, with the way to KVM on the host that measured them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from vdisklab.analysis.diagnostics.caveats import ASK_DOCTOR, EMULATION, Caveats, caveats_of
from vdisklab.answers.elsewhere import directories_gone
from vdisklab.host.facts import machine_id
from vdisklab.results.model import Campaign, RunOutline
from vdisklab.value import replace


@cache
def way_to_kvm_here(device: Path | None = None) -> str | None:
    """What lets the user who called run guests under KVM; None if only a trial can tell.

    Asked once: `watch` asks before it becomes nobody, who has no KVM and needs none.
    """
    # Imported late: most answers are of KVM, or of another host.
    from vdisklab.guest.accelerator import DEVICE, way_to_kvm  # noqa: PLC0415

    return way_to_kvm(device or DEVICE)


def caveats_with_remedy(
    runs: Iterable[RunOutline],
    campaigns: Sequence[Campaign] = (),
    guest_arch: str | None = None,
    way_here: Callable[[], str | None] = way_to_kvm_here,
) -> Caveats:
    """`caveats_of`, and what lets guests run under KVM as `doctor` says it, if this host measured;
    of other hosts only their `doctor` knows."""
    found = caveats_of(runs, campaigns, guest_arch)
    if found.warning != EMULATION:
        return found
    return replace(found, kvm=_kvm_of(campaigns, way_here))


def _kvm_of(campaigns: Sequence[Campaign], way_here: Callable[[], str | None]) -> str:
    hosts = {campaign.host.machine_id: campaign.host.hostname for campaign in campaigns}
    if not hosts:
        return ASK_DOCTOR
    if set(hosts) - {machine_id()}:
        (name, *others) = hosts.values()
        on, there = (name, "there") if not others else ("each of these hosts", "on it")
        return f"`vdisklab doctor` on {on} says what KVM needs {there}."
    if directories_gone(campaigns):  # perhaps an import from a machine of which this is a copy
        return ASK_DOCTOR
    way = way_here()
    if way is None:
        return "`vdisklab doctor` boots a guest under KVM here, and says what it lacks."
    return f"To measure under KVM: {way}."
