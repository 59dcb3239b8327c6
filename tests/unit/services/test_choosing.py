"""Which campaign an answer is about when none is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.stored import stored
from vdisklab.errors import DatabaseError
from vdisklab.services.answers import choose_campaigns, joinable_campaigns

KILLED = replace(CAMPAIGN, id="ffff0000", started=CAMPAIGN.started + timedelta(days=1))


def test_a_campaign_that_was_killed_before_its_first_cell_hides_no_answer() -> None:
    with stored(campaigns=(KILLED, CAMPAIGN)) as store:
        assert choose_campaigns(store, None) == (CAMPAIGN,)
        assert choose_campaigns(store, [KILLED.id]) == (KILLED,)
        assert joinable_campaigns(store, None) == ((CAMPAIGN.id,), ())


def test_without_any_run_the_newest_campaign_says_that_it_is_empty() -> None:
    with stored((), campaigns=(KILLED,)) as store:
        assert choose_campaigns(store, None) == (KILLED,)


def test_without_any_campaign_the_way_to_one_is_told() -> None:
    with stored((), campaigns=()) as store, pytest.raises(DatabaseError, match="no campaign"):
        choose_campaigns(store, None)
