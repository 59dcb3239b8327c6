"""The rows of bars in the page."""

from __future__ import annotations

from vdisklab.answers.report import Bar
from vdisklab.views.charts.rows import page_rows


def test_a_long_interval_is_cut_so_that_bars_can_be_compared() -> None:
    bars = [Bar("a", 1.0, 0.6, 4.5), Bar("b", 0.5, None, None)]
    ((whole, cut),) = zip(
        page_rows(bars, "", shared=True),
        page_rows(bars, "", shared=True, longest=2.0),
        strict=True,
    )
    assert [bar["width"] for bar in whole["bars"]] == ["22.22%", "11.11%"]
    assert [bar["width"] for bar in cut["bars"]] == ["50.00%", "25.00%"]
    assert (cut["bars"][0]["high"], cut["bars"][0]["interval"]) == ("100.00%", "0.600–4.50")
    (wide,) = page_rows([Bar("a", 1.0, 0.5, 9.0)], "", shared=True)
    assert wide["bars"][0]["interval"] == "not known"
    (wide,) = page_rows([Bar("a", 1.0, 0.5, 9.0)], "MB/s", shared=True)
    assert wide["bars"][0]["interval"] == "0.500–9.00"
