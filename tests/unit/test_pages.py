"""What a page shows of a record is printed anew from the record, by the program that it names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.pages import BENCH, bench

ROOT = Path(__file__).parents[2]
PAGES = bench("pages.py")
QUOTING = [
    page for page in sorted((ROOT / "docs").glob("*.md")) if "<!-- record: " in page.read_text()
]


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])


# To make what this page shows takes 5 s; each commit does it of the other pages.
TAKES_LONG = ("trust",)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=pytest.mark.nightly if page.stem in TAKES_LONG else (), id=page.stem
        )
        for page in QUOTING
    ],
)
def test_what_a_page_shows_is_in_its_records(page: Path) -> None:
    text = page.read_text()
    assert text.count("<!-- record: ") == text.count("<!-- end of record -->")
    assert PAGES["refreshed"](text) == text, f"run .venv/bin/python bench/pages.py docs/{page.name}"


def test_every_simulation_is_on_a_page() -> None:
    commands = [command for page in QUOTING for command in PAGES["commands"](page.read_text())]
    shown = {" ".join(command.split()[:2]) for command in commands}
    for program in ("simulations.py", "fleet_simulations.py"):
        assert {f"{program} {name}" for name in bench(program)["SIMULATIONS"]} <= shown


def test_a_table_is_replaced_and_the_rest_stays() -> None:
    page = "a\n<!-- record: simulations.py medians -->\nold\n<!-- end of record -->\nb\n"
    made = PAGES["refreshed"](page)
    assert made.startswith("a\n<!-- record: simulations.py medians -->\n\n| ")
    assert made.endswith(" |\n\n<!-- end of record -->\nb\n")
    assert PAGES["refreshed"]("# No table") == "# No table"


def test_a_page_shows_a_part_of_a_table() -> None:
    command = "simulations.py ranks only=13×5;4×3 without=exacttwins"
    page = f"<!-- record: {command} -->\n<!-- end of record -->"
    made = PAGES["refreshed"](page)
    assert "| cells × rounds | 13 × 5 | 4 × 3 |" in made
    assert "equal noise" in made
    assert "twins |" not in made
    with pytest.raises(KeyError):
        PAGES["refreshed"](page.replace("4×3", "4×7"))


def test_an_unknown_record_is_an_error() -> None:
    with pytest.raises(KeyError):
        PAGES["refreshed"]("<!-- record: simulations.py nothing -->\n<!-- end of record -->")
