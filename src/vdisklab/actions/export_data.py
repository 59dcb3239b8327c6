"""Exports campaigns into a file, and imports such files into a database."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TextIO

from vdisklab.actions.input_file import unreadable
from vdisklab.actions.measure import Publish
from vdisklab.actions.output_file import opened_to_append, output_file
from vdisklab.answers.export_data import ExportDataAnswer
from vdisklab.answers.import_ import ImportAnswer
from vdisklab.errors import HostError, PlanError
from vdisklab.host.mounts import is_visible_file
from vdisklab.results import exchange
from vdisklab.results.model import Campaign, Run
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.store import Store, open_store


def export_data(
    url: str, file: Path, names: Sequence[str] | None = None, *, raw: bool = True
) -> ExportDataAnswer:
    """Writes the named campaigns (None: all) and their machines' power cuts.

    The file's name decides the format: samples as CSV for `.csv`, else JSON that can be imported;
    both compressed if it ends in `.gz`. `-` is standard output. Raises DatabaseError for an
    unknown campaign, HostError if the file cannot be written.
    """
    with open_store(url, create=False) as store:
        campaigns = _chosen(store, names)
        if not campaigns and not store.power_cuts():
            raise PlanError(
                f"{store} holds nothing to export", hint="measure something: `vdisklab run PATHS…`"
            )
        verdicts = _power_cuts(store, campaigns, everything=not names)
        with output_file(file) as stream, _text(stream, packed=file.suffix == ".gz") as sink:
            if ".csv" in file.suffixes[-2:]:
                runs = (run for campaign in campaigns for run in store.runs(campaign.id))
                exchange.write_samples_csv(sink, runs)
                verdicts = ()
            else:
                exchange.write_json(sink, store, campaigns, verdicts, raw=raw)
    return ExportDataAnswer(str(file), campaigns, len(verdicts))


@contextmanager
def stream_of_runs(file: Path) -> Iterator[Publish]:
    """A function that appends an export of one run to `file`, as one line.

    Raises HostError if the file cannot be opened or written.
    """
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(opened_to_append(file))
        except OSError as error:
            raise _unwritable(file, error) from error
        yield partial(_append, file, descriptor)


def _append(file: Path, descriptor: int, campaign: Campaign, run: Run) -> None:
    """Appends the export of a run to a stream."""
    line = io.StringIO()
    exchange.write_run(line, campaign, run)
    rest = memoryview(line.getvalue().encode())
    try:
        while rest:  # a serial port takes a part at a time
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> HostError:
    return HostError(
        f"runs cannot be written to {file}: {error.strerror}",
        hint="the database has them; name another file with --stream",
    )


def _chosen(store: Store, names: Sequence[str] | None) -> tuple[Campaign, ...]:
    if not names:
        return tuple(reversed(store.campaigns()))
    return tuple({campaign.id: campaign for campaign in map(store.campaign, names)}.values())


def _power_cuts(
    store: Store, campaigns: Sequence[Campaign], *, everything: bool
) -> tuple[PowerCut, ...]:
    machines = {campaign.host.machine_id for campaign in campaigns}
    return tuple(
        verdict
        for verdict in store.power_cuts()
        if everything or verdict.host.machine_id in machines
    )


@contextmanager
def _text(binary: IO[bytes], *, packed: bool) -> Iterator[TextIO]:
    """The file as UTF-8 text, through gzip if `packed`; without a time stamp."""
    stream = gzip.GzipFile("", "wb", fileobj=binary, mtime=0) if packed else binary
    with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        yield text


def exported_files(files: Sequence[Path]) -> bool:
    """True if the files were written by `export-data`. Raises PlanError for a mixture."""
    exported = [is_visible_file(file) and exchange.is_export(_ends(file)) for file in files]
    if any(exported) and not all(exported):
        raise PlanError(
            f"{files[exported.index(True)]} holds whole campaigns, but "
            f"{files[exported.index(False)]} does not",
            hint="import them one after the other",
        )
    return all(exported)


def import_campaigns(url: str, files: Sequence[Path]) -> ImportAnswer:
    """Reads all files, then stores what the database does not hold yet, file by file.

    Raises DatabaseError for a file that is damaged or contradicts the database.
    """
    exports = [(file, exchange.read_export(_content(file), name=str(file))) for file in files]
    with open_store(url) as store:
        stored = [exchange.store_export(store, export, name=str(file)) for file, export in exports]
    return ImportAnswer(
        tuple(campaign for each in stored for campaign in each.campaigns),
        sum(each.power_cuts for each in stored),
    )


def _ends(file: Path) -> bytes:
    """The first and the last bytes of a file, by which an export is recognised."""
    try:
        with file.open("rb") as opened:
            start = opened.read(exchange.PEEK)
            opened.seek(-min(exchange.PEEK, file.stat().st_size), os.SEEK_END)
            return start + opened.read()
    except OSError as error:
        raise unreadable(str(file), error) from error


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            # No more than there is: Python allocates as much as it is told to read.
            return opened.read(min(exchange.LARGEST, file.stat().st_size) + 1)
    except OSError as error:
        raise unreadable(str(file), error) from error
