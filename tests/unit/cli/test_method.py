from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.unit.cli.test_answers import call, document
from vdisklab.cli.method import method
from vdisklab.errors import PlanError
from vdisklab.views.documents.schemas import document_schema
from vdisklab.views.explanations import EXPLANATIONS, method_page


def said(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(method)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
    if isinstance(result.exception, PlanError):
        raise result.exception
    return result.stdout


def test_one_number_or_all() -> None:
    assert "Hettmansperger" not in said("score")
    assert len(document(said("--format", "json"), "method")["numbers"]) == len(EXPLANATIONS)
    with pytest.raises(PlanError, match="no number called 'joy'"):
        said("joy")


def test_the_schemas_of_documents_are_printed() -> None:
    assert json.loads(said("--schema", "rank")) == document_schema("rank")
    with pytest.raises(PlanError, match="unknown document 'joy'"):
        said("--schema", "joy")


def test_the_page_has_the_same_explanations() -> None:
    page = (Path(__file__).parents[3] / "docs" / "method.md").read_text()
    assert method_page(page) == page, "run script/method-page"


def schema_keys(name: str, rows: str) -> set[str]:
    """The numbers in the rows of a published answer."""
    form = document_schema(name)
    items = form["properties"][rows]["items"]
    if "$ref" in items:
        items = form["$defs"][items["$ref"].rpartition("/")[2]]
    return {
        key for key, value in items["properties"].items() if "number" in str(value.get("type", ""))
    }


@pytest.mark.parametrize(("name", "rows"), [("claims", "claims"), ("published", "numbers")])
def test_every_number_of_an_answer_is_explained(name: str, rows: str) -> None:
    explained = {key for each in EXPLANATIONS for key in each.keys}
    keys = schema_keys(name, rows)
    assert keys
    assert keys <= explained


def numbers_of(form: object) -> set[str]:
    """The names of all numbers in a schema, wherever they stand; the machine's facts are none."""
    found: set[str] = set()
    if isinstance(form, dict):
        for key, value in form.get("properties", {}).items():
            kind = str(value.get("type", ""))
            if key != "host" and any(word in kind for word in ("number", "integer")):
                found.add(key)
        parts = (part for key, part in form.items() if key not in ("host", "HostFacts"))
        found |= {name for part in parts for name in numbers_of(part)}
    if isinstance(form, list):
        found |= {name for part in form for name in numbers_of(part)}
    return found


@pytest.mark.parametrize(
    "name", ["recommend", "audit", "table", "powercut", "plan", "density", "neighbour"]
)
def test_every_number_of_the_other_verbs_is_explained(name: str) -> None:
    schema = document_schema(name)
    explained = {key for each in EXPLANATIONS for key in each.keys}
    asked = {"seed", "size_bytes", "rounds", "runtime", "ramp", "scale", "cpus", "memory_bytes",
             "disks", "arc_bytes", "block"}  # fmt: skip
    found = numbers_of(schema) - asked
    assert found
    assert found <= explained


@pytest.mark.usefixtures("database")
def test_every_number_of_the_ranking_and_of_a_comparison_is_explained() -> None:
    explained = {key for each in EXPLANATIONS for key in each.keys}
    ranking = json.loads(call("rank", "--format", "json"))["cells"][0]
    compared = json.loads(call("compare", "raw/none", "host", "--format", "json"))
    for row in (ranking, compared["pairs"][0]["measures"][0]):
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                plain = key.removesuffix("_low").removesuffix("_high")
                assert key in explained or plain in explained, key
