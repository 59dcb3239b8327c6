"""What a host says of a state is told from what is wrong with the host itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from vdisklab.errors import CommandTimeoutError, DirtyHostError, MemoryFullError, PowercutError
from vdisklab.host.command import Completed
from vdisklab.host.ledger import leftovers, open_ledger
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.rules import JUDGED
from vdisklab.path.segments import LayerKind
from vdisklab.powercut import recovery
from vdisklab.powercut.client import Trace
from vdisklab.powercut.recovery import RECOVERIES, KernelFilesystem, ZfsPool, open_recovery
from vdisklab.storage.site import Site, open_site


class Zpool:
    """A host whose zpool answers as it is told; None: it hangs."""

    def __init__(self, **answers: tuple[int, str] | None) -> None:
        self.answers = answers

    def which(self, program: str) -> Path | None:
        return Path("/sbin") / program

    def run(self, *argv: object, **_options: object) -> Completed:
        arguments = tuple(map(str, argv))
        answer = self.answers.get(
            arguments[1] if arguments[0] == "zpool" else arguments[0], (0, "")
        )
        if answer is None:
            raise CommandTimeoutError(f"`{arguments[0]} {arguments[1]}` gave no answer within 90 s")
        return Completed(arguments, answer[0], "", answer[1])


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "record_devices", lambda _devices: "")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "devices").mkdir()
    return tmp_path


def pool(site: Site, place: Path, host: Zpool) -> ZfsPool:
    return ZfsPool(place, Site(host, site.ledger, site.directory), "vdl_1")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (Zpool(**{"import": (1, "cannot import 'vdl_1': I/O error\n")}), "I/O error"),
        (Zpool(), "its dataset was not mounted"),
    ],
)
def test_a_pool_that_cannot_be_imported_is_a_verdict(
    host: Zpool, said: str, place: Path, tmp_path: Path
) -> None:
    with open_ledger(tmp_path / "state") as ledger, open_site(host, ledger, tmp_path) as site:
        refused = pool(site, place, host).recover("/dev/loop9")
    assert refused is not None
    assert said in refused


@pytest.mark.parametrize(
    "answers",
    [{"import": None}, {"import": None, "list": None}, {"import": (1, "?"), "list": None}],
    ids=["import", "import, list", "list"],
)
def test_that_zpool_does_not_answer_in_time_is_none(
    answers: dict[str, tuple[int, str] | None], place: Path, tmp_path: Path
) -> None:
    """The next attempt begins with the removal of what is left of this one."""
    host = Zpool(**answers)
    with open_ledger(tmp_path / "state") as ledger, open_site(host, ledger, tmp_path) as site:
        starved = pool(site, place, host)
        with pytest.raises(CommandTimeoutError, match="gave no answer"):
            starved.recover("/dev/loop9")
        host.answers = {"import": (1, "cannot import 'vdl_1': I/O error\n")}
        assert starved.recover("/dev/loop9") == (
            "the pool cannot be imported: cannot import 'vdl_1': I/O error"
        )
    with leftovers(tmp_path / "state") as left:
        assert not left


def test_a_pool_that_stays_busy_is_left_to_clean(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another mount namespace holds a copy of its mount."""
    monkeypatch.setattr(recovery, "_POOL_SECONDS", 0.2)
    monkeypatch.setattr(recovery, "mounts_below", lambda _place: ["a mount"])
    host = Zpool(export=(1, "cannot export 'vdl_1': pool is busy\n"))

    def hold_and_release() -> None:
        with open_ledger(tmp_path / "state") as ledger, open_site(host, ledger, tmp_path) as site:
            held = pool(site, place, host)
            assert held.recover("/dev/loop9") is None
            held.release()

    with pytest.raises(DirtyHostError, match="vdl_1 cannot be exported"):
        hold_and_release()
    with leftovers(tmp_path / "state") as (left,):
        assert ("pool", "vdl_1") in {(entry.kind, entry.name) for entry in left.entries}


def test_that_zfs_itself_is_gone_is_none(place: Path, tmp_path: Path) -> None:
    host = Zpool(**{"import": (1, "connection refused"), "list": (1, "connection refused")})
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(host, ledger, tmp_path) as site,
        pytest.raises(PowercutError, match="ZFS no longer answers"),
    ):
        pool(site, place, host).recover("/dev/loop9")


@pytest.mark.parametrize(
    ("kind", "answers", "repaired"),
    [
        (LayerKind.EXT4, {"e2fsck": (1, "")}, True),
        (LayerKind.EXT4, {"e2fsck": (8, "")}, False),
        (LayerKind.XFS, {"xfs_repair": (0, "")}, True),
        (LayerKind.XFS, {"xfs_repair": (2, "a dirty log")}, False),
        (LayerKind.BTRFS, {"btrfs": (1, "")}, False),
    ],
)
def test_whether_a_repair_worked_is_what_its_program_says(
    kind: LayerKind, answers: dict[str, tuple[int, str]], repaired: bool, tmp_path: Path
) -> None:
    host = Zpool(**answers)
    assert KernelFilesystem(tmp_path, host, kind, "").repair("/dev/loop9") is repaired


def test_a_kernel_without_memory_is_no_verdict_on_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mount(*_what: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(recovery, "mount", mount)
    filesystem = KernelFilesystem(tmp_path, Zpool(), LayerKind.EXT4, "")
    with pytest.raises(MemoryFullError, match="no room in memory for mounting a state"):
        filesystem.recover("/dev/loop9")


def test_a_recording_of_an_unknown_file_system_is_refused(tmp_path: Path) -> None:
    trace = Trace(
        "ext4/raw/none", ClientKind.NEVER, "nbd", "ntfs", (), "disk.raw", "raw", 8 << 20, 64 << 20,
        False, 0, 0, (), {},
    )  # fmt: skip
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(Zpool(), ledger, tmp_path) as site,
        pytest.raises(PowercutError, match="does not know how 'ntfs' recovers"),
        open_recovery(site, trace),
    ):
        pytest.fail("not reached")


def test_the_file_systems_that_can_be_judged_are_those_that_can_be_recovered() -> None:
    assert tuple(RECOVERIES) == JUDGED
