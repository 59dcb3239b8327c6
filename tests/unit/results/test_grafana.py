"""The dashboards of docs/grafana: each panel's query gives rows on a filled PostgreSQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from vdisklab.results.exchange import read_export, store_export
from vdisklab.results.store import Store, open_store

from .postgresql_server import Server
from .values import BROKEN, a_power_cut, a_run

DOCS = Path(__file__).parents[3] / "docs"
BOARDS = {file.stem: json.loads(file.read_text()) for file in (DOCS / "grafana").glob("*.json")}
PANELS = [(name, panel["title"]) for name, board in BOARDS.items() for panel in board["panels"]]
_HOSTILE = "o'Brien; DROP TABLE run --"


@pytest.fixture(scope="module")
def grafana(server: Server) -> Iterator[Store]:
    """A real campaign, one of its cells failed, and a power cut on its host."""
    with open_store(server.new_database(migrated=True)) as store:
        export = (DOCS / "images" / "campaign.json.gz").read_bytes()
        store_export(store, read_export(export, name="campaign.json.gz"), name="campaign.json.gz")
        (campaign,) = store.campaigns()
        store.add_run(a_run(campaign, round=4, failure=BROKEN, measurements=()))
        store.add_power_cut(a_power_cut(host=campaign.host))
        yield store


def asked(store: Store, query: str) -> list[Mapping[str, Any]]:
    with store._database.reading() as connection:
        return [dict(row) for row in connection.execute(sa.text(query)).mappings()]


def sqlstring(text: str) -> str:
    """What `${name:sqlstring}` inserts, escaped for SQLAlchemy too."""
    return "'" + text.replace("'", "''").replace(":", r"\:") + "'"


def filled_in(query: str, values: Mapping[str, str]) -> str:
    """A query as Grafana sends it, with the whole of time as the dashboard's range."""
    for name, value in values.items():
        query = query.replace(f"${{{name}:sqlstring}}", sqlstring(value))
    every = r"\1 BETWEEN '1970-01-01T00\:00\:00Z' AND '2999-01-01T00\:00\:00Z'"
    query = re.sub(r"\$__timeFilter\(([\w.]+)\)", every, query)
    assert "$" not in query, "every variable and macro is one that this test knows"
    return query


def chosen(store: Store, board: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a dashboard, each with the first value of its own query."""
    values: dict[str, str] = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            (first, *_) = asked(store, filled_in(variable["query"], values))
            values[variable["name"]] = str(first.get("__value", next(iter(first.values()))))
    return values


def the_panel(name: str, title: str) -> dict[str, Any]:
    (panel,) = [board for board in BOARDS[name]["panels"] if board["title"] == title]
    return dict(panel)


@pytest.mark.parametrize(("name", "title"), PANELS)
def test_a_panel_has_rows(grafana: Store, name: str, title: str) -> None:
    panel = the_panel(name, title)
    (target,) = panel["targets"]
    rows = asked(grafana, filled_in(target["rawSql"], chosen(grafana, BOARDS[name])))
    assert rows
    assert all(value is not None for value in rows[0].values()), "the panel shows something"
    if target["format"] == "time_series":
        assert panel["type"] == "timeseries"
        assert set(rows[0]) == {"time", "metric", "value"}
        assert isinstance(rows[0]["time"], datetime)
        assert rows[0]["time"].tzinfo is not None
        times = [row["time"] for row in rows]
        assert times == sorted(times), "Grafana refuses a series out of order"


@pytest.mark.parametrize(("name", "title"), PANELS)
def test_a_hostile_name_is_a_value(grafana: Store, name: str, title: str) -> None:
    values = dict.fromkeys(chosen(grafana, BOARDS[name]), _HOSTILE)
    (target,) = the_panel(name, title)["targets"]
    assert asked(grafana, filled_in(target["rawSql"], values)) == []
    assert asked(grafana, "SELECT count(*) AS n FROM run")[0]["n"] > 0


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_a_dashboard_can_be_imported(board: Mapping[str, Any]) -> None:
    """Panels lie side by side on Grafana's 24 columns, with ids and the chosen data source."""
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert {row["datasource"]["uid"] for row in (panel, *panel["targets"])} == {"${datasource}"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


def test_the_role_of_the_page_can_read_and_no_more(grafana: Store, server: Server) -> None:
    (statements,) = re.findall(
        r"^```sql\n(.*?)^```", (DOCS / "grafana.md").read_text(), re.M | re.S
    )
    with grafana._database.writing() as connection:
        for statement in filter(str.strip, statements.split(";")):
            connection.execute(sa.text(statement))
        connection.execute(sa.text("SET LOCAL ROLE grafana"))
        assert connection.execute(sa.text("SELECT count(*) FROM result")).scalar()
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
            connection.execute(sa.text("DELETE FROM run"))
        connection.rollback()
