"""`--hosts`: which of some hosts `all`, names and conditions FACT=VALUE choose."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence

from vdisklab.errors import PlanError
from vdisklab.results.model import Campaign

ALL_HOSTS = "all"

_SHOWN = 6
_ID_LETTERS = 8


def by_host(campaigns: Sequence[Campaign]) -> dict[str, list[Campaign]]:
    """The campaigns of each machine, by the name that `--hosts` takes.

    Where two machines have one name, it ends with the first letters of the machine's id.
    """
    by_machine: dict[str, list[Campaign]] = {}
    for campaign in campaigns:
        key = campaign.host.machine_id or campaign.host.hostname
        by_machine.setdefault(key, []).append(campaign)
    names = Counter(group[0].host.hostname for group in by_machine.values())
    starts = Counter(machine[:_ID_LETTERS] for machine in by_machine)
    found: dict[str, list[Campaign]] = {}
    for machine, group in by_machine.items():
        name = group[0].host.hostname
        if not name or names[name] > 1:
            start = machine[:_ID_LETTERS]
            name = f"{name or 'imported'}-{start if starts[start] == 1 else machine}"
        found[name] = group
    return found


def chosen_hosts(
    texts: Sequence[str],
    facts_of_hosts: Mapping[str, Mapping[str, str]],
    *,
    with_results: bool = False,
) -> tuple[str, ...]:
    """The hosts that have one of the names, or any for `all`, and meet all conditions.

    `facts_of_hosts` has the facts of each host. They keep the order in which they were given. An
    unknown name is included unless hosts must be `with_results`. A name may contain `=`. Raises
    PlanError for an empty name, for a fact or value that no known host has, and if none is chosen.
    """
    if not all(text.strip() for text in texts):
        raise PlanError("--hosts names no host", hint="write `all`, a host's name, or FACT=VALUE")
    names = [text for text in texts if text in facts_of_hosts or "=" not in text]
    conditions = [text.partition("=")[::2] for text in texts if text not in names]
    for fact, value in conditions:
        _check_condition(facts_of_hosts, fact, value)
    named = [name for name in names if name != ALL_HOSTS]
    for name in named if with_results else ():
        if name not in facts_of_hosts:
            near = difflib.get_close_matches(name, facts_of_hosts, n=_SHOWN, cutoff=0.3) or sorted(
                facts_of_hosts
            )
            more = " …" if len(facts_of_hosts) > _SHOWN else ""
            raise PlanError(
                f"no host {name!r} has results",
                hint=f"hosts with results: {', '.join(near[:_SHOWN])}{more}",
            )
    chosen = tuple(
        name
        for name in dict.fromkeys(named if named and ALL_HOSTS not in names else facts_of_hosts)
        if all(facts_of_hosts.get(name, {}).get(fact) == value for fact, value in conditions)
    )
    if not chosen and facts_of_hosts:
        wanted = (*named, *(f"{fact}={value}" for fact, value in conditions))
        raise PlanError(
            f"no host meets all of: {', '.join(wanted)}",
            hint="leave out a condition, or --hosts all",
        )
    return chosen


def _check_condition(
    facts_of_hosts: Mapping[str, Mapping[str, str]], fact: str, value: str
) -> None:
    values = Counter(facts[fact] for facts in facts_of_hosts.values() if fact in facts)
    if not values:
        names = sorted({name for facts in facts_of_hosts.values() for name in facts})
        raise PlanError(
            f"unknown fact {fact!r}",
            hint=f"known facts: {', '.join(names)}" if names else "no host's facts are known yet",
        )
    if value not in values:
        shown = "; ".join(f"{text!r} ({count})" for text, count in values.most_common(_SHOWN))
        raise PlanError(f"no host has {fact}={value}", hint=f"values and their hosts: {shown}")
