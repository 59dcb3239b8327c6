"""What each release wrote, under tests/data/releases/VERSION, and how it is recorded.

    .venv/bin/python -m tests.unit.results.releases DATABASE PLAN.toml

writes the folder of this version: a database, its export, a plan file, and what is in them.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import typer

from tests.unit.committed_schemas import committed_schemas
from vdisklab import __version__, errors
from vdisklab.cli.shell.main import build_app
from vdisklab.plan.option_rows import given
from vdisklab.plan.plan_file import read_plan_file
from vdisklab.plan.settings import Request
from vdisklab.results.exchange import write_json
from vdisklab.results.model import Run, Sample
from vdisklab.results.store import Store, open_store

ROOT = Path(__file__).parents[3]
RELEASES = ROOT / "tests" / "data" / "releases"


def _samples(run: Run) -> Iterator[Sample]:
    return (sample for measurement in run.measurements for sample in measurement.samples)


def contents(store: Store) -> dict[str, Any]:
    """What a database must still say: each run, with the sum of its samples, and each verdict."""
    runs = {
        run.id: [
            str(run.path), run.round, len(run.checks), len(run.measurements),
            # one after the other, as the recorded sums: sum() compensates from Python 3.12 on
            reduce(add, (sample.value for sample in _samples(run)), 0),
        ]
        for run in store.runs()
    }  # fmt: skip
    cuts = {cut.id: [str(cut.path), cut.survives, cut.states] for cut in store.power_cuts()}
    campaigns = {campaign.id: campaign.label for campaign in store.campaigns()}
    return {"campaigns": campaigns, "runs": runs, "power_cuts": cuts}


def asked(plan: Path) -> dict[str, Any]:
    """What a plan file asks for, in words."""
    request = read_plan_file(plan, Request, note=lambda _: None)
    return {
        f"{row.table}.{row.key}": list(map(str, value)) if isinstance(value, tuple) else str(value)
        for row, value in given(request)
    }


def exit_codes() -> dict[str, int]:
    """The exit status of each kind of error, by its name."""
    kinds = [errors.VdisklabError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind.__name__: kind.exit_code for kind in kinds if kind.__module__ == errors.__name__}
    named = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    return dict(sorted({**ours, **named}.items()))


def documents() -> dict[str, list[str]]:
    """The keys of each JSON document, such as `cells[].ratio.low`, by `vdisklab.NAME/VERSION`."""
    schemas = committed_schemas()
    return {name: sorted(set(_keys(schema, schema))) for name, schema in schemas.items()}


def _keys(
    part: Mapping[str, Any], whole: Mapping[str, Any], above: str = "", within: tuple[str, ...] = ()
) -> Iterator[str]:
    refers = part.get("$ref")
    if refers is not None and refers not in within:
        named = whole["$defs"][refers.rpartition("/")[2]]
        yield from _keys(named, whole, above, (*within, refers))
    for key, value in part.get("properties", {}).items():
        yield f"{above}.{key}".removeprefix(".")
        yield from _keys(value, whole, f"{above}.{key}", within)
    for row in (*part.get("anyOf", ()), *part.get("oneOf", ()), *part.get("prefixItems", ())):
        yield from _keys(row, whole, above, within)
    for name, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(part.get(name), dict):
            yield from _keys(part[name], whole, f"{above}{mark}", within)


def options() -> dict[str, list[str]]:
    """The names of each verb's options; those of a verb within a verb stand under both names."""
    found: dict[str, list[str]] = {}

    def gather(command: Any, name: str) -> None:  # noqa: ANN401 - typer has its own copy of click
        for inner_name, inner in getattr(command, "commands", {}).items():
            gather(inner, f"{name} {inner_name}".strip())
        names = (*command.params,)
        found[name] = sorted(
            {flag for name in names for flag in (*name.opts, *name.secondary_opts)}
        )

    gather(typer.main.get_command(build_app()), "")
    return found


def record(database: Path, plan: Path) -> None:
    """Writes the folder of this version."""
    folder = RELEASES / __version__
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "database.sqlite"
        shutil.copy(database, copy)
        with open_store(str(copy), create=False) as store, (folder / "export.json").open("w") as to:
            write_json(to, store, store.campaigns(), store.power_cuts())
            says = {
                **contents(store),
                "plan": asked(plan), "exit_codes": exit_codes(), "documents": documents(),
                "options": options(),
            }  # fmt: skip
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("VACUUM")
        for name, content in {
            "database.sqlite": copy.read_bytes(),
            "export.json": (folder / "export.json").read_bytes(),
            "says.json": json.dumps(says, indent=1).encode(),
        }.items():
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    (folder / "export.json").unlink()
    shutil.copy(plan, folder / "plan.toml")


if __name__ == "__main__":
    record(*map(Path, sys.argv[1:]))
