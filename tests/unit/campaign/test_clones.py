"""Volumes beside a stack's own: how full a thin pool is, by device-mapper's own words."""

from __future__ import annotations

import pytest

from vdisklab.campaign.clones import CLONE_LAYERS, PoolUse, parse_pool
from vdisklab.errors import HostError
from vdisklab.operations.ways.registry import WAYS

# dmsetup of lvm2 2.03.16, kernel 6.1
STATUS = "0 229376 thin-pool 3 14/1024 513/1792 - rw discard_passdown queue_if_no_space - 1024 \n"
TABLE = "0 229376 thin-pool 253:0 253:1 128 0 1 skip_block_zeroing \n"


def test_a_thin_pool_says_how_full_it_is() -> None:
    assert parse_pool(STATUS, TABLE) == PoolUse(64 << 10, 513, 1792)


@pytest.mark.parametrize(
    ("status", "table"),
    [
        ("0 229376 thin-pool Fail\n", TABLE),
        ("0 229376 thin-pool Error\n", TABLE),
        ("", TABLE),
        (STATUS, "0 8 linear 7:0 2048\n"),
    ],
)
def test_a_pool_that_does_not_say_is_an_error_in_a_sentence(status: str, table: str) -> None:
    with pytest.raises(HostError, match="does not say how full it is") as refused:
        parse_pool(status, table)
    assert "dmesg" in str(refused.value.hint)


def test_each_way_that_clones_has_a_row() -> None:
    assert {way.clones for way in WAYS if way.clones} == set(CLONE_LAYERS)
