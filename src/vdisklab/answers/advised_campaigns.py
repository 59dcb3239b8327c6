"""The campaigns that would answer for existing guests' disks: one for each place and stack."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from vdisklab.answers.advice_by_campaigns import Desk, StoredProfile
from vdisklab.answers.disks import (
    BegunMeasurement,
    ExistingDisk,
    PlannedMeasurement,
    QuickLook,
    StandIn,
    cpus_needed,
    number_of,
)
from vdisklab.answers.measuring_place import MeasuringPlace
from vdisklab.answers.race_plan import as_race, can_race
from vdisklab.answers.wanted_paths import wanted_of
from vdisklab.host.mounts import (
    lies_in_memory,
    may_measure_in,
)
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.platforms import Platform
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import DEFAULT_PROFILE, Request, command_words
from vdisklab.value import replace
from vdisklab.workload.builtin_profiles import (
    builtin_profile,
    quick_look_of,
)
from vdisklab.workload.profile_files import load_profile


def plans(
    rows: Iterable[ExistingDisk], request: Request, desk: Desk, stands_in: StandIn | None = None
) -> Iterator[PlannedMeasurement]:
    """One campaign for each file system and stack: what cannot be built must not stop the rest.

    What stands in for the disks' storage is measured in the current directory.
    """
    by_place: dict[object, dict[DiskPath, list[ExistingDisk]]] = {}
    for row in rows:
        place = MeasuringPlace.of(row, stands_in, request.directory)
        wanted = tuple(wanted_of(row, place))
        if wanted:
            stored = desk.stored_profile(row, wanted[0], request)
            nameless = replace(place, directory=None) if stands_in is None else place
            stack = (nameless, number_of(place.directory), wanted[0].layers, stored)
            by_place.setdefault(stack, {}).setdefault(wanted[0], []).append(row)
    for together in by_place.values():
        first, (example, *_) = next(iter(together.items()))
        place = MeasuringPlace.of(example, stands_in, request.directory)
        stored = desk.stored_profile(example, first, request)
        yield _planned(tuple(together.values()), place, stored, request, desk)


def _planned(
    together: Sequence[Sequence[ExistingDisk]],
    place: MeasuringPlace,
    stored: StoredProfile,
    request: Request,
    desk: Desk,
) -> PlannedMeasurement:
    """The campaign for disks in one place, `together` if they have one path: a group of paths for
    each."""
    rows = tuple(chain.from_iterable(together))
    groups = [tuple(wanted_of(each[0], place)) for each in together]
    paths = tuple(dict.fromkeys(chain.from_iterable(groups)))
    directory = place.directory
    in_memory = directory is not None and lies_in_memory(directory)
    in_page_cache = None if place.spare else PageCacheChoice.COLD
    full = replace(
        place.requested(request, paths),  # the host's own speed would answer nothing here
        profile=stored.name,
        guest_cpus=request.guest_cpus or cpus_needed(paths),
        page_cache=PageCacheChoice.WARM if in_memory else in_page_cache,
    )
    profile = load_profile(full.profile or DEFAULT_PROFILE)
    here = full if place.is_here else replace(full, directory=request.directory)
    plan = build_plan(here, Capabilities(), profile)
    named = [tuple(str(place.named(path)) for path in group) for group in groups]
    terms = RaceTerms(groups=tuple(named) if len(named) > 1 else ())
    races = request.rounds is None and can_race(plan, terms)
    takes = desk.effort(as_race(plan, terms) if races else plan, is_here=place.is_here)
    # one race of all paths would decide for one group only
    alone = full if len(groups) == 1 or request.rounds else replace(full, rounds=plan.rounds)
    once = len(groups) == 1 or request.rounds
    most = takes if races and once else desk.effort(plan, is_here=place.is_here)
    return PlannedMeasurement(
        full,
        terms if races else None,
        shlex.join(command_words(alone)),
        takes.usually if races and once else most.at_most,
        takes.at_least,
        takes.usually,
        takes.at_most,
        len(groups),
        place.stands_in,
        _continued(rows, map(str, paths), profile.name),
        tuple(row.name for row in rows),
        place.node,
        place.said,
        stored.unusable,
        place.is_here and directory is not None and not may_measure_in(directory),
        desk.lacks(plan) if place.is_here else "",
        place.to_name,
        all(row.disk.node and _reads_its_host(row.disk.platform) for row in rows),
        _quick_look(full, alone, place, desk),
    )


def _reads_its_host(platform: Platform) -> bool:
    """True if a host of the platform shows its guests to `advise` without a name."""
    return bool(platform.on_host.directory or platform.on_host.program)


def _quick_look(
    full: Request, alone: Request, place: MeasuringPlace, desk: Desk
) -> QuickLook | None:
    """The measurement with a shorter profile; None if the profile has none.

    `full` races if that is possible, `alone` is what its command asks for.
    """
    short = quick_look_of(full.profile or DEFAULT_PROFILE)
    if short is None:
        return None
    profile = builtin_profile(short)
    rounds = None if alone.rounds is None or full.rounds == alone.rounds else profile.usual.rounds
    asked = replace(alone, profile=short, rounds=rounds or full.rounds)
    plan = build_plan(asked, Capabilities(), profile)
    races = asked.rounds is None and can_race(plan, RaceTerms())
    takes = desk.effort(as_race(plan, RaceTerms()) if races else plan, is_here=place.is_here)
    differs = re.split(r"[.:] ", " ".join(profile.description.split()))[0]
    return QuickLook(
        short, shlex.join(command_words(asked)), takes.usually if races else takes.at_most,
        differs[:1].lower() + differs[1:],
    )  # fmt: skip


def _continued(
    rows: Iterable[ExistingDisk], paths: Iterable[str], profile: str
) -> BegunMeasurement | None:
    """The begun measurement of these paths with this profile; None if there is none."""
    wanted = frozenset(paths)
    found = (row.advised.begun for row in rows)
    return next(
        (each for each in found if each and each.paths == wanted and each.profile == profile), None
    )
