"""`import`: what was stored."""

from __future__ import annotations

from typing import Annotated

from vdisklab.documents import Answer, Count
from vdisklab.results.exchange import ImportedCampaign


class ImportAnswer(Answer):
    """`vdisklab import`: the campaigns of the files, and how many of their runs were new."""

    FORMAT = "vdisklab.import/1"

    campaigns: tuple[ImportedCampaign, ...]
    power_cuts: Annotated[Count, "results of power cuts that the database did not hold"] = 0
