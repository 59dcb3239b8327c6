from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.unit.cli.test_answers import document
from tests.unit.committed_schemas import committed_schemas
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.observations import SCORE_METRICS
from vdisklab.answers.method import EXPLANATIONS, MAIN
from vdisklab.cli.method import method
from vdisklab.errors import PlanError
from vdisklab.results.model import METRICS
from vdisklab.value import Value
from vdisklab.views.method import method_page

ROOT = Path(__file__).parents[3]
SCHEMAS = committed_schemas()
EXPLAINED = {key for each in EXPLANATIONS for key in each.keys}
PLAIN = {
    # what was asked for, counted or recorded as it is
    "value", "number", "position", "round", "rounds", "runs", "cells", "measured", "failed",
    "competitors", "measurements", "step", "all_judged", "groups", "unplaced",
    "paths", "power_cuts", "known_runs", "command_seconds", "runtime",
    "disk_bytes", "room_bytes", "disks", "size",
    # what `fleet` finds on hosts
    "free_bytes", "leftovers", "measuring_since", "silent_seconds",
    # `show` prints what observers counted
    "qemu_flushes", "device_flushes", "host_syncs", "writes",
    "flush_operations", "read_bytes", "read_operations", "write_bytes", "write_operations",
    "allocated_before", "allocated_after", "resident_before", "resident_after", "steal_seconds",
    "sync_bytes", "sync_seconds",
    "host_cpu_seconds", "host_cpu_seconds_per_operation", "measured_seconds", "start", "offered",
    "cpu", "steal", "device", "image", "queue", "thread_cpu",
    # what `record` and `show LOAD` counted
    "requests", "reads", "count", "bytes", "file_bytes", "written_bytes", "logical_block",
    "at_seconds", "start_seconds",
    # what `powercut` counted while storage failed, and what `audit` adds up of thin images
    "failed_flushes", "lost", "told", "told_runs", "told_after", "paused_runs",
    "paused_after", "again", "again_lost", "others", "others_grow",
    # what `watch` shows of the running cell
    "moment", "since", "began", "finished", "process", "bytes_per_second", "operations_per_second",
}  # fmt: skip
"""Numbers that need no explanation."""


def said(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(method)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
    if isinstance(result.exception, PlanError):
        raise result.exception
    return result.stdout


def test_one_number_or_all() -> None:
    assert "Hettmansperger" not in said("score")
    ranks = document(said("rank", "--format", "json"), "method")["numbers"]
    assert ranks[0]["title"] == "rank"
    assert len(ranks) == 3
    assert len(document(said("table", "--format", "json"), "method")["numbers"]) > len(ranks)
    assert len(document(said("--format", "json"), "method")["numbers"]) == len(EXPLANATIONS)
    with pytest.raises(PlanError, match="no number called 'joy'"):
        said("joy")


def test_the_schemas_of_documents_are_printed() -> None:
    assert json.loads(said("--schema", "rank")) == SCHEMAS["vdisklab.rank/3"]
    with pytest.raises(PlanError, match="unknown document 'joy'"):
        said("--schema", "joy")


def test_the_page_has_the_same_explanations() -> None:
    page = (ROOT / "docs" / "method.md").read_text()
    assert method_page(page, MAIN) == page, "run script/method-page"


def test_what_a_number_means_is_one_page_and_its_proofs_are_short() -> None:
    assert len((ROOT / "docs" / "method.md").read_bytes()) <= 7000
    assert len((ROOT / "docs" / "proofs.md").read_bytes()) <= 32_000


def properties(form: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """All keys of a schema, wherever they stand; the machine's facts are none."""
    if isinstance(form, dict):
        yield from form.get("properties", {}).items()
        for key, part in form.items():
            if key not in {"host", "HostFacts"}:
                yield from properties(part)
    elif isinstance(form, list):
        for part in form:
            yield from properties(part)


def is_number(form: Any) -> bool:  # noqa: ANN401
    kinds = [form, *form.get("anyOf", ())]
    return any(kind.get("type") in {"number", "integer"} for kind in kinds)


def fields_of_diagnostics(kind: type[Diagnostic] = Diagnostic) -> Iterator[str]:
    for below in kind.__subclasses__():
        if issubclass(below, Value):
            yield from below.__struct_fields__
        yield from fields_of_diagnostics(below)


def test_every_explained_key_exists() -> None:
    explained = {key for key, _ in properties(SCHEMAS)} | METRICS.keys() | SCORE_METRICS.keys()
    explained |= set(fields_of_diagnostics())
    assert explained >= EXPLAINED


@pytest.mark.parametrize("form", SCHEMAS)
def test_every_number_of_an_answer_is_explained(form: str) -> None:
    found = {key for key, value in properties(SCHEMAS[form]) if key != "host" and is_number(value)}
    assert found - PLAIN <= EXPLAINED
