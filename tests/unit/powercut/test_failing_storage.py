"""What is made of runs with failing storage: messages, answers, facts, sentences, needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_widths import require_whole
from tests.unit.results.test_power_cut import KEPT
from vdisklab.answers.loading import verdicts_of
from vdisklab.answers.powercut import PowercutAnswer, crash_verdict
from vdisklab.documents import document as document_of
from vdisklab.errors import GuestError, PlanError, PowercutError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, FailureModel, storage_name
from vdisklab.path.needs import lack, nearest, parse_need, with_error_policy
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting, RunOutcome
from vdisklab.path.segments import GuestFsKind
from vdisklab.powercut.failing_clients import FAILING_CLIENTS
from vdisklab.powercut.failing_runs import FailingRun
from vdisklab.powercut.failing_verdicts import (
    DATA_CONTROL,
    JOURNAL_CONTROL,
    RUNS,
    ControlledGuest,
    _filled,
    facts_of,
)
from vdisklab.powercut.kept_runs import case_of, is_run, replayed_run
from vdisklab.powercut.kernel_messages import kernel_messages
from vdisklab.powercut.request import PowercutRequest, plan_questions
from vdisklab.powercut.sectors import make_sectors
from vdisklab.powercut.storage_failures import STORAGE_FAILURES
from vdisklab.powercut.synced_files import FileAnswer
from vdisklab.powercut.synced_sectors import DISK_BYTES, first_sector, kept_sectors
from vdisklab.results.power_cut import MODEL, ControlResult, Counterexample, PowerCut
from vdisklab.units import KIB, SECTOR
from vdisklab.value import replace
from vdisklab.views import powercut as view

LOG = """\
[   12.1] I/O error, dev vda, sector 35104 op 0x1:(WRITE) flags 0x800 phys_seg 2 prio class 2
[   12.1] critical space allocation error, dev vda, sector 35104 op 0x1:(WRITE) flags 0x800
[   12.1] EXT4-fs warning (device vda): ext4_end_bio:343: I/O error 10 writing to inode 24
[   12.1] Buffer I/O error on device vda, logical block 4388
[   12.2] Buffer I/O error on dev vda, logical block 1, lost sync page write
[   12.2] Aborting journal on device vda-8.
[   12.2] EXT4-fs error (device vda): ext4_journal_check_start:83: Detected aborted journal
[   12.2] EXT4-fs (vda): Remounting filesystem read-only
[   45.0] nvme nvme0: I/O 5 QID 1 timeout, aborting
[   45.0] INFO: task perl:120 blocked for more than 120 seconds.
[   45.0] something else
"""
CLEAN = FailingRun(RunOutcome.PAUSED, 20, 0, 0, 1, 0, paused_after=0.1, resumed=True)


def test_the_guests_kernel_is_read_line_by_line() -> None:
    assert kernel_messages(LOG) == {
        "journal aborted": 2,
        "file system read-only": 1,
        "no space on the disk": 1,
        "write of file data failed": 3,
        "request failed": 1,
        "request timed out": 1,
        "task hung": 1,
    }
    assert kernel_messages("") == {}


def test_an_answer_says_which_call_failed_and_what_a_second_fsync_said() -> None:
    kept = FileAnswer.from_line("7 - 0 -1\n", 1.0)
    assert (kept.acknowledged, kept.acknowledged_again) == (True, False)
    refused = FileAnswer.from_line("8 fsync 5 0\n", 1.0)
    assert (refused.acknowledged, refused.acknowledged_again) == (False, True)
    assert refused.error == "fsync: EIO"
    with pytest.raises(GuestError, match="said 'nonsense'"):
        FileAnswer.from_line("nonsense", 1.0)


def test_facts_of_runs_are_sums_medians_and_the_worst() -> None:
    lost = FailingRun(
        RunOutcome.LOST, 40, 30, 2, 9, 3, told_after=0.3, error="fsync: EIO", again=2, again_lost=1,
        kernel={"journal aborted": 4}, detail="why",
    )  # fmt: skip
    facts = facts_of([CLEAN, replace(CLEAN, paused_after=0.3), lost])
    assert (facts.worst, facts.detail) == ("lost what it had acknowledged", "why")
    assert (facts.acknowledged, facts.lost, facts.told, facts.failed) == (80, 30, 2, 11)
    assert (facts.paused_runs, facts.paused_after, facts.told_after) == (2, 0.2, 0.3)
    assert (facts.again, facts.again_lost, facts.error) == (2, 1, "fsync: EIO")
    assert facts.kernel == {"journal aborted": 1}
    never = facts_of([replace(CLEAN, paused_after=None)])
    assert (never.paused_after, never.told_after) == (None, None)


def test_every_client_is_judged_and_has_controls() -> None:
    assert set(FAILING_CLIENTS) == set(ClientKind)
    planned = plan_questions(ask("raw/none/virtio:guest_fs=xfs", clients=(ClientKind.POSTGRESQL,)))
    (guest,) = map(ControlledGuest.of, planned.questions)
    assert guest == ControlledGuest(ClientKind.POSTGRESQL, GuestFsKind.XFS)
    assert str(guest.path({"werror": "stop"})) == (
        "raw:preallocation=off/none/virtio:guest_fs=xfs:werror=stop"
    )
    assert guest.title == ", postgresql on xfs"
    assert JOURNAL_CONTROL not in guest.controls
    assert ControlledGuest().controls[-2:] == (JOURNAL_CONTROL, DATA_CONTROL)
    # What it commits is not durable before its directory is synced, so a report may undo it.
    told = [control.name for control in ControlledGuest(ClientKind.SQLITE_DELETE).controls]
    assert not any("report" in name for name in told)
    sectors = plan_questions(ask("raw/none", clients=(ClientKind.FUA,))).questions[0]
    assert ControlledGuest.of(sectors).title == ", fua"


def test_sectors_count_as_kept_if_a_later_version_took_their_place(tmp_path: Path) -> None:
    disk, places = tmp_path / "disk", DISK_BYTES // (16 * KIB)
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
        for version in (3, places + 4):
            file.seek(first_sector(version) * SECTOR)
            file.write(make_sectors(first_sector(version), 8, version))
    assert kept_sectors(disk, ["3", "4", "5"]).lost == ("5",)
    assert first_sector(places + 4) == first_sector(4)


def test_a_run_is_replayed_by_the_case_that_the_table_names(tmp_path: Path) -> None:
    assert is_run(case_of("3f2a9c01", 3))
    assert not is_run("3f2a9c01/12-3f")
    with (
        open_ledger() as ledger,
        pytest.raises(PowercutError, match="3f2a9c01/run3 is not kept") as refused,
        replayed_run(LocalHost(), ledger, tmp_path, tmp_path, "3f2a9c01/run3"),
    ):
        pass
    assert "column `case`" in str(refused.value.hint)


def ask(*paths: str, **options: object) -> PowercutRequest:
    return PowercutRequest(paths=paths, models=(FailureModel.STORAGE_ERROR,), **options)  # type: ignore[arg-type]


def test_failing_storage_is_asked_with_a_guest_and_some_runs() -> None:
    planned = plan_questions(ask("{raw,qcow2}/none/virtio:werror=stop"))
    assert [str(question.path) for question in planned.questions] == [
        "raw/none/virtio:werror=stop", "qcow2/none/virtio:werror=stop",
    ]  # fmt: skip
    (first, _) = planned.questions
    assert (first.access, first.client) == (AccessKind.GUEST, ClientKind.FILES)
    assert first.settings.sampling.states == RUNS
    longer = plan_questions(ask("raw/none", failing_seconds=9, states=3)).questions[0]
    assert longer.settings.failing_seconds == 9
    assert longer.settings.sampling.states == 3
    assert longer.fingerprint != plan_questions(ask("raw/none")).questions[0].fingerprint


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        (
            "raw/none/virtio:guest_fs=xfs",
            {"clients": (ClientKind.FUA,)},
            "writes to the disk itself",
        ),
        ("raw/none", {"access": AccessKind.BOOT_SECTOR}, "--access boot-sector has no effect"),
        ("raw/none", {"access": AccessKind.NBD}, "--access nbd has no effect on --model storage-e"),
        ("raw/none", {"drivers": (DriverSetting.QUEUE,)}, "--driver queue has no effect"),
        ("raw/none", {"tear": 4096, "depth": 1}, "--depth 1, --tear 4096 have no effect"),
        ("raw/none", {"writes": 9}, "--writes 9 has no effect"),
        ("raw/none", {"exhaustive": True}, "--exhaustive has no effect"),
        ("raw/none", {"loop_direct_io": False}, "--no-loop-direct-io has no effect"),
        ("lvm/none", {}, "has no image whose file could fail"),
        ("qcow2:backing=1/none", {}, "backing is not supported there"),
        ("raw/none/vhostuser", {}, "only raw and qcow2"),
    ],
)
def test_what_cannot_be_asked_says_why(path: str, options: Mapping[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said) as refused:
        plan_questions(ask(path, **options))
    assert refused.value.hint


@pytest.mark.parametrize("option", ["failing_seconds", "failing_requests"])
def test_seconds_and_requests_need_storage_that_fails(option: str) -> None:
    limit: Any = {option: 3}
    flag = f"--{option.replace('_', '-')}"
    with pytest.raises(PlanError, match=f"{flag} is for storage that fails"):
        plan_questions(PowercutRequest(paths=("ext4/raw/none",), **limit))


def test_a_failure_may_end_after_some_requests() -> None:
    question = plan_questions(ask("raw/none", failing_requests=3)).questions[0]
    assert question.stored_settings["failing_requests"] == 3
    assert question.fingerprint != plan_questions(ask("raw/none")).questions[0].fingerprint
    error, silence = (
        STORAGE_FAILURES[model].lasting(None, 3)
        for model in (FailureModel.STORAGE_ERROR, FailureModel.STORAGE_SILENT)
    )
    assert [error.is_over(count) for count in (2, 3)] == [False, True]
    assert (silence.seconds, silence.is_over(3)) == (35.0, False)  # its three wait to the end
    assert not STORAGE_FAILURES[FailureModel.STORAGE_ERROR].is_over(1000)


def test_other_models_are_named_where_a_path_is_judged_under_some_only() -> None:
    models = (FailureModel.POWER, FailureModel.STORAGE_FULL)
    request = PowercutRequest(paths=("raw/none", "ext4/raw/none"), models=models, depth=4)
    planned = plan_questions(request)
    assert {(str(question.path), question.model) for question in planned.questions} == {
        ("raw/none", "storage-full"), ("ext4/raw/none", "storage-full"), ("ext4/raw/none", "power"),
    }  # fmt: skip
    (dropped,) = planned.dropped
    assert dropped.path == "raw/none"
    assert "cannot be judged under power: it has no host layer" in dropped.reason
    assert dropped.instead == "add a file system: ext4/raw/none"


@pytest.mark.parametrize(
    ("path", "full", "errors"),
    [
        ("raw/none", None, "passes errors on to the guest (werror=enospc, rerror=report)"),
        ("raw/none/virtio:werror=stop:rerror=stop", None, None),
        ("raw/none/virtio:werror=report", "passes errors on to the guest (werror=report)",
         "passes errors on to the guest (werror=report, rerror=report)"),
        ("raw/none/scsi:werror=ignore", "hides errors from the guest (werror=ignore)",
         "hides errors from the guest (werror=ignore, rerror=report)"),
        ("raw/none/nvme", "every error on to a guest with a disk on nvme",
         "every error on to a guest with a disk on nvme"),
    ],
)  # fmt: skip
def test_needs_go_by_the_policy_until_something_was_judged(
    path: str, full: str | None, errors: str | None
) -> None:
    for need, expected in (("survives-full", full), ("survives-errors", errors)):
        found = lack(parse_path(path), parse_need(need), CrashVerdicts())
        assert (found is None) == (expected is None), need
        assert expected is None or expected in str(found)


def test_needs_go_by_what_was_judged_on_a_file_system_that_refuses_at_once() -> None:
    path = parse_path("ext4/raw/none/nvme")
    key = storage_name(path, FailureModel.STORAGE_FULL), FailureModel.STORAGE_FULL
    kept = CrashVerdicts(storage={key: RunOutcome.GOES_ON.value})
    assert lack(path, parse_need("survives-full"), kept) is None
    lost = CrashVerdicts(storage={key: RunOutcome.READ_ONLY.value})
    assert "a read-only file system" in str(lack(path, parse_need("survives-full"), lost))


@pytest.mark.parametrize(
    ("path", "below", "counts"),
    [
        ("raw/none/nvme", None, True),
        ("raw/none/nvme", "ext4", True),
        ("raw/none/nvme", "zfs", False),
        ("xfs/raw/none/nvme", "zfs", True),
        ("btrfs/raw/none/nvme", None, True),
        ("lvmthin/ext4/raw/none/nvme", None, False),
        ("zfs/raw/none/nvme", None, False),
        ("zvol/ext4/raw/none/nvme", None, False),
    ],
)
def test_full_storage_that_answers_in_its_own_way_was_not_judged(
    path: str,
    below: str | None,
    counts: bool,
) -> None:
    """Errors come from the image's own file; how storage is full depends on what it is.

    Verdicts of versions that judged a thin volume's path, without the volume, say what the image
    alone does."""
    for judged in ("raw/none/nvme", "lvmthin/ext4/raw/none/nvme"):
        for model, need, expected in (
            (FailureModel.STORAGE_FULL, "survives-full", counts),
            (FailureModel.STORAGE_ERROR, "survives-errors", True),
        ):
            stored = replace(verdicts_of([verdict(judged, model, CLEAN)]), below=below)
            found = lack(parse_path(path), parse_need(need), stored)
            assert (found is None) == expected, found


def test_a_path_whose_layer_is_full_in_its_own_way_is_judged_under_other_models_only() -> None:
    models = (FailureModel.STORAGE_FULL, FailureModel.STORAGE_ERROR)
    planned = plan_questions(PowercutRequest(paths=("lvmthin/ext4/raw/none",), models=models))
    assert [question.model for question in planned.questions] == [FailureModel.STORAGE_ERROR]
    (dropped,) = planned.dropped
    assert "lvmthin answers in its own way when it is full" in dropped.reason
    assert dropped.instead == "judge the image alone: raw/none"
    with pytest.raises(PlanError, match="cannot be judged on full storage: zvol answers"):
        plan_questions(PowercutRequest(paths=("zvol/ext4/raw/none",), models=models[:1]))


def test_the_nearest_path_that_survives_errors_stops_the_guest() -> None:
    needs = [parse_need("survives-errors")]
    found = nearest(parse_path("ext4/raw/none"), needs, CrashVerdicts())
    assert str(found) == "ext4/raw/none/virtio:rerror=stop:werror=stop"
    full = nearest(parse_path("ext4/raw/none/nvme"), [parse_need("survives-full")], CrashVerdicts())
    assert full is not None
    assert full.attachment.bus == "virtio"


@pytest.mark.parametrize(
    ("path", "need", "configured"),
    [
        ("raw/none", "survives-errors", "raw/none/virtio:rerror=stop:werror=stop"),
        ("raw/none/scsi:iothread=on", "survives-errors",
         "raw/none/scsi:iothread=on:rerror=stop:werror=stop"),
        ("raw/none", "survives-full", "raw/none"),
        ("raw/none", "durable", "raw/none"),
        ("raw/none/virtio:werror=report", "survives-full",
         "raw/none/virtio:rerror=report:werror=enospc"),
        ("raw/none/nvme", "survives-errors", "raw/none/nvme"),
    ],
)  # fmt: skip
def test_a_recommended_path_gets_the_policy_that_a_need_asks_for(
    path: str, need: str, configured: str
) -> None:
    found = with_error_policy(parse_path(path), [parse_need(need)], CrashVerdicts())
    assert found.canonical == parse_path(configured).canonical


def verdict(path: str, model: FailureModel, *runs: FailingRun) -> PowerCut:
    blank = replace(
        KEPT, path=path, client=ClientKind.FILES.value, settings={**KEPT.settings, MODEL: model},
        counterexample=None,
    )  # fmt: skip
    return _filled(blank, runs)


def test_the_answer_is_one_sentence_first_worst_first() -> None:
    ignored = replace(CLEAN, outcome=RunOutcome.LOST, lost=17, paused_after=None)
    untouched = replace(CLEAN, failed=0, resumed=False, paused_after=None)
    cuts = (
        verdict("raw/none/virtio:werror=stop", FailureModel.STORAGE_ERROR, CLEAN, CLEAN),
        verdict("raw/none/virtio:werror=ignore", FailureModel.STORAGE_ERROR, ignored),
        verdict("raw/none", FailureModel.STORAGE_FULL, untouched),
    )
    assert [cut.survives for cut in cuts] == [True, False, True]
    answer = PowercutAnswer((), tuple(map(crash_verdict, cuts)))
    (table,) = view.tables(answer)
    assert table.title == (
        "raw/none/virtio:werror=ignore under storage-error lost 17 of 20 files that it had fsynced "
        "and was never told; raw/none/virtio:werror=stop under storage-error lost nothing that it "
        "had fsynced and was paused after 0.10 s; raw/none under storage-full notices nothing: no "
        "write needed a new place: judge a thin image (preallocation=off)."
    )
    columns = {column.title: [column.show(row) for row in table.rows] for column in table.columns}
    assert columns["guest"] == [
        "paused and complete", "lost what it had acknowledged", "notices nothing",
    ]  # fmt: skip
    assert columns["lost of\nacknowledged"] == ["0 of 40", "17 of 20", "0 of 20"]
    assert columns["told"] == ["never", "never", ""]
    require_whole([table], document_of(answer))


def test_a_thin_image_without_a_failed_request_is_not_told_to_be_thin() -> None:
    untouched = replace(CLEAN, failed=0, resumed=False, paused_after=None)
    cut = verdict("raw:preallocation=off/none", FailureModel.STORAGE_QUOTA, untouched)
    (table,) = view.tables(PowercutAnswer((), (crash_verdict(cut),)))
    assert table.title == (
        "raw:preallocation=off/none under storage-quota notices nothing: no write needed a new "
        "place: give it longer (--failing-seconds), or take --client files."
    )


def test_the_answer_names_the_length_that_was_asked_for() -> None:
    cut = verdict("raw/none", FailureModel.STORAGE_ERROR, replace(CLEAN, told=1, told_after=0.02))
    asked = {"failing_requests": 1, "failing_seconds": 9.0}
    answer = PowercutAnswer((), (crash_verdict(replace(cut, settings={**cut.settings, **asked})),))
    (table,) = view.tables(answer)
    assert "under storage-error (9 s, 1 request) lost nothing" in str(table.title)
    require_whole([table], document_of(answer))


def test_one_lost_file_of_many_is_not_no_loss() -> None:
    runs = [replace(CLEAN, acknowledged=24) for _ in range(9)]
    lost = replace(CLEAN, outcome=RunOutcome.LOST, acknowledged=24, lost=1)
    cut = verdict("raw/none/virtio:werror=ignore", FailureModel.STORAGE_ERROR, lost, *runs)
    (table,) = view.tables(PowercutAnswer((), (crash_verdict(cut),)))
    assert "lost 1 of 240 files that it had fsynced" in str(table.title)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ((1, 0, 0), "was told after 20 ms in 1 of 3 runs."),
        ((1, 1, 1), "was told after 20 ms."),
        ((0, 0), "was paused after 0.10 s."),
    ],
)
def test_what_a_guest_learned_in_some_runs_is_not_said_of_all(
    runs: tuple[int, ...], said: str
) -> None:
    told = [replace(CLEAN, told=count, told_after=0.02 if count else None) for count in runs]
    cut = verdict("raw/none", FailureModel.STORAGE_ERROR, *told)
    (table,) = view.tables(PowercutAnswer((), (crash_verdict(cut),)))
    assert str(table.title).endswith(said)


def test_a_guest_that_was_paused_in_some_runs_is_said_to_be_so() -> None:
    gone_on = replace(CLEAN, outcome=RunOutcome.GOES_ON, resumed=False, paused_after=None)
    cut = verdict("raw/none", FailureModel.STORAGE_ERROR, CLEAN, gone_on)
    (table,) = view.tables(PowercutAnswer((), (crash_verdict(cut),)))
    assert str(table.title).endswith("was paused after 0.10 s in 1 of 2 runs.")


def test_an_interruption_before_the_first_verdict_says_nothing_of_drives() -> None:
    control = ControlResult("storage that does not fail", must_lose=False, states=1, losses=0)
    (table,) = view.tables(PowercutAnswer((control,), (), interrupted=True))
    assert table.title == "Interrupted before the first verdict."
    assert table.notes == ("1 control passed before the first verdict.",)


def test_several_clients_have_a_column_and_a_loss_names_its_case() -> None:
    lost = replace(
        verdict(
            "raw/none/virtio:werror=ignore", FailureModel.STORAGE_ERROR,
            replace(CLEAN, outcome=RunOutcome.LOST, lost=5, paused_after=None),
        ),
        client=ClientKind.POSTGRESQL.value,
        counterexample=Counterexample("3f2a9c01/run2", RunOutcome.LOST, "gone or damaged: 4"),
    )  # fmt: skip
    answer = PowercutAnswer((), (crash_verdict(lost),))
    (table,) = view.tables(answer)
    columns = {column.title: [column.show(row) for row in table.rows] for column in table.columns}
    assert (columns["client"], columns["case"]) == (["postgresql"], ["3f2a9c01/run2"])
    assert table.title == (
        "raw/none/virtio:werror=ignore with client postgresql under storage-error lost 5 of 20 "
        "transactions that it had committed and was never told."
    )
    assert any("powercut --replay 3f2a9c01/run2" in note for note in table.notes)
    require_whole([table], document_of(answer))


def test_an_fsync_that_lied_the_second_time_is_told() -> None:
    lied = replace(
        CLEAN, outcome=RunOutcome.GOES_ON, told=3, told_after=0.02, again=3, again_lost=2,
        error="fsync: EIO", paused_after=None,
    )  # fmt: skip
    cut = verdict("raw/none/virtio:werror=report", FailureModel.STORAGE_ERROR, lied)
    (table,) = view.tables(PowercutAnswer((), (crash_verdict(cut),)))
    assert any("called again, succeeded, and the file was lost" in note for note in table.notes)
    assert "was told after 20 ms" in table.title


def test_the_worst_of_several_clients_decides() -> None:
    path = "raw/none/virtio:werror=report"
    read_only = replace(CLEAN, outcome=RunOutcome.READ_ONLY, told=2)
    files = verdict(path, FailureModel.STORAGE_FULL, read_only)
    sectors = verdict(path, FailureModel.STORAGE_FULL, CLEAN)
    sectors = replace(sectors, client=ClientKind.FLUSHES.value)
    for cuts in ((files, sectors), (sectors, files)):
        found = lack(parse_path(f"ext4/{path}"), parse_need("survives-full"), verdicts_of(cuts))
        assert "a read-only file system" in str(found)
    again = verdict(path, FailureModel.STORAGE_FULL, CLEAN)
    stored = verdicts_of([files, sectors, again])
    assert lack(parse_path(f"ext4/{path}"), parse_need("survives-full"), stored) is None


FULL = FailureModel.STORAGE_FULL
REPORTS = "raw:preallocation=off/none/virtio:werror=report"
UNTOUCHED = replace(CLEAN, outcome=RunOutcome.GOES_ON, failed=0, resumed=False, paused_after=None)
LOST_IT = replace(CLEAN, outcome=RunOutcome.LOST, lost=5)


def _asked(cut: PowerCut, **settings: float) -> PowerCut:
    return replace(cut, settings={**cut.settings, **settings})


@pytest.mark.parametrize(
    ("cuts", "why"),
    [
        ([verdict(REPORTS, FULL, UNTOUCHED)], "passes errors on to the guest (werror=report)"),
        ([verdict(REPORTS, FULL, UNTOUCHED, CLEAN)], None),
        ([_asked(verdict(REPORTS, FULL, CLEAN), failing_requests=1)], "passes errors on"),
        ([_asked(verdict(REPORTS, FULL, CLEAN), failing_seconds=60.0)], None),
        ([_asked(verdict(REPORTS, FULL, LOST_IT), failing_requests=1)], "lost what it had"),
        ([verdict(REPORTS, FULL, LOST_IT),
          _asked(verdict(REPORTS, FULL, CLEAN), failing_requests=1)], "lost what it had"),
        ([verdict(REPORTS, FULL, LOST_IT),
          _asked(verdict(REPORTS, FULL, CLEAN), failing_seconds=9.0)], "lost what it had"),
        ([verdict(REPORTS, FULL, LOST_IT), verdict(REPORTS, FULL, UNTOUCHED)], "lost what it had"),
        ([verdict(REPORTS, FULL, LOST_IT), verdict(REPORTS, FULL, CLEAN)], None),
    ],
    ids=["none failed", "one failed", "kept in 1 request", "kept for 60 s", "lost in 1 request",
         "1 request later", "9 s later", "none failed later", "kept later"],
)  # fmt: skip
def test_only_a_failure_that_a_guest_met_in_full_says_that_it_survives(
    cuts: list[PowerCut], why: str | None
) -> None:
    path = parse_path(f"btrfs/{REPORTS}")
    found = lack(path, parse_need("survives-full"), verdicts_of(cuts))
    assert (found is None) == (why is None), found
    assert why is None or why in str(found)


def test_a_verdict_on_failing_storage_decides_nothing_about_power_cuts() -> None:
    lost = verdict(
        "raw/none/virtio:werror=ignore:rerror=ignore", FailureModel.STORAGE_ERROR,
        replace(CLEAN, outcome=RunOutcome.LOST, lost=17),
    )  # fmt: skip
    stored = verdicts_of([lost])
    assert stored.by_path == {}
    path = parse_path("ext4/raw/none/virtio:werror=ignore:rerror=ignore")
    assert "lost what it had fsynced" in str(lack(path, parse_need("survives-errors"), stored))
