"""`clean` removes what a ledger names, in the right order, and nothing else."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pytest

from vdisklab.actions.clean import forget_leftovers, list_leftovers, remove_leftovers
from vdisklab.cli.shell.main import main
from vdisklab.errors import CommandError, DirtyHostError, HostError, PlanError
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.ledger import Entry, open_ledger, pending
from vdisklab.host.plan_locks import lock_directory, release_lock, take_lock
from vdisklab.host.waiting import wait_until
from vdisklab.storage.remote import DISK, FILE
from vdisklab.storage.undo import Undo, processes_marked


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
    remover = Remover()
    removed = remove_leftovers(LocalHost(), remover.table, tmp_path)
    assert list(map(str, removed)) == ["mount /m", "loop /dev/loop7"]
    assert remover.removed == ["/m", "/dev/loop7"]
    assert not path.exists()


@pytest.mark.parametrize("names", [("00000000", "ffffffff"), ("ffffffff", "00000000")])
def test_a_ledger_opened_inside_another_is_undone_first(
    names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, inner = names
    monkeypatch.setattr("secrets.token_hex", lambda _: outer)
    with open_ledger(tmp_path) as ledger:
        ledger.add("loop", "below")
        monkeypatch.setattr("secrets.token_hex", lambda _: inner)
        interrupted(tmp_path, ("mount", "upon it"), ("loop", "VDISKLAB_PROGRAM=ffff"))
        ledger.add("mount", "newest")
    remover = Remover()
    assert list_leftovers(tmp_path) == list(remove_leftovers(LocalHost(), remover.table, tmp_path))
    assert remover.removed == ["VDISKLAB_PROGRAM=ffff", "newest", "upon it", "below"]
    assert list((tmp_path / "ledger").iterdir()) == []


def test_what_stays_is_named_and_kept(tmp_path: Path) -> None:
    path = interrupted(tmp_path, ("mount", "/a"), ("mount", "/b"))
    remover = Remover(busy="/b")
    with pytest.raises(DirtyHostError, match=r"mount /b .*target is busy"):
        list(remove_leftovers(LocalHost(), remover.table, tmp_path))
    assert remover.removed == ["/a"]
    assert [entry.name for entry in pending(path)] == ["/b"]


def test_a_disk_that_cannot_be_emptied_keeps_the_copy_of_its_secret(tmp_path: Path) -> None:
    site, other = tmp_path / "vdisklab-00000000", tmp_path / "other"
    needs = {"needs": str(site / "san.secret/keys.psk")}
    with open_ledger(tmp_path) as ledger:
        for kind, name, detail in (
            ("directory", other, {}), ("directory", site, {}),
            ("directory", site / "san.secret", {}), (DISK.kind, "nbds://h/e", needs),
        ):  # fmt: skip
            ledger.add(kind, name, **detail)
    remover = Remover(busy="nbds://h/e")
    table = dict.fromkeys((DISK.kind, "directory"), remover)
    with pytest.raises(DirtyHostError, match="nbds://h/e") as dirty:
        list(remove_leftovers(LocalHost(), table, tmp_path))
    assert "secret" not in str(dirty.value)
    assert remover.removed == [str(other)]
    remover.busy = ""
    left = ["nbds://h/e", str(site / "san.secret"), str(site)]
    assert [leftover.name for leftover in remove_leftovers(LocalHost(), table, tmp_path)] == left
    assert list((tmp_path / "ledger").iterdir()) == []


@pytest.mark.parametrize(
    ("place", "forgotten"),
    [
        ("nbd://h/e", ["data in its first 16.0 MiB may still be there"]),
        ("nfs://nas/images", ["it may still be there"] * 2),
        ("nfs://nas/images/vdisklab-00000000-a.raw", ["it may still be there"]),
        ("ssh://h/d?host_key_check=no", ["it may still be there"]),
        ("/mnt/nas/", ["it is not there now"] * 2),
    ],
)
def test_a_target_that_never_comes_back_is_forgotten(
    place: str, forgotten: list[str], tmp_path: Path
) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.add("mount", "/mnt/nas/vdisklab-00000000/stack0.mnt")
        ledger.add(DISK.kind, "nbd://h/e", bytes=str(16 << 20))
        for name in ("nfs://nas/images/vdisklab-00000000-a.raw",
                     "nfs://nas/images/vdisklab-00000000-b.raw",
                     "nfs://nas/imagesother/vdisklab-00000000-a.raw",
                     "ssh://h/d/vdisklab-00000000-a.raw?host_key_check=no",
                     "ssh://h/d/vdisklab-00000000-a.raw?host_key_check=yes"):  # fmt: skip
            ledger.add(FILE.kind, name)
        ledger.add("directory", "/mnt/nas/vdisklab-00000000.t")
        ledger.add("file", "/mnt/nas/vdisklab-00000000.t/image0.raw")
        ledger.add("file", "/mnt/nas/mine")
    listed = [left for _, left in forget_leftovers(place, tmp_path, dry_run=True)]
    assert listed == forgotten
    assert len(list_leftovers(tmp_path)) == 10
    for entry, _ in forget_leftovers(place, tmp_path):
        assert entry.name.startswith(place.partition("?")[0])
    assert len(list_leftovers(tmp_path)) == 10 - len(forgotten)
    with pytest.raises(PlanError, match="nothing is left on") as nothing:
        list(forget_leftovers(place, tmp_path))
    assert "clean --dry-run" in str(nothing.value.hint)


def test_what_is_forgotten_is_looked_at_where_this_host_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, gone = tmp_path / "vdisklab-00000000.t", tmp_path / "vdisklab-00000001.t"
    with open_ledger(tmp_path) as ledger:
        ledger.add("directory", there)
        ledger.add("directory", gone)
    there.mkdir()
    said = {
        entry.name: left for entry, left in forget_leftovers(str(tmp_path), tmp_path, dry_run=True)
    }
    assert said == {str(there): "it is still there", str(gone): "it is not there now"}

    def hangs(_place: Path, _call: object) -> None:
        raise HostError("the file system does not answer")

    monkeypatch.setattr("vdisklab.actions.clean.answered", hangs)
    assert {left for _, left in forget_leftovers(str(tmp_path), tmp_path)} == {
        "it may still be there"
    }


def test_a_kind_of_a_newer_version_is_not_guessed_at(tmp_path: Path) -> None:
    interrupted(tmp_path, ("teleporter", "/t"))
    with pytest.raises(
        DirtyHostError, match=r"teleporter /t .*this version cannot remove it"
    ) as caught:
        list(remove_leftovers(LocalHost(), {}, tmp_path))
    assert caught.value.hint == "run `vdisklab clean` of the version that made it"


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (PermissionError("not permitted"), "run `vdisklab clean` as root"),
        (OSError("input/output error"), "fix the cause given in brackets, then run"),
        (CommandError(("zpool", "export"), 1, "no such module"), "fix the cause given in brackets"),
        (DirtyHostError("still attached"), "stop the program that uses it, then run"),
        (DirtyHostError("held", hint="end these processes"), "end these processes"),
    ],
)
def test_each_cause_has_its_own_way_out(tmp_path: Path, error: Exception, way_out: str) -> None:
    interrupted(tmp_path, ("mount", "/a"))

    def fail(_host: Host, _entry: Entry) -> None:
        raise error

    with pytest.raises(DirtyHostError) as caught:
        list(remove_leftovers(LocalHost(), {"mount": fail}, tmp_path))
    assert (caught.value.hint or "").startswith(way_out)


def test_dry_run_only_lists(tmp_path: Path) -> None:
    path = interrupted(tmp_path, ("mount", "/m"))
    assert list(map(str, list_leftovers(tmp_path))) == ["mount /m"]
    assert path.exists()


def test_a_ledger_without_entries_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ledger/0.jsonl"
    path.parent.mkdir()
    path.touch()
    assert list(remove_leftovers(LocalHost(), {}, tmp_path)) == []
    assert not path.exists()


def test_the_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    file = tmp_path / "file"
    file.touch()
    interrupted(tmp_path, ("file", str(file)))
    for arguments in (["--dry-run"], [], []):
        assert main(["clean", *arguments]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"would remove file {file}", f"removed file {file}", "there is nothing to remove",
    ]  # fmt: skip
    assert not file.exists()


def test_a_process_is_named_with_its_number_and_what_it_is(tmp_path: Path) -> None:
    mark = f"guest=vdisklab-{os.getpid()}-x,"
    interrupted(tmp_path, ("process", mark))
    ended = list_leftovers(tmp_path)
    assert list(map(str, ended)) == [f"QEMU of the guest vdisklab-{os.getpid()}-x"]
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "MARK": mark}) as running:
        try:
            wait_until(lambda: bool(processes_marked(mark)), timeout=10, what="the process")
            (removed,) = remove_leftovers(LocalHost(), directory=tmp_path)
            number = running.pid
            assert str(removed) == f"process {number}, QEMU of the guest vdisklab-{os.getpid()}-x"
            assert running.wait(10) == -signal.SIGKILL
        finally:
            running.kill()


def test_a_killed_runs_lock_is_removed_and_one_that_is_held_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    directory = lock_directory()
    held, is_ours = take_lock(directory / "held")
    assert is_ours
    again, is_ours = take_lock(directory / "held")
    again.close()
    assert not is_ours
    (directory / "left").write_text("4711")
    assert main(["clean", "--dry-run"]) == 0
    assert main(["clean"]) == 0
    said = capsys.readouterr().out.splitlines()
    lock = f"{directory / 'left'}, a killed run's lock"
    assert said == [f"would remove {lock}", f"removed {lock}"]
    assert [file.name for file in directory.iterdir()] == ["held"]
    release_lock(held, directory / "held")
    assert list(directory.iterdir()) == []


def test_a_lock_without_a_name_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking a file its holder may end, and remove it."""
    file, flock = tmp_path / "plan", fcntl.flock
    calls: list[int] = []

    def removed_before(descriptor: IO[str], how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            file.unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    lock, is_ours = take_lock(file)
    with lock:
        assert (is_ours, len(calls), file.exists()) == (True, 2, True)
        again, is_ours = take_lock(file)
        again.close()
        assert not is_ours
