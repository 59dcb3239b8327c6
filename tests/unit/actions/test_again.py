"""`run --again`: the request that measures a stored plan anew makes the same plan."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN, HOST, campaign_runs
from tests.unit.stored import stored
from vdisklab.actions import again
from vdisklab.answers.race_plan import as_race
from vdisklab.errors import PlanError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.needs import DURABLE
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.age import parse_age
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan, what_is_measured
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.results.model import Campaign
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile

PATHS: dict[str, Any] = {
    "paths": ("{ext4,xfs}/{raw,qcow2}/{none,writeback}",),
    "directory": Path("/srv/images"),
}


def planned(request: Request) -> CampaignPlan:
    return build_plan(request, Capabilities(), load_profile(request.profile or DEFAULT_PROFILE))


def campaign(plan: CampaignPlan) -> Campaign:
    return replace(CAMPAIGN, fingerprint=plan.fingerprint, plan=plan.stored_json(), label="")


@pytest.fixture(autouse=True)
def _this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the host of the made-up campaigns, and can build everything."""
    monkeypatch.setattr(again, "machine_facts", lambda _: HOST)
    monkeypatch.setattr(again, "is_visible_directory", lambda _: True)
    monkeypatch.setattr(again, "possible_plan", lambda _, request: planned(request))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"page_cache": PageCacheChoice.WARM, "rounds": 7},
        {"page_cache": PageCacheChoice.COLD, "seed": 4711},
        {"baseline": "raw/none", "runtime": 1.5, "ramp": 0.25, "size_bytes": 1 << 30},
        {"baseline": "none", "paths": ("raw/none", "host")},
        {"paths": ("raw/default", "raw/writeback"), "keep_equal": True},
        {"age": parse_age("fill=50%,rewrites=2"), "scale": 0.5},
        {"accelerator": AcceleratorChoice.TCG, "guest_cpus": 3, "guest_memory": 1 << 30},
        {"paths": ("raw/none",), "guests": ("1", "4"), "profile": "open-load", "load": 200},
        {"paths": ("raw/none",), "guest_scheduler": ("none", "bfq")},
        {"paths": ("none", "raw/none"), "devices": (Path("/dev/sdz"),), "directory": None},
    ],
    ids=str,
)
def test_the_request_of_a_stored_plan_makes_the_same_plan(asked: dict[str, Any]) -> None:
    plan = planned(Request(**{**PATHS, **asked}))
    with stored(campaigns=[campaign(plan)]) as store:
        request = again.repeated(store, RunRequest(again=CAMPAIGN.id))
    (only,) = request.campaigns()
    repeated = planned(only)
    assert what_is_measured(repeated.stored_json()) == what_is_measured(plan.stored_json())
    assert repeated.stored_json().get("no_baseline") == plan.stored_json().get("no_baseline")
    assert repeated.rounds == plan.rounds
    assert request.new


@pytest.mark.parametrize(("given", "named"), [(None, "DIR"), (Path("/mnt/a b"), "'/mnt/a b'")])
def test_a_directory_that_is_gone_is_named_with_both_ways_on(
    monkeypatch: pytest.MonkeyPatch, given: Path | None, named: str
) -> None:
    monkeypatch.setattr(again, "is_visible_directory", lambda _: False)
    monkeypatch.setattr(again, "is_out_of_sight", lambda _: False)
    plan = planned(Request(paths=("raw/none",), directory=Path("/root/qs"), runtime=1.5))
    with (
        stored(campaigns=[campaign(plan)]) as store,
        pytest.raises(PlanError, match="was measured in /root/qs, which is not on") as refused,
    ):
        again.repeated(store, RunRequest(again=CAMPAIGN.id, directory=given))
    hint = str(refused.value.hint)
    assert "mkdir -p /root/qs" in hint
    command = re.search("`vdisklab (run [^`]*)`", hint)
    assert command is not None
    assert f"--dir {named}" in command[1]
    assert "--runtime 1.5" in command[1]
    assert "/root/qs" not in command[1]


def test_a_directory_that_this_user_may_not_look_for_is_not_said_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(again, "is_visible_directory", lambda _: False)
    monkeypatch.setattr(again, "is_out_of_sight", lambda _: True)
    plan = planned(Request(paths=("raw/none",), directory=Path("/root/qs")))
    with (
        stored(campaigns=[campaign(plan)]) as store,
        pytest.raises(PlanError, match="in /root/qs, which cannot be seen as this user") as refused,
    ):
        again.repeated(store, RunRequest(again=CAMPAIGN.id))
    assert "mkdir" not in str(refused.value.hint)


def test_a_race_is_raced_again() -> None:
    terms = RaceTerms(margin=0.03, confidence=0.99, metric="read", needs=(DURABLE,))
    plan = as_race(planned(Request(**PATHS)), terms)
    with stored(campaigns=[campaign(plan)]) as store:
        request = again.repeated(store, RunRequest(again=CAMPAIGN.id))
    assert (request.within, request.confidence, request.metric) == (0.03, 0.99, "read")
    assert (request.rounds, request.find, request.unsafe) == (None, None, False)


