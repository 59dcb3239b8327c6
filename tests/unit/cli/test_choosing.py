"""Which campaign an answer is about when none is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.fake_store import FakeStore
from vdisklab.errors import DatabaseError
from vdisklab.services.answers import choose_campaigns, joinable_campaigns

KILLED = replace(CAMPAIGN, id="ffff0000", started=CAMPAIGN.started + timedelta(days=1))


def test_a_campaign_that_was_killed_before_its_first_cell_hides_no_answer() -> None:
    store = FakeStore(all_campaigns=(KILLED, CAMPAIGN))
    assert choose_campaigns(store, None) == (CAMPAIGN,)
    assert choose_campaigns(store, [KILLED.id]) == (KILLED,)
    assert joinable_campaigns(store, None) == ((CAMPAIGN.id,), ())


def test_without_any_run_the_newest_campaign_says_that_it_is_empty() -> None:
    assert choose_campaigns(FakeStore(all_campaigns=(KILLED,)), None) == (KILLED,)


def test_without_any_campaign_the_way_to_one_is_told() -> None:
    with pytest.raises(DatabaseError, match="holds no campaign"):
        choose_campaigns(FakeStore(all_campaigns=()), None)
