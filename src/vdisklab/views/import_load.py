"""The load files that traces became, in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from vdisklab.answers.import_load import ImportedLoad, ImportLoadAnswer
from vdisklab.units import counted, format_duration
from vdisklab.views.layout import Table


def tables(answer: ImportLoadAnswer) -> Iterator[Table[ImportedLoad]]:
    """A sentence for each load."""
    for load in answer.loads:
        lost = f", {counted(load.lost, 'line')} not understood" if load.lost else ""
        yield Table(
            f"Imported {load.name}: {counted(load.requests, 'request')} in "
            f"{format_duration(load.seconds)}{lost}",
            (),
            (load,),
            intro=(f"{load.sentence[:1].upper()}{load.sentence[1:]}.",),
            notes=load.notes,
            verbatim=(f"vdisklab show {shlex.quote(load.file)}",),
            kind=ImportedLoad,
        )
