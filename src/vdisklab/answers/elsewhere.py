"""Whether numbers are of another machine. Verbs without a database import this, so it is light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vdisklab.host.facts import machine_id
from vdisklab.host.mounts import is_visible_directory


def host_elsewhere(campaigns: Sequence[Any]) -> str | None:
    """The name of the machine that measured these campaigns; None if this one did, if several did,
    or if that is not known."""
    hosts = [getattr(campaign, "host", None) for campaign in campaigns]
    machines = {getattr(host, "machine_id", "") for host in hosts}
    if len(machines) != 1 or machines == {""} or machines == {machine_id()}:
        return None
    return next((str(host.hostname) for host in hosts if host is not None), None)


def directories_gone(campaigns: Sequence[Any]) -> Mapping[str, Sequence[str]]:
    """The directories of campaigns of this machine that are not there now, each with the
    campaigns' ids."""
    hosts = (getattr(campaign, "host", None) for campaign in campaigns)
    if {getattr(host, "machine_id", "") for host in hosts} != {machine_id()}:
        return {}
    ids: dict[str, list[str]] = {}
    for campaign in campaigns:
        plan = getattr(campaign, "plan", {})  # an imported one has none
        if "directory" in plan:
            ids.setdefault(str(plan["directory"]), []).append(campaign.id)
    return {place: names for place, names in ids.items() if not is_visible_directory(Path(place))}
