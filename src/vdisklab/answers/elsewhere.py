"""Whether numbers are of another machine. Verbs without a database import this, so it is light."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vdisklab.host.facts import machine_id


def host_elsewhere(campaigns: Sequence[Any]) -> str | None:
    """The name of the machine that measured these campaigns; None if this one did, if several did,
    or if that is not known."""
    hosts = [getattr(campaign, "host", None) for campaign in campaigns]
    machines = {getattr(host, "machine_id", "") for host in hosts}
    if len(machines) != 1 or machines == {""} or machines == {machine_id()}:
        return None
    return next((str(host.hostname) for host in hosts if host is not None), None)
