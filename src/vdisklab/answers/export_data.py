"""`export-data`: what was written."""

from __future__ import annotations

from typing import Annotated

from vdisklab.documents import Answer, Count
from vdisklab.results.model import Campaign


class ExportDataAnswer(Answer):
    """`vdisklab export-data`: the file and what it holds."""

    FORMAT = "vdisklab.export-data/1"

    file: str
    campaigns: tuple[Campaign, ...]
    power_cuts: Annotated[Count, "results of power cuts; a CSV file has none"]
