"""A figure of the report, drawn or not."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.render.charts.drawing import Spec


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. Without a `spec` it is not drawn, and `missing` says which command would do.

    `alt` tells its content to who cannot see it, `note` how to read what its axes do not say.
    `cells` are those that are drawn: findings on them stand below it.
    """

    key: str
    title: str
    alt: str
    spec: Spec | None = None
    missing: str | None = None
    note: str = ""
    cells: tuple[str, ...] = ()
