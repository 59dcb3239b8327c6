"""`import TRACE`: the load file that a trace of another program became."""

from __future__ import annotations

from typing import Annotated

from vdisklab.documents import Answer, Count
from vdisklab.loads.load import RecordedBy
from vdisklab.value import Value


class ImportedLoad(Value):
    """One trace and its load file."""

    file: Annotated[str, "the load file"]
    name: str
    recorded_by: RecordedBy
    sentence: Annotated[str, "what the load is like"]
    seconds: float
    requests: Count
    lost: Annotated[int | None, "lines that could not be read; null if unknown"]
    notes: tuple[str, ...]


class ImportLoadAnswer(Answer):
    """`vdisklab import TRACE`: the load files."""

    FORMAT = "vdisklab.import-load/1"

    loads: tuple[ImportedLoad, ...]
