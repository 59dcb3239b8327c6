"""`/metrics`: the numbers of the commands, and no request that breaks the server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import Database
from tests.unit.watch.visitor import Answered, ask
from vdisklab.cli.shell.main import main
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.watch import metrics
from vdisklab.watch.app import make_app
from vdisklab.watch.door import make_door
from vdisklab.watch.verb import naming

HOSTILE = 'a"b\\c\nd{e="f"} 1 <script>'


def app_of(database: Database) -> Starlette:
    return make_app(database.url, make_door("127.0.0.1"), naming(None))


def samples(said: Answered) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(said.text)
        for sample in family.samples
    }


def test_metrics_are_the_numbers_of_rank(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = ask(app_of(database), "/metrics")
    assert answered.status == 200
    assert answered.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answered)
    assert found["vdisklab_campaign_runs", CAMPAIGN.id, "measured"] == 20
    assert found["vdisklab_campaign_runs", CAMPAIGN.id, "failed"] == 4
    assert found["vdisklab_campaign_round", CAMPAIGN.id] == 4
    assert main(["rank", "--format", "json", "--db", database.url]) == 0
    ranked = {row["cell"]: row["place"] for row in json.loads(capsys.readouterr().out)["cells"]}
    place = ranked["qcow2/directsync"]
    labels = CAMPAIGN.id, "bypassed", "qcow2/directsync"  # the labels are sorted by name
    assert found["vdisklab_cell_rank_best", *labels] == place["best"]
    assert found["vdisklab_cell_rank_worst", *labels] == place["worst"]
    iops = [value for (name, *_), value in found.items() if name == "vdisklab_cell_iops"]
    assert len(iops) == 5 * 4, "each measured cell and measurement, and nothing else"


def test_openmetrics_if_it_is_asked_for(database: Database) -> None:
    accept = "application/openmetrics-text; version=1.0.0"
    answered = ask(app_of(database), "/metrics", headers={"accept": accept})
    assert answered.headers["content-type"].startswith("application/openmetrics-text")
    parsed = openmetrics.text_string_to_metric_families(answered.text)  # type: ignore[no-untyped-call]
    assert list(parsed)


def test_a_hostile_label_is_one_label(database: Database) -> None:
    database.write(campaigns=(replace(CAMPAIGN, label=HOSTILE),))
    found = [
        sample.labels
        for family in text_string_to_metric_families(ask(app_of(database), "/metrics").text)
        for sample in family.samples
        if sample.name == "vdisklab_campaign_info"
    ]
    assert [labels["label"] for labels in found] == [HOSTILE]


def test_more_campaigns_are_no_more_series(database: Database) -> None:
    before = set(samples(ask(app_of(database), "/metrics")))
    others = [replace(CAMPAIGN, id=f"aa{number:06}") for number in range(20)]
    database.write(
        [
            replace(run, id=f"{row.id}{run.id}")
            for row in (CAMPAIGN, *others)
            for run in campaign_runs(campaign=row.id)
        ],
        campaigns=(CAMPAIGN, *others),
    )
    assert len(samples(ask(app_of(database), "/metrics"))) == len(before)
    chosen = samples(ask(app_of(database), "/metrics?campaign=aa000007"))
    assert len(chosen) == len(before)
    assert ask(app_of(database), "/metrics?campaign=nobody").status == 404


def test_a_new_run_is_seen_and_nothing_is_computed_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.write(campaign_runs(3))
    app = app_of(database)
    first = samples(ask(app, "/metrics"))
    with monkeypatch.context() as patch:
        patch.setattr("vdisklab.watch.metrics._numbers", lambda *_: pytest.fail("computed again"))
        assert samples(ask(app, "/metrics")) == first
    database.add(run for run in campaign_runs(4) if run.round == 4)
    assert samples(ask(app, "/metrics"))["vdisklab_campaign_round", CAMPAIGN.id] == 4


def test_an_empty_database_has_a_program_and_no_campaign(tmp_path: Path) -> None:
    empty = Database(tmp_path / "empty.sqlite")
    with open_store(empty.url):
        pass
    assert len(samples(ask(app_of(empty), "/metrics"))) == 1


def test_what_takes_too_long_or_is_too_much_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(metrics.Metrics, "exposition", lambda *_: goes_on.wait(60) and None)
    app = Starlette(routes=metrics.routes(database.url, seconds=0.5))
    for expected in (503, 503, 429):
        answered = ask(app, "/metrics")
        assert (answered.status, answered.headers["retry-after"]) == (expected, "5")
        if expected == 503:
            assert "longer than 0.5 s" in answered.text
    goes_on.set()


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/metrics?colour=red", 400, "unknown parameter 'colour'; it takes campaign"),
        ("/metrics?campaign=a&campaign=b", 400, "campaign is given 2 times"),
        ("/metrics?campaign=%00", 400, "NUL"),
        ("/metrics?campaign=nobody", 404, "there is no campaign"),
        ("/api/rank", 404, ""),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(
    database: Database, target: str, status: int, said: str
) -> None:
    answered = ask(app_of(database), target)
    assert answered.status == status
    assert said in answered.text


def test_nothing_but_get_and_head(database: Database) -> None:
    app = app_of(database)
    assert ask(app, "/metrics", method="HEAD").status == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(app, "/metrics", method=method).status == 405


VALUES = st.sampled_from(
    ["", CAMPAIGN.id, "c0", "%", "a/b/c", "{a,b}", "'", "--db", "../../etc/passwd", "\udcff"]
) | st.text(max_size=20)  # fmt: skip


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["campaign", "x", ""]), VALUES), max_size=3),
    st.sampled_from(["", "*/*", "application/openmetrics-text", "text/plain;q=x", ";;=,"]),
)
def test_no_request_breaks_the_server(
    database: Database, query: list[tuple[str, str]], accept: str
) -> None:
    asked = "&".join(f"{name}={quote(value, errors='surrogatepass')}" for name, value in query)
    answered = ask(app_of(database), f"/metrics?{asked}", headers={"accept": accept})
    assert answered.status < 500, answered.text
    assert answered.status == 200 or answered.text
