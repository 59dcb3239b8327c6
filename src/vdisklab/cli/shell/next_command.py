"""The one command that applies an answer: it prints the disk of the answer as a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vdisklab.answers.choice import PathChoice
from vdisklab.answers.elsewhere import host_elsewhere
from vdisklab.answers.export_command import ExportCommand, export_command
from vdisklab.host.command import LocalHost
from vdisklab.inspection.platforms_here import platforms_here
from vdisklab.path.platforms import Platform
from vdisklab.results.model import Campaign
from vdisklab.value import replace
from vdisklab.views.choice import keeps_what_is_there, names_a_disk
from vdisklab.views.layout import Table
from vdisklab.views.run import export_note


def export_of(
    path: str,
    campaigns: Sequence[Campaign],
    platforms: Iterable[Platform] = (),
    secrets: Sequence[tuple[str, Path]] = (),
) -> ExportCommand | None:
    """The command for a path of these campaigns: for the platforms that the user named, else for
    those of this host, if it is the one that was measured."""
    wanted = tuple(platforms)
    if not wanted and host_elsewhere(campaigns) is None:
        wanted = tuple(platforms_here(LocalHost()))
    return export_command(path, campaigns[0], wanted, secrets)


def with_export(
    tables: Iterable[Table[Any]],
    choice: PathChoice,
    path: str,
    campaigns: Sequence[Campaign],
) -> Iterator[Table[Any]]:
    """The tables of an answer; the last one ends with the command that prints the configuration of
    the path, if the answer is a disk for a guest."""
    *others, last = tables
    yield from others
    export = export_of(path, campaigns) if names_a_disk(choice) else None
    if export is None:
        yield last
        return
    keeps, on = keeps_what_is_there(choice), host_elsewhere(campaigns)
    note = export_note(path, export, keeps=keeps, on=on)
    yield replace(last, notes=(*last.notes, note), verbatim=(export.text,))
