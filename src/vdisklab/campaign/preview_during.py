"""The commands of an operation and of the load beside it, before anything runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from vdisklab.campaign.measure_during import beside_run, load_subject, probe_script
from vdisklab.campaign.new_images import NewImages, destination_stack
from vdisklab.errors import OperationError
from vdisklab.guest.hotplug import MOUNT_POINT, make_commands
from vdisklab.guest.qemu.block_nodes import Disk, QmpCommand
from vdisklab.guest.qemu.open_disk import (
    backend_of,
    open_disk,
    resize_command,
    use_node_command,
)
from vdisklab.host.command import RecordingHost
from vdisklab.operations.operation import DiskAccess
from vdisklab.operations.registry import parse_operation
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import Site
from vdisklab.value import Value, replace
from vdisklab.workload.program import Subject
from vdisklab.workload.registry import beside_workload_for

BEFORE, DURING, AFTER = "before the load", "while the load runs", "afterwards"
QEMU, HOST, GUEST = "QEMU's monitor", "the host", "the guest"

_UNKNOWN_RATE = 2
"""A request a second for each kind of thread; a placeholder is shown."""
_CHOSEN_AT_START = ("--startdelay=", "--randseed=")
"""Options of fio whose values are chosen when the load starts."""
_MEASURED_FIRST = ("--rate_iops=", "--numjobs=")
"""Options of fio that follow from the rate, which a probe finds out."""


class OperationCommand(Value):
    """A command of an operation or of its load: when it comes, and who gets it."""

    when: str
    where: str
    command: str


@dataclass(slots=True)
class _Recorded:
    """The monitor of a QEMU that does not run: it takes all commands, and each job has ended.

    It answers what operations ask: which jobs, nodes and bitmaps there are.
    """

    host: RecordingHost
    when: str = BEFORE
    commands: list[OperationCommand] = field(default_factory=list)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)

    def note(self, where: str, command: str) -> None:
        """Takes a command down, after those that the host was given before."""
        self.drain()
        self.commands.append(OperationCommand(self.when, where, command))

    def drain(self) -> None:
        """Takes down what the host was given."""
        given, self.host.commands = self.host.commands, []
        self.commands += [
            OperationCommand(self.when, HOST, shlex.join(command)) for command in given
        ]

    def execute(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float = 30.0,  # noqa: ARG002 - the protocol's
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The answer to a question; anything else is taken down."""
        if command == "query-block-jobs":
            done = {"offset": 0, "ready": True, "status": "concluded"}
            return [{"device": job, **done} for job in self.jobs]
        if command == "query-named-block-nodes":
            return [
                {"node-name": node, "dirty-bitmaps": [{"name": name} for name in bitmaps]}
                for node, bitmaps in self.nodes.items()
            ]
        if command == "query-version":
            return {}
        self._follow(command, dict(arguments or {}))
        self.note(QEMU, str(QmpCommand(command, dict(arguments or {}))))
        return {}

    def _follow(self, command: str, arguments: Mapping[str, Any]) -> None:
        actions: Iterable[tuple[str, Mapping[str, Any]]] = [(command, arguments)]
        if command == "transaction":
            actions = [(action["type"], action["data"]) for action in arguments["actions"]]
        for name, data in actions:
            if name == "blockdev-add":
                self.nodes[str(data["node-name"])] = []
            elif name == "blockdev-del":
                self.nodes.pop(str(data["node-name"]), None)
            elif name == "block-dirty-bitmap-add":
                self.nodes.setdefault(str(data["node"]), []).append(str(data["name"]))
            elif name == "job-dismiss":
                self.jobs.remove(str(data["id"]))
            elif "job-id" in data:
                self.jobs.append(str(data["job-id"]))


def preview_operation(
    site: Site,
    host: RecordingHost,
    plan: CampaignPlan,
    cell: Cell,
    *,
    image: ImageFile,
    disk: Disk,
    subject: Subject,
) -> tuple[OperationCommand, ...]:
    """The commands of a cell's operation and load, in the order in which a run gives them.

    `subject` is the disk as the guest sees it. What an operation asks programs is answered by
    nothing: where their answer decides what comes next, a sentence says so.
    """
    order = parse_operation(cell.path.attachment.during or "")
    host.commands = []
    monitor = _Recorded(host)
    with (
        destination_stack(site, plan, order, cell.path) as target,
        ExitStack() as made,
    ):
        images = NewImages(
            site, site.directory / "random.source", image, disk, monitor, made,
            plan.destination, target,
        )  # fmt: skip

        def asked(where: str, *argv: str) -> str:
            monitor.note(where, shlex.join(argv))
            return ""

        opened = open_disk(disk)
        running = order.on(
            opened,
            DiskAccess(
                monitor,
                resize=lambda size: _perform(monitor, resize_command(disk, size)),
                new_image=images.new,
                use_node=lambda node: _perform(monitor, use_node_command(disk, node)),
                device=backend_of(disk),
                on_host=lambda *argv: asked(HOST, *argv),
                in_guest=lambda *argv: asked(GUEST, *argv),
                mount_point=MOUNT_POINT,
                layers=tuple(layer.kind for layer in cell.path.layers),
                volume=images.volume,
                new_file=images.new_file,
            ),
        )
        if order.kind.filesystem is not None:
            for argv in make_commands(subject.path, order.kind.filesystem):
                asked(GUEST, *argv)
            subject = replace(subject, path=MOUNT_POINT, is_device=False, is_directory=True)
        subject, fill = load_subject(subject)
        if fill is not None:
            asked(GUEST, *fill)
        try:
            running.prepare()
            _load(plan, subject, monitor)
            monitor.when = DURING
            running.start()
            running.ready()
            running.finish()
            monitor.when = AFTER
            running.undo()
        except OperationError:
            monitor.note(monitor.commands[-1].where, "# what follows goes by what this prints")
        monitor.drain()
    return tuple(monitor.commands)


def _perform(monitor: _Recorded, command: QmpCommand) -> None:
    monitor.execute(command.execute, command.arguments)


def _load(plan: CampaignPlan, subject: Subject, monitor: _Recorded) -> None:
    measurement, rate = plan.profile.measurements[0], plan.settings.load
    workload = beside_workload_for(measurement)
    hidden: tuple[str, ...] = _CHOSEN_AT_START
    if workload.needs_rate and rate is None:
        monitor.note(GUEST, shlex.join(probe_script(measurement, subject)[1].command))
        rate, hidden = _UNKNOWN_RATE, (*_CHOSEN_AT_START, *_MEASURED_FIRST)
    script = workload.beside_script(measurement, subject, beside_run(plan, rate, 1))
    monitor.when = DURING
    for step in script.prepare:
        monitor.note(GUEST, shlex.join(step.command))
    argv = (
        next((f"{option}RUN" for option in hidden if word.startswith(option)), word)
        for word in script.command
    )
    monitor.note(GUEST, shlex.join(argv))
