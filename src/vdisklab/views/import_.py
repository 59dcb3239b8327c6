"""The answer of `import` in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.import_ import ImportAnswer
from vdisklab.results.exchange import ImportedCampaign
from vdisklab.units import counted
from vdisklab.views.layout import Table

_NAMES_SHOWN = 8


def tables(answer: ImportAnswer) -> Iterator[Table[ImportedCampaign]]:
    """A sentence for each campaign."""
    lines = [_line(campaign) for campaign in answer.campaigns]
    if answer.power_cuts:
        lines.append(f"imported {counted(answer.power_cuts, 'power-cut verdict')}")
    said = "\n".join(lines or ["nothing new: the database holds all of it already"])
    yield Table(said, (), answer.campaigns, kind=ImportedCampaign)


def _line(campaign: ImportedCampaign) -> str:
    new, old = counted(campaign.runs, "run"), counted(campaign.known_runs, "run")
    if campaign.cells:
        more = len(campaign.cells) - _NAMES_SHOWN
        shown = ", ".join(campaign.cells[:_NAMES_SHOWN]) + (f" and {more} more" * (more > 0))
        return f"imported into campaign {campaign.id}: {shown} ({new})"
    label = f" ({campaign.label})" if campaign.label else ""
    if campaign.known_runs and not campaign.runs:
        return f"campaign {campaign.id}{label} is in the database already, with {old}"
    already = f"; {old} were there already" if campaign.known_runs else ""
    return f"imported campaign {campaign.id}{label}: {new}{already}"
