"""What a release wrote can be read by this version: docs/stability.md promises it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.results.exchange import read_export, store_export
from vdisklab.results.store import open_store

from .releases import RELEASES, asked, contents, documents, exit_codes, options

FOLDERS = sorted(RELEASES.iterdir())
releases = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def unpacked(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes())


def says(folder: Path) -> dict[str, Any]:
    said = json.loads(unpacked(folder / "says.json.gz"))
    assert isinstance(said, dict)
    return said


def held(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: said[key] for key in ("campaigns", "runs", "power_cuts")}


def test_the_releases_are_there() -> None:
    assert "0.1.0" in {folder.name for folder in FOLDERS}


@releases
def test_its_database_opens_and_says_the_same(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "database.sqlite"
    database.write_bytes(unpacked(folder / "database.sqlite.gz"))
    with open_store(str(database), create=False) as store:
        assert contents(store) == held(says(folder))
    assert main(["rank", "--db", str(database), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"]


@releases
def test_its_export_is_imported_whole(folder: Path, tmp_path: Path) -> None:
    export = read_export(unpacked(folder / "export.json.gz"), name="export.json")
    with open_store(str(tmp_path / "new.sqlite")) as store:
        store_export(store, export, name="export.json")
        assert contents(store) == held(says(folder))


@releases
def test_its_plan_file_asks_for_the_same(folder: Path) -> None:
    assert asked(folder / "plan.toml") == says(folder)["plan"]


@releases
def test_its_exit_codes_still_mean_the_same(folder: Path) -> None:
    assert says(folder)["exit_codes"].items() <= exit_codes().items()


@releases
def test_a_document_of_its_version_still_has_its_keys(folder: Path) -> None:
    """A key may be added; one is removed or changed only with a new number behind the name."""
    now = documents()
    lost = {
        name: sorted(set(keys) - set(now[name]))
        for name, keys in says(folder)["documents"].items()
        if name in now and not set(keys) <= set(now[name])
    }
    assert lost == {}
    names = {name.partition("/")[0] for name in now}
    assert {name.partition("/")[0] for name in says(folder)["documents"]} <= names


@releases
def test_its_verbs_and_options_are_still_there(folder: Path) -> None:
    now = options()
    released = says(folder)["options"]
    assert released.keys() <= now.keys()
    assert {verb: sorted(set(names) - set(now[verb])) for verb, names in released.items()} == {
        verb: [] for verb in released
    }
