"""Runs jobs in the lab, and copies what a campaign measured there into the user's database."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vdisklab.actions.measure import store_with_retry
from vdisklab.errors import EXIT_CELLS_FAILED, GuestError, HostError
from vdisklab.guest.accelerator import remembered_trial, trial_key, try_kvm
from vdisklab.host.command import Host
from vdisklab.host.facts import QEMU, collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.host.state_directory import cache_directory
from vdisklab.lab import lab_machine
from vdisklab.lab.lab_image import BUILD, LabImage, find_lab_image, lab_cache, require_same_python
from vdisklab.lab.lab_job import JobOutput, LabEnd, run_job
from vdisklab.plan.accelerator import Accelerator, AcceleratorChoice
from vdisklab.plan.run_request import ONLY_MEASURE
from vdisklab.progress import Event, Note, Progress, Step
from vdisklab.results.exchange import read_export, write_json
from vdisklab.results.model import Campaign, HostFacts, Origin
from vdisklab.results.store import Store
from vdisklab.storage.site import Site, open_site
from vdisklab.value import Value, replace

_DATABASE = "/work/lab.sqlite"
_RUNS_PORT = "/dev/virtio-ports/runs"
_EARLIER = "earlier.json"
_MARK = "lab"


class Lab(Value):
    """A bootable image, and the site that holds one run's disks."""

    site: Site
    image: LabImage


class LabJobResult(Value):
    """How the lab's job ended, and the ids of the campaigns that it measured or continued."""

    end: LabEnd
    campaigns: tuple[str, ...]


@contextmanager
def open_lab(host: Host, directory: Path | None) -> Iterator[Lab]:
    """The lab with its disks in `directory` (None: the cache); they are removed at the end.

    Raises HostError when the lab is not built, damaged or unsuitable, or when room is missing.
    """
    image = find_lab_image(host, cache_directory())
    if image is None:
        raise HostError("the lab is not built yet", hint=BUILD)
    require_same_python(image)
    work = (directory or lab_cache(cache_directory())).absolute()
    lab_machine.require_lab_room(work)
    with open_ledger() as ledger, open_site(host, ledger, work) as site:
        yield Lab(site, image)


def choose_accelerator(lab: Lab, choice: AcceleratorChoice, progress: Progress) -> Accelerator:
    """The chosen accelerator; for `auto`, KVM if the lab's kernel boots under it.

    The cache keeps the trial's result until this machine boots again, or QEMU or the image changes.
    """
    if choice.accelerator is not None:
        return choice.accelerator
    host, kernel = lab.site.host, lab.image.kernel
    progress(Step("testing whether the lab runs under KVM"))
    trial = remembered_trial(
        cache_directory() / "accelerator-of-lab.json",
        trial_key(host.run(QEMU, "--version").stdout.splitlines()[0], str(kernel)),
        lambda: try_kvm(
            partial(lab_machine.boot_lab_kernel, host, kernel), lab_machine.KVM_TRIAL_SECONDS
        ),
    )
    if trial.works:
        return Accelerator.KVM
    progress(Note(f"the lab runs under emulation: {trial.tried}"))
    return Accelerator.TCG


def measure_in_lab(
    lab: Lab,
    config: lab_machine.LabConfig,
    argv: Sequence[str],
    store: Store,
    print_line: Callable[[str], None],
) -> LabJobResult:
    """Runs `vdisklab run` with these words in the lab, and stores each run as it is measured.

    A campaign that the same words began on the same lab is continued. `print_line` gets the lines
    that the job prints. Raises GuestError when nothing was measured, and DatabaseError.
    """
    arguments, carried = lab_machine.carried_files(argv)
    site = lab.site
    facts = lab_facts(collect_facts(site.host), lab.image, config, argv)
    stored = store.campaigns()
    earlier = next((campaign for campaign in stored if _is_continued(campaign, facts)), None)
    if earlier is not None:
        carried[_EARLIER] = site.directory / _EARLIER
        with carried[_EARLIER].open("w") as file:
            write_json(file, store, (earlier,), (), raw=False)
    results = LabResults(store, facts, {campaign.id for campaign in stored}, print_line)
    job = job_script(arguments, facts["lab_identity"], continued=earlier is not None)
    code = lab_machine.payload_disk(site.host, site.directory, job, carried)
    with lab_machine.lab_files(site, lab.image, code, config) as files:
        end = run_job(site, config, files, JobOutput(print_line, results.take))
    campaigns = tuple(results.campaigns) or tuple(() if earlier is None else (earlier.id,))
    # A campaign that was complete before ends so if some of its paths are left out.
    well = end.status in (0, EXIT_CELLS_FAILED)
    if not campaigns or (not well and not results.campaigns):
        raise GuestError(f"the lab's job ended with {end.status} and measured nothing")
    return LabJobResult(end, campaigns)


