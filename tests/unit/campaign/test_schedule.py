"""Every cell once in each round, at random, repeatable, and never twice."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from vdisklab.campaign.schedule import round_order, schedule

from .plans import a_plan

PATHS = "{raw,qcow2}/{none,writeback,unsafe}"

seeds = st.integers(min_value=0, max_value=(1 << 63) - 1)


@given(seeds, st.integers(min_value=1, max_value=8))
def test_every_round_holds_every_cell_once(seed: int, rounds: int) -> None:
    plan = a_plan(PATHS, rounds=rounds, seed=seed)
    slots = list(schedule(plan))
    by_round = {round: list(group) for round, group in groupby(slots, lambda slot: slot.round)}
    assert list(by_round) == list(range(1, rounds + 1))
    for group in by_round.values():
        assert sorted(slot.cell.label for slot in group) == sorted(c.label for c in plan.cells)
        assert [slot.position for slot in group] == list(range(1, len(plan.cells) + 1))


@given(seeds)
def test_the_same_seed_gives_the_same_order_and_more_rounds_change_nothing(seed: int) -> None:
    three, five = a_plan(PATHS, rounds=3, seed=seed), a_plan(PATHS, rounds=5, seed=seed)
    slots = list(schedule(three))
    assert slots == list(schedule(a_plan(PATHS, rounds=3, seed=seed)))
    assert list(schedule(five))[: len(slots)] == slots


def test_rounds_and_seeds_differ_in_their_order() -> None:
    plan = a_plan(PATHS, rounds=20)
    orders = {round_order(plan, round) for round in range(1, 21)}
    orders |= {round_order(a_plan(PATHS, seed=seed), 1) for seed in range(2, 22)}
    assert len(orders) > 35


def test_no_place_in_a_round_is_a_cells_own() -> None:
    """Over many rounds each cell stands everywhere about equally often."""
    plan = a_plan(PATHS, rounds=2000)
    places = [round_order(plan, round).index(plan.cells[0]) for round in range(1, 2001)]
    expected = 2000 / len(plan.cells)
    for place in range(len(plan.cells)):
        assert 0.8 * expected < places.count(place) < 1.2 * expected


@given(seeds, st.data())
def test_what_is_finished_is_left_out_and_the_rest_keeps_its_place(
    seed: int, data: st.DataObject
) -> None:
    plan = a_plan(PATHS, seed=seed)
    slots = list(schedule(plan))
    done = data.draw(st.sets(st.sampled_from(slots)))
    finished = {(slot.round, slot.cell.fingerprint) for slot in done}
    assert list(schedule(plan, finished)) == [slot for slot in slots if slot not in done]
