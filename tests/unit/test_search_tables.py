"""The tables of the search in docs/method.md are those of its benchmark's record."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCH: dict[str, Any] = runpy.run_path(str(ROOT / "bench" / "search.py"))


def test_the_tables_are_those_of_the_record() -> None:
    page = (ROOT / "docs" / "method.md").read_text()
    found = json.loads((ROOT / "bench" / "results" / "search.json").read_text())
    assert BENCH["with_tables"](page, found) == page, (
        "run .venv/bin/python bench/search.py --from bench/results/search.json "
        "--docs docs/method.md"
    )


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        BENCH["with_tables"]("# Nothing", {"replays": 1, "margins": [], "campaigns": []})


def test_recorded_replays_name_the_best_of_all_blocks_and_redrawn_ones_need_not() -> None:
    logs = np.random.default_rng(1).normal(0, 0.3, (60, 8))
    campaigns = [
        BENCH["Campaign"]("test", BENCH["Recorded"](logs, redrawn), np.ones(60), 8)
        for redrawn in (False, True)
    ]
    asked = BENCH["Asked"](replays=40, budget=0.25, margins=(0.03, 0.5), seed=1)
    known, drawn = (BENCH["replay"](asked, each)["methods"] for each in campaigns)
    assert known["exhaustive"]["0.03"]["within"] == 1.0
    assert drawn["exhaustive"]["0.03"]["within"] < 1.0
    for method in ("adaptive", "successive halving", "random search"):
        assert known[method]["0.03"]["time_p95"] <= 0.25
        assert known[method]["0.5"]["within"] >= known[method]["0.03"]["within"]
