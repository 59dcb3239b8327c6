"""Power cuts under a client in a real guest: what its driver, bus and flushes decide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judging import judge_question
from vdisklab.campaign.prepared_data import kept_or_made
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.client_guests import open_guests
from vdisklab.powercut.controls import GUEST_CONTROLS, POSTGRESQL_CONTROLS, run_controls
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.postgresql import CLUSTER
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.session import PowerCutSession, open_session
from vdisklab.progress import silent
from vdisklab.results.power_cut import PowerCut
from vdisklab.units import MIB
from vdisklab.value import replace

pytestmark = [pytest.mark.guest, pytest.mark.host]

HOST = collect_facts(LocalHost())
HAS_POSTGRESQL = LocalHost().which("postgres") is not None
QUICK = QuestionSettings(writes=16, post_recovery_states=0, sampling=Sampling(states=20))
GUEST = GuestPlan(cpus=1, memory_bytes=512 * MIB, accelerator=Accelerator.TCG)
"""One CPU boots sooner; what is in flight at once are requests, not CPUs."""


@pytest.fixture(scope="module")
def session(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PowerCutSession]:
    """The guests have a cluster of PostgreSQL, which takes 5 s to make, if a test wants it."""
    asked = any("postgresql" in item.name for item in request.session.items)
    work = tmp_path_factory.mktemp("lab")
    host = LocalHost()
    with open_ledger() as ledger, open_session(host, ledger, work, workers=1) as opened:
        around = GuestContext(host, ledger, cache, silent)
        buses = frozenset({Bus.VIRTIO, Bus.NVME, Bus.IDE, Bus.P9, Bus.VIRTIOFS})
        carried: tuple[CarriedDisk, ...] = ()
        if HAS_POSTGRESQL and asked:
            cluster = kept_or_made(opened.site, cache / "data", CLUSTER)
            carried = (CarriedDisk(CLUSTER.name, cluster.disk),)
        with open_guests(around, GUEST, buses, opened.site, carried) as opened.guests:
            yield opened
    assert os.listdir(work) == []  # noqa: PTH208


def ask(
    session: PowerCutSession,
    ending: str,
    client: ClientKind,
    kept: Path,
    *,
    driver: DriverSetting = DriverSetting.AS_FOUND,
    depth: int = 1,
) -> PowerCut:
    path = parse_path(f"ext4/raw:preallocation=off/{ending}")
    settings = replace(QUICK, driver=driver, depth=depth)
    found = judge_question(session, Question(path, client, settings, AccessKind.GUEST), HOST, kept)
    assert found.failure is None
    assert found.acknowledged
    return found


def test_what_the_guest_flushed_survives_with_several_in_flight(
    session: PowerCutSession, tmp_path: Path
) -> None:
    found = ask(session, "none/virtio", ClientKind.FLUSHES, tmp_path, depth=4)
    assert found.survives is True
    assert found.observed["guest.queue.write_cache"] == "write back"


def test_a_guest_that_never_flushes_can_buy_safety_itself(
    session: PowerCutSession, tmp_path: Path
) -> None:
    assert ask(session, "none/virtio", ClientKind.NEVER, tmp_path).survives is False
    setting = DriverSetting.CACHE_TYPE
    found = ask(session, "none/virtio", ClientKind.NEVER, tmp_path, driver=setting)
    assert found.survives is True
    assert found.observed["qemu.write_cache"] == "off"


# A reset is a boot. Each commit shows that the question can be answered with a loss; that nothing
# is lost, it shows without a guest (test_power_cut_models).
@pytest.mark.parametrize(
    ("number", "losses"), [pytest.param(0, 0, marks=pytest.mark.nightly), (1, 1)]
)
def test_a_guest_that_is_reset_loses_nothing_unless_qemu_is_left_out(
    session: PowerCutSession, number: int, losses: int
) -> None:
    (found,) = run_controls(session, silent, [replace(GUEST_CONTROLS[number], states=1)])
    assert (found.losses, found.states) == (losses, 1)


@pytest.mark.skipif(not HAS_POSTGRESQL, reason="PostgreSQL is not installed")
@pytest.mark.parametrize(
    ("number", "states"),
    [
        # A server in an emulated guest takes 10 s. Each commit shows that the judge sees a lost
        # log, and a whole one (test_postgresql_judge), and that other clients in this guest lose,
        # or do not.
        pytest.param(0, 4, id="fsync=off", marks=pytest.mark.nightly),
        pytest.param(2, 2, id="honest", marks=pytest.mark.nightly),
    ],
)
def test_postgresql_loses_without_fsync_and_keeps_all_on_an_honest_path(
    session: PowerCutSession, number: int, states: int
) -> None:
    control = replace(POSTGRESQL_CONTROLS[number], states=states)
    (found,) = run_controls(session, silent, [control])
    assert found.states >= 2
    assert (found.losses > 0) is control.must_lose


def test_a_block_layer_that_is_told_to_flush_no_more_loses(
    session: PowerCutSession, tmp_path: Path
) -> None:
    found = ask(session, "none/virtio", ClientKind.FLUSHES, tmp_path, driver=DriverSetting.QUEUE)
    assert found.survives is False
    assert found.observed["qemu.write_cache"] == "on", "the device was told nothing"


def test_a_write_with_fua_on_nvme_is_durable_only_if_qemu_syncs_it(
    session: PowerCutSession, tmp_path: Path
) -> None:
    # QEMU 7.2 does not look at the bit: not one flush reaches the disk.
    found = ask(session, "none/nvme", ClientKind.FUA, tmp_path)
    assert found.observed["guest.queue.fua"] == "1"
    assert found.survives is (found.flushes >= found.acknowledged)


# A guest with an IDE disk is another boot, 8 s. Each commit asks the same of a virtio disk, above,
# and boots from an IDE disk (test_systems).
@pytest.mark.nightly
def test_an_ide_drive_without_its_write_cache_keeps_all(
    session: PowerCutSession, tmp_path: Path
) -> None:
    found = ask(session, "none/ide", ClientKind.NEVER, tmp_path, driver=DriverSetting.HDPARM)
    assert found.survives is True
    assert found.observed["guest.ata.write_cache"] == "off"
    assert found.observed["qemu.write_cache"] == "off"


# A guest with a directory is another boot, 8 s. Each commit measures a directory (test_shares), and
# asks the same of a database on a disk, below.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("path", "survives"),
    [("ext4/9p", True), ("ext4:barrier=off/virtiofs:cache=none", False)],
)
def test_a_database_in_a_directory_survives_unless_its_host_drops_flushes(
    session: PowerCutSession, path: str, survives: bool, tmp_path: Path
) -> None:
    question = Question(parse_path(path), ClientKind.SQLITE_EXTRA, QUICK, AccessKind.GUEST)
    found = judge_question(session, question, HOST, tmp_path)
    assert (found.failure, found.survives) == (None, survives)


def test_sqlite_keeps_what_it_committed_unless_flushes_are_thrown_away(
    session: PowerCutSession, tmp_path: Path
) -> None:
    assert ask(session, "none/virtio", ClientKind.SQLITE_WAL, tmp_path).survives is True
    assert ask(session, "unsafe/virtio", ClientKind.SQLITE_DELETE, tmp_path).survives is False


def test_file_operations_keep_what_was_synced_unless_flushes_are_thrown_away(
    session: PowerCutSession, tmp_path: Path
) -> None:
    found = ask(session, "none/virtio", ClientKind.FILES, tmp_path)
    assert (found.failure, found.survives) == (None, True)
    assert found.observed["guest.filesystem"] == "ext4"
    assert ask(session, "unsafe/virtio", ClientKind.FILES, tmp_path).survives is False
