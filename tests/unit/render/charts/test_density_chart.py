"""The figure of a density campaign: each run, the limit, fairness, and what each path carries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.services.test_guest_capacity import a_density, a_step
from vdisklab.render.charts.density_chart import density_figures
from vdisklab.render.charts.svg import CSS
from vdisklab.results.store import open_store
from vdisklab.services.report_contents import gather


def test_each_run_is_drawn_with_the_limit(tmp_path: Path) -> None:
    runs = ((1, 1, 0.002), (2, 2, 0.003), (3, 4, 0.05), (4, 3, 0.02), (5, 2, 0.004), (6, 3, 0.02))
    with open_store(f"sqlite:///{tmp_path}/d.sqlite") as store:
        campaign = a_density()
        store.add_campaign(campaign)
        for block, guests, p99 in runs:
            store.add_run(a_step(campaign, block, guests, p99))
        contents = gather(store, None)
    (figure,) = density_figures(contents, CSS)
    assert figure.spec is not None
    values = figure.spec["data"]["values"]
    assert sorted((one["guests"], one["value"]) for one in values) == sorted(
        (guests, p99 * 1000) for _, guests, p99 in runs
    )
    assert {one["limit"] for one in values} == {5.0}
    assert {one["fairness"] for one in values} == {1.0}
    assert contents.density is not None
    capacity = contents.density.paths[0].capacity
    assert capacity is not None
    assert f"raw/none: {capacity.guests} ({capacity.low}–{capacity.high})" in figure.note


def test_another_campaign_has_no_such_figure(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/d.sqlite") as store:
        campaign = a_density()
        store.add_campaign(campaign)
        store.add_run(a_step(campaign, 1, 1, 0.002))
        contents = gather(store, None)
    assert density_figures(contents, CSS)
    assert density_figures(replace(contents, density=None), CSS) == ()
