"""The lab's runs put into the user's database, marked as what they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.lab.image import LabImage
from vdisklab.lab.machine import LABEL, LabConfig, LabEnd, LabFiles, take_result
from vdisklab.plan.guest import Accelerator
from vdisklab.results.model import Campaign, HostFacts, Origin
from vdisklab.results.store import open_store

DATABASE = "lab.sqlite"
"""The lab's own database, among a job's results."""

_MARK = "lab"


@dataclass(frozen=True, slots=True)
class LabHost:
    """What a lab was: the machine below it, its own size, its image, and how it went."""

    below: HostFacts
    config: LabConfig
    image: LabImage
    end: LabEnd


def bring_back(files: LabFiles, url: str, lab: LabHost) -> list[str]:
    """Copies the campaigns of a job's database into another one, and returns their ids.

    Empty when the job made none. Raises GuestError and DatabaseError.
    """
    found = take_result(files, DATABASE, files.directory)
    return [] if found is None else copy_campaigns(found, url, lab)


def copy_campaigns(found: Path, url: str, lab: LabHost) -> list[str]:
    """Copies every campaign that has runs with all of them, marked; the newest first."""
    with open_store(str(found), create=False) as inside, open_store(url) as store:
        brought: list[str] = []
        for campaign in inside.campaigns():
            runs = list(inside.runs(campaign.id))
            if not runs:
                continue
            store.add_campaign(marked(campaign, lab))
            for run in runs:
                store.add_run(replace(run, origin=Origin.LAB))
            brought.append(campaign.id)
    return brought


def marked(campaign: Campaign, lab: LabHost) -> Campaign:
    """The campaign with the lab's facts, and `lab` in its label.

    All labs call themselves the same, so the machine gets an identity made of that of the host
    below: the labs of two hosts in one database are two machines.
    """
    emulated = lab.config.accelerator is Accelerator.TCG
    below = lab.below
    more = {
        **campaign.host.more,
        "lab": LABEL if emulated else "a virtual machine",
        "lab_accelerator": lab.config.accelerator.value,
        "lab_cpus": str(lab.config.cpus),
        "lab_memory_bytes": str(lab.config.memory_bytes),
        "lab_image": lab.image.directory.name,
        "lab_up_seconds": f"{lab.end.up_seconds:.1f}",
        "lab_wall_seconds": f"{lab.end.wall_seconds:.1f}",
        "lab_host": below.hostname,
        "lab_host_kernel": below.kernel,
        "lab_host_cpu": f"{below.cpus} × {below.cpu}",
        "lab_host_qemu": below.qemu or "",
    }
    identity = hashlib.sha256(f"lab of {below.machine_id}".encode()).hexdigest()[:16]
    host = replace(campaign.host, machine_id=identity, more=more)
    label = f"{campaign.label} ({_MARK})" if campaign.label else _MARK
    return replace(campaign, host=host, label=label)
