"""The resources that all cells of a campaign share, opened in order and closed in reverse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from vdisklab.campaign.guests import BootFromDisk, disk_boots
from vdisklab.campaign.host_stacks import HostStacks, open_host_stacks
from vdisklab.campaign.prepared_data import PreparedData, planned_data, prepared_data
from vdisklab.campaign.schedule import planned_script
from vdisklab.campaign.space import require_space
from vdisklab.campaign.user_guest import user_boot
from vdisklab.errors import PlanError
from vdisklab.guest.factory import GuestPool, StartGuest, prepare_guests
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.hotplug import make_commands
from vdisklab.guest.image.debian_packages import PackageSet, package_set
from vdisklab.guest.image.debian_packages import planned_packages as planned_set
from vdisklab.guest.image.foreign import foreign_apt
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.host.command import Host
from vdisklab.host.machine import is_emulated
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import SYSTEMS, Qemu
from vdisklab.progress import Progress, Step
from vdisklab.results.model import Check, Measurement, RanUnder
from vdisklab.storage.site import (
    Site,
    open_site,
)
from vdisklab.value import Value, field
from vdisklab.workload.program import program_of
from vdisklab.workload.systems import systems_of

Packages = Mapping[str, PackageSet | PreparedData]
"""The packages of each system that the profile installs, by the system's name, and the files that
its programs copy, by theirs."""


class CellResult(Value):
    """The result of a cell in one round: states read back, programs run, numbers measured."""

    checks: tuple[Check, ...] = ()
    commands: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()


class CampaignContext(Value):
    """The resources that all cells of a campaign share."""

    plan: CampaignPlan
    stacks: HostStacks
    guests: GuestPool
    accelerator: Accelerator | None
    progress: Progress
    packages: Packages = field(default_factory=dict)
    boot: BootFromDisk | None = None

    @property
    def ran_under(self) -> RanUnder | None:
        """The guests' accelerator; None without guests."""
        if self.accelerator is None:
            return None
        return RanUnder.of(self.accelerator, emulated=is_emulated())


@contextmanager
def open_campaign(guest_context: GuestContext, plan: CampaignPlan) -> Iterator[CampaignContext]:
    """The context of a campaign: stacks built, allocated images filled, guests ready to boot.

    Raises HostError before creating anything if there is not enough room.
    """
    require_space(plan)
    with open_site(guest_context.host, guest_context.ledger, plan.directory) as site:
        packages = gather_packages(site, guest_context.cache, plan, guest_context.progress)
        accelerator, start = campaign_guests(guest_context, plan, site, carried_disks(packages))
        boots = disk_boots(guest_context, plan, accelerator, plan.guest_buses, site.directory)
        with (
            open_host_stacks(
                site, plan, guest_context.progress, None if boots is None else boots.write
            ) as stacks,
            GuestPool(start, guest_context.progress, programs_of(plan)) as guests,
        ):
            stacks.build_side_by_side()
            yield CampaignContext(
                plan,
                stacks,
                guests,
                accelerator,
                guest_context.progress,
                packages,
                None if boots is None else boots.start,
            )


def campaign_guests(
    guest_context: GuestContext,
    plan: CampaignPlan,
    site: Site,
    carried: tuple[CarriedDisk, ...] = (),
) -> tuple[Accelerator | None, StartGuest]:
    """The guests' accelerator (None without guests), and the function that starts a guest."""
    buses = plan.guest_buses
    if not buses:
        return None, _no_guest
    user_guest = plan.guest.user
    user_boots = None if user_guest is None else partial(user_boot, site, user_guest)
    return prepare_guests(
        guest_context,
        plan.guest,
        buses,
        site.directory,
        carried=carried,
        qemus=qemus_of(plan),
        user_boots=user_boots,
    )


def qemus_of(plan: CampaignPlan) -> tuple[Qemu | None, ...]:
    """The distinct QEMUs of the plan's guests; None means the installed one."""
    names = (cell.path.attachment.qemu for cell in plan.cells if not cell.path.on_host)
    return tuple(plan.qemu(name) for name in dict.fromkeys(names))


def _no_guest(
    _machine: str, _disks: tuple[Disk, ...], _qemu: str | None
) -> AbstractContextManager[Machine]:
    raise AssertionError("a campaign without guests started a guest")


def programs_of(plan: CampaignPlan) -> tuple[str, ...]:
    """Every program that the plan's measurements start, each once, in order of need."""
    return tuple(dict.fromkeys(_programs(plan)))


def _programs(plan: CampaignPlan) -> Iterator[str]:
    guests = [cell.path.attachment for cell in plan.cells if not cell.path.on_host]
    for measurement in plan.profile.measurements:
        if measurement.filesystem is not None:
            kinds = [bus.guest_fs or measurement.filesystem for bus in guests]
            for kind in dict.fromkeys([measurement.filesystem, *kinds]):
                yield from (program_of(command) for command in make_commands("", kind))
        script = planned_script(plan, measurement)
        steps = (*script.prepare, *script.warm, *script.count)
        yield from (program_of(step.command) for step in steps)
        yield program_of(script.command)
        yield from (program_of(step.command) for step in script.conclude)


def gather_packages(site: Site, cache: Path, plan: CampaignPlan, progress: Progress) -> Packages:
    """The packages that the profile installs and the files that its programs copy, from the cache
    or downloaded and made."""
    packages: dict[str, PackageSet | PreparedData] = {}
    systems = systems_of(plan.profile)
    if systems and is_foreign() and any(cell.path.on_host for cell in plan.cells):
        raise PlanError(
            f"profile {plan.profile.name} installs packages of {GUEST.name}, which this host does "
            "not run",
            hint="leave out paths on the host: --baseline none",
        )
    for system in systems:
        progress(Step(f"getting the packages of the {system.name} system"))
        packages[system.name] = package_set(
            site.host, cache, system, partial(foreign_apt, site.host, cache)
        )
    return packages | prepared_data(site, cache, plan, progress)


def planned_packages(host: Host, cache: Path, plan: CampaignPlan) -> Packages:
    """The same as far as they are in the cache, else their places."""
    packages = {
        system.name: planned_set(host, cache, system) for system in systems_of(plan.profile)
    }
    return packages | dict(planned_data(host, cache, plan))


def carried_disks(packages: Packages) -> tuple[CarriedDisk, ...]:
    """The disks that carry the packages and files into guests."""
    return tuple(
        CarriedDisk(SYSTEMS[name].serial if name in SYSTEMS else name, package_set.disk)
        for name, package_set in packages.items()
    )


def host_places(packages: Packages) -> dict[str, str]:
    """The directories with the packages, for programs on the host."""
    return {name: str(package_set.directory) for name, package_set in packages.items()}


def package_checks(packages: Packages) -> tuple[Check, ...]:
    """Checks that identify the packages and files, because results depend on them."""
    return tuple(
        Check(f"packages.{name}", None, str(package_set)) for name, package_set in packages.items()
    )
