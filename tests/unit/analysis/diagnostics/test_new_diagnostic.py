"""A new diagnostic is one class: it says itself, in text, JSON and the groups of an answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import TypeAdapter

from tests.unit.analysis.made import cell
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, grouped_sentences
from vdisklab.path.cell import MeasuredCell


class TooHot(Diagnostic):
    """The disk was warmer than it likes."""

    cell: MeasuredCell
    degrees: Annotated[float, "of the disk, in °C"]

    def __str__(self) -> str:
        return f"{self.cell}: measured at {self.degrees:.0f} °C. Let the disk cool down."


HOT = TooHot(cell("raw/none"), 71.5)


def test_it_says_itself() -> None:
    assert grouped_sentences([HOT]) == ["raw/none: measured at 72 °C. Let the disk cool down."]
    assert HOT.about == (cell("raw/none"),)


def test_json_has_its_kind_its_text_and_its_fields() -> None:
    assert TypeAdapter(tuple[Diagnostic, ...]).dump_python((HOT,), mode="json") == [
        {"kind": "too-hot", "text": str(HOT), "cell": "raw/none", "degrees": 71.5}
    ]


def test_many_of_a_kind_are_counted() -> None:
    assert grouped_sentences([HOT] * 9)[-1] == "… and 3 more like it."
