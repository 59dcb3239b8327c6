"""The host on which the commands of an answer run."""

from __future__ import annotations

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import stored
from vdisklab.answers.analysis import Analysis
from vdisklab.host.facts import machine_id
from vdisklab.value import replace


@pytest.mark.parametrize(("machine", "hosts", "on"), [
    (machine_id(), 2, None),
    (machine_id(), 1, None),
    ("a" * 16, 2, "bench1"),
    ("a" * 16, 1, "bench1"),
])  # fmt: skip
def test_commands_name_another_host_and_never_this_one(
    machine: str, hosts: int, on: str | None
) -> None:
    """The host in front of the user was named as soon as the database had two."""
    campaign = replace(CAMPAIGN, host=replace(CAMPAIGN.host, machine_id=machine))
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        found.database_hosts = hosts
        assert found.run_on == on
