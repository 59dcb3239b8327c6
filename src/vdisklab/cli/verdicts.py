"""What power cuts on this machine came to, one verdict for each path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from vdisklab.analysis.durability import Verdicts, durability
from vdisklab.errors import PlanError
from vdisklab.plan.path import parse_path
from vdisklab.powercut.trace import ClientKind
from vdisklab.powercut.verdict import Outcome
from vdisklab.result.powercut import PowerCut


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """The states that were judged for a path, and in how many a promise was broken."""

    path: str
    cuts: int
    broken: int


def verdicts_of(found: Iterable[PowerCut]) -> Verdicts:
    """The verdicts by path, over all clients whose reliance the path has to honour.

    A client that never flushes counts only where the path says that no flush is needed.
    """
    verdicts: dict[str, PathVerdict] = {}
    for each in found:
        if each.failure is not None or each.survives is None or not _relies(each):
            continue
        known = verdicts.get(each.path, PathVerdict(each.path, 0, 0))
        broken = sum(count for outcome, count in each.outcomes.items() if Outcome(outcome).is_loss)
        # A broken promise is one, whatever the outcomes are called.
        broken = max(broken, int(not each.survives))
        verdicts[each.path] = replace(
            known, cuts=known.cuts + each.states, broken=known.broken + broken
        )
    return verdicts


def _relies(found: PowerCut) -> bool:
    if found.client != ClientKind.NEVER:
        return True
    try:
        return durability(parse_path(found.path), {}).flush_free
    except PlanError:
        return False  # a path of a newer version
