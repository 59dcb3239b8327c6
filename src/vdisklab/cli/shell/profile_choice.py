"""The campaign that `--profile` chooses: the newest one that was measured with it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TypeVar

from vdisklab.answers.loading import newest_campaign
from vdisklab.cli.shell.options import ProfileOptions
from vdisklab.errors import PlanError
from vdisklab.results.store import Store
from vdisklab.units import named

_Options = TypeVar("_Options", bound=ProfileOptions)


def of_profile(results: Store, request: _Options) -> _Options:
    """The request with the campaign that its profile chooses, so that printed commands name it.

    Raises PlanError if no campaign has the profile, or if another option names campaigns, too.
    """
    if request.profile is None:
        return request
    other = "--campaign" if request.campaign else "--hosts" if request.hosts else None
    if other is not None:
        raise PlanError(
            f"--profile and {other} both choose what is answered from", hint="leave out one of them"
        )
    found = newest_campaign(results, lambda each: each.plan.get("profile") == request.profile)
    if found is None:
        profiles = {str(each.plan.get("profile")) for each in results.campaigns(with_runs=True)}
        way = f"`vdisklab run raw/none qcow2/none --profile {shlex.quote(request.profile)}`"
        raise PlanError(
            f"no campaign was measured with profile {request.profile}",
            hint=f"measured: {named(sorted(profiles)) or 'none'}; {way} measures two paths with it",
        )
    return replace(request, campaign=(found.id,))
