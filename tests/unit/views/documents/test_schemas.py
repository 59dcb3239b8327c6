"""Every JSON document that a verb prints is checked against its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.stored import Database
from tests.unit.views.large import shapely_runs
from vdisklab.cli.shell.main import main
from vdisklab.views.documents.reference import json_page
from vdisklab.views.documents.schemas import DOCUMENTS, document_schema

ROOT = Path(__file__).parents[4]
NAMES = sorted(DOCUMENTS)

WORDS: dict[str, tuple[str, ...]] = {
    "method": ("method",),
}


def schema(name: str) -> Any:  # noqa: ANN401
    form = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(form)
    return form


@pytest.fixture(scope="module")
def shapely_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("database") / "shapely.sqlite")
    database.write(shapely_runs())
    return database.file


@pytest.fixture
def store(shapely_database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_DB", str(shapely_database))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", sorted(WORDS))
def test_what_a_verb_prints_is_what_its_schema_says(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([*WORDS[name], "--format", "json"])
    assert status in (0, 9, 10), capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema(name))
    assert found["format"].startswith("vdisklab.")


@pytest.mark.parametrize("name", NAMES)
def test_every_document_says_its_name(name: str) -> None:
    assert schema(name)["properties"]["format"] == {"const": f"vdisklab.{name}/1"}


def test_the_page_describes_every_document() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    assert json_page(page) == page, "run script/json-page"
