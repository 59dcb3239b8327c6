"""What a host says of a state is told from what is wrong with the host itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError, PowercutError
from vdisklab.host.command import Completed
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.segments import LayerKind
from vdisklab.powercut import recovery
from vdisklab.powercut.recovery import KernelFilesystem, ZfsPool
from vdisklab.storage.site import Site, open_site


class Zpool:
    """A host whose zpool answers as it is told; None: it hangs."""

    def __init__(self, **answers: tuple[int, str] | None) -> None:
        self.answers = answers

    def which(self, program: str) -> Path | None:
        return Path("/sbin") / program

    def run(self, *argv: object, **_options: object) -> Completed:
        words = tuple(map(str, argv))
        answer = self.answers.get(words[1] if words[0] == "zpool" else words[0], (0, ""))
        if answer is None:
            raise HostError(f"`{words[0]} {words[1]}` gave no answer within 40 s")
        return Completed(words, answer[0], "", answer[1])


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "note", lambda _devices: "")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "devices").mkdir()
    return tmp_path


def pool(site: Site, place: Path, host: Zpool) -> ZfsPool:
    return ZfsPool(Site(host, site.ledger, site.directory), "vdl_1", place)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (Zpool(**{"import": (1, "cannot import 'vdl_1': I/O error\n")}), "I/O error"),
        (Zpool(**{"import": None}), "gave no answer within 40 s"),
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
    assert KernelFilesystem(host, kind, "", tmp_path).repair("/dev/loop9") is repaired
