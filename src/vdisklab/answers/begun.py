"""The campaign that a command goes on with: one rule, for what measures and for what says how long
a command takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from vdisklab.host.command import Host
from vdisklab.host.facts import collect_facts, machine_id
from vdisklab.host.mounts import Mount, mount_of, without_flushes
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.results.model import FILE_SYSTEM, WITHOUT_FLUSHES, Campaign, HostFacts
from vdisklab.value import Value, replace


class MeasuringHost(Value):
    """The machine on which a command will run.

    `facts` are asked for only where a campaign of the command's plan is stored: programs say their
    versions, which takes half a second.
    """

    machine_id: str
    facts: Callable[[], HostFacts]

    @classmethod
    def of(cls, facts: HostFacts) -> MeasuringHost:
        """The machine with these facts: one that was asked, or another one as it was recorded."""
        return cls(facts.machine_id, lambda: facts)


def this_host(host: Host, plan: CampaignPlan) -> MeasuringHost:
    """This machine, which will measure the plan."""
    return MeasuringHost(machine_id(), lambda: facts_of_place(host, mount_below(plan)))


def begun_campaign(
    stored: Iterable[Campaign], host: MeasuringHost, possible: CampaignPlan
) -> tuple[Campaign, CampaignPlan] | None:
    """The newest campaign of this request on this host, with the plan with the cells it began with.

    None if there is none, or if the host has changed since: then `run` begins a new campaign, and
    tries anew what can be measured. `stored` are the campaigns, the newest first.
    """
    for campaign in stored:
        if campaign.host.machine_id != host.machine_id or _is_damaged(campaign):
            continue
        plan = possible.as_begun(campaign.plan)
        if plan.fingerprint == campaign.fingerprint:
            return None if host_changes(campaign.host, host.facts()) else (campaign, plan)
    return None


def _is_damaged(campaign: Campaign) -> bool:
    return not isinstance(campaign.plan.get("left_out", {}), Mapping)


def host_changes(before: HostFacts, now: HostFacts) -> list[str]:
    """Changes of the host that can affect numbers, one phrase each."""
    keys = ("kernel", "cpu", "cpus", "qemu", "fio")
    pairs = ((key, getattr(before, key), getattr(now, key)) for key in keys)
    # A busy machine may not say a version.
    comparable = (pair for pair in pairs if None not in pair)
    changed = [f"{key} was {old} and is now {new}" for key, old, new in comparable if old != new]
    if before.without_flushes != now.without_flushes:
        was = f"flushes reach the disk again (before: {before.without_flushes})"
        changed.append(now.without_flushes or was)
    return changed


def facts_of_place(host: Host, mount: Mount | None) -> HostFacts:
    """The facts of this machine, and of the mount on which a campaign's images lie."""
    return on_mount(collect_facts(host), mount)


def on_mount(facts: HostFacts, mount: Mount | None) -> HostFacts:
    """The facts with what the mount adds to them."""
    reason = without_flushes(mount)
    more = {} if reason is None else {WITHOUT_FLUSHES: reason}
    more |= {} if mount is None else {FILE_SYSTEM: mount.filesystem}
    return replace(facts, more={**facts.more, **more})


def mount_below(plan: CampaignPlan) -> Mount | None:
    """The mount of the work directory; None if the plan's images lie on devices."""
    return None if plan.backing.devices else mount_of(plan.directory)
