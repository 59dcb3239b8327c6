"""Prints the tables of the documentation anew from their records, and options of simulations.

    .venv/bin/python bench/pages.py docs/*.md

In a page a table lies between two lines. The first names a program beside this file and its words:

    <!-- record: powercut_matrix.py models rows=stack,cache,client columns=model -->
    <!-- end of record -->

`shown(words)` of the program returns what lies between them; `only=13×3;13×5` and `without=twins`
leave out columns and rows (by their names, without spaces; a row's may be a pattern, as `*twins*`).
tests/unit/test_pages.py compares.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_TABLE = re.compile(r"<!-- record: (?P<command>.*?) -->\n.*?<!-- end of record -->", re.DOTALL)


def record_of(name: str) -> Any:  # noqa: ANN401 - a record's own form
    """The content of a record in `results/`, such as `search.json` or `powercut.json.gz`."""
    content = (RESULTS / name).read_bytes()
    return json.loads(gzip.decompress(content) if name.endswith(".gz") else content)


def keep_record(name: str, record: object) -> None:
    """Writes a compressed record; equal records are equal files."""
    text = json.dumps(record, separators=(",", ":"))
    (RESULTS / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def commands(page: str) -> list[str]:
    """The commands of a page's tables."""
    return [match["command"] for match in _TABLE.finditer(page)]


def refreshed(page: str) -> str:
    """The page with its tables made from the records again."""
    return _TABLE.sub(
        lambda match: (
            f"<!-- record: {match['command']} -->\n\n{_shown(match['command'])}\n\n"
            "<!-- end of record -->"
        ),
        page,
    )


def _shown(command: str) -> str:
    program, *arguments = command.split()
    parts = dict(word.split("=", 1) for word in arguments if word.startswith(("only=", "without=")))
    arguments = [word for word in arguments if word.partition("=")[0] not in parts]
    shown: Callable[[list[str]], str] = import_module(program.removesuffix(".py")).shown
    table = shown(arguments)
    table = _part(table, parts) if parts else table
    return re.sub(r"^\| -[-| ]+\|$", lambda rule: rule[0].replace(" ", ""), table, flags=re.M)


def _part(table: str, parts: dict[str, str]) -> str:
    """Some rows and columns of a table; raises KeyError for a name that none has."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    columns = {cell.replace(" ", ""): place for place, cell in enumerate(lines[0])}
    rows = [(line[0].replace(" ", ""), line) for line in lines[2:]]
    kept = None
    if "only" in parts:
        kept = list(dict.fromkeys([0, *(columns[name] for name in parts["only"].split(";"))]))
    for pattern in filter(None, parts.get("without", "").split(";")):
        others = [row for row in rows if not fnmatch.fnmatch(row[0], pattern)]
        if len(others) == len(rows):
            raise KeyError(pattern)
        rows = others
    return "\n".join(
        "| " + " | ".join(line if kept is None else [line[place] for place in kept]) + " |"
        for line in (*lines[:2], *(line for _, line in rows))
    )


def simulation_options(
    description: str | None, count: str, names: list[str]
) -> argparse.ArgumentParser:
    """The options of a program of simulations; `count` is the option with their number."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(count, type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, help="keep all numbers here; others in it stay")
    parser.add_argument("--from", dest="kept", type=Path, help="simulate nothing, read this")
    return parser


def main() -> None:
    """Rewrites the pages of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pages", nargs="+", type=Path)
    for page in parser.parse_args().pages:
        page.write_text(refreshed(page.read_text()))


if __name__ == "__main__":
    main()
