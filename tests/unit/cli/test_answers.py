from __future__ import annotations

import csv
import datetime
import io
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.committed_schemas import committed_schemas
from tests.unit.stored import GOLDEN, Database
from vdisklab.answers.loading import database_url, load
from vdisklab.cli.compare import compare
from vdisklab.cli.rank import rank
from vdisklab.cli.runs import runs
from vdisklab.cli.shell.main import main
from vdisklab.cli.show import show
from vdisklab.cli.table import table
from vdisklab.errors import DatabaseError, PlanError, VdisklabError
from vdisklab.host.state_directory import state_directory
from vdisklab.results.database import default_url
from vdisklab.results.model import Failure, FailureKind
from vdisklab.value import replace

SCHEMAS = committed_schemas()
OVERALL = "score/none/overall_ratio"


def verbs() -> typer.Typer:
    app = typer.Typer()
    for verb in (rank, compare, show, runs, table):
        app.command()(verb)
    return app


def call(*arguments: str, width: int = 100) -> str:
    """The printed output; errors of vdisklab are raised, as `main` sees them."""
    result = CliRunner().invoke(verbs(), arguments, env={"COLUMNS": str(width)})
    if isinstance(result.exception, VdisklabError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def document(text: str, schema: str) -> dict[str, Any]:
    """The JSON document, after holding it against its published schema."""
    found: dict[str, Any] = json.loads(text)
    form = SCHEMAS[found["format"]]
    assert found["format"].startswith(f"vdisklab.{schema}/")
    jsonschema.Draft202012Validator(form).validate(found)
    return found


def golden(name: str, text: str) -> None:
    """Compares with a kept output; UPDATE_GOLDEN=1 writes it anew, for review in the diff."""
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 120])
def test_the_ranking_on_a_terminal(database: Database, width: int) -> None:
    text = call("rank", "--why", width=width)
    assert max(map(len, text.splitlines())) <= width
    golden(f"rank-{width}.txt", text)


def test_the_column_ram_stays_where_others_go(database: Database) -> None:
    headings = call("rank", width=66).partition(" rank  path")[2].splitlines()[0]
    assert headings.split()[-1] == "RAM"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rank-latency.txt", ("rank", "--why", "--metric", "randread-4k-q1/read/latency_p99")),
        ("compare.txt", ("compare", "--why", "raw/none", "host")),
        (
            "compare-states.txt",
            ("compare", "--why", "raw/writeback (warm)", "raw/writeback (cold)"),
        ),
        ("show.txt", ("show", "0104")),
        ("show-failed.txt", ("show", "01ff")),
        ("runs.txt", ("runs",)),
        ("runs-of-campaign.txt", ("runs", "c0ff")),
    ],
)
def test_golden(database: Database, name: str, arguments: tuple[str, ...]) -> None:
    golden(name, call(*arguments))


def test_no_form_lets_an_escape_sequence_through(database: Database) -> None:
    for form in ("table", "json", "csv"):
        for verb in (("rank",), ("show", "01ff"), ("runs", "c0ff"), ("table",)):
            assert "\x1b" not in call(*verb, "--format", form)


def test_rank_as_json(database: Database) -> None:
    found = document(call("rank", "--format", "json"), "rank")
    assert found["caveats"]["accelerator"] == "tcg"
    assert found["baseline"] == "host"
    assert found["ranking"]["measure"] == OVERALL
    best, *_, warm, host = found["cells"]
    assert (best["cell"], warm["cell"], host["cell"]) == (
        "raw/none", "raw/writeback (warm)", "host",
    )  # fmt: skip
    assert warm["from_page_cache"] == ["read"]
    assert not warm["competes"]
    assert best["medians"][OVERALL]["low"] < best["medians"][OVERALL]["median"]
    levels = [cell["level"]["value"] for cell in found["cells"] if cell["competes"]]
    assert levels == sorted(levels, reverse=True)
    kinds = {finding["kind"] for finding in found["findings"]}
    assert {"emulated", "failed-cell", "from-page-cache"} <= kinds


