"""As root in a directory of the caller of sudo, who moves the private directory in mid-run and puts
a link in its place: programs go on in the right directory, and touch nothing outside."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.caller_of_sudo import EVE, Prize, make_prize, swapping
from tests.lab import Lab
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CELLS_FAILED, HostError
from vdisklab.guest.qemu.daemons import start_storage_daemon
from vdisklab.host import private_directory, syscalls
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import read_mounts
from vdisklab.path.backing import BackingDevices
from vdisklab.path.named_target import parse_target
from vdisklab.path.segments import LayerKind
from vdisklab.storage.given import given_target, with_kinds
from vdisklab.storage.image import random_source
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.targets import Directory
from vdisklab.units import MIB

pytestmark = pytest.mark.host

PROFILES = {
    "bonnie": 'program = "bonnie++"\nfiles = 1\nfast = true',
    "sysbench": 'program = "sysbench"\nmode = "seqwr"\nfiles = 2\nsize = "8M"',
    "sqlite": 'program = "sqlite"\njournal = "wal"\ntransactions = 20',
    "postgresql": 'program = "postgresql"\nscript = "tpcb-like"\nscale = 1',
    "mariadb": 'program = "mariadb"\ntest = "oltp_write_only"\nrows = 1000',
    "rocksdb": 'program = "rocksdb"\nbenchmark = "fillsync"',
    "dd": 'program = "dd"\nbs = "64k"\ncount = 64',
    "fio": 'program = "fio"\nrw = "randwrite"\nbs = "16k"\nsize = "4M"\nfsync = 1',
}
NEEDED = {
    "bonnie": ("bonnie++",), "sqlite": ("sqlite3",), "postgresql": ("postgres",),
    "mariadb": ("mariadbd", "mariadb"), "rocksdb": ("db_bench",),
}  # fmt: skip


def skip_without_its_programs(profile: str) -> None:
    """Server and client of a database are packages of their own."""
    for program in NEEDED.get(profile, (profile,)):
        if LocalHost().which(program) is None:
            pytest.skip(f"{program} is not installed")


# One that root runs itself, and one of another user.
USUAL = ("fio", "postgresql")
SELDOM = pytest.param("bonnie", marks=pytest.mark.nightly)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, tmp_path / "state")
    made.prepare()
    yield made
    assert made.leftovers() == []
    # Tests in other lanes make and remove such directories at the same time; a leak of ours stays.
    left, deadline = list(Path("/run").glob("vdisklab-*")), time.monotonic() + 120
    while any(path.exists() for path in left) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [path for path in left if path.exists()] == []


@pytest.fixture
def prize(tmp_path: Path) -> Prize:
    return make_prize(tmp_path)


def arguments(lab: Lab, profile: str, *paths: str) -> list[str]:
    (lab.directory / f"{profile}.toml").write_text(
        f'name = "{profile}"\ntitle = "One program"\n\n[[measurement]]\nname = "only"\n'
        f'filesystem = "ext4"\n{PROFILES[profile]}\n'
    )
    arguments = list(lab.arguments(*paths, profile=profile))
    arguments[arguments.index("--size") + 1] = "64M" if profile == "fio" else "512M"
    return [*arguments, "--guest-memory", "128M"]


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(profile, marks=() if profile in USUAL else pytest.mark.nightly)
        for profile in PROFILES
    ],
)
def test_a_program_goes_on_where_it_was(
    lab: Lab, prize: Prize, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """Even if nothing looks whether the directory was moved."""
    skip_without_its_programs(profile)
    monkeypatch.setattr(Site, "require_in_place", lambda _site: None)
    monkeypatch.setattr(Site, "moved", lambda _site: None)
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    before = prize.seen()
    with swapping(lab.work, prize, monkeypatch) as tally:
        assert main(arguments(lab, profile, "host")) == 0
        assert tally.stat().st_size == 1
    (run,) = lab.runs()
    assert run.failure is None
    assert run.measurements[0].samples
    assert prize.seen() == before


@pytest.mark.parametrize(
    "path",
    [
        "ext4/host",
        "tmpfs/host",
        *(pytest.param(f"{kind}/host", marks=pytest.mark.nightly) for kind in ("xfs", "btrfs")),
    ],
)
def test_a_mount_is_made_where_it_was(
    lab: Lab, prize: Prize, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(Site, "require_in_place", lambda _site: None)
    monkeypatch.setattr(Site, "moved", lambda _site: None)
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    before = prize.seen()
    with swapping(lab.work, prize, monkeypatch) as tally:
        assert main(arguments(lab, "fio", path)) == 0
        assert tally.stat().st_size == 1
    (run,) = lab.runs()
    assert run.failure is None
    assert prize.seen() == before


# The sentence is the same whatever program ran; a cell of PostgreSQL takes 5 s.
@pytest.mark.parametrize(
    "profile", ["fio", pytest.param("postgresql", marks=pytest.mark.nightly), SELDOM]
)
def test_a_cell_whose_directory_moved_fails_with_a_sentence(
    lab: Lab, prize: Prize, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    skip_without_its_programs(profile)
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    before = prize.seen()
    with swapping(lab.work, prize, monkeypatch):
        status = main(arguments(lab, profile, "{ext4/,}host"))
    assert status == EXIT_CELLS_FAILED
    said = [run.failure.message for run in lab.runs() if run.failure]
    assert len(said) == 2
    for message in said:
        assert message.startswith(f"the work directory was moved: {lab.work}/vdisklab-")
    assert prize.seen() == before


def test_qemu_opens_images_where_they_were(
    lab: Lab, prize: Prize, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, and by the name that the header of an overlay has."""
    with (
        swapping(lab.work, prize, monkeypatch, spared=0) as tally,
        open_ledger(lab.state) as ledger,
    ):
        before = prize.seen()
        with open_site(LocalHost(), ledger, lab.work) as site:
            while not tally.stat().st_size:
                pass
            base, top = site.directory / "base.qcow2", site.directory / "top.qcow2"
            site.run("qemu-img", "create", "-q", "-f", "qcow2", base, str(MIB))
            site.run("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", top)
            with start_storage_daemon(ledger, site.directory, "vdisklab-test") as daemon:
                file = {"driver": "file", "filename": str(top)}
                node = {"driver": "qcow2", "node-name": "top", "file": file}
                daemon.monitor.execute("blockdev-add", node)
            assert site.private is not None
            inside = site.private.place
            assert inside is not None
            assert inside.match(f"{lab.work}/moved-*")
            assert {"base.qcow2", "top.qcow2"} <= {each.name for each in inside.iterdir()}
        assert prize.seen() == before


