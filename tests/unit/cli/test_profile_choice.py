"""`rank --profile` and `recommend --profile` answer from the newest campaign with that profile."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.value import replace

OF_A_DATABASE = replace(CAMPAIGN, plan={**CAMPAIGN.plan, "profile": "postgresql"})
NEWER = replace(
    CAMPAIGN,
    id="c0ffee02",
    started=CAMPAIGN.started + timedelta(days=1),
    plan={**CAMPAIGN.plan, "profile": "short"},
)


@pytest.fixture(autouse=True)
def _stored(database: Database) -> None:
    newer = (replace(run, id=f"f{run.id}") for run in campaign_runs(campaign=NEWER.id))
    database.write([*campaign_runs(), *newer], campaigns=[OF_A_DATABASE, NEWER])


@pytest.mark.parametrize("verb", ["rank", "recommend"])
def test_a_profile_chooses_its_newest_campaign(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, campaign in (((), NEWER), (("--profile", "postgresql"), OF_A_DATABASE)):
        assert main([verb, *options, "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [each["id"] for each in document["campaigns"]] == [campaign.id]


@pytest.mark.parametrize("verb", ["rank", "recommend"])
@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        (["--profile", "my load"], "no campaign was measured with profile my load",
         "measured: postgresql, short; `vdisklab run raw/none qcow2/none --profile 'my load'`"),
        (["--profile", "short", "--campaign", "c0ffee01"], "--profile and --campaign both", "one"),
        (["--profile", "short", "--hosts", "all"], "--profile and --hosts both", "leave out one"),
    ],
)  # fmt: skip
def test_a_profile_that_chooses_nothing_is_an_error_with_a_way_out(
    verb: str, options: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *options]) == PlanError.exit_code
    said = capsys.readouterr().err
    assert f"error: {error}" in said
    assert hint in said
