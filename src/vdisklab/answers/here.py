"""What the stored results say of this machine."""

from __future__ import annotations

from vdisklab.answers.loading import stored_verdicts
from vdisklab.host.command import Host
from vdisklab.host.facts import collect_facts, machine_facts
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.results.store import Store


def verdicts_here(results: Store, host: Host, disk: HostDisk | None = None) -> CrashVerdicts:
    """The power-cut verdicts of this machine, above a disk. Raises HostError as `machine_facts`.

    Programs are asked for their versions only if a verdict of this machine is stored.
    """
    machine = machine_facts(host)
    judged = results.power_cuts(machine.machine_id)
    return stored_verdicts(results, collect_facts(host) if judged else machine, disk)
