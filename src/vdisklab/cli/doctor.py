"""`vdisklab doctor`: what this machine can measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vdisklab.answers.doctor import DoctorAnswer
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.inspection.host_features import inspect_host
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.value_kinds import FILE
from vdisklab.value import replace
from vdisklab.views.doctor import tables

PANEL = VerbPanel.PREPARE


@dataclass(frozen=True, slots=True)
class DoctorOptions(OptionRows):
    """Where to look."""

    directory: Path = option(
        FILE, "The work directory, where `run` would create disk images.", Path(), flag="--dir"
    )


@takes_options()
def doctor(request: DoctorOptions, output: OutputOptions) -> int:
    """Show what this host can measure, what each missing piece costs, and how to get it.

    KVM, io_uring and O_DIRECT are tried. The exit status is 0 when a guest's disk can be
    measured here, and 3 when it cannot.

    Example: vdisklab doctor --dir /srv/images
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        answer = DoctorAnswer.of(inspect_host(LocalHost(), request.directory.absolute(), progress))
    print_answer(answer, tables(answer), replace(output, wide=True))
    return 0 if answer.main_job else HostError.exit_code
