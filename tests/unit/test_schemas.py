"""Every answer is its own document: what a verb prints is what its schema says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.committed_schemas import committed_schemas
from tests.unit.stored import Database
from tests.unit.views.large import shapely_runs
from vdisklab.answers import documents, plan
from vdisklab.cli.shell.main import main
from vdisklab.documents import schemas
from vdisklab.guest.qemu.command_line import BootFiles
from vdisklab.value import replace

ROOT = Path(__file__).parents[2]
SCHEMAS = schemas(documents())
GUEST = str(ROOT / "tests" / "data" / "guests" / "machine.yaml")
CASES: dict[str, tuple[str, ...]] = {
    "audit": ("audit", GUEST, "--need", "durable", "--need", "format=qcow2"),
    "advise": ("advise", GUEST),
    "rank": ("rank",),
    "compare": ("compare", "raw/none", "host"),
    "published": ("compare", "--published", "debatty-2024"),
    "recommend": ("recommend", "--need", "durable", "--need", "format=qcow2"),
    "pareto": ("rank", "--pareto", "read/write/latency_p99/cpu"),
    "table": ("table",),
    "export": ("export", "raw/unsafe", "--to", "incus"),
    "method": ("method",),
    "claims": ("claims",),
    "profiles": ("profiles",),
    "profile": ("profiles", "hdtune"),
    "plan": ("plan", "raw/none", "--commands"),
    "campaigns": ("runs",),
    "runs": ("runs", "c0ffee"),
    "show": ("show", "010001"),
    "rank by latency": ("rank", "--metric", "randread-4k-q1/read/latency_p99"),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("database") / "shapely.sqlite")
    database.write(replace(run, cell=run.measured_cell.fingerprint) for run in shapely_runs(3))
    return database.file


@pytest.fixture(autouse=True)
def _store(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_DB", str(database))
    boot = BootFiles(Path("kernel"), Path("initrd"), None, "")  # the guests' tests build them
    monkeypatch.setattr(plan, "boot_files", lambda *_: boot)


def closed(schema: Any) -> Any:  # noqa: ANN401
    """The schema with no other keys than its own, except for values that say themselves."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if set(found.get("properties", ())) > {"kind", "text"} or "format" in found.get("required", ()):
        found["additionalProperties"] = False
    return found


def test_the_committed_schemas_are_those_of_the_answers() -> None:
    assert committed_schemas() == json.loads(json.dumps(SCHEMAS)), "run script/schemas"


@pytest.mark.parametrize("form", SCHEMAS)
def test_a_schema_is_one(form: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[form])


@pytest.mark.parametrize("name", CASES)
def test_a_verb_prints_what_its_schema_says_and_its_paths_are_the_columns_of_csv(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CASES[name], "--format", "json"]) in (0, 9, 10), capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(closed(SCHEMAS[found["format"]])).validate(found)
    assert found["sentences"]
    main([*CASES[name], "--format", "csv"])
    columns = next(csv.reader(io.StringIO(capsys.readouterr().out)))
    paths = set(paths_of(found))
    keys = {column.partition(".")[0] for column in columns}
    rows = {path.rpartition(".")[0] for path in paths}
    assert any(all(f"{row}.{key}" in paths for key in keys) for row in rows)


def paths_of(value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401
    """All paths of a JSON value, those of lists without the place."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            yield from paths_of(item, path)


def test_the_report_is_what_its_schema_says_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    assert main(["report", "--format", "json", "-o", str(target)]) == 0
    found = json.loads(target.read_text())
    assert found["claims"]["claims"]
    schema = closed(SCHEMAS[found["format"]])
    jsonschema.Draft202012Validator(schema).validate(found)
    assert found["published"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({**found, "surprise": 1})
    del found["values"][0]["median"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(found)


def test_verbs_that_change_the_database_print_answers_too(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved, new, text = tmp_path / "all.json", str(tmp_path / "new.sqlite"), tmp_path / "dd.txt"
    text.write_text("1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2 s, 537 MB/s\n")

    def answer(*arguments: str) -> Any:  # noqa: ANN401 - a JSON document
        assert main([*arguments, "--format", "json"]) == 0, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator(closed(SCHEMAS[found["format"]])).validate(found)
        assert found["sentences"]
        return found

    written = answer("export-data", str(moved), "--db", str(database))
    assert [row["id"] for row in written["campaigns"]] == ["c0ffee01"]
    (stored,) = answer("import", str(moved), "--db", new)["campaigns"]
    assert (stored["id"], stored["known_runs"], stored["cells"]) == ("c0ffee01", 0, [])
    assert answer("import", str(moved), "--db", new)["campaigns"][0]["runs"] == 0
    (added,) = answer("import", str(text), "--as", "at home", "--db", new)["campaigns"]
    assert (added["runs"], added["cells"]) == (1, ["at home"])
    renamed = answer("runs", "--rename", "at home", "at work", "--db", new)
    assert (renamed["done"], renamed["former"], renamed["cell"]) == (
        "renamed",
        "at home",
        "at work",
    )
    labelled = answer("runs", "--rename", added["id"], "at work", "--db", new)
    assert (labelled["done"], labelled["label"], labelled["runs"]) == ("renamed", "at work", [])
    assert answer("runs", "--rename", renamed["runs"][0], "at work", "--db", new)["done"] == "kept"
    deleted = answer("runs", "--delete", added["id"], "--yes", "--db", new)
    assert (deleted["done"], deleted["runs"]) == ("deleted", renamed["runs"])
    assert main(["runs", "--delete", "c0ffee01", "--yes", "--db", new, "--format", "csv"]) == 0
    heading, row, *_ = capsys.readouterr().out.splitlines()
    assert heading.startswith("done,what,campaign,runs")
    assert row.startswith("deleted,")
    assert main(["export-data", "-", "--format", "json", "--db", new]) == 2
