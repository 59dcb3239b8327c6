"""`vdisklab import`: results from other programs and other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vdisklab.actions.export_data import exported_files, import_campaigns
from vdisklab.actions.import_ import import_files
from vdisklab.actions.import_load import import_traces, trace_forms
from vdisklab.actions.input_file import input_files
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.options import TEXTS, DbOptions, OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.loads.traces.trace_file import TraceWish
from vdisklab.loads.traces.trace_form import TraceForm
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import FILE, SECONDS, TEXT
from vdisklab.views import import_ as view
from vdisklab.views import import_load as load_view

PANEL = VerbPanel.STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions(DbOptions):
    """The files, and the names that their numbers get."""

    files: tuple[str, ...] = argument(
        TEXTS,
        "fio JSON or JSON+, bonnie++ or elbencho CSV, elbencho JSON, sysbench fileio text, "
        "CrystalDiskMark or KDiskMark text, "
        "DISKSPD XML, dd's line, or a file from `vdisklab export-data`; or a trace of requests: "
        "blkparse, fio iolog, MSR Cambridge, Alibaba, Tencent. `-` is standard input.",
        "FILE...",
    )
    name: str | None = option(
        TEXT,
        "A name for the measured disk, such as `scaleway block storage` or a disk path. Several "
        "files then count as repetitions.",
        flag="--as",
        metavar="NAME",
        shown="each file's own name",
    )
    into: str | None = option(
        TEXT,
        "The campaign to add the runs to, next to runs measured here.",
        metavar="CAMPAIGN",
        shown="a new campaign",
    )
    measurement: str | None = option(
        TEXT,
        "The measurement's name, such as randread-4k-q1, for files that hold one.",
        metavar="NAME",
        shown="the file's own",
    )
    disk: str | None = option(
        TEXT, "Of a trace: which of its disks.", metavar="DISK", shown="the only one"
    )
    seconds: float | None = option(
        SECONDS, "Of a trace: so much from its start.", flag="--for", metavar="TIME", shown="all"
    )
    output: Path | None = option(
        FILE, "Of a trace: the load file.", flag="--output -o", metavar="FILE", shown="TRACE.load"
    )


@takes_options()
def import_(request: ImportOptions, output: OutputOptions) -> None:
    """Import results that were measured elsewhere, and traces of requests.

    All files are read before anything is stored, so a damaged one changes nothing. Values that a
    file does not state stay unknown.

    A trace of requests becomes a load file, which `vdisklab show` reads.

    Examples:

        vdisklab import result.json --as 'my VM at home'

        vdisklab import run1.csv run2.csv --as qcow2/writeback --into 3f2a

        vdisklab import results.json.gz

        vdisklab import hm_1.csv.gz --for 1h
    """
    with input_files(request.files) as inputs:
        forms = trace_forms(inputs)
        if forms:
            _import_traces(request, inputs, forms, output)
            return
        for flag, value in (("--disk", request.disk), ("--for", request.seconds),
                            ("--output", request.output)):  # fmt: skip
            if value is not None:
                raise PlanError(f"{flag} is for traces of requests", hint=f"leave {flag} out")
        if exported_files(inputs):
            if request.name or request.into or request.measurement:
                raise PlanError(
                    "a file of whole campaigns keeps its own names",
                    hint="leave out --as, --into and --measurement; unpack a program's compressed "
                    "report first: gunzip FILE",
                )
            answer = import_campaigns(database_url(request.db, create=True), inputs)
        else:
            url = database_url(request.db, create=True)
            answer = import_files(url, inputs, request.name, request.into, request.measurement)
    print_answer(answer, view.tables(answer), output)


def _import_traces(
    request: ImportOptions,
    files: Sequence[Path],
    forms: Sequence[TraceForm],
    output: OutputOptions,
) -> None:
    if request.into or request.measurement or request.db:
        raise PlanError(
            "a trace becomes a file, and is not stored in a database",
            hint="leave out --into, --measurement and --db",
        )
    seconds = request.seconds
    wish = TraceWish(request.disk, None if seconds is None else round(seconds * 1e6))
    found = import_traces(files, forms, wish=wish, name=request.name, output=request.output)
    print_answer(found, load_view.tables(found), output)
