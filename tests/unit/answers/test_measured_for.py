"""How long measurements took and how much memory their pages had, as answers name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN
from vdisklab.answers.measured_for import cache_memory_of, runtime_of, seconds_of_measurements
from vdisklab.results.model import Campaign
from vdisklab.value import replace

FIO = {"name": "m", "program": "fio", "settings": {}}
JOB = {"name": "j", "program": "fio", "settings": {"job": "[global]"}}
DD = {"name": "dd", "program": "dd", "settings": {}}


def planned(plan: Mapping[str, Any]) -> Campaign:
    return replace(CAMPAIGN, plan=plan)


@pytest.mark.parametrize(
    ("plans", "seconds"),
    [
        ([{"measurements": [FIO], "runtime": 0.5}], 0.5),
        ([{"measurements": [FIO], "runtime": 0.5}] * 2, 0.5),
        ([{"measurements": [FIO], "runtime": 0.5}, {"measurements": [FIO], "runtime": 60}], None),
        ([{"measurements": [FIO, JOB], "runtime": 0.5}], None),
        ([{"measurements": [DD], "runtime": 0.5}], None),
        ([{"measurements": [FIO]}], None),
        ([{}], None),
    ],
)
def test_seconds_are_told_only_where_all_ran_for_them(
    plans: list[Mapping[str, Any]], seconds: float | None
) -> None:
    assert seconds_of_measurements([planned(plan) for plan in plans]) == seconds


def test_a_measurement_has_its_own_time_beside_others() -> None:
    """What fio runs for a time has that time, whatever else the profile does; a score needs all."""
    campaigns = [planned({"measurements": [FIO, JOB, DD], "runtime": 0.5})]
    times = [runtime_of(campaigns, name) for name in ("m", "j", "dd", "unknown", "score")]
    assert times == [0.5, None, None, None, None]
    assert runtime_of([planned({"measurements": [FIO], "runtime": 2})], "score") == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [(["25%"], "25% of the disk's size"), (["64M"] * 2, "64M"), (["64M", None], None), ([], None)],
)
def test_a_bounded_page_cache_has_a_name(given: list[str | None], said: str | None) -> None:
    assert cache_memory_of([planned({"cache_memory": memory}) for memory in given]) == said
