"""Every parser of text from outside, with whole inputs to damage and its share of the inputs."""

from __future__ import annotations

from pathlib import Path

from fuzz_databases import database_parsers
from fuzz_guests import guest_parsers
from fuzz_inputs import Parser
from fuzz_paths import file_parsers, path_parsers
from fuzz_recordings import recording_parsers
from fuzz_results import result_parsers


def parsers(scratch: Path) -> tuple[Parser, ...]:
    """All parsers; those that read files write them below `scratch`."""
    return (
        *path_parsers(),
        *file_parsers(),
        *result_parsers(scratch),
        *guest_parsers(),
        *recording_parsers(scratch),
        *database_parsers(scratch),
    )
