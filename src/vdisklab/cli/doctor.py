"""`vdisklab doctor`: what this machine can measure."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vdisklab.cli.live import TerminalProgress
from vdisklab.cli.options import Format
from vdisklab.cli.output import dumps
from vdisklab.errors import HostError
from vdisklab.guest.accelerator import KvmTrial
from vdisklab.guest.factory import GuestContext, try_kvm_without_download
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import cache_directory, open_ledger
from vdisklab.progress import Progress
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.records import DoctorDocument, PieceEntry
from vdisklab.services.host_inspection import (
    Finding,
    Inspection,
    State,
    can_do_main_job,
    examine,
    untried,
)

_STYLES = {State.OK: "green", State.LIMITED: "yellow", State.MISSING: "red"}


def doctor(
    directory: Annotated[
        Path, typer.Option("--dir", help="The work directory: where disk images would be.")
    ] = Path(),
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> int:
    """Say what this host can measure, what each missing piece costs, and how to mend it.

    KVM, io_uring and O_DIRECT are tried, not believed. Ends with 0 when a guest's disk can be
    measured here, with 3 when it cannot.

    Example: vdisklab doctor --dir /srv/images
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        kvm = partial(_tried_kvm, progress)
        findings = tuple(examine(Inspection(LocalHost(), directory.absolute(), kvm=kvm)))
    possible = can_do_main_job(findings)
    if form is Format.JSON:
        print(to_json(findings))
    elif form is Format.CSV:
        _print_csv(findings)
    else:
        _print_table(findings, possible)
    return 0 if possible else HostError.exit_code


def _tried_kvm(progress: Progress) -> KvmTrial:
    """A guest booted under KVM, if one can be built and the state directory can be written to."""
    try:
        with open_ledger() as ledger:
            context = GuestContext(LocalHost(), ledger, cache_directory(), progress)
            return try_kvm_without_download(context)
    except HostError as error:
        return replace(untried(), remedy=f"{error}" + (f": {error.hint}" if error.hint else ""))


def to_json(findings: tuple[Finding, ...]) -> str:
    """The findings and the verdict as one JSON object; see docs/json.md."""
    return dumps(
        DoctorDocument(
            main_job=can_do_main_job(findings),
            findings=tuple(copy_fields(PieceEntry, finding) for finding in findings),
        )
    )


def _print_csv(findings: tuple[Finding, ...]) -> None:
    writer = csv.DictWriter(sys.stdout, list(Finding.__dataclass_fields__))
    writer.writeheader()
    writer.writerows(asdict(finding) for finding in findings)


def _print_table(findings: tuple[Finding, ...], possible: bool) -> None:
    table = Table("piece", "state", "seen", box=None, pad_edge=False)
    for each in findings:
        # Text, not markup: what programs said may hold brackets.
        seen = Text(each.seen)
        if each.costs:
            seen.append(f"\n{each.costs}", style="italic")
        if each.mend and each.state is not State.OK:
            seen.append(f"\nmend: {each.mend}", style="bold")
        table.add_row(each.topic, Text(each.state, style=_STYLES[each.state]), seen)
    console = Console()
    console.print(table)
    console.print()
    console.print(
        "A guest's disk can be measured here."
        if possible
        else "A guest's disk cannot be measured here; see what is missing above."
    )
