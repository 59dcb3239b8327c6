"""Every JSON document that a verb prints is checked against its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vdisklab.views.documents.reference import json_page
from vdisklab.views.documents.schemas import DOCUMENTS, document_schema

ROOT = Path(__file__).parents[4]
NAMES = sorted(DOCUMENTS)


def schema(name: str) -> Any:  # noqa: ANN401
    form = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(form)
    return form


@pytest.mark.parametrize("name", NAMES)
def test_every_document_says_its_name(name: str) -> None:
    assert schema(name)["properties"]["format"] == {"const": f"vdisklab.{name}/1"}


def test_the_page_describes_every_document() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    assert json_page(page) == page, "run script/json-page"
