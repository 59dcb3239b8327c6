"""`--hosts`: which of some hosts `all`, names and conditions FACT=VALUE choose."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vdisklab.errors import PlanError

ALL_HOSTS = "all"

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class HostChoice:
    """What `--hosts` says. A host is chosen by its name or `all`, and must meet all conditions."""

    names: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, texts: Sequence[str], known: Mapping[str, Mapping[str, str]]) -> HostChoice:
        """The choice; `known` has the facts of each host. The name of a host may have a `=`.

        Raises PlanError for an empty name, and for a fact or value that no known host has.
        """
        if not all(text.strip() for text in texts):
            raise PlanError(
                "--hosts names no host", hint="write `all`, a host's name, or FACT=VALUE"
            )
        names = tuple(text for text in texts if text in known or "=" not in text)
        pairs = (text.partition("=") for text in texts if text not in names)
        choice = cls(names, tuple((fact, value) for fact, _, value in pairs))
        for fact, value in choice.conditions:
            _check_condition(known, fact, value)
        return choice

    def chosen(self, known: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
        """Names, in the order in which they were given; a name that is not known is among them.

        Raises PlanError if no host is chosen.
        """
        named = [name for name in self.names if name != ALL_HOSTS]
        everyone = not named or ALL_HOSTS in self.names
        chosen = tuple(
            name
            for name in dict.fromkeys(known if everyone else named)
            if all(known.get(name, {}).get(fact) == value for fact, value in self.conditions)
        )
        if not chosen and known:
            wanted = (*named, *(f"{fact}={value}" for fact, value in self.conditions))
            raise PlanError(
                f"no host meets all of: {', '.join(wanted)}",
                hint="leave out a condition, or --hosts all",
            )
        return chosen

    def require_names(self, known: Mapping[str, Mapping[str, str]]) -> None:
        """Raises PlanError for a name that no known host has."""
        for name in self.names:
            if name != ALL_HOSTS and name not in known:
                near = difflib.get_close_matches(name, known, n=_SHOWN, cutoff=0.3) or sorted(known)
                more = " …" if len(known) > _SHOWN else ""
                raise PlanError(
                    f"no host {name!r} has results",
                    hint=f"hosts with results: {', '.join(near[:_SHOWN])}{more}",
                )


def _check_condition(known: Mapping[str, Mapping[str, str]], fact: str, value: str) -> None:
    values = Counter(facts[fact] for facts in known.values() if fact in facts)
    if not values:
        names = sorted({name for facts in known.values() for name in facts})
        raise PlanError(
            f"unknown fact {fact!r}",
            hint=f"known facts: {', '.join(names)}" if names else "no host's facts are known yet",
        )
    if value not in values:
        shown = "; ".join(f"{text!r} ({count})" for text, count in values.most_common(_SHOWN))
        raise PlanError(f"no host has {fact}={value}", hint=f"values and their hosts: {shown}")
