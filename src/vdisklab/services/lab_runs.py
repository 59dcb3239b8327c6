"""Runs jobs in the lab, and copies what a campaign measured there into the user's database."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.accelerator import try_kvm
from vdisklab.host.command import Host
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import cache_directory, open_ledger
from vdisklab.lab.lab_image import LabImage, find_lab_image, lab_cache, require_same_python
from vdisklab.lab.lab_machine import (
    KVM_TRIAL_SECONDS,
    LABEL,
    LabConfig,
    LabEnd,
    boot_lab_kernel,
    lab_files,
    require_lab_room,
    run_job,
    run_shell,
    take_result,
)
from vdisklab.lab.payload import carried_files, payload_disk
from vdisklab.plan.guest import Accelerator, AcceleratorChoice
from vdisklab.progress import Note, Progress, Step
from vdisklab.results.model import Campaign, HostFacts, Origin
from vdisklab.results.store import Store, open_store
from vdisklab.storage.site import Site, open_site

_DATABASE = "lab.sqlite"
_MARK = "lab"


@dataclass(frozen=True, slots=True)
class Lab:
    """An image that can be booted, and the site for the disks of one run."""

    site: Site
    image: LabImage


@dataclass(frozen=True, slots=True)
class LabRun:
    """A run of the lab: the host below, the machine, its image, and how the job ended."""

    host: HostFacts
    config: LabConfig
    image: LabImage
    end: LabEnd


@contextmanager
def open_lab(host: Host, directory: Path | None) -> Iterator[Lab]:
    """The lab with its disks in `directory` (None: the cache); they are removed at the end.

    Raises HostError when the lab is not built, damaged or unsuitable, or when room is missing.
    """
    image = find_lab_image(host, cache_directory())
    if image is None:
        raise HostError("the lab is not built yet", hint="vdisklab lab build")
    require_same_python(image)
    work = (directory or lab_cache(cache_directory())).absolute()
    require_lab_room(work)
    with open_ledger() as ledger, open_site(host, ledger, work) as site:
        yield Lab(site, image)


def choose_accelerator(lab: Lab, choice: AcceleratorChoice, progress: Progress) -> Accelerator:
    """The chosen accelerator; for `auto`, KVM if the lab's kernel boots under it."""
    if choice.accelerator is not None:
        return choice.accelerator
    progress(Step("testing whether the lab runs under KVM"))
    trial = try_kvm(partial(boot_lab_kernel, lab.site.host, lab.image.kernel), KVM_TRIAL_SECONDS)
    if trial.works:
        return Accelerator.KVM
    progress(Note(f"the lab runs under emulation: {trial.tried}"))
    return Accelerator.TCG


def measure_in_lab(
    lab: Lab, config: LabConfig, words: Sequence[str], store: Store, say: Callable[[str], None]
) -> tuple[LabEnd, list[str]]:
    """Runs `vdisklab run` with these words in the lab and stores its campaigns.

    Returns how the job ended, and the ids of the campaigns; `say` gets the lines that the job
    prints. Raises GuestError when nothing was measured, and DatabaseError.
    """
    arguments, carried = carried_files(words)
    site = lab.site
    code = payload_disk(site.host, site.directory, job_script(arguments), carried)
    with lab_files(site, lab.image, code, config) as files:
        end = run_job(site, config, files, say)
        database = take_result(files, _DATABASE, files.directory)
        run = LabRun(collect_facts(site.host), config, lab.image, end)
        campaigns = [] if database is None else copy_campaigns(database, store, run)
    if not campaigns:
        raise GuestError(f"the lab's job ended with {end.status} and measured nothing")
    return end, campaigns


def run_script(lab: Lab, config: LabConfig, script: str, say: Callable[[str], None]) -> int:
    """Runs a shell script in the lab and returns its exit status."""
    code = payload_disk(lab.site.host, lab.site.directory, script)
    with lab_files(lab.site, lab.image, code, config) as files:
        return run_job(lab.site, config, files, say).status


def open_shell(lab: Lab, config: LabConfig) -> None:
    """Runs a shell in the lab on this terminal."""
    code = payload_disk(lab.site.host, lab.site.directory, None)
    with lab_files(lab.site, lab.image, code, config) as files:
        run_shell(lab.site, config, files)


def describe_accelerator(accelerator: Accelerator) -> str:
    """What the accelerator of the lab means for numbers measured in it."""
    return LABEL if accelerator is Accelerator.TCG else "a virtual machine"


def job_script(arguments: Sequence[str]) -> str:
    """The script that runs `vdisklab run` in the lab, with a database among the results."""
    words = ["run", *arguments, "--dir", "/work", "--db", f"/work/out/{_DATABASE}"]
    return "\n".join(
        [
            "#!/bin/sh",
            # Guests under two emulators answer slowly.
            "export PYTHONUNBUFFERED=1 VDISKLAB_PATIENCE=20",
            # Its tables do not know that they are from a lab; ours do.
            f"exec python3 -m vdisklab {shlex.join(words)} >/dev/null",
            "",
        ]
    )


def copy_campaigns(database: Path, store: Store, run: LabRun) -> list[str]:
    """Copies every campaign that has runs, marked as measured in a lab; returns their ids.

    Raises DatabaseError, also for a campaign that `store` already has.
    """
    copied: list[str] = []
    with open_store(str(database), create=False) as source:
        for campaign in source.campaigns():
            runs = list(source.runs(campaign.id))
            if not runs:
                continue
            store.add_campaign(mark_campaign(campaign, run))
            for stored in runs:
                store.add_run(replace(stored, origin=Origin.LAB))
            copied.append(campaign.id)
    return copied


def mark_campaign(campaign: Campaign, run: LabRun) -> Campaign:
    """The campaign with the facts of the lab, and `lab` in its label.

    All labs have the same machine id, so it is replaced by one derived from the host below: the
    labs of two hosts in one database are two machines.
    """
    host = run.host
    more = {
        **campaign.host.more,
        "lab": describe_accelerator(run.config.accelerator),
        "lab_accelerator": run.config.accelerator.value,
        "lab_cpus": str(run.config.cpus),
        "lab_memory_bytes": str(run.config.memory_bytes),
        "lab_image": run.image.directory.name,
        "lab_up_seconds": f"{run.end.up_seconds:.1f}",
        "lab_wall_seconds": f"{run.end.wall_seconds:.1f}",
        "lab_host": host.hostname,
        "lab_host_kernel": host.kernel,
        "lab_host_cpu": f"{host.cpus} × {host.cpu}",
        "lab_host_qemu": host.qemu or "",
    }
    identity = hashlib.sha256(f"lab of {host.machine_id}".encode()).hexdigest()[:16]
    facts = replace(campaign.host, machine_id=identity, more=more)
    label = f"{campaign.label} ({_MARK})" if campaign.label else _MARK
    return replace(campaign, host=facts, label=label)
