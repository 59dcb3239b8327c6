"""What a result file of another's making holds."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.workload.base import Outcome


@dataclass(frozen=True, slots=True)
class Found:
    """One measurement of a file: what it is called there, or would be in a profile of ours."""

    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What one machine or configuration reached; `label` is the file's name for it, if any."""

    program: str
    version: str | None
    label: str | None
    found: tuple[Found, ...]


def printable(text: str) -> str:
    """A name from outside, with `?` for what no terminal shows and no database holds.

    Such are control characters, marks that turn the direction of writing, and halves of
    characters, which JSON can spell and names of files can hold.
    """
    return "".join(char if char.isprintable() else "?" for char in text)
