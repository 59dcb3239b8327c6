"""As root: names that another user can change lead nowhere, and nothing of theirs is obeyed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from vdisklab.actions.export_data import stream_of_runs
from vdisklab.actions.output_file import output_file
from vdisklab.errors import DatabaseError, HostError
from vdisklab.guest.qemu.daemons import start_storage_daemon
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.safe_places import distrust, make_directory, open_file
from vdisklab.results.store import open_store
from vdisklab.storage.site import open_site

pytestmark = pytest.mark.host

EVE = 65534
PRECIOUS = "precious\n"
SHORT = ("--runtime", "200ms", "--ramp", "0")
KILLED = ("--client", "never", "--model", "qemu-killed", "--writes", "16")


@pytest.fixture(autouse=True)
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root itself types the commands."""
    for name in ("SUDO_UID", "DOAS_USER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def eves(tmp_path: Path) -> Path:
    """A directory of another user, and beside it a secret of root's."""
    directory = tmp_path / "eves"
    directory.mkdir()
    os.chown(directory, EVE, EVE)
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "file").write_text(PRECIOUS)
    return directory


@pytest.fixture
def secret(eves: Path) -> Path:
    return eves.parent / "secret" / "file"


def vdisklab(state: Path, *arguments: str | Path, umask: int = 0o022) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "vdisklab", *map(str, arguments)],
        env={**os.environ, "VDISKLAB_STATE": str(state), "NO_COLOR": "1"},
        capture_output=True, text=True, timeout=120, check=False, umask=umask,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_work_directory_of_another_user_is_refused(eves: Path, secret: Path) -> None:
    status, said = vdisklab(eves.parent / "state", "run", "host", "--dir", eves, "--rounds", "1")
    assert status == HostError.exit_code
    assert f"root does not write to the work directory {eves}: it belongs to nobody" in said
    assert "hint: name another with --dir" in said
    assert "chown" not in said, "it may be a home directory"
    assert "or have nobody run it with sudo" in " ".join(said.split())
    assert list(eves.iterdir()) == []
    assert secret.read_text() == PRECIOUS


def below_another_user(directory: Path) -> Path:
    inside = directory / "roots"
    inside.mkdir()
    return inside


def for_everybody(directory: Path) -> Path:
    open_to_all = directory.parent / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    return open_to_all


def for_a_group(directory: Path) -> Path:
    shared = directory.parent / "group"
    shared.mkdir()
    os.chown(shared, 0, EVE)
    shared.chmod(0o775)
    return shared


def behind_a_link(directory: Path) -> Path:
    sticky = directory.parent / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    link = sticky / "link"
    link.symlink_to(directory.parent / "secret")
    os.lchown(link, EVE, EVE)
    return link


def to_another_user(directory: Path) -> Path:
    link = directory.parent / "roots-link"
    link.symlink_to("eves/x/..")
    (directory / "x").mkdir()
    return link


def above_what_a_link_leads_to(directory: Path) -> Path:
    """`..` is taken from where the link leads, not from where it lies."""
    (directory / "below").mkdir()
    (directory.parent / "roots-link").symlink_to("eves/below")
    return directory.parent / "roots-link" / ".."


def through_another_user(directory: Path) -> Path:
    return directory / ".." / "secret.d"


@pytest.mark.parametrize(
    "place",
    [
        below_another_user, for_everybody, for_a_group, behind_a_link, to_another_user,
        above_what_a_link_leads_to, through_another_user,
    ],
)  # fmt: skip
def test_whoever_can_change_where_a_name_leads_is_found(
    eves: Path, place: Callable[[Path], Path]
) -> None:
    work = place(eves)
    with (
        open_ledger(eves.parent) as ledger,
        pytest.raises(HostError, match="root does not write to the work directory"),
        open_site(LocalHost(), ledger, work),
    ):
        pass
    assert not list(work.glob("vdisklab-*"))


def test_a_sticky_directory_and_the_callers_own_are_fine(
    eves: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sticky = eves.parent / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "mine").mkdir()
    assert distrust(sticky) is distrust(sticky / "mine") is None
    assert distrust(eves) is not None
    monkeypatch.setenv("SUDO_UID", str(EVE))
    assert distrust(eves) is None
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.setenv("DOAS_USER", "nobody")
    assert distrust(eves) is None


