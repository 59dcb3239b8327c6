"""The figure of a density campaign: each run, the limit, fairness, and what each path carries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.actions.test_guest_capacity import a_density, a_step
from vdisklab.analysis.capacity import Capacity
from vdisklab.analysis.diagnostics.caveats import caveats_of
from vdisklab.analysis.guest_groups import Bottleneck, LimitedBy, parse_criterion
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.density import DensityAnswer, PathCapacity
from vdisklab.answers.recommend import recommend
from vdisklab.answers.report import ReportAnswer, report_on
from vdisklab.errors import PlanError
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace
from vdisklab.views.charts.figures import figures
from vdisklab.views.charts.lines import density_figures
from vdisklab.views.density import density_headline, density_lines, tables
from vdisklab.views.page.html import render_page
from vdisklab.views.report import first_lines, headline


def searched(store: Store, runs: Iterable[tuple[int, int, float]]) -> ReportAnswer:
    """The report's contents for runs of (round, guests, p99)."""
    campaign = a_density()
    store.add_campaign(campaign)
    for round, guests, p99 in runs:
        store.add_run(a_step(campaign, round, guests, p99))
    return report_on(Analysis.of(store))


def test_each_run_is_drawn_with_the_limit(tmp_path: Path) -> None:
    runs = ((1, 1, 0.002), (2, 2, 0.003), (3, 4, 0.05), (4, 3, 0.02), (5, 2, 0.004), (6, 3, 0.02))
    with open_store(f"sqlite:///{tmp_path}/d.sqlite") as store:
        contents = searched(store, runs)
    figure, fairness = density_figures(contents)
    guests, worst, limit = figure.curves[0].data
    assert guests == (1, 2, 3, 4)
    assert worst == pytest.approx((2, 3.5, 20, 50))
    assert set(limit) == {5.0}
    assert fairness.curves[0].data[1] == (1.0,) * 4
    assert contents.density is not None
    capacity = contents.density.paths[0].capacity
    assert capacity is not None
    assert f"raw/none: {capacity.guests} ({capacity.low}–{capacity.high})" in figure.note


def test_another_campaign_has_no_such_figure(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/d.sqlite") as store:
        contents = searched(store, [(1, 1, 0.002)])
    assert density_figures(contents)
    assert density_figures(replace(contents, density=None)) == ()


def test_the_report_answers_how_many_guests(tmp_path: Path) -> None:
    runs = [(1, 1, 0.002), (2, 2, 0.003), (3, 4, 0.05), (4, 3, 0.02)]
    runs += [
        (round, guests, 0.02 if guests == 3 else 0.004)
        for round in range(5, 9)
        for guests in (2, 3)
    ]
    with open_store(f"sqlite:///{tmp_path}/d.sqlite") as store:
        contents = searched(store, runs)
        with pytest.raises(PlanError, match="searched how many guests") as refused:
            recommend(Analysis.of(store), ())
    assert refused.value.hint == "`vdisklab recommend --guests N` names the paths that carry N"
    assert headline(contents) == "raw/none carries 2 guests (95 %: 2–3)"
    load, limited = first_lines(contents)
    assert load == (
        "Load",
        "100 requests a second in each guest, each at latency_p99<=5ms. raw/none: 2 (2–3).",
    )
    assert limited[0] == "Limited by"
    assert limited[1].startswith("raw/none: the device (busy 97 % of the time")
    page = render_page(contents)
    assert "How many guests does each disk path carry on" in page
    assert "No answer yet" not in page
    assert "Storage methods" not in page
    assert [figure.key for figure in figures(contents)] == ["density", "fairness"]


@pytest.mark.parametrize(
    ("lasts", "said"), [(0.35, False), (0.49, False), (0.5, True), (1.0, True)]
)
def test_a_disk_that_stays_slower_for_several_rounds_is_said(lasts: float, said: bool) -> None:
    carried = Capacity(5, 4, 6, at_least=False, lasts=lasts)
    device = Bottleneck(LimitedBy.DEVICE, "")
    path = PathCapacity("raw/none", carried, device, None, None, None, True, None, ())
    answer = DensityAnswer("c", 100, parse_criterion("latency_p99<=5ms"), caveats_of(()), (path,))
    (table,) = tables(answer)
    told = [note for note in table.notes if "repeat the search on another day" in note]
    assert bool(told) is said
    assert not told or told[0].startswith("raw/none: ")


def test_paths_whose_intervals_overlap_are_not_told_apart() -> None:
    def carries(path: str, guests: int, low: int, high: int) -> PathCapacity:
        answer = Capacity(guests, low, high, at_least=False)
        device = Bottleneck(LimitedBy.DEVICE, "")
        return PathCapacity(path, answer, device, None, None, None, True, None, ())

    both = DensityAnswer(
        "c", 100, parse_criterion("latency_p99<=5ms"), caveats_of(()),
        (
            carries("raw/none", 5, 4, 6),
            carries("qcow2/none", 4, 3, 5),
            carries("vdi/none", 2, 1, 3),
        ),
    )  # fmt: skip
    assert density_headline(both) == "raw/none carries 5 guests (95 %: 4–6)"
    doubt = dict(density_lines(both))["Doubt"]
    (table,) = tables(both)
    assert table.title == f"{density_headline(both)}."
    assert table.intro[0] == doubt
    assert "raw/none, qcow2/none overlap" in doubt
    assert "vdi/none" not in doubt
    told_apart = replace(both, paths=(both.paths[0], both.paths[2]))
    assert "Doubt" not in dict(density_lines(told_apart))
    limited = both.paths[0].limited
    none = replace(
        both, paths=(PathCapacity("x", None, limited, None, None, None, False, "it died", ()),)
    )
    assert density_headline(none) == "No answer yet"
    assert density_lines(none) == (("Why", "it died"),)