def test_rank_as_csv(database: Database) -> None:
    rows = list(csv.DictReader(io.StringIO(call("rank", "--format", "csv"))))
    assert len(rows) == 5
    assert float(rows[-1]["ratio.ratio"]) == 1.0
    assert (rows[0]["place.best"], rows[0]["place.worst"]) == ("1", "2")


def test_published_numbers_stand_beside_ours(database: Database) -> None:
    golden("compare-published.txt", call("compare", "--published", "debatty-2024", width=120))
    found = document(
        call("compare", "--published", "debatty-2024", "--format", "json"), "published"
    )
    rows = found["comparison"]["rows"]
    shapes = {(row["number"]["path"], row["shape"]) for row in rows}
    assert ("raw/none", "differs") in shapes
    assert ("raw/unsafe", "not-measured") in shapes
    assert found["command"].startswith("vdisklab run host raw/default")
    with pytest.raises(PlanError, match="no published numbers named 'unknown'"):
        call("compare", "--published", "unknown", "--db", "/nonexistent/x.sqlite")
    with pytest.raises(PlanError, match="--published takes no paths"):
        call("compare", "raw/none", "host", "--published", "debatty-2024")
    with pytest.raises(PlanError, match="compare takes exactly two paths"):
        call("compare", "raw/none")


def test_too_few_rounds_make_no_ranking(database: Database) -> None:
    database.write(campaign_runs(rounds=2))
    said = " ".join(call("rank").split())
    assert said.startswith(
        "Nothing is shown after 2 rounds: continue on bench1 with --rounds 3 or more. "
    )
    assert "a rank needs 3" not in said
    found = document(call("rank", "--format", "json"), "rank")
    reasons = {cell["place"]["reason"] for cell in found["cells"]}
    assert reasons == {"too-few-rounds", "not-competing"}
    assert all("best" not in cell["place"] for cell in found["cells"])
    assert all(cell["medians"][OVERALL]["low"] is None for cell in found["cells"])
    assert main(["rank"]) == main(["recommend"]) == PlanError.exit_code


def test_a_campaign_of_failures_says_so(database: Database) -> None:
    database.write(run for run in campaign_runs() if run.failure)
    with pytest.raises(PlanError, match="has no numbers: every run failed"):
        call("rank")


def test_a_baseline_that_was_not_measured(database: Database) -> None:
    database.write(run for run in campaign_runs() if run.path != "host")
    why = " ".join(call("rank", "--why").split())
    assert "The baseline host has no numbers: scores and ratios relate to" in why
    first = document(call("rank", "--format", "json"), "rank")
    named = document(call("rank", "--format", "json", "--baseline", "raw/none"), "rank")
    assert [row["cell"] for row in first["cells"]] == [row["cell"] for row in named["cells"]]
    assert first["choice"]["present"] == [], "nobody said that its user has the path in the middle"
    text = call("rank", "--why", "--baseline", "raw/none")
    assert "how many times as good as raw/none" in " ".join(text.split())
    with pytest.raises(PlanError, match="was not measured"):
        call("rank", "--baseline", "xfs/raw")


