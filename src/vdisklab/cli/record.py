"""`vdisklab record`: what a running guest asks of its disk, request by request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vdisklab.actions.record import RecordWish, record_guest, record_here
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.value_kinds import FILE, SECONDS, SIZE, TEXT
from vdisklab.recording.recorder import LOG_LIMIT
from vdisklab.views.record import tables

PANEL = VerbPanel.GUESTS

_OTHERWISE = (
    "in the guest: `vdisklab record --here DEVICE`; without --output QEMU's counters are read"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions(OptionRows):
    """The guest and its disk, and for how long."""

    guest: str | None = argument(
        TEXT,
        "A running guest: its name in libvirt, its number in Proxmox VE, QEMU's -name, its "
        "process, or its QMP socket.",
        "GUEST",
        default=None,
    )
    here: str | None = option(
        TEXT,
        "A disk of this machine instead of a guest's, by blktrace: inside a guest or in a cloud.",
        metavar="DEVICE",
    )
    disk: str | None = option(
        TEXT,
        "Which of its disks: vda, virtio0, QEMU's id, or the image's file.",
        metavar="DISK",
        shown="the only one",
    )
    seconds: float = option(
        SECONDS, "How long to record; Ctrl-C ends it early.", 600.0, flag="--for", metavar="TIME"
    )
    output: Path | None = option(
        FILE, "The file to write.", flag="--output -o", metavar="FILE", shown="GUEST-DISK.load"
    )
    libvirt: str | None = option(
        TEXT, "The libvirt that runs the guest.", metavar="URI", shown="qemu:///system"
    )
    log_limit: int = option(
        SIZE, "How large QEMU's log may become; the recording ends then.", LOG_LIMIT, metavar="SIZE"
    )


@takes_options()
def record(request: RecordOptions, output: OutputOptions) -> None:
    """Record what a running guest asks of its disk: when, where, how much, how long; never data.

    QEMU itself logs the requests: nothing runs in the guest, and it is not restarted. The log is
    switched off at the end, also if vdisklab is killed. libvirt marks the guest as tainted.

    Examples:

      vdisklab record web01 --for 10m

      vdisklab record 101 --disk scsi0 --for 1h -o monday.load

      vdisklab record --here /dev/vda --for 10m

      vdisklab show web01-vda.load
    """
    if (request.guest is None) is (request.here is None):
        raise PlanError(
            "name a guest, or a disk of this machine with --here",
            hint="vdisklab record GUEST --for 10m",
        )
    wish = RecordWish(
        request.guest or "", request.disk, request.seconds, request.output, request.libvirt,
        request.log_limit, None if request.output is None else _OTHERWISE,
    )  # fmt: skip
    with TerminalProgress(Console(stderr=True)) as progress:
        if request.here is not None:
            answer = record_here(LocalHost(), request.here, wish, progress)
        else:
            answer = record_guest(LocalHost(), wish, progress)
    print_answer(answer, tables(answer), output, request)
