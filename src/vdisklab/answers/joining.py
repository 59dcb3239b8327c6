"""Which campaigns can share one answer, and what to ask of those that cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS
from vdisklab.errors import PlanError, SeparateCampaignsError
from vdisklab.results.host_choice import by_host
from vdisklab.results.model import Campaign, RanUnder
from vdisklab.results.store import Store
from vdisklab.units import format_size, named

_PLACES = ("directory", "devices", "disks")
_SAME_PLAN = (
    "size_bytes", "runtime", "ramp", "scale", "guest", "guest_arch", *_PLACES, "arc_bytes",
)  # fmt: skip
_WORDS = {"size_bytes": "the disk's size", "ramp": "time before measuring", "guest": "guest"}


def two_accelerators(campaigns: Sequence[Campaign], ran_under: Iterable[RanUnder]) -> PlanError:
    """Why the runs of these campaigns are not ranked together."""
    accelerators = " and ".join(sorted(each.phrase for each in ran_under))
    names = named([campaign.id for campaign in campaigns])
    return PlanError(
        f"the guests of {names} ran {accelerators}, which are never ranked together",
        hint=f"`vdisklab runs {campaigns[0].id}` shows what ran each; "
        f"`vdisklab run --again {campaigns[0].id}` measures it anew, under one of them",
    )


def disagreement(
    results: Store,
    first: Campaign,
    other: Campaign,
    *,
    places: bool = False,
    machines: bool = False,
) -> PlanError | None:
    """Why two campaigns cannot share one table, or None if they can.

    They must come from one machine and one accelerator, and equal names must mean equal
    measurements. With `places`, their directories and devices may differ, because the caller keeps
    them separate; with `machines` also the machines.
    """
    if not machines and other.host.machine_id != first.host.machine_id:
        hosts = [each.host.hostname for each in (first, other)]
        if hosts[0] == hosts[1]:
            grouped = by_host(results.campaigns()).items()
            host_of = {each.id: name for name, group in grouped for each in group}
            hosts = [host_of[each.id] for each in (first, other)]
        return PlanError(
            f"campaigns {first.id} and {other.id} were measured on two machines "
            f"({', '.join(hosts)})"
        )
    same = [key for key in _SAME_PLAN if not ((places or machines) and key in _PLACES)]
    different = [key for key in same if first.plan.get(key) != other.plan.get(key)]
    if _conflict(first.plan.get("qemu", {}), other.plan.get("qemu", {})):
        different.append("QEMU")
    if _conflict(_measurements(first), _measurements(other)):
        different.append("measurements")
    if not different:
        ran_under = results.ran_under(first.id) | results.ran_under(other.id)
        return two_accelerators((first, other), ran_under) if len(ran_under) > 1 else None
    values = [_value(campaign.plan.get(different[0])) for campaign in (first, other)]
    shown = f" ({values[0]} and {values[1]})" if all(values) else ""
    what = _WORDS.get(different[0], different[0].replace("_", " "))
    return PlanError(f"campaigns {first.id} and {other.id} differ in {what}{shown}")


def _value(setting: object) -> str:
    """The value of a campaign's setting in an error; empty for one that would be long."""
    if isinstance(setting, bool) or setting is None:
        return ""
    if isinstance(setting, float):
        return f"{setting:g} s"
    if isinstance(setting, int):
        return format_size(setting)
    return setting if isinstance(setting, str) else ""


def require_joined(
    results: Store,
    campaigns: Sequence[Campaign],
    *,
    places: bool = False,
    machines: bool = False,
) -> None:
    """Raises SeparateCampaignsError if these campaigns cannot share one answer; `places` and
    `machines` are those of `disagreement`."""
    joined = Joining(results, campaigns[0], places=places, machines=machines)
    for campaign in campaigns[1:]:
        error = joined.add(campaign)
        if error is not None:
            raise separate(results, campaigns, str(error))


def separate(results: Store, campaigns: Sequence[Campaign], message: str) -> SeparateCampaignsError:
    """The error that campaigns cannot share an answer, with the answers that they have."""
    usable = [each for each in campaigns if len(results.ran_under(each.id)) < 2]
    alone = _groups(results, usable)
    over = [
        group
        for group in _groups(results, usable, machines=True)
        if len({each.host.machine_id for each in group}) >= MIN_HOSTS
    ]
    beside = len(_groups(results, campaigns, places=True, machines=True)) == 1
    return SeparateCampaignsError(
        message,
        together=[[each.id for each in group] for group in alone],
        over_hosts=[[each.id for each in group] for group in over],
        side_by_side=[each.id for each in campaigns] if beside else (),
    )


def _groups(
    results: Store, campaigns: Iterable[Campaign], *, places: bool = False, machines: bool = False
) -> list[list[Campaign]]:
    """The campaigns in groups that can share an answer, each in the first that it can join."""
    groups: list[tuple[Joining, list[Campaign]]] = []
    for campaign in campaigns:
        for joining, group in groups:
            if joining.add(campaign) is None:
                group.append(campaign)
                break
        else:
            joining = Joining(results, campaign, places=places, machines=machines)
            groups.append((joining, [campaign]))
    return [group for _, group in groups]


def same_surroundings(results: Store, first: Campaign, other: Campaign) -> bool:
    """True if equal paths are the same in two campaigns: on one machine and place, with one QEMU
    and accelerator."""
    hosts = {(each.host.machine_id, each.host.qemu) for each in (first, other)}
    same = all(first.plan.get(key) == other.plan.get(key) for key in _PLACES)
    if (
        len(hosts) > 1
        or not same
        or _conflict(first.plan.get("qemu", {}), other.plan.get("qemu", {}))
    ):
        return False
    return len(results.ran_under(first.id) | results.ran_under(other.id)) < 2


def require_one_accelerator(results: Store, campaign: Campaign) -> None:
    """Raises PlanError if the campaign's guests ran under two accelerators."""
    ran_under = results.ran_under(campaign.id)
    if len(ran_under) > 1:
        raise two_accelerators((campaign,), ran_under)


class Joining:
    """Campaigns for one table: each agrees with all that were added before it.

    The first campaign alone does not decide what can join: without guests it agrees with campaigns
    under KVM and with those under emulation. `places` and `machines` are those of `disagreement`.
    """

    def __init__(
        self, results: Store, first: Campaign, *, places: bool = False, machines: bool = False
    ) -> None:
        self._results, self._places, self._machines = results, places, machines
        self._different = {self._names(first): first}

    def add(self, other: Campaign) -> PlanError | None:
        """Joins a campaign to the others; returns why it cannot be joined, or None."""
        for joined in self._different.values():
            error = disagreement(
                self._results, joined, other, places=self._places, machines=self._machines
            )
            if error is not None:
                return error
        self._different.setdefault(self._names(other), other)
        return None

    def _names(self, campaign: Campaign) -> tuple[frozenset[str], ...]:
        """The names under which a later campaign may contradict this one. Campaigns with equal
        names are compared only once.
        """
        return (
            frozenset(_measurements(campaign)),
            frozenset(campaign.plan.get("qemu", ())),
            frozenset(map(str, self._results.ran_under(campaign.id))),
        )


def _conflict(first: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """True if a common name has two different meanings."""
    return any(first[name] != other[name] for name in first.keys() & other.keys())


def _measurements(campaign: Campaign) -> dict[str, object]:
    """The settings of each measurement of a campaign's plan, by name."""
    return {planned["name"]: planned for planned in campaign.plan.get("measurements", ())}
