"""`vdisklab doctor`: what this machine can measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.answers.host_inspection import can_do_main_job, inspect_host
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import Format
from vdisklab.cli.shell.output import emit
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.views.host_tables import doctor_document, findings_table

PANEL = VerbPanel.PREPARE


def doctor(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="The work directory, where `run` would create disk images."),
    ] = Path(),
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> int:
    """Show what this host can measure, what each missing piece costs, and how to get it.

    KVM, io_uring and O_DIRECT are tried. The exit status is 0 when a guest's disk can be
    measured here, and 3 when it cannot.

    Example: vdisklab doctor --dir /srv/images
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        findings = inspect_host(LocalHost(), directory.absolute(), progress)
    emit(form, [findings_table(findings)], lambda: doctor_document(findings))
    return 0 if can_do_main_job(findings) else HostError.exit_code
