"""From a request to the plan of a campaign on this host: plan file, profile, survey."""

from __future__ import annotations

from pathlib import Path

from vdisklab.campaign.estimate import device_bytes_needed, planned_script
from vdisklab.campaign.guests import requested_guest
from vdisklab.campaign.survey import find_qemus, survey
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.plan.build import backing_of, draft_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.plan_file import parse_plan_file
from vdisklab.plan.profile import Profile, parse_profile
from vdisklab.plan.settings import DEFAULT_PROFILE, Request, defaults
from vdisklab.progress import Progress
from vdisklab.storage.device import require_usable
from vdisklab.workload.fiojob import job_profile
from vdisklab.workload.registry import OURS_ALONE, builtin_profile_text, workload_for

_A_TEXT_FILE = "name a file that can be read, in UTF-8"


def read_plan_file(file: Path, request: type[Request] = Request) -> Request:
    """What a plan file requests. Raises PlanError for a file that cannot be read."""
    return parse_plan_file(_text_of(file, "plan file", _A_TEXT_FILE), str(file), request)


def load_profile(name: str) -> Profile:
    """A built-in profile, or one from a file: TOML, or a job file of fio. Raises PlanError."""
    if not name.endswith((".toml", ".fio")):
        return parse_profile(builtin_profile_text(name), f"profile {name}")
    hint = f"{_A_TEXT_FILE}, or a profile that `vdisklab profiles` lists"
    text = _text_of(Path(name), "profile", hint)
    return parse_profile(text, name) if name.endswith(".toml") else job_profile(text, name)


def _text_of(file: Path, what: str, hint: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"the {what} {file} cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"the {what} {file} is not UTF-8 text", hint=hint) from error


def blocks_of(request: Request) -> int:
    """How many blocks a request measures: its own number, its profile's, or the default."""
    usual = load_profile(request.profile or DEFAULT_PROFILE).usual.blocks
    return request.blocks or usual or defaults(Request).blocks or 0


def make_plan(host: Host, ledger: Ledger, request: Request, progress: Progress) -> CampaignPlan:
    """The plan of a request on this host, after its stacks were tried.

    Raises PlanError for what no host could measure, HostError for what this one cannot.
    """
    profile = load_profile(request.profile or DEFAULT_PROFILE)
    qemus, able = find_qemus(host, request.qemu)
    directory = _work_directory(request)
    draft = draft_plan(request, profile, qemus, requested_guest(host, request))
    # What no host could measure is refused before anything is tried on this one.
    check_measurements(draft.on(Capabilities(qemus=able)))
    capabilities = survey(
        host,
        ledger,
        directory,
        draft.paths_to_survey,
        progress,
        backing=backing_of(request),
        qemus=able,
    )
    plan = draft.on(capabilities)
    require_usable(host, plan.backing, device_bytes_needed(plan))
    return plan


def _work_directory(request: Request) -> Path:
    directory = (request.directory or Path()).absolute()
    if directory.exists() and not directory.is_dir():
        raise HostError(f"the work directory {directory} is no directory", hint="name another one")
    if not directory.is_dir():
        raise HostError(
            f"the work directory {directory} does not exist", hint=f"mkdir -p {directory}"
        )
    return directory


def check_measurements(plan: CampaignPlan) -> None:
    """Raises PlanError for a setting that its program does not have, and for a guest, a disk or
    a memory that it cannot work with."""
    for measurement in plan.profile.measurements:
        if plan.guest.user is not None and measurement.program in OURS_ALONE:
            raise PlanError(
                f"measurement {measurement.name!r} boots or installs what the micro guest holds, "
                f"which the guest of {plan.guest.user.image} does not",
                hint="leave --guest out, or choose another profile",
            )
        workload = workload_for(measurement)
        if workload.needs_directory and measurement.filesystem is None:
            raise PlanError(
                f"measurement {measurement.name!r}: {measurement.program} works on files",
                hint='say on which file system: filesystem = "ext4"',
            )
        planned_script(plan, measurement)
