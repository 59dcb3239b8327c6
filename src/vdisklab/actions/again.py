"""Finds out how a stored campaign's plan is measured anew."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vdisklab.actions.cell_search import Narrowed
from vdisklab.actions.find_best import make_search
from vdisklab.actions.planning import possible_plan
from vdisklab.answers.loading import stored_verdicts
from vdisklab.errors import LoadError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.host.mounts import is_out_of_sight, is_visible_directory
from vdisklab.path.cell import MeasuredCell, PageCacheChoice
from vdisklab.path.disk_path import some_are_alike
from vdisklab.path.needs import DURABLE
from vdisklab.path.segments import PageCache
from vdisklab.plan.age import parse_age
from vdisklab.plan.campaign import what_is_measured
from vdisklab.plan.guest import parse_qemu
from vdisklab.plan.option_rows import given, merge
from vdisklab.plan.plan_file import request_alike
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import NO_BASELINE, command_words
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile


def repeated(store: Store, request: RunRequest) -> RunRequest:
    """The request that measures the plan of its campaign `again`, with its other options.

    It continues a later campaign of that plan that was interrupted within a day. Raises
    PlanError for a campaign of another host or command, for one whose work directory is gone, and
    for options or a profile that make it another plan.
    """
    campaign = store.campaign(request.again or "")
    if request.patterns:
        raise PlanError(
            "--again measures the paths of its campaign and takes no PATHS",
            hint="leave out the paths, or --again",
        )
    this = machine_facts(LocalHost())
    if campaign.host.machine_id != this.machine_id:
        name = campaign.host.hostname
        also = ", of this name, with another machine-id" if name == this.hostname else ""
        raise PlanError(
            f"campaign {campaign.id} was measured on another host ({name}{also})",
            hint=f"run the same command on {name if name and not also else 'that host'}; here, "
            "`vdisklab run` with the paths begins a campaign of this host",
        )
    anew = merge(_alike(campaign), replace(request, again=None))
    if anew.profile is None:
        raise PlanError(
            f"campaign {campaign.id} ran the profile {campaign.plan['profile']!r} from a file, "
            "which is not stored",
            hint="name the file: --profile FILE",
        )
    _require_directory(campaign, request, anew)
    (repeated,) = anew.campaigns()
    planned = what_is_measured(possible_plan(LocalHost(), repeated).stored_json())
    wanted = what_is_measured(campaign.plan)
    different = sorted(
        key
        for key in {*planned, *wanted} - {"cells", "baseline"}
        if planned.get(key) != wanted.get(key)
    )
    if different:
        options = ", ".join(
            row.flag for row, _ in given(request) if row.name not in ("again", "db")
        )
        raise PlanError(
            f"this would not be the plan of campaign {campaign.id}: it differs in "
            f"{', '.join(key.replace('_', ' ') for key in different)}",
            hint=f"leave out {options}" if options else "write a plan of your own: `vdisklab run`",
        )
    return replace(anew, new=request.new or not _unfinished_since(store, campaign, anew))


def _require_directory(campaign: Campaign, request: RunRequest, anew: RunRequest) -> None:
    """Raises PlanError if the directory of a campaign is not here; it is a part of the plan."""
    directory = campaign.plan.get("directory")
    if directory is None or is_visible_directory(Path(str(directory))):
        return
    other = "DIR" if request.directory is None else shlex.quote(str(request.directory))
    command = shlex.join(command_words(replace(anew, directory=None)))
    if is_out_of_sight(Path(str(directory))):
        raise PlanError(
            f"campaign {campaign.id} was measured in {directory}, which cannot be seen as this "
            "user",
            hint="run it as a user who may look there, or as root; another directory is another "
            f"plan: `{command} --dir {other}`",
        )
    raise PlanError(
        f"campaign {campaign.id} was measured in {directory}, which is not on this machine",
        hint=f"if its storage is here, mount it there, or mkdir -p {shlex.quote(str(directory))}; "
        f"another directory is another plan: `{command} --dir {other}`",
    )


def _alike(campaign: Campaign) -> RunRequest:
    """The request of a stored campaign. Raises PlanError if `vdisklab run` did not measure it."""
    plan, terms = campaign.plan, RaceTerms.of(campaign.plan)
    cells = [MeasuredCell.parse(text) for text in what_is_measured(plan)["cells"]]
    paths = tuple(dict.fromkeys(cell.path.canonical for cell in cells if cell.path is not None))
    if not paths or "until" in plan or not campaign.host.machine_id:
        raise PlanError(
            f"campaign {campaign.id} was not measured by `vdisklab run`",
            hint="`vdisklab runs` lists the campaigns",
        )
    states = {cell.page_cache for cell in cells} - {PageCache.BYPASSED}
    (state,) = states if len(states) == 1 else (PageCacheChoice.BOTH.value,)
    request = replace(
        request_alike(plan, RunRequest),
        paths=paths,
        profile=_profile(plan["profile"]),
        page_cache=PageCacheChoice(state),
        baseline=NO_BASELINE if plan.get("no_baseline") else plan["baseline"],
        keep_equal=some_are_alike(paths),
        age=parse_age(plan["age"]) if "age" in plan else None,
        qemu=tuple(
            parse_qemu(f"{name}={qemu['binary']}") for name, qemu in plan.get("qemu", {}).items()
        ),
        label=campaign.label,
        rounds=plan.get("rounds"),
    )
    if terms is None:
        return request
    return replace(
        request,
        find=SearchFor.BEST if terms.shortlist else None,
        rounds=terms.rounds if terms.shortlist else None,
        within=terms.margin,
        confidence=terms.confidence,
        need=tuple(need for need in terms.needs if need != DURABLE),
        unsafe=DURABLE not in terms.needs,
        metric=terms.metric,
    )


def _profile(name: str) -> str | None:
    """The profile, None for one from a file: the stored plan has no file's name.

    A load that lies in the current directory is found by its name.
    """
    try:
        load_profile(name)
    except (PlanError, LoadError):
        return None
    return name


def _unfinished_since(store: Store, campaign: Campaign, anew: RunRequest) -> bool:
    """True if the newest campaign of this plan came after this one, not long ago, and lacks runs.

    An older one must not be mixed with today's numbers. A race lacks runs until it has ended.
    """
    wanted = what_is_measured(campaign.plan)
    same = (
        stored
        for stored in store.campaigns()
        if stored.host.machine_id == campaign.host.machine_id
        and what_is_measured(stored.plan) == wanted
    )
    newest = next(same, campaign)
    finished = store.finished(newest.id, failed_too=True)
    too_old = datetime.now(UTC) - newest.started >= timedelta(days=1)
    if newest.id == campaign.id or too_old:
        return False
    if not finished:  # it was killed before its first run
        return True
    rounds = newest.plan.get("rounds")
    if isinstance(rounds, int):
        return len(finished) < rounds * len(newest.cells)
    return _races_on(store, anew, newest, finished)


def _races_on(
    store: Store, anew: RunRequest, newest: Campaign, finished: Collection[tuple[int, str]]
) -> bool:
    """True if a race lacks runs of its last round, or has not ended with it."""
    (request,) = anew.campaigns()
    narrowed = Narrowed(possible_plan(LocalHost(), request).as_begun(newest.plan))
    race = make_search(anew)
    if race is not None:
        # As when it began: without the servers that its own runs showed to offer no flush. With
        # them the same command would plan other cells, and no campaign would ever go on.
        verdicts = stored_verdicts(store, newest.host, request.disk)
        narrowed = race.narrow(narrowed.plan, verdicts)
    plan, search = narrowed.plan, narrowed.search
    if search is None or plan.fingerprint != newest.fingerprint:
        return False
    choose, last = search.choosing(store, plan, newest.id), max(round for round, _ in finished)
    return not {(last, cell) for cell in choose(last)} <= set(finished) or bool(choose(last + 1))
