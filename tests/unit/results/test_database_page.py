"""docs/database.md tells the truth: its queries run, its tables are the tables."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from vdisklab.results import schema
from vdisklab.results.exchange import CSV_COLUMNS, read_export, store_export, write_json
from vdisklab.results.model import Evidence, IoCounters
from vdisklab.results.store import Store

from .values import BROKEN, a_campaign, a_measurement, a_run

PAGE = (Path(__file__).parents[3] / "docs" / "database.md").read_text()
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def filled(store: Store) -> Store:
    campaign = a_campaign(id="0123456789abcdef")
    evidence = Evidence(guest=IoCounters(4096, 0, 1, 0), device=IoCounters(1024, 0, 1, 0))
    measurements = (a_measurement(evidence=evidence),)
    store.add_campaign(campaign)
    for cell, path in (("c1", "raw/none/virtio"), ("c2", "qcow2/none/virtio")):
        for round in (1, 2):
            store.add_run(
                a_run(campaign, cell=cell, path=path, round=round, measurements=measurements)
            )
    store.add_run(a_run(campaign, round=3, failure=BROKEN, measurements=()))
    return store


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    with store._database.writing() as connection:
        found = connection.execute(sa.text(query))
        return [tuple(row) for row in found] if found.returns_rows else []


def any_row(store: Store, table: sa.Table) -> bool:
    with store._database.reading() as connection:
        return connection.execute(sa.select(table)).first() is not None


def test_the_queries_run_as_they_are(filled: Store) -> None:
    what, numbers, pairs, cached, failed, delete = QUERIES
    assert [row[3:] for row in rows(filled, what)] == [(4, 1)]
    found = rows(filled, numbers)
    assert (len(found), {row[0] for row in found}) == (8, {"raw/none/virtio", "qcow2/none/virtio"})
    assert rows(filled, pairs) == [(round, 9870.5, 9870.5, 1.0) for round in (1, 2)]
    assert {row[2] for row in rows(filled, cached)} == {0.75}
    assert rows(filled, failed) == [(BROKEN.kind.value, BROKEN.message, 1)]
    rows(filled, delete)
    left = {name for name, table in schema.metadata.tables.items() if any_row(filled, table)}
    assert left == {"host", "metric"}


def test_every_table_and_column_is_described() -> None:
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    described = {name: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) for name, text in sections}
    assert described == {
        table.name: [column.name for column in table.columns]
        for table in schema.metadata.tables.values()
    }


def test_the_json_of_the_page_is_an_export_with_every_field(store: Store) -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    example = json.loads(text)
    store_export(store, read_export(text.encode(), name="the page"), name="the page")
    sink = io.StringIO()
    write_json(sink, store, store.campaigns(), ())
    assert json.loads(sink.getvalue())["campaigns"] == example["campaigns"]


def test_the_columns_of_the_csv_are_named() -> None:
    section = PAGE[PAGE.index("## The CSV export") :]
    assert tuple(re.findall(r"`(\w+)`", section)) == CSV_COLUMNS