def _is_continued(campaign: Campaign, facts: Mapping[str, str]) -> bool:
    """True if the same command began this campaign in the same lab of the same host."""
    return all(campaign.host.more.get(key) == value for key, value in facts.items())


class LabResults:
    """Stores the runs of a lab, marked `lab`."""

    def __init__(
        self, store: Store, facts: Mapping[str, str], stored: set[str], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._facts = facts
        self._stored = stored
        self._say = say
        self.campaigns: dict[str, None] = {}
        """The campaigns of the runs, in order."""

    def take(self, line: str) -> None:
        """Stores one run, which is a line of output from `vdisklab run --stream`. Raises
        DatabaseError.
        """
        for whole in read_export(line.encode(), name="a run from the lab").campaigns:
            campaign = whole.campaign
            if campaign.id not in self._stored:
                self._store.add_campaign(mark_campaign(campaign, self._facts))
                self._stored.add(campaign.id)
            for run in whole.runs:
                store_with_retry(self._store, replace(run, origin=Origin.LAB), self._note)
            self.campaigns[campaign.id] = None

    def _note(self, event: Event) -> None:
        if isinstance(event, Note):
            self._say(event.text)


def run_script(
    lab: Lab,
    config: lab_machine.LabConfig,
    script: str,
    print_line: Callable[[str], None],
    files_to_carry: Mapping[str, Path],
) -> int:
    """Runs a shell script in the lab and returns its exit status.

    The script finds `files_to_carry` by their names in the directory CARRIED.
    """
    code = lab_machine.payload_disk(lab.site.host, lab.site.directory, script, files_to_carry)
    with lab_machine.lab_files(lab.site, lab.image, code, config) as files:
        return run_job(lab.site, config, files, JobOutput(print_line)).status


def open_shell(lab: Lab, config: lab_machine.LabConfig) -> None:
    """Runs a shell in the lab on this terminal."""
    code = lab_machine.payload_disk(lab.site.host, lab.site.directory, None)
    with lab_machine.lab_files(lab.site, lab.image, code, config) as files:
        lab_machine.run_shell(lab.site, config, files)


def describe_lab(accelerator: Accelerator) -> str:
    """The lab's kind of host under this accelerator, in words."""
    return "an emulated host" if accelerator is Accelerator.TCG else "a host that runs under KVM"


def job_script(arguments: Sequence[str], identity: str, *, continued: bool = False) -> str:
    """The script that runs `vdisklab run` in the lab, which writes each run to a serial port.

    `identity` becomes the lab's machine id, so that the labs of two hosts are two machines.
    """
    argv = ["run", *arguments, "--dir", "/work", "--db", _DATABASE, "--stream", _RUNS_PORT]
    earlier = (
        f"python3 -m vdisklab import {lab_machine.CARRIED / _EARLIER} --db {_DATABASE} >/dev/null"
    )
    return "\n".join(
        [
            "#!/bin/sh",
            f"echo {identity} >/etc/machine-id",
            f"export PYTHONUNBUFFERED=1 {ONLY_MEASURE}=1",
            *([earlier] if continued else ()),
            f"exec python3 -m vdisklab {shlex.join(argv)}",
            "",
        ]
    )


def lab_facts(
    host: HostFacts, image: LabImage, config: lab_machine.LabConfig, argv: Sequence[str]
) -> dict[str, str]:
    """The facts stored with each of a lab's campaigns. A campaign can be continued if they are
    equal.
    """
    return {
        "lab": describe_lab(config.accelerator),
        "lab_command": shlex.join(argv),
        "lab_accelerator": config.accelerator.value,
        "lab_cpus": str(config.cpus),
        "lab_memory_bytes": str(config.memory_bytes),
        "lab_disks": f"{config.disks} × {config.disk_bytes}",
        "lab_image": image.directory.name,
        "lab_identity": hashlib.sha256(f"lab of {host.machine_id}".encode()).hexdigest()[:32],
        "lab_host": host.hostname,
        "lab_host_kernel": host.kernel,
        "lab_host_cpu": f"{host.cpus} × {host.cpu}",
        "lab_host_qemu": host.qemu or "",
    }


def mark_campaign(campaign: Campaign, facts: Mapping[str, str]) -> Campaign:
    """The campaign with the facts of the lab, and `lab` in its label."""
    host = replace(campaign.host, more={**campaign.host.more, **facts})
    label = f"{campaign.label} ({_MARK})" if campaign.label else _MARK
    return replace(campaign, host=host, label=label)