def test_an_ordinary_user_is_not_asked(eves: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vdisklab.host.safe_places import distrust;"
        "sys.exit(distrust(Path(sys.argv[1])) is not None)"
    )
    user = [f"--reuid={EVE - 1}", f"--regid={EVE - 1}", "--clear-groups"]
    done = subprocess.run(
        ["setpriv", *user, sys.executable, "-S", "-c", code, str(eves)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, check=False,
    )  # fmt: skip
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "trap"),
    [
        (
            ("run", "ext4/host", "--age", "fill=20%", "--size", "64M", "--rounds", "1", *SHORT),
            "vdisklab/__init__.py",
        ),
        (
            # The model with the fewest controls; its judges are started like all.
            ("powercut", "ext4/raw/none", "--states", "2", *KILLED),
            "multiprocessing.py",
        ),
    ],
)
def test_no_module_is_loaded_from_the_current_directory(
    tmp_path: Path, arguments: tuple[str, ...], trap: str
) -> None:
    """Root may stand in /tmp, where others make files; vdisklab starts Python again."""
    here, work, sprung = tmp_path / "here", tmp_path / "work", tmp_path / "sprung"
    start = tmp_path / "start" / "vdisklab"
    started = (
        "from vdisklab.__main__ import main\n"
        "if __name__ == '__main__':\n"
        "    raise SystemExit(main())\n"
    )
    for file, text in ((here / trap, f"open({str(sprung)!r}, 'w')"), (start, started)):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    work.mkdir()
    done = subprocess.run(
        [sys.executable, start, *arguments, "--dir", work, "--db", tmp_path / "a.sqlite"],
        env={**os.environ, "VDISKLAB_STATE": str(tmp_path / "state"), "PYTHONSAFEPATH": ""},
        cwd=here, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not sprung.exists()


def test_nobody_else_connects_to_a_daemon(tmp_path: Path) -> None:
    """Its NBD server lets whoever connects write to the disk, which root's kernel then mounts."""
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    work = tmp_path / "work"
    work.mkdir()
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(LocalHost(), ledger, work) as site,
        start_storage_daemon(ledger, site.directory, "vdisklab-test") as daemon,
    ):
        daemon.connect().close()
        listed = Path("/proc/net/unix").read_text()
        assert "@vdisklab-test" not in listed
        assert stat.S_IMODE(site.directory.stat().st_mode) == 0o700
        for name in (f"/proc/{daemon.pid}/cwd/vdisklab-test", site.directory / "vdisklab-test"):
            user = [f"--reuid={EVE}", f"--regid={EVE}", "--clear-groups"]
            refused = subprocess.run(
                ["setpriv", *user, sys.executable, "-S", "-c", code, name],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert "PermissionError" in refused.stderr


def test_outputs_do_not_go_through_other_users_names(eves: Path, secret: Path) -> None:
    new, link, roots = eves / "new", eves / "link", eves.parent / "roots"
    link.symlink_to(secret)
    os.lchown(link, EVE, EVE)
    roots.symlink_to(link)
    for output in (new, link, roots):
        with (
            pytest.raises(HostError, match=f"root does not write to the file .*{eves}"),
            output_file(output),
        ):
            pass
        with (
            pytest.raises(HostError, match="root does not write to the stream"),
            stream_of_runs(output),
        ):
            pass
    assert secret.read_text() == PRECIOUS
    assert list(eves.iterdir()) == [link]


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_a_database_and_its_journals_are_not_another_users(
    eves: Path, secret: Path, ending: str
) -> None:
    sticky = eves.parent / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    file = sticky / "a.sqlite"
    with open_store(str(file)):
        pass
    trap = sticky / f"a.sqlite{ending}"
    trap.unlink(missing_ok=True)
    trap.symlink_to(secret)
    os.lchown(trap, EVE, EVE)
    with pytest.raises(DatabaseError, match=r"root does not write to .*: it is a link and belongs"):
        open_store(str(file)).__enter__()
    trap.unlink()
    trap.touch()
    os.chown(trap, EVE, EVE)
    with pytest.raises(DatabaseError, match=r"root does not write to .*: it belongs to nobody"):
        open_store(str(file)).__enter__()
    assert secret.read_text() == PRECIOUS


def test_a_journal_in_a_shared_directory_is_roots_at_any_time(tmp_path: Path) -> None:
    """Else another user could put one in its place between two transactions."""
    tmp_path.chmod(0o1777)
    file, journal = tmp_path / "a.sqlite", tmp_path / "a.sqlite-journal"
    with open_store(str(file)) as store:
        before = journal.lstat()
        store.add_campaign(CAMPAIGN)
        after = journal.lstat()
    assert (before.st_ino, after.st_ino) == (journal.lstat().st_ino,) * 2


def test_a_ledger_of_another_user_is_not_obeyed(eves: Path, secret: Path) -> None:
    state = eves.parent / "state"
    for name in ("", "ledger"):
        (state / name).mkdir()
        (state / name).chmod(0o777)
    planted = state / "ledger" / "00000000.jsonl"
    entry = {"add": 0, "kind": "file", "name": str(secret), "detail": {}, "noted": 1}
    planted.write_text(json.dumps(entry) + "\n")
    os.chown(planted, EVE, EVE)
    status, said = vdisklab(state, "clean")
    assert (status, "can be written by every user" in said) == (HostError.exit_code, True)
    for name in ("", "ledger"):
        (state / name).chmod(0o755)
    status, said = vdisklab(state, "clean")
    assert (status, f"{planted} is not obeyed: it belongs to nobody" in said) == (3, True)
    assert secret.read_text() == PRECIOUS
    planted.unlink()
    assert vdisklab(state, "clean") == (0, "there is nothing to remove\n")


def test_modes_do_not_come_from_the_umask(tmp_path: Path) -> None:
    state = tmp_path / "state"
    status, said = vdisklab(
        state, "run", "host", "--size", "16M", "--rounds", "1", *SHORT, "--dir", tmp_path,
        "--db", tmp_path / "a.sqlite", umask=0,
    )  # fmt: skip
    assert status == 0, said
    made = [tmp_path / "a.sqlite", state, *state.rglob("*")]
    assert len(made) > 3
    loose = [file for file in made if file.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)]
    assert loose == []


def test_files_are_made_behind_no_link(tmp_path: Path, secret_file: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret_file)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with pytest.raises(OSError, match="it is a link"):
        open_file(link, flags)
    second = tmp_path / "second"
    second.hardlink_to(secret_file)
    with pytest.raises(OSError, match="it has a second name"):
        open_file(second, flags)
    assert secret_file.read_text() == PRECIOUS
    mask = os.umask(0)
    try:
        os.close(open_file(tmp_path / "new", flags, 0o640))
        make_directory(tmp_path / "a/b", "the directory", "choose another")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_text(PRECIOUS)
    return file
