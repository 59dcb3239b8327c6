"""The answer of `export-data` in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.export_data import ExportDataAnswer
from vdisklab.units import counted
from vdisklab.views.layout import Table


def tables(answer: ExportDataAnswer) -> Iterator[Table[ExportDataAnswer]]:
    """The file and the number of its campaigns."""
    said = f"{answer.file}: {counted(len(answer.campaigns), 'campaign')}"
    yield Table(said, (), (answer,), kind=ExportDataAnswer)
