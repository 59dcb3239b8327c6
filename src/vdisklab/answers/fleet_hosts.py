"""Which hosts an answer is from: `--hosts`, their facts, and their campaigns of one plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vdisklab.answers.loading import (
    Joining,
    Loaded,
    load_chosen,
    require_numbers,
    require_one_accelerator,
)
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.results.host_choice import HostChoice
from vdisklab.results.model import Campaign, HostFacts
from vdisklab.results.store import Store

CLASS_FACTS = ("cpu", "medium", "kernel", "qemu")
"""The facts that make hosts comparable; hosts with equal values are peers."""

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One machine with its campaigns and facts.

    `name` is the host's name, with the machine's id where two machines have one name.
    """

    name: str
    facts: Mapping[str, str]
    campaigns: tuple[Campaign, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The campaigns' ids."""
        return tuple(campaign.id for campaign in self.campaigns)

    @property
    def kind(self) -> tuple[str, ...]:
        """The values of `CLASS_FACTS`."""
        return tuple(self.facts.get(fact, _UNKNOWN) for fact in CLASS_FACTS)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedFleet:
    """The numbers of several hosts that measured one plan.

    `left_out` says for each other host that was chosen why it is not among them.
    """

    hosts: tuple[FleetHost, ...]
    loaded: Loaded
    left_out: tuple[str, ...]

    @property
    def host_of(self) -> dict[str, str]:
        """The host's name by campaign."""
        return {campaign.id: host.name for host in self.hosts for campaign in host.campaigns}

    @property
    def peers(self) -> list[list[str]]:
        """The names of the hosts, grouped by equal facts."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for host in self.hosts:
            groups.setdefault(host.kind, []).append(host.name)
        return list(groups.values())

    @property
    def varying(self) -> tuple[str, ...]:
        """The facts in which the hosts differ."""
        return tuple(
            fact
            for place, fact in enumerate(CLASS_FACTS)
            if len({host.kind[place] for host in self.hosts}) > 1
        )

    def class_names(self, facts: Sequence[str]) -> dict[str, str]:
        """For each host the name of its class by some of the facts, such as `medium=SSD 840`."""
        return {
            host.name: ", ".join(f"{fact}={host.facts.get(fact, _UNKNOWN)}" for fact in facts)
            or "all hosts"
            for host in self.hosts
        }


def load_fleet(
    results: Store, wanted: Sequence[str], names: Sequence[str] | None = None
) -> LoadedFleet:
    """The numbers of the chosen hosts: of each the newest campaign that can join the others.

    `wanted` has `all`, names of hosts, and conditions FACT=VALUE that a host must all meet. The
    newest campaign of all decides which plan and which accelerator is compared; `names` has the
    campaigns to use instead. Raises PlanError for an unknown host or fact, for a single host, and
    if the newest campaign ran under two accelerators; DatabaseError for an empty database.
    """
    campaigns = [results.campaign(name) for name in names] if names else []
    campaigns = campaigns or list(results.campaigns(with_runs=True))
    if not campaigns:
        raise DatabaseError(
            "the database holds no campaign with results",
            hint="measure something on each host: `vdisklab run PATHS… --db postgresql://…`",
        )
    by_machine = _machines(campaigns, results.media())
    known = {host.name: host.facts for host in by_machine}
    choice = HostChoice.parse(wanted, known)
    choice.require_names(known)
    named = frozenset(choice.chosen(known))
    chosen = [host for host in by_machine if host.name in named]
    joined: list[FleetHost] = []
    left_out: list[str] = []
    reference = chosen[0].campaigns[0]
    require_one_accelerator(results, reference)
    joining = Joining(results, reference, machines=True)
    for host in chosen:
        fitting: list[Campaign] = []
        why = ""
        for campaign in host.campaigns:
            error = joining.add(campaign)
            if error is None:
                fitting.append(campaign)
                if not names:
                    break
            elif names:
                raise error
            why = why or str(error)
        if fitting:
            joined.append(FleetHost(host.name, host.facts, tuple(fitting)))
        else:
            left_out.append(f"{host.name}: {why}")
    loaded = load_chosen(results, tuple(c for host in joined for c in host.campaigns))
    require_numbers(loaded)
    with_numbers = {round.campaign for round in loaded.observations.rounds}
    joined.sort(key=lambda host: host.name)
    measured = tuple(host for host in joined if with_numbers.intersection(host.ids))
    left_out += [
        f"{host.name}: no run of {host.ids[0]} has numbers"
        for host in joined
        if host not in measured
    ]
    if len(measured) < 2:
        raise _one_host(measured[0], left_out)
    return LoadedFleet(measured, loaded, tuple(left_out))


def _machines(campaigns: Sequence[Campaign], media: Mapping[str, str]) -> list[FleetHost]:
    """Every machine with its campaigns, in their order."""
    by_machine: dict[str, list[Campaign]] = {}
    for campaign in campaigns:
        key = campaign.host.machine_id or campaign.host.hostname
        by_machine.setdefault(key, []).append(campaign)
    names = Counter(group[0].host.hostname for group in by_machine.values())
    return [
        FleetHost(
            name=host.hostname
            if host.hostname and names[host.hostname] == 1
            else f"{host.hostname or 'imported'}-{machine}",
            facts=facts_of(host, media.get(group[0].id)),
            campaigns=tuple(group),
        )
        for machine, group in by_machine.items()
        for host in [group[0].host]
    ]


def facts_of(host: HostFacts, medium: str | None) -> dict[str, str]:
    """The known facts of a host by name, as `--hosts FACT=VALUE` compares them."""
    facts = {
        "cpu": host.cpu,
        "kernel": host.kernel,
        "qemu": host.qemu,
        "fio": host.fio,
        "cpus": None if host.cpus is None else str(host.cpus),
        "medium": medium,
        **host.more,
    }
    return {name: value for name, value in facts.items() if value}


def _one_host(host: FleetHost, left_out: Sequence[str]) -> PlanError:
    if left_out:
        return PlanError(
            f"only {host.name} has numbers of this plan: {left_out[0]}",
            hint="run one command on every host, or name campaigns of one plan with --campaign",
        )
    return PlanError(
        f"{host.name} is the only host that matches",
        hint="leave out --hosts for the answer of one host; to compare hosts, store their results "
        "in one database and give --hosts all",
    )
