"""The benchmark of the search in a small form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.unit.pages import bench

BENCH = bench("search.py")


def test_recorded_replays_name_the_best_of_all_rounds_and_redrawn_ones_need_not() -> None:
    """The benchmark in a small form, on noise: a search can only be as good as its data."""
    logs = np.random.default_rng(1).normal(0, 0.3, (12, 8))
    levels = np.array(list(itertools.product(range(3), range(2), range(2))))
    limits = {"search": 1.0, "search, 25 %": 0.25, "elimination": 1.0}
    recorded, drawn = (
        BENCH["replay"](
            BENCH["Campaign"]("test", BENCH["Recorded"](logs, redrawn), levels, 8), 3, 0.03, 1,
            ["exhaustive", *methods],
        )["methods"]
        for redrawn, methods in ((False, limits), (True, ()))
    )  # fmt: skip
    assert recorded["exhaustive"]["right"] == 1.0
    assert drawn["exhaustive"]["right"] < 1.0
    for method, limit in limits.items():
        assert recorded[method]["time_p95"] <= limit


@pytest.mark.parametrize(
    ("sizes", "time", "replays"),
    [
        ((3, 2, 5, 2), 0.25, 4),
        pytest.param((3, 2, 5, 2), 0.25, 20, marks=pytest.mark.nightly),
        pytest.param((5, 3, 5, 4), 0.06, 10, marks=pytest.mark.nightly),
    ],
)
def test_a_structured_world_is_searched_in_a_fraction_of_the_time(
    sizes: tuple[int, ...], time: float, replays: int
) -> None:
    """Of 60 paths each is measured once, and those close to the best have twelve rounds; of 300
    paths only a fraction is measured."""
    kind = BENCH["Kind"]("additive", sizes)
    campaign = BENCH["Campaign"]("additive", kind, kind.levels, kind.rounds)
    methods = ["search"] + ["every path races", "elimination"] * (len(kind.levels) < 100)
    found = BENCH["replay"](campaign, replays, 0.1, 1, methods)["methods"]
    for method in methods[:2]:
        assert found[method]["right"] >= 0.9
        assert found[method]["true"] >= 0.9
    assert found["search"]["time_mean"] <= time
    for method in methods[1:]:
        assert found[method]["time_mean"] > 1.5 * time
