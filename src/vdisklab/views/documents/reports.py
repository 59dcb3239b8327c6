"""The documents of recommendations, reports and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a kind of number is computed."""

    title: str
    shown_by: Annotated[tuple[str, ...], "verbs"]
    keys: Annotated[tuple[str, ...], "in JSON and CSV"]
    how: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRow:
    """An `Explanation` as a row of CSV."""

    number: str
    how: str
    source: str
    shown_by: str
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDocument:
    """`vdisklab method`: how each number is computed."""

    format: Literal["vdisklab.method/1"] = "vdisklab.method/1"
    numbers: tuple[Explanation, ...]
