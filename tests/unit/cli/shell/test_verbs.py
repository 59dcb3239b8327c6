"""A verb is a file: it is found there, and what it shows or does has its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

import vdisklab
from vdisklab.cli.shell.main import app_for, build_app
from vdisklab.cli.shell.verbs import VerbPanel, imported_verb, listed_verbs, verb_files

SOURCE = Path(vdisklab.__file__).parent

TOY = '''"""`vdisklab spin-up`: a verb of a test."""
from vdisklab.cli.shell.verbs import VerbPanel

PANEL = VerbPanel.MEASURE


def spin_up() -> None:
    """Start all disks."""
'''
TOY_GROUP = '''"""`vdisklab import`: a group of verbs of a test."""
import typer

from vdisklab.cli.shell.verbs import VerbPanel

PANEL = VerbPanel.PREPARE


def import_() -> typer.Typer:
    """Disks from elsewhere."""
    verbs = typer.Typer()
    verbs.command()(tape)
    verbs.command()(card)
    return verbs


def tape() -> None:
    """From a tape."""


def card() -> None:
    """From cards."""
'''

OTHERWISE = {
    "run": "actions/measure.py and find_best.py; then it shows what rank, table or recommend show",
}
"""The verbs without files of their name in answers/ or actions/."""


def has(room: str, verb: str) -> bool:
    """A file of a room for this verb; a leaf has the files `answer`, `view` and `action`."""
    source = verb_files()[verb].source
    if source.stem == "verb":
        return source.with_stem(room.removesuffix("s")).is_file()
    return (SOURCE / room / source.name).is_file()


def test_a_verb_has_files_of_its_name_where_there_is_something_to_say() -> None:
    reading = {verb for verb in verb_files() if has("answers", verb)}
    acting = {verb for verb in verb_files() if has("actions", verb)}
    assert set(verb_files()) - reading - acting == set(OTHERWISE)


def test_a_new_verb_is_a_file_and_no_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "toy"
    for name, text in (
        ("__init__", ""), ("cli/__init__", ""), ("cli/spin_up", TOY), ("cli/import_", TOY_GROUP),
        ("leaf/__init__", ""), ("leaf/verb", TOY.replace("spin_up", "leaf")),
    ):  # fmt: skip
        file = package / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = typer.main.get_command(app_for(["--help"], {}, "toy"))
    assert isinstance(shown, typer.core.TyperGroup)
    assert list(shown.commands) == ["import", "leaf", "spin-up"]
    assert shown.commands["spin-up"].get_short_help_str() == "Start all disks."
    assert shown.commands["spin-up"].rich_help_panel == VerbPanel.MEASURE  # type: ignore[attr-defined]
    group = typer.main.get_command(build_app("import", "toy"))
    assert isinstance(group, typer.core.TyperGroup)
    (inner,) = group.commands.values()
    assert isinstance(inner, typer.core.TyperGroup)
    assert set(inner.commands) == {"tape", "card"}
    assert inner.help == "Disks from elsewhere."


def test_an_imported_verb_has_the_facts_that_its_file_states() -> None:
    for verb in listed_verbs():
        assert imported_verb(verb.file) == verb


def test_every_panel_has_verbs() -> None:
    assert {verb.panel for verb in listed_verbs()} == set(VerbPanel)
    assert {verb.file.name for verb in listed_verbs() if verb.is_group} == {"fleet", "lab"}


def test_no_garbage_collection_looks_at_what_was_loaded() -> None:
    """It took a quarter of the time of `vdisklab rank`."""
    program = (
        "import gc, sys; from vdisklab.__main__ import main; sys.argv[1:] = ['rank', '--help'];"
        "status = main(); frozen = gc.get_freeze_count() > 100_000 and gc.isenabled();"
        "raise SystemExit(status or not frozen)"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, stdout=subprocess.DEVNULL)
    assert ended.returncode == 0