def refused(plan: CampaignPlan | Campaign, **asked: Any) -> PlanError:  # noqa: ANN401
    only = plan if isinstance(plan, Campaign) else campaign(plan)
    with stored(campaigns=[only]) as store, pytest.raises(PlanError) as caught:
        again.repeated(store, RunRequest(**{"again": CAMPAIGN.id, **asked}))
    assert caught.value.hint
    return caught.value


def test_what_would_not_be_the_same_plan_is_refused() -> None:
    plan = planned(Request(**PATHS))
    error = refused(plan, size_bytes=1 << 31, db="x.db")
    assert "differs in size bytes" in str(error)
    assert error.hint == "leave out --size"
    assert "takes no PATHS" in str(refused(plan, paths=("raw/none",)))
    elsewhere = replace(campaign(plan), host=replace(HOST, machine_id="f" * 16, hostname="b2"))
    assert "another host (b2)" in str(refused(elsewhere))
    namesake = replace(campaign(plan), host=replace(HOST, machine_id="f" * 16))
    error = refused(namesake)
    assert "of this name, with another machine-id" in str(error)
    assert "run the same command on that host" in (error.hint or "")
    assert "was not measured by `vdisklab run`" in str(refused(CAMPAIGN))


def test_a_profile_from_a_file_must_be_named() -> None:
    plan = planned(Request(**PATHS))
    renamed = replace(plan, profile=replace(plan.profile, name="mine"))
    error = refused(renamed)
    assert "'mine' from a file" in str(error)
    assert error.hint == "name the file: --profile FILE"


def test_a_later_unfinished_campaign_of_the_plan_continues() -> None:
    plan = planned(Request(**PATHS, rounds=4))
    first = campaign(plan)
    now = datetime.now(UTC)
    later = replace(first, id="c0ffee02", started=now - timedelta(hours=20))
    late = replace(later, started=now - timedelta(days=30))
    with stored(campaign_runs(campaign="c0ffee02"), campaigns=[late, first]) as store:
        assert again.repeated(store, RunRequest(again=first.id)).new  # of last month
    with stored(campaign_runs(campaign="c0ffee02"), campaigns=[later, first]) as store:
        assert not again.repeated(store, RunRequest(again=first.id)).new
        assert again.repeated(store, RunRequest(again=later.id)).new
        assert again.repeated(store, RunRequest(again=first.id, new=True)).new


def test_a_later_campaign_without_a_run_continues() -> None:
    """It was killed before its first run: a new one each time would leave empty campaigns."""
    plan = planned(Request(**PATHS, rounds=4))
    first = campaign(plan)
    empty = replace(first, id="c0ffee02", started=datetime.now(UTC) - timedelta(minutes=1))
    with stored(campaign_runs(campaign=first.id), campaigns=[empty, first]) as store:
        assert not again.repeated(store, RunRequest(again=first.id)).new


@pytest.mark.parametrize(
    ("paths", "rounds", "continues"),
    [
        (("raw/none", "raw/writeback"), 3, True),  # they tie, so there is a fourth round
        (("raw/none", "qcow2/directsync"), 3, False),  # decided
        (("raw/none", "qcow2/directsync"), 2, True),
    ],
)
@pytest.mark.parametrize("lacks", [0, 1])
def test_a_race_that_has_not_ended_continues(
    paths: tuple[str, ...], rounds: int, lacks: int, *, continues: bool
) -> None:
    request = Request(
        paths=("host", *paths), directory=Path("/srv/images"), page_cache=PageCacheChoice.COLD
    )
    plan = as_race(planned(request), RaceTerms())
    labels = {(cell.path.canonical, cell.page_cache): cell.fingerprint for cell in plan.cells}
    first = campaign(plan)
    later = replace(first, id="c0ffee02", started=datetime.now(UTC) - timedelta(hours=20))
    runs = [
        replace(run, cell=labels[run.path, run.page_cache])
        for run in campaign_runs(rounds, campaign="c0ffee02")
        if run.failure is None and (run.path, run.page_cache) in labels
    ]
    with stored(runs[: len(runs) - lacks], campaigns=[later, first]) as store:
        request_again = again.repeated(store, RunRequest(again=first.id))
    assert request_again.new is not (continues or bool(lacks))


def test_other_options_of_the_command_are_kept() -> None:
    plan = planned(Request(**PATHS))
    with stored(campaigns=[campaign(plan)]) as store:
        request = again.repeated(
            store, RunRequest(again=CAMPAIGN.id, rounds=9, label="after the upgrade", db="x.db")
        )
    assert (request.rounds, request.label, request.db) == (9, "after the upgrade", "x.db")
    assert request.again is None
