"""The database that the verbs read in a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stored import Database
from vdisklab.host import facts
from vdisklab.host.command import Host, LocalHost


@pytest.fixture(scope="session", autouse=True)
def _programs_say_their_version_once() -> Iterator[None]:
    """Each verb starts QEMU and fio to ask for it, which takes as long as the rest of the verb.

    What another file answers to the name, as a test's own program does, is asked again.
    """
    ask = facts.program_version
    versions: dict[tuple[object, ...], str | None] = {}

    def asked_once(host: Host, program: str, pattern: str) -> str | None:
        file = host.which(program) if type(host) is LocalHost else None
        if file is None:
            return ask(host, program, pattern)
        found = Path(file).stat()
        key = (file, found.st_ino, found.st_size, found.st_mtime_ns, pattern)
        if key not in versions:
            versions[key] = ask(host, program, pattern)
        return versions[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "program_version", asked_once)
        yield


@pytest.fixture(scope="session")
def _made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("database") / "made-up.sqlite")
    database.write()
    return database.file


@pytest.fixture
def database(_made_up: Path, tmp_path_factory: pytest.TempPathFactory,
             monkeypatch: pytest.MonkeyPatch) -> Database:  # fmt: skip
    """The made-up campaign in a file of the test's own, which VDISKLAB_DB names.

    Tables are 120 characters wide, whatever the terminal of the worker.
    """
    file = tmp_path_factory.mktemp("database") / "results.sqlite"
    shutil.copy(_made_up, file)
    monkeypatch.setenv("VDISKLAB_DB", str(file))
    monkeypatch.setenv("COLUMNS", "120")
    return Database(file)
