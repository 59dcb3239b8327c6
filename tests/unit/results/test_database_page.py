"""docs/database.md tells the truth: its queries run, its tables are the tables."""

from __future__ import annotations

import io
import json
import re
import statistics
from pathlib import Path

import pytest
import sqlalchemy as sa

from vdisklab.results import schema
from vdisklab.results.exchange import CSV_COLUMNS, read_export, store_export, write_json
from vdisklab.results.model import Direction, Evidence, IoCounters, Sample, Series
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


def named_columns(section: str) -> list[str]:
    """A table's have a line each, a view's are named in its last paragraph."""
    lines = re.findall(r"^\* `(\w+)`", section, re.MULTILINE)
    return lines or re.findall(r"`(\w+)`", section.partition("\nColumns: ")[2].partition("\n\n")[0])


def test_every_table_view_and_column_is_described(store: Store) -> None:
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    described = {name: named_columns(text) for name, text in sections}
    with store._database.reading() as connection:
        seen = sa.inspect(connection)
        views = {
            name: [column["name"] for column in seen.get_columns(name)]
            for name in seen.get_view_names()
        }
    assert len(views) == 6
    assert described == views | {
        table.name: [column.name for column in table.columns]
        for table in schema.metadata.tables.values()
    }


def test_the_views_say_what_the_tables_hold(filled: Store) -> None:
    ((campaign, rounds, _cells, measured, failed),) = rows(
        filled, "SELECT campaign, rounds, cells, measured, failed FROM campaign_state"
    )
    assert (campaign, rounds, measured, failed) == ("0123456789abcdef", 3, 4, 1)
    ((numbers,),) = rows(filled, "SELECT count(*) FROM sample")
    assert rows(filled, "SELECT count(*) FROM result") == [(numbers,)]
    ((reason, _path),) = rows(filled, "SELECT failure_message, path FROM failed_run")
    assert reason == BROKEN.message
    medians = "SELECT path, rounds, median FROM cell_median WHERE metric = 'iops' ORDER BY path"
    assert rows(filled, medians) == [
        ("qcow2/none/virtio", 2, 9870.5),
        ("raw/none/virtio", 2, 9870.5),
    ]


@pytest.mark.parametrize("values", [[5.0], [1.0, 9.0], [9.0, 1.0, 2.0], [4.0, 1.0, 2.0, 9.0]])
def test_a_median_is_that_of_all_rounds(store: Store, values: list[float]) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    for round, value in enumerate(values, 1):
        samples = (Sample("iops", Direction.READ, value),)
        measured = a_measurement(samples=samples)
        store.add_run(a_run(campaign, round=round, measurements=(measured,)))
    found = rows(store, "SELECT rounds, least, most, median FROM cell_median")
    assert found == [(len(values), min(values), max(values), statistics.median(values))]


def test_each_point_of_a_series_has_its_second(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    series = (Series("bandwidth", Direction.READ, 1.0, (5.0, 0.0, 7.5)),)
    store.add_run(a_run(campaign, measurements=(a_measurement(series=series),)))
    found = rows(store, "SELECT second, value FROM over_time ORDER BY second")
    assert found == [(0.0, 5.0), (1.0, 0.0), (2.0, 7.5)]


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
