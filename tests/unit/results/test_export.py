"""JSON that comes back as it was, and CSV that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from vdisklab.errors import DatabaseError
from vdisklab.results.export import (
    CSV_COLUMNS,
    FORMAT,
    campaign_to_json,
    csv_field,
    import_json,
    run_to_json,
    to_json,
    write_json,
    write_samples_csv,
)
from vdisklab.results.model import Campaign, Direction, Run, Sample
from vdisklab.results.powercut import Counterexample
from vdisklab.results.store import Store, open_store

from .test_store import MANY
from .values import BROKEN, a_campaign, a_measurement, a_power_cut, a_run, campaigns_with_runs


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "other.sqlite")) as opened:
        yield opened


def document(campaign: Campaign, *runs: Run) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "campaigns": [campaign_to_json(campaign) | {"runs": [run_to_json(run) for run in runs]}],
    }


class TestJson:
    @MANY
    @given(stored=campaigns_with_runs)
    def test_an_export_can_be_imported_elsewhere(
        self, store: Store, other: Store, stored: tuple[Campaign, list[Run]]
    ) -> None:
        campaign, runs = stored
        other.add_campaign(campaign)
        for run in runs:
            other.add_run(run)
        sink = io.StringIO()
        write_json(sink, other, [campaign.id])
        plain = json.loads(sink.getvalue())
        assert plain == json.loads(json.dumps(to_json(other, [campaign.id])))
        imported = import_json(store, plain)
        assert (imported.campaigns, imported.runs, imported.known_runs) == (1, len(runs), 0)
        assert store.campaign(campaign.id) == campaign
        assert list(store.runs(campaign.id)) == runs

    def test_power_cuts_of_the_same_machines_go_along(self, store: Store, other: Store) -> None:
        campaign = a_campaign()
        other.add_campaign(campaign)
        lost = a_power_cut(survives=False, counterexample=Counterexample("aa/1-0", "lost", "…"))
        elsewhere = a_power_cut(host=replace(campaign.host, machine_id="another"))
        for found in (a_power_cut(), lost, elsewhere):
            other.add_power_cut(found)
        plain = json.loads(json.dumps(to_json(other, [campaign.id])))
        assert import_json(store, plain).power_cuts == 2
        assert import_json(store, plain).power_cuts == 0
        assert store.power_cuts() == other.power_cuts(campaign.host.machine_id)

    def test_importing_twice_changes_nothing(self, store: Store) -> None:
        campaign = a_campaign()
        first, second = a_run(campaign), a_run(campaign, block=2, failure=BROKEN)
        import_json(store, document(campaign, first))
        again = import_json(store, document(campaign, first, second))
        assert (again.campaigns, again.runs, again.known_runs) == (0, 1, 1)
        assert list(store.runs()) == [first, second]

    def test_several_campaigns_and_none(self, other: Store) -> None:
        campaigns = [a_campaign(), a_campaign()]
        for campaign in campaigns:
            other.add_campaign(campaign)
            other.add_run(a_run(campaign))
            other.add_run(a_run(campaign, block=2))
        for wanted in ([], [campaigns[0].id], [campaign.id for campaign in campaigns]):
            sink = io.StringIO()
            write_json(sink, other, wanted)
            assert [c["id"] for c in json.loads(sink.getvalue())["campaigns"]] == wanted

    def test_fields_of_a_later_version_are_passed_over(self, other: Store) -> None:
        campaign = a_campaign()
        run = a_run(campaign)
        plain = document(campaign, run)
        plain["news"] = plain["campaigns"][0]["news"] = 1
        plain["campaigns"][0]["runs"][0]["news"] = 1
        import_json(other, plain)
        assert list(other.runs()) == [run]

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (lambda d: [], "lab.json is not an export of vdisklab"),
            (lambda d: {}, "lab.json is not an export of vdisklab"),
            (lambda d: d | {"format": "vdisklab/2"}, "has format vdisklab/2; this vdisklab reads"),
            (lambda d: d | {"campaigns": None}, "it has no list of campaigns"),
            (lambda d: d | {"campaigns": [3]}, "lab.json is damaged"),
            (lambda d: d | {"campaigns": [{}]}, "lab.json is damaged: id: Field required"),
            (lambda d: d | {"power_cuts": [{}]}, r"lab.json is damaged: 0\.id: Field required"),
            (lambda d: d | {"power_cuts": 7}, "lab.json is damaged: power_cuts: Input should"),
            (lambda d: d | {"power_cuts": twice()}, "two of its power cuts have the same id"),
            (lambda d: with_run(d, block="many"), r"lab.json is damaged: 0\.block: Input should"),
            (lambda d: with_run(d, campaign="another"), "stands under campaign"),
            (lambda d: with_run(d, block=2**70), "too large a number"),
            (lambda d: with_run(d, wall_seconds=float("nan")), "nan is not a measured number"),
            (lambda d: with_run(d, started="2026-08-01T12:00:00"), "names no moment"),
        ],
    )
    def test_other_documents_are_refused(
        self,
        other: Store,
        change: Callable[[dict[str, Any]], object],
        sentence: str,
    ) -> None:
        campaign = a_campaign()
        with pytest.raises(DatabaseError, match=sentence):
            import_json(other, change(document(campaign, a_run(campaign))), name="lab.json")
        assert list(other.runs()) == []

    def test_another_campaign_with_the_same_id_is_refused(self, other: Store) -> None:
        campaign = a_campaign()
        other.add_campaign(campaign)
        with pytest.raises(DatabaseError, match="is another than the one in"):
            import_json(other, document(replace(campaign, label="mine")))


def twice() -> list[dict[str, Any]]:
    return [json.loads(json.dumps(asdict(a_power_cut(id="aa")), default=str))] * 2


def with_run(plain: dict[str, Any], **changes: object) -> dict[str, Any]:
    plain["campaigns"][0]["runs"][0].update(changes)
    return plain


class TestCsv:
    def test_one_row_per_sample(self) -> None:
        campaign = a_campaign()
        runs = [a_run(campaign), a_run(campaign, block=2, failure=BROKEN, accelerator=None)]
        sink = io.StringIO()
        write_samples_csv(sink, [*runs, a_run(campaign, measurements=())])
        rows = list(csv.DictReader(io.StringIO(sink.getvalue())))
        assert [(r["block"], r["metric"], r["value"], r["unit"], r["failure"]) for r in rows] == [
            ("1", "iops", "9870.5", "1/s", ""),
            ("1", "latency_p99", "0.00025", "s", ""),
            ("2", "iops", "9870.5", "1/s", "guest"),
            ("2", "latency_p99", "0.00025", "s", "guest"),
        ]
        assert tuple(rows[0]) == CSV_COLUMNS
        assert rows[0]["accelerator"] == "tcg"
        assert rows[2]["accelerator"] == ""

    @pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
    def test_a_text_is_never_a_formula(self, sign: str) -> None:
        evil = f'{sign}HYPERLINK("http://x";"y")'
        samples = (Sample("iops", Direction.READ, -1.5),)
        run = a_run(a_campaign(), medium=evil, measurements=(a_measurement(samples=samples),))
        sink = io.StringIO(newline="")
        write_samples_csv(sink, [run])
        (row,) = csv.DictReader(io.StringIO(sink.getvalue(), newline=""))
        assert row["medium"] == f"'{evil}"
        assert row["value"] == "-1.5"

    @pytest.mark.parametrize("value", [-1.5, 0, None, "raw/none", "", "a=b", "'quoted'"])
    def test_other_values_stay_as_they_are(self, value: object) -> None:
        assert csv_field(value) == value
