"""A loss that alarmed stands until it is gone, and nothing else stands."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vdisklab.analysis.observations import Floats
from vdisklab.analysis.standing_losses import standing_losses
from vdisklab.analysis.trend import (
    RECENT,
    CampaignLevels,
    TrendVerdict,
    lasting_change,
    newest_changes,
    series_changes,
)
from vdisklab.path.cell import MeasuredCell
from vdisklab.value import replace

WORSE = 0.05


def made(level: Floats) -> CampaignLevels:
    cells = tuple(MeasuredCell(f"c{place}") for place in range(len(level)))
    return CampaignLevels(cells, level, np.full(level.shape, np.nan), len(level))


def noise(seed: int, count: int, series: int = 1, spread: float = 0.03) -> Floats:
    return np.asarray(np.random.default_rng(seed).normal(0, spread, (series, count)))


def looks(found: CampaignLevels) -> list[tuple[bool, bool]]:
    """From the fourth campaign on: an alarm of the look by itself, and with what stands."""
    answer = []
    for count in range(4, found.level.shape[1] + 1):
        seen = replace(found, level=found.level[:, :count], error=found.error[:, :count])
        changes = series_changes(seen, WORSE)
        alone = any(
            row.verdict is TrendVerdict.WORSE and (row.change.ratio or 1) < 1 - WORSE
            for row in newest_changes(seen, changes)
        ) or any(
            (lasting_change(changes, series, count) or 1) < 1 - WORSE
            for series in range(len(seen.cells))
        )
        stands = any(loss and loss.ratio < 1 - WORSE for loss in standing_losses(seen, WORSE))
        answer.append((alone, alone or stands))
    return answer


@pytest.mark.parametrize("seed", range(4))
def test_an_alarm_does_not_go_green_while_the_loss_lasts(seed: int) -> None:
    level = noise(seed, 8 + RECENT)
    level[:, 8:] += math.log(0.7)
    alarms = [stands for _, stands in looks(made(level))]
    assert any(alarms)
    assert all(alarms[alarms.index(True) :])


def test_a_loss_has_its_date_and_size_and_ends() -> None:
    level = noise(1, 11)
    level[:, 8:10] += math.log(0.7)
    found = made(level)
    before = replace(found, level=level[:, :10], error=found.error[:, :10])
    (loss,) = standing_losses(before, WORSE)
    assert loss is not None
    assert loss.start == 8
    assert loss.ratio == pytest.approx(0.7, abs=0.04)
    assert standing_losses(found, WORSE) == (None,), "the tenth is back"
    assert standing_losses(before, 0.5) == (None,), "less than matters"
    assert standing_losses(before, WORSE, without=frozenset({8})) == (None,), "it is repeated"


def test_a_missing_campaign_ends_no_loss() -> None:
    level = noise(1, 11)
    level[:, 8:] += math.log(0.7)
    level[:, 10] = np.nan
    (loss,) = standing_losses(made(level), WORSE)
    assert loss is not None
    assert loss.start == 8


def test_no_steady_host_alarms_that_did_not_before() -> None:
    """Of wide noise, so that some alarm."""
    alarmed = 0
    for seed in range(12):
        level = np.random.default_rng(seed).standard_t(2, (2, 16)) * 0.05
        each = looks(made(np.asarray(level)))
        first, with_standing = (
            [place for place, look in enumerate(each) if look[kind]][:1] for kind in (0, 1)
        )
        assert first == with_standing
        alarmed += bool(first)
    assert alarmed