def test_a_directory_on_a_target_is_held_too(
    lab: Lab, prize: Prize, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        swapping(lab.work, prize, monkeypatch, spared=0) as tally,
        open_ledger(lab.state) as ledger,
    ):
        before = prize.seen()
        private = lab.directory / "own"
        private.mkdir()
        target = parse_target(f"there={lab.work}")
        (kind,) = with_kinds(LocalHost(), [target])
        assert kind.kind is LayerKind.DIR
        with (
            open_site(LocalHost(), ledger, private) as site,
            given_target(site, kind, BackingDevices(targets=(kind,)), MIB) as given,
        ):
            assert isinstance(given, Directory)
            while not tally.stat().st_size:
                pass
            site.run("dd", "if=/dev/zero", f"of={given.path / 'random.source'}", "bs=4k", "count=1")
            assert site.named(f"{given.path}/x").startswith(f"{lab.work}/vdisklab-")
        assert prize.seen() == before


def test_what_is_printed_and_stored_has_the_names_that_people_know(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(lab.work, EVE, EVE)
    monkeypatch.setenv("SUDO_UID", str(EVE))
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    assert main(arguments(lab, "fio", "ext4/host")) == 0
    (run,) = lab.runs()
    said = json.dumps([run.commands, [each.command for each in run.measurements]])
    assert f"{lab.work}/vdisklab-" in said
    assert "/run/vdisklab-" not in said + capsys.readouterr().out


def test_a_directory_of_roots_needs_no_second_name(lab: Lab) -> None:
    with open_ledger(lab.state) as ledger, open_site(LocalHost(), ledger, lab.work) as site:
        assert site.directory.parent == lab.work
        assert not site.made


def test_where_root_may_not_mount_a_sentence_says_so(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_words: object, **_more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    os.chown(lab.work, EVE, EVE)
    monkeypatch.setenv("SUDO_UID", str(EVE))
    monkeypatch.setattr(syscalls, "mount", refused)
    with (
        open_ledger(lab.state) as ledger,
        pytest.raises(HostError, match=r"the user who called sudo could move .* and root cannot"),
        open_site(LocalHost(), ledger, lab.work),
    ):
        pass
    assert list(lab.work.iterdir()) == []


def test_a_killed_run_leaves_no_mount_after_clean(
    lab: Lab, prize: Prize, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    before = prize.seen()
    with swapping(lab.work, prize, monkeypatch, spared=0):
        child = os.fork()
        if child == 0:
            with (
                open_ledger() as ledger,
                open_site(LocalHost(), ledger, lab.work) as site,
                random_source(site, MIB),
            ):
                os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        held = [mount for mount in read_mounts() if str(mount.mountpoint).startswith("/run/vdisk")]
        assert len(held) == 1
        assert main(["clean"]) == 0
    assert prize.seen() == before


def test_what_is_put_in_place_of_a_new_directory_is_not_taken(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its opening: another directory of root's, with things in it."""
    kept = lab.directory / "kept"
    kept.mkdir()
    (kept / "file").write_text("precious\n")
    real = private_directory.opened_private

    def late(path: Path) -> object:
        path.rmdir()
        kept.rename(path)
        return real(path)

    monkeypatch.setattr("vdisklab.storage.site.opened_private", late)
    with (
        open_ledger(lab.state) as ledger,
        pytest.raises(HostError, match="cannot be used: Directory not empty"),
        open_site(LocalHost(), ledger, lab.work),
    ):
        pass
    (left,) = lab.work.iterdir()
    assert (left / "file").read_text() == "precious\n"
    shutil.rmtree(left)
