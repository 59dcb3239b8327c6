"""Whether numbers are of another machine, and what that means for commands that are printed with
them. Verbs without a database import this, so it is light."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vdisklab.host.facts import machine_id
from vdisklab.host.mounts import is_out_of_sight, is_visible_directory

_MEASURES = re.compile(r"(?:^|`)vdisklab (?:run|powercut|density) ")
_MEASURES_HERE = re.compile(r"(?:^|`)vdisklab run (?!--again)(?![^`]*(?: --dir| --on) )")
"""A command that measures in the current directory."""


def where_measured(campaigns: Sequence[Any], lines: Sequence[str] | None = None) -> Iterator[str]:
    """That these campaigns are another host's, or that their directory is gone or out of sight, and
    where the commands of an answer are for.

    `lines` are all that is printed with it; a directory of which none of them speaks is left out:
    commands that measure anew name no directory that is gone, and so run in another one. None
    is for a report, which has such commands, and is read later and on another machine.
    """
    here, is_away = "this machine", "is not on this machine now"
    if lines is None:
        here, is_away = (
            "the machine that wrote this report",
            "was not on the machine that wrote this report",
        )
    host = host_elsewhere(campaigns)
    if host is not None:
        measures = lines is None or any(map(_MEASURES.search, lines))
        there = f": commands that measure more are for {host}" if measures else ""
        yield f"Measured on the host {host}, not on {here}{there}."
        return
    for directory, ids in directories_gone(campaigns).items():
        again = [f" --again {name}" for name in ids]
        options = (f" --dir {shlex.quote(directory)}", *again, " --confirm`")
        needs_it = any(option in line for line in lines or () for option in options)
        measures = lines is None or any(map(_MEASURES_HERE.search, lines))
        if not needs_it and not measures:
            continue
        why, back = is_away, "mount the disk that held it"
        if is_out_of_sight(Path(directory)):
            why, back = "cannot be seen as this user", "be a user who may look there, or root"
        there = f" To measure there again, {back}." if needs_it else ""
        anew = (
            " What measures here is of another disk: that of the current directory, or of one that "
            "--dir names."
        )
        yield (
            f"Recorded in {directory}, which {why}; the numbers are complete."
            f"{there}{anew if measures else ''}"
        )


def host_elsewhere(campaigns: Sequence[Any]) -> str | None:
    """The name of the machine that measured these campaigns; None if this one did, if several did,
    or if that is not known."""
    hosts = [getattr(campaign, "host", None) for campaign in campaigns]
    machines = {getattr(host, "machine_id", "") for host in hosts}
    if len(machines) != 1 or machines == {""} or machines == {machine_id()}:
        return None
    return next((str(host.hostname) for host in hosts if host is not None), None)


def directories_gone(campaigns: Sequence[Any]) -> Mapping[str, Sequence[str]]:
    """The directories of campaigns of this machine that are not there now, or that this user may
    not look for, each with the campaigns' ids."""
    hosts = (getattr(campaign, "host", None) for campaign in campaigns)
    if {getattr(host, "machine_id", "") for host in hosts} != {machine_id()}:
        return {}
    ids: dict[str, list[str]] = {}
    for campaign in campaigns:
        plan = getattr(campaign, "plan", {})  # an imported one has none
        if "directory" in plan:
            ids.setdefault(str(plan["directory"]), []).append(campaign.id)
    return {place: names for place, names in ids.items() if not is_visible_directory(Path(place))}
