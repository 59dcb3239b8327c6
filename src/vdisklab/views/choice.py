"""The path to use in a sentence, and what stands below it in every answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from vdisklab.answers.choice import PathChoice
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import Durability
from vdisklab.units import counted, format_duration, named
from vdisklab.views.durability import durability_sentence, losses

NAMED = 4
"""Maximum number of ties named in a sentence; the others are counted."""


def headline(choice: PathChoice) -> str:
    """`Use raw/none: within 8 % of the best (95 %)`: what to do, and how sure that is."""
    sure = f"({100 * choice.confidence:.0f} %)"
    use = f"Use {choice.cell.name}"
    if choice.durability is not None and not choice.durability.kind.acceptable:
        use += " only for data that may be lost"
    if choice.considered == 1:
        return f"{use}: it is the only path measured"
    if choice.compared < 2:
        return f"{use}: it is the only one of {choice.considered} paths that qualifies"
    if choice.behind == 0:
        which = " that qualify" if choice.compared < choice.considered else ""
        which = " that raced" if choice.left_out else which
        return f"{use}: it is the best of {choice.compared} paths{which} {sure}"
    if choice.behind is not None and choice.is_close:
        step = None if choice.step is None else f"a step of {choice.step:g}"
        of = f" of the {choice.compared} that raced" if choice.left_out else ""
        return f"{use}: within {step or _percent(choice.behind)} of the best{of} {sure}"
    others = counted(len(choice.ties), "other")
    leads = "it leads" if choice.leads else "it is close to the leader, and simpler"
    tie = f"{use}: {leads}, but {others} {'is' if len(choice.ties) == 1 else 'are'} not shown to be"
    if choice.behind is None:
        return f"{tie} worse"
    more = f"{_percent(choice.behind)} better"
    if choice.behind >= 1:
        more = f"{1 + choice.behind:.2g} times as good"
    return f"{tie} worse and may be up to {more} {sure}"


def _percent(share: float) -> str:
    """A share in whole percent, rounded up: it is a limit."""
    return f"{max(1, math.ceil(100 * share - 1e-9))} %"


def verdict_lines(
    choice: PathChoice, known: Mapping[MeasuredCell, Durability | None]
) -> Iterator[tuple[str, str]]:
    """The lines below the path: its ties, the effect of a power cut, the cost of being surer. Each
    names its subject. `known` has the durability of the ties.
    """
    if choice.ties:
        names = named([cell.name for cell in choice.ties], NAMED)
        yield "Tied", " ".join((f"Not shown to be worse: {names}.", *losses(known, choice.ties)))
    if choice.unranked:
        few = counted(choice.unranked, "path")
        yield "Missing", f"{few} with too few rounds not compared, and may be better."
    if choice.durability is not None:
        yield "Safety", durability_sentence(choice.cell.name, choice.durability)
    surer = choice.surer
    if surer is not None:
        effort = (
            f"at most {counted(surer.runs, 'more run')}, about {format_duration(surer.seconds)}"
        )
        way = "let the same command go on"
        if surer.paths:
            by = f"`--find best --metric {surer.metric}`"
            terms = "no `--rounds`" if surer.metric is None else by
            how = f" (the same command with their paths and {terms})"
            way = f"race these {surer.paths}{'' if surer.command else how}"
            effort += ", usually less than half of that" if surer.usual else ""
        command = f": `{surer.command}`" if surer.command else ""
        yield "Cost", f"To be surer, {way}: {effort}{command}."