@pytest.mark.parametrize(
    "arguments",
    [("rank", "--why"), ("compare", "raw/none", "qcow2/directsync"), ("table",)],
)
def test_every_answer_names_a_path_that_was_too_slow(
    database: Database, arguments: tuple[str, ...]
) -> None:
    failure = Failure(FailureKind.TOO_SLOW, "`fio` did not end within 9 s")
    database.write(
        replace(run, failure=failure, measurements=())
        if (run.path, run.round) == ("qcow2/directsync", 2)
        else run
        for run in campaign_runs()
    )
    text = " ".join(call(*arguments).split())
    assert "qcow2/directsync: too slow to end in time in 1 round." in text


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("rank", "--metric", "iops"), PlanError, "matches several measures"),
        (("rank", "--metric", "randreed/read/iops"), PlanError, "was not measured"),
        (("rank", "--campaign", "nope"), DatabaseError, "there is no campaign"),
        (("compare", "raw/none", "raw/none"), PlanError, "the same cell"),
        (("compare", "raw/none", "xfs/raw/none"), PlanError, "was not measured"),
        (("compare", "raw/none", "bogus"), PlanError, "unknown segment 'bogus'"),
        (("show", "nope"), DatabaseError, "there is no run"),
    ],
)
def test_bad_input(
    database: Database, arguments: tuple[str, ...], error: type[VdisklabError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)


def test_an_empty_database(database: Database) -> None:
    database.write((), campaigns=())
    with pytest.raises(DatabaseError, match="no campaign"):
        call("rank")
    assert "No campaign has been measured yet" in call("runs")
    assert document(call("runs", "--format", "json"), "campaigns")["campaigns"] == []


def test_compare_as_json_and_csv(database: Database) -> None:
    found = document(
        call("compare", "raw/writeback", "qcow2/directsync", "--format", "json"), "compare"
    )
    assert [pair["a"] for pair in found["pairs"]] == [
        "raw/writeback (cold)",
        "raw/writeback (warm)",
    ]
    assert {row["verdict"] for row in found["pairs"][1]["measures"]} == {"a-better"}
    text = call("compare", "raw/writeback", "qcow2/directsync", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 2 * len(found["pairs"][0]["measures"])


def test_show_as_json_csv_and_raw(database: Database) -> None:
    found = document(call("show", "0104", "--format", "json"), "run")
    assert found["checks"][0]["confirmed"] is True
    assert found["measurements"][0]["raw"] is None
    found = document(call("show", "0104", "--format", "json", "--raw"), "run")
    assert "fio-3.33" in found["measurements"][0]["raw"]
    assert "fio-3.33" in call("show", "0104", "--raw")
    rows = list(csv.DictReader(io.StringIO(call("show", "0104", "--format", "csv"))))
    assert {row["unit"] for row in rows} == {"B/s", "1/s", "s"}


def test_runs_as_json(database: Database) -> None:
    found = document(call("runs", "--format", "json"), "campaigns")
    assert found["campaigns"][0]["failed"] == 4
    found = document(call("runs", "c0ff", "--format", "json"), "runs")
    assert len(found["runs"]) == 24


def test_campaigns_are_joined_only_when_they_measure_alike(database: Database) -> None:
    second = replace(CAMPAIGN, id="beef0002")
    runs = [*campaign_runs(), *campaign_runs(campaign=second.id, seed=6)]
    database.write(runs, campaigns=(CAMPAIGN, second))
    both = ("rank", "--campaign", "c0ff", "--campaign", "beef")
    assert "5 cells in 8 rounds" in call(*both)
    longer = replace(second, plan={**second.plan, "runtime": 9.0})
    database.write(runs, campaigns=(CAMPAIGN, longer))
    with pytest.raises(PlanError, match="differ in runtime"):
        call(*both)
    elsewhere = replace(second, host=replace(CAMPAIGN.host, machine_id="other", hostname="bench2"))
    database.write(runs, campaigns=(CAMPAIGN, elsewhere))
    with pytest.raises(PlanError, match="two machines"):
        call(*both)


def test_a_wrong_measure_has_a_list_of_all(database: Database) -> None:
    with pytest.raises(PlanError, match="was not measured") as said:
        call("rank", "--metric", "nonsense")
    with database.open() as store:
        measures = load(store, None).observations.measures
    hint = str(said.value.hint)
    assert "…" not in hint
    for start, _, metric in (str(measure).rpartition("/") for measure in measures):
        assert any(
            start in part.partition(" with ")[0] and f"/{metric}" in part
            for part in hint.split("; ")
        )
    with pytest.raises(PlanError, match="was not measured") as said:
        call("rank", "--metric", "randread-4k-q1/read/latency_p98")
    assert "write one of randread-4k-q1/read/latency_p9" in str(said.value.hint)


def test_compare_names_the_newest_campaign_that_has_both_paths(database: Database) -> None:
    newer = replace(CAMPAIGN, id="beef0002", started=CAMPAIGN.started + datetime.timedelta(days=1))
    runs = [run for run in campaign_runs(campaign=newer.id, seed=6) if run.path != "raw/none"]
    database.write([*campaign_runs(), *runs], campaigns=(newer, CAMPAIGN))
    for named in ((), ("--campaign", "beef")):
        with pytest.raises(PlanError, match=r"raw/none.* not measured") as said:
            call("compare", "raw/none", "host", *named)
        command = "vdisklab compare raw/none host --campaign c0ffee01"
        assert "campaign c0ffee01 of " in str(said.value.hint)
        assert f"`{command}`" in str(said.value.hint)
        assert "raw/none" in call(*command.split()[1:])
    with pytest.raises(PlanError, match="in this campaign") as said:
        call("compare", "raw/directsync", "host")
    assert "compare" not in str(said.value.hint), "none has both"


def test_the_database_is_the_named_one_or_the_default(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VDISKLAB_DB")
    assert "c0ffee01" in call("runs", "--db", f"sqlite:///{database.file}")
    with pytest.raises(DatabaseError, match="there is no database here"):
        call("runs", "--db", "sqlite:///here.db")
    assert database_url(None) == default_url(state_directory())


@pytest.mark.parametrize("verb", ["rank", "compare", "show", "runs"])
def test_help_has_examples(verb: str) -> None:
    text = call(verb, "--help")
    assert "Examples" in text
    assert f"vdisklab {verb}" in text


def test_only_the_best_are_ranked_for_those_who_say_so(database: Database) -> None:
    whole = document(call("rank", "--format", "json"), "rank")["cells"]
    assert document(call("rank", "--top", "2", "--format", "json"), "rank")["cells"] == whole[:2]
    text = call("rank", "--top", "2")
    assert f"* {len(whole) - 2} more cells without --top." in text
    bars = call("rank", "--top", "1", "--bars")
    assert sum("█" in line for line in bars.splitlines()) == 1
    assert "more cell" not in call("rank", "--top", "99")


def test_the_ratio_of_a_path_that_left_the_race_is_said_to_be_corrected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    recorded = Path(__file__).parents[3] / "docs" / "images" / "quickstart.json.gz"
    db = ("--db", str(tmp_path / "results.sqlite"))
    assert main(["import", str(recorded), *db]) == 0
    capsys.readouterr()
    assert main(["rank", *db]) == 0  # on the first screen: the pair alone has another number
    out = capsys.readouterr().out
    said = "Of 14 rounds qcow2:preallocation=off/default (cold) has 7: its number is corrected"
    assert said in out
    assert main(["compare", "qcow2:preallocation=off/default", "raw/none", *db]) == 0
    both = "all of this is of the 7 of 14 rounds that both have (`rank` corrects for the others)."
    assert both in capsys.readouterr().out
    metric = ("rank", "--metric", "randread-4k-q1/read/iops", *db)
    assert main(list(metric)) == 0
    assert said in capsys.readouterr().out
    assert main([*metric, "--format", "json"]) == 0
    shown = document(capsys.readouterr().out, "rank")
    levels = {cell["cell"]: cell["level"]["value"] for cell in shown["cells"]}
    base = levels["host"]
    for cell in shown["cells"]:  # the column of the table divided by the baseline's
        path, ratio = cell["cell"], cell["ratio"]["ratio"]
        assert ratio == pytest.approx(levels[path] / base), path
        assert cell["ratio"]["low"] is None or cell["ratio"]["low"] < ratio < cell["ratio"]["high"]
