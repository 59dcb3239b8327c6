"""`clean` removes what a ledger names, in the right order, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from vdisklab.cli.clean import Undo, clean_verb, remove_leftovers
from vdisklab.errors import CommandError, DirtyHostError
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.ledger import Entry, open_ledger, pending


def interrupted(state: Path, *things: tuple[str, str]) -> Path:
    """The ledger of a run that ended without taking down `things`."""
    with open_ledger(state) as ledger:
        for kind, name in things:
            try:
                with ledger.entry(kind, name):
                    raise DirtyHostError("left")
            except DirtyHostError:
                pass
    return ledger.path


class Remover:
    """Undo functions that note what they removed, and refuse what is `busy`."""

    def __init__(self, busy: str = "") -> None:
        self.removed: list[str] = []
        self.busy = busy

    def __call__(self, _host: Host, entry: Entry) -> None:
        if entry.name == self.busy:
            raise CommandError(["umount", entry.name], 32, "target is busy")
        self.removed.append(entry.name)

    @property
    def table(self) -> Mapping[str, Undo]:
        return {"loop": self, "mount": self}


def test_newest_first_and_the_ledger_goes_last(tmp_path: Path) -> None:
    path = interrupted(tmp_path, ("loop", "/dev/loop7"), ("mount", "/m"))
    remover, said = Remover(), list[str]()
    remove_leftovers(LocalHost(), remover.table, say=said.append, directory=tmp_path)
    assert remover.removed == ["/m", "/dev/loop7"]
    assert said == ["removed mount /m", "removed loop /dev/loop7"]
    assert not path.exists()


def test_what_stays_is_named_and_kept(tmp_path: Path) -> None:
    path = interrupted(tmp_path, ("mount", "/a"), ("mount", "/b"))
    remover = Remover(busy="/b")
    with pytest.raises(DirtyHostError, match=r"mount /b .*target is busy"):
        remove_leftovers(LocalHost(), remover.table, say=print, directory=tmp_path)
    assert remover.removed == ["/a"]
    assert [entry.name for entry in pending(path)] == ["/b"]


def test_a_kind_of_a_newer_version_is_not_guessed_at(tmp_path: Path) -> None:
    interrupted(tmp_path, ("teleporter", "/t"))
    with pytest.raises(DirtyHostError, match=r"teleporter /t .*does not know how"):
        remove_leftovers(LocalHost(), {}, say=print, directory=tmp_path)


def test_dry_run_only_lists(tmp_path: Path) -> None:
    path = interrupted(tmp_path, ("mount", "/m"))
    remover, said = Remover(), list[str]()
    remove_leftovers(LocalHost(), remover.table, say=said.append, directory=tmp_path, dry_run=True)
    assert said == ["would remove mount /m"]
    assert remover.removed == []
    assert path.exists()


def test_a_ledger_without_entries_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ledger/0.jsonl"
    path.parent.mkdir()
    path.touch()
    said = list[str]()
    remove_leftovers(LocalHost(), {}, say=said.append, directory=tmp_path)
    assert said == ["nothing is left to remove"]
    assert not path.exists()


def test_the_verb_takes_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    interrupted(tmp_path, ("mount", "/m"))
    app = typer.Typer()
    remover = Remover()
    app.command()(clean_verb(remover.table))
    done = CliRunner().invoke(app, ["--dry-run"])
    assert done.output == "would remove mount /m\n"
    CliRunner().invoke(app, [])
    assert remover.removed == ["/m"]
