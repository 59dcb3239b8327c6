"""Turns a request into a campaign plan, in two steps: before and after the survey of the host.

A `Draft` holds everything that can be decided without a host: the expanded paths, defaults, limits.
With a host's capabilities it becomes a `CampaignPlan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import PlanError
from vdisklab.operations.registry import as_platforms_do
from vdisklab.path.architecture import GUEST
from vdisklab.path.backing import BackingDevices
from vdisklab.path.bus_options import with_each
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.named_target import require_targets
from vdisklab.path.rules import too_many_queues
from vdisklab.path.segments import HOST
from vdisklab.plan.age import NEW, Age, not_aged, not_with_age
from vdisklab.plan.campaign import CampaignPlan, Dropped
from vdisklab.plan.capabilities import Capabilities, infeasible
from vdisklab.plan.destination import Destination, destination_of, named_directory
from vdisklab.plan.guest import GuestPlan, Qemu, UserGuest
from vdisklab.plan.making_here import NOTHING_KNOWN, MakingHere
from vdisklab.plan.matrix import (
    Matrix,
    cells_of,
    drop,
    expand_paths,
    judge_paths,
    measured_once,
    not_booted,
    not_during,
    not_made,
    not_shared,
    not_together,
    not_trimmed,
    possible_ways,
    require_destination,
    require_only_boots,
    require_possible,
    too_small,
    too_small_for_operation,
    uses_no_files,
    with_other_ways,
)
from vdisklab.plan.named_here import NamedHere
from vdisklab.plan.option_rows import defaults, settings_of, with_defaults
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import NO_BASELINE, Request
from vdisklab.plan.toml_file import describe_place
from vdisklab.value import Value, replace

_Value = TypeVar("_Value")


def build_plan(
    request: Request,
    capabilities: Capabilities,
    profile: Profile,
    qemus: tuple[Qemu, ...] = (),
    user_guest: UserGuest | None = None,
    *,
    here: MakingHere = NOTHING_KNOWN,
) -> CampaignPlan:
    """The plan of a request on a host with these capabilities; see `draft_plan` and `Draft.on`."""
    named = NamedHere(request, profile, user_guest, qemus, making=here)
    return draft_plan(named).on(capabilities)


def draft_plan(named: NamedHere) -> Draft:
    """The draft of a request with what it names.

    Unset options come from the profile, else from the setting's default. Raises PlanError for
    values that no campaign can use, PathSyntaxError for malformed paths.
    """
    request, profile = named.request, named.profile
    usual = {
        name: value
        for name, value in profile.usual.settings.items()
        if getattr(request, name) is None
    }
    if not request.patterns:
        request = replace(request, paths=profile.usual.paths)
    places = {
        row.name: describe_place(["usual", row.key], f"profile {profile.name}")
        for row in settings_of(Request)
        if row.name in usual
    }
    settings = with_defaults(request, usual, places)
    if settings.template is not None:  # the printed commands run from other directories, too
        place = settings.template.absolute()
        settings = replace(settings, template=place.parent.resolve() / place.name)
    if settings.guest_image is not None and settings.guest_kernel is not None:
        raise PlanError(
            "a guest of your own boots its own kernel", hint="leave out the kernel or --guest"
        )
    if profile.is_open_load and not settings.guests and not settings.has_operations:
        settings = replace(settings, guests=("1",))
    in_guests = (
        profile.boots
        or profile.is_open_load
        or profile.trims
        or profile.makes_disks
        or settings.has_operations
    )
    if in_guests and settings.baseline is None:
        settings = replace(settings, baseline=NO_BASELINE)
    baseline = None if settings.baseline == NO_BASELINE else settings.baseline
    # Every guest's path is multiplied by the QEMUs, and by the settings in the guest.
    axes = {
        "qemu": tuple(qemu.name for qemu in named.qemus),
        "guest_scheduler": settings.guest_scheduler,
        "guest_fs": settings.guest_fs,
        "guest_mount": settings.guest_mount,
        "guests": settings.guests,
        "during": tuple(
            variant.replace(":", "+")
            for order in settings.during
            for variant in as_platforms_do(order, settings.platform)
        ),
        "made": tuple(way.replace(":", "+") for way in settings.made),
    }
    require_targets(settings.target, settings.secret)
    if settings.cache_memory is not None:
        settings.cache_memory.require_enough(_set(settings.size_bytes))
    paths = expand_paths(settings.patterns, axes, settings.target)
    if profile.makes_disks and not settings.made:
        paths = tuple(
            made
            for path in paths
            for made in with_each(
                path, "made", possible_ways(settings.template, named.making, path)
            )
        )
    baselines = () if baseline is None else expand_paths([baseline], axes, settings.target)
    if usual.get("ramp") == 0 and any((path.attachment.guests or 1) > 1 for path in paths):
        settings = replace(settings, ramp=defaults(Request).ramp)  # in which several guests start
    share = next((path for path in paths if path.shares_directory), None)
    if settings.guests and share is not None:
        raise PlanError(
            f"{share} is a shared directory, which one guest measures alone: it takes neither "
            "--guests nor an open load",
            hint="leave out the path, or --guests and rate_iops",
        )
    schedulers = (path.attachment.guest_scheduler for path in paths)
    architecture = _set(settings.guest_arch)
    if architecture != GUEST.name:
        raise PlanError(
            f"the plan's guests are {architecture}, and this command's are {GUEST.name}",
            hint=f"add --guest-arch {architecture}",
        )
    return Draft(
        named=named,
        settings=settings,
        paths=paths,
        baseline=None if baseline is None else _only_path(baseline, baselines),
        guest=GuestPlan(
            cpus=_set(settings.guest_cpus),
            memory_bytes=_set(settings.guest_memory),
            accelerator=_set(settings.accelerator).accelerator,
            kernel=settings.guest_kernel,
            user=named.guest,
            schedulers=frozenset(name for name in schedulers if name is not None),
        ),
    )


def backing_of(request: Request) -> BackingDevices:
    """The disks below the stacks of a request; devices by their absolute paths."""
    named = [word for target in request.target for word in (target.name, target.place)]
    spent = set(map(str, request.destroy))
    directory = named_directory(request.to)
    return BackingDevices(
        devices=tuple(device.absolute() for device in request.devices),
        destroy=tuple(device.absolute() for device in request.destroy if str(device) not in named),
        targets=request.target if directory is None else (*request.target, directory),
        spendable=frozenset(
            target.name for target in request.target if spent & {target.name, target.place}
        ),
        secrets=request.secret,
        disks=request.disks,
        arc_bytes=request.arc_bytes,
    )


class Draft(Value):
    """A campaign before the survey of a host.

    `settings` is the request with all defaults; `baseline` is the requested baseline path, if any.
    """

    named: NamedHere
    settings: Request
    paths: tuple[DiskPath, ...]
    baseline: DiskPath | None
    guest: GuestPlan

    @property
    def backing(self) -> BackingDevices:
        """The disks below all stacks."""
        return backing_of(self.settings)

    @property
    def directory(self) -> Path:
        """The work directory."""
        return (self.settings.directory or Path()).absolute()

    @property
    def destination(self) -> Destination | None:
        """Where operations copy to, if the request says so."""
        return destination_of(self.settings.to, self.settings.target)

    @property
    def paths_to_survey(self) -> tuple[DiskPath, ...]:
        """Every path that may be measured or copied to: the matrix, the baseline, `--to`, and the
        host itself."""
        baseline = () if self.baseline is None else (self.baseline,)
        to = () if self.destination is None else (self.destination.path,)
        return tuple(dict.fromkeys((*self.paths, *baseline, *to, parse_path(HOST))))

    def on(self, capabilities: Capabilities) -> CampaignPlan:
        """The plan on a host with these capabilities.

        Raises PlanError for paths that cannot exist, HostError for those that fail on this host.
        """
        settings, profile, age = self.settings, self.named.profile, self._age()
        matrix = judge_paths(self.paths, _set(settings.page_cache), capabilities, self.backing)
        if not settings.keep_equal:
            matrix = measured_once(matrix)
        matrix = drop(matrix, lambda path: too_many_queues(path, self.guest.cpus))
        require_only_boots(profile)
        for rule in (
            partial(not_booted, profile),
            partial(not_trimmed, profile),
            partial(not_shared, profile),
            partial(not_together, float(_set(settings.ramp))),
            partial(not_during, profile, settings.has_operations, self.destination, self.backing),
            partial(too_small_for_operation, _set(settings.size_bytes)),
            partial(not_made, profile, settings.template, self.named.making),
            partial(not_with_age, age, self.backing),
        ):
            matrix = drop(matrix, rule)
        if self.destination is not None:
            require_destination(self.destination, settings.during, capabilities, self.backing)
        baseline, matrix = self._with_baseline(matrix, age, capabilities)
        for rule in (
            partial(not_booted, profile),
            partial(not_trimmed, profile),
            partial(uses_no_files, profile),
            partial(too_small, profile, _set(settings.size_bytes)),
        ):
            matrix = drop(matrix, rule)
        matrix = with_other_ways(matrix)
        plan = CampaignPlan(
            cells=matrix.cells,
            dropped=matrix.dropped,
            profile=profile,
            rounds=_set(settings.rounds),
            seed=settings.seed or 0,
            size_bytes=_set(settings.size_bytes),
            runtime=float(_set(settings.runtime)),
            ramp=float(_set(settings.ramp)),
            directory=self.directory,
            baseline=baseline,
            guest=self.guest,
            backing=self.backing,
            label=_set(settings.label),
            scale=_set(settings.scale),
            qemus=self.named.qemus,
            settings=settings,
            destination=self.destination,
            template_state=self.named.making.template,
        )
        if settings.seed is not None:
            return plan
        # 32 bits from everything in the plan except the number of rounds.
        return replace(plan, seed=int(plan.fingerprint[:8], 16))

    def _age(self) -> Age:
        """The requested age. Raises PlanError for rewrites under a profile that boots."""
        age = self.settings.age or NEW
        if age.rewrites and self.named.profile.boots:
            raise PlanError(
                f"--age {age}: rewrites would overwrite the system that profile "
                f"{self.named.profile.name!r} boots",
                hint="leave out rewrites and snapshots",
            )
        return age

    def _with_baseline(
        self, matrix: Matrix, age: Age, capabilities: Capabilities
    ) -> tuple[DiskPath, Matrix]:
        """The baseline, and the matrix with its cells in front if it was not in it."""
        if self.settings.baseline == NO_BASELINE:
            return matrix.cells[0].path, matrix
        if self.baseline is not None:
            require_possible(self.baseline, capabilities, self.backing)
            unaged = not_aged(self.baseline, age, self.backing)
            if unaged is not None:
                raise PlanError(
                    f"the baseline {self.baseline} cannot be aged: {unaged.reason}",
                    hint=unaged.instead,
                )
            return self.baseline, self._including(self.baseline, matrix, capabilities)
        for cell in matrix.cells:
            if cell.path.on_host:
                return cell.path, matrix
        host = parse_path(HOST)
        unaged = not_aged(host, age, self.backing)
        verdict = infeasible(host, capabilities) or unaged
        if verdict is None:
            return host, self._including(host, matrix, capabilities)
        dropped = Dropped(host.canonical, verdict.reason, verdict.instead, asked=False)
        if host.canonical not in {path.path for path in matrix.dropped}:
            matrix = replace(matrix, dropped=(*matrix.dropped, dropped))
        return matrix.cells[0].path, matrix

    def _including(self, path: DiskPath, matrix: Matrix, capabilities: Capabilities) -> Matrix:
        if any(cell.path == path for cell in matrix.cells):
            return matrix
        added = cells_of(path, _set(self.settings.page_cache), capabilities)
        return replace(matrix, cells=(*added, *matrix.cells))


def _only_path(text: str, paths: Sequence[DiskPath]) -> DiskPath:
    """The path of a baseline. Raises PlanError if its text expands to several, or to none."""
    if len(paths) != 1:
        raise PlanError(
            f"the baseline {text!r} expands to {len(paths)} paths",
            hint=f"write one path, such as {paths[0]}" if paths else "write one path",
        )
    return paths[0]


def _set(value: _Value | None) -> _Value:
    """The value of a setting with a default, which is not None once defaults are applied."""
    if value is None:
        raise AssertionError("a setting has no value although it has a default")
    return value
