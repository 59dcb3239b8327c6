"""The answer of `export` in words: what stands beside the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.export import ExportAnswer
from vdisklab.views.durability import durability_sentence


def notes(answer: ExportAnswer) -> Iterator[str]:
    """The notes: gaps of the platform, settings to make elsewhere, a loss of flushed data."""
    yield from map(str, answer.configuration.gaps)
    yield from answer.configuration.requirements
    if not answer.durability.kind.acceptable:
        yield durability_sentence(str(answer.path), answer.durability)
