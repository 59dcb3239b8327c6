"""Results go to files, symbolic links, pipes and standard output."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.unit.results.values import a_campaign, a_run
from vdisklab.actions.output_file import output_file, require_writable
from vdisklab.cli.shell.main import main
from vdisklab.errors import HostError
from vdisklab.results.store import open_store


@pytest.fixture
def db(tmp_path: Path) -> str:
    url = str(tmp_path / "results.sqlite")
    campaign = a_campaign()
    with open_store(url) as store:
        store.add_together([campaign], [a_run(campaign)])
    return url


def _write(path: Path, data: bytes = b"new") -> None:
    with output_file(path) as stream:
        stream.write(data)


def _write_until_full(path: Path) -> None:
    with output_file(path) as stream:
        stream.write(b"half")
        raise OSError(28, "No space left on device")


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "there" / "file"
    file.parent.mkdir()
    link.symlink_to(file)
    for data in (b"first", b"second"):
        _write(link, data)
        assert link.is_symlink()
        assert file.read_bytes() == data
    assert list(file.parent.iterdir()) == [file]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    _write(pipe)
    reader.join(5)
    assert received == [b"new"]
    assert pipe.is_fifo()


def test_an_error_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with pytest.raises(HostError, match="cannot be written: No space") as full:
        _write_until_full(file)
    assert full.value.hint == "free some space on that file system, or name a file on another one"
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(HostError, match="cannot be written: Is a directory"):
        _write(tmp_path)


def test_both_verbs_write_to_standard_output(db: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export-data", "-", "--db", db]) == 0
    assert json.loads(capfd.readouterr().out)["format"] == "vdisklab/2"
    assert main(["report", "--format", "json", "-o", "-", "--db", db]) == 0
    assert json.loads(capfd.readouterr().out)["format"].startswith("vdisklab.report/")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_another_user_left_in_a_shared_directory_is_refused(tmp_path: Path, kind: str) -> None:
    shared, mine = tmp_path / "tmp", tmp_path / "mine"
    shared.mkdir()
    shared.chmod(0o1777)
    mine.write_text("kept")
    trap = shared / "report.html"
    if kind == "link":
        trap.symlink_to(mine)
    else:
        os.mkfifo(trap)
    os.chown(trap, 65534, 65534, follow_symlinks=False)
    with pytest.raises(HostError, match="belongs to another user"):
        _write(trap)
    assert mine.read_text() == "kept"


def test_a_place_is_tried_before_there_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")
    for name in ("old", "new"):
        require_writable(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "kept"
    os.mkfifo(tmp_path / "pipe")
    require_writable(tmp_path / "pipe")  # a pipe that is opened waits for its reader
    with pytest.raises(HostError, match="cannot be written: No such file or directory"):
        require_writable(tmp_path / "gone" / "new")
