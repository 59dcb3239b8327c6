"""`vdisklab doctor`: what this machine can measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.answers.doctor import DoctorAnswer, inspect_host
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.views.doctor import tables

PANEL = VerbPanel.PREPARE


@takes_output()
def doctor(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="The work directory, where `run` would create disk images."),
    ] = Path(),
    *,
    output: OutputOptions,
) -> int:
    """Show what this host can measure, what each missing piece costs, and how to get it.

    KVM, io_uring and O_DIRECT are tried. The exit status is 0 when a guest's disk can be
    measured here, and 3 when it cannot.

    Example: vdisklab doctor --dir /srv/images
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        answer = DoctorAnswer.of(inspect_host(LocalHost(), directory.absolute(), progress))
    print_answer(answer, tables(answer), replace(output, wide=True))
    return 0 if answer.main_job else HostError.exit_code
