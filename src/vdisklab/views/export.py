"""The answer of `export` in words: what stands beside the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.export import ExportAnswer
from vdisklab.platforms.dialect import Gap
from vdisklab.views.durability import durability_sentence
from vdisklab.views.layout import Table


def tables(answer: ExportAnswer) -> Iterator[Table[Gap]]:
    """The gaps of the platform, with the settings to make elsewhere and a loss of flushed data in
    notes. CSV has the gaps.
    """
    notes = (*map(str, answer.gaps), *answer.requirements)
    if not answer.durability.kind.acceptable:
        notes = (*notes, durability_sentence(str(answer.path), answer.durability))
    title = f"{answer.path} as {answer.form} writes it"
    yield Table(title, (), answer.gaps, notes, kind=Gap)
