"""`vdisklab powercut` at the edge: what it refuses, and what it prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.results.test_power_cut import FAILED, KEPT, LOST
from vdisklab.answers.powercut import PowercutAnswer, crash_verdict
from vdisklab.cli.shell.main import main
from vdisklab.documents import document, schemas
from vdisklab.path.needs import parse_needs
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.request import PowercutRequest, plan_questions
from vdisklab.results.power_cut import ControlResult, Counterexample, PowerCut
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.views import powercut as view
from vdisklab.views.layout import Table


@pytest.mark.parametrize(
    ("arguments", "sentence", "hint"),
    [
        ((), "no path is named", "vdisklab powercut ext4"),
        (("raw/none",), "no place for the logged disk", "ext4/raw/none"),
        (
            ("fast/raw/none", "--target", "fast=nbd://10.0.0.5/disk"),
            "the server answers for it",
            "ext4/raw/none",
        ),
        (("dir:at=here/raw/none", "--target", "here=/srv"), "storage that you have", "ext4/raw"),
        (("ext4/host",), "no guest disk", "format"),
        (("ext4/none",), "names no image format", "ext4/raw/none"),
        (("tmpfs/raw/none",), "nothing is left after a power cut", "ext4, xfs, btrfs, zfs"),
        (("zvol/ext4/raw/none",), "how zvol recovers after a power cut", "ext4, xfs, btrfs, zfs"),
        (("md:level=1/xfs/raw/none",), "how md recovers after", "only host layer"),
        (("zfs:raid=mirror/raw/none",), "uses several", "leave out raid"),
        (("ext4/raw/none", "--states", "9", "--exhaustive"), "exclude each other", "one of them"),
        (("ext4/raw/none", "--tear", "1000"), "--tear 1000", "4096"),
        (("ext4/9p",), "only a database in a guest writes to a directory", "--access guest"),
        (("9p", "--access", "guest", "--client", "sqlite-wal"), "no host layer", "ext4/9p"),
        (
            [
                "ext4/virtiofs",
                "--access",
                "guest",
                "--client",
                "sqlite-wal",
                "--model",
                "qemu-killed",
            ],
            "it is a directory",
            "leave out --model qemu-killed",
        ),
        (("ext4/raw/none", "--client", "sqlite-wal"), "needs a guest to run in", "--access guest"),
        (("ext4/raw/none", "--driver", "queue"), "is a setting of a guest", "--access guest"),
        (
            ("ext4/raw/none/nvme", "--access", "guest", "--driver", "hdparm"),
            "nvme disk has no setting `hdparm`",
            "another --driver",
        ),
        (
            ("ext4/raw/none/usb", "--access", "boot-sector"),
            "the boot sector supports the buses ide and virtio, not usb",
            "write one of them",
        ),
        (
            ("ext4/raw/unsafe", "--need", "durable"),
            "no path meets durable: ext4/raw/unsafe: cache mode unsafe drops flushes",
            "the nearest path that meets all needs: ext4/raw/none",
        ),
        (
            ("ext4/raw/unsafe", "--need", "layer=lvm"),
            "no path meets layer=lvm",
            "lvm/ext4/raw/unsafe meets all needs, but it cannot be judged: ",
        ),
        (
            ("ext4/raw/none", "--need", "discard", "--need", "layer=btrfs"),
            "no path meets discard, layer=btrfs",
            "the nearest path that meets all needs: btrfs/raw/none/virtio:discard=unmap",
        ),
        (("--replay", "abcd/0-0", "--need", "durable"), "--need has no effect", "one of them"),
        (("--replay", "abcd/0-0", "ext4/raw/none"), "PATHS has no effect", "one of them"),
        (("--replay", "abcd/0-0", "--writes", "80"), "--writes has no effect", "one of them"),
        (("ext4/raw/none", "--need", "fast"), "unknown need 'fast'", "durable, no-flush-safe"),
        (("--replay", "nonsense"), "'nonsense' is not a case", "3f2a9c01/@61"),
        (("--replay", "abcd/0-0"), "holds no recording", "name a case as"),
    ],
)
def test_what_cannot_be_judged_is_one_sentence(
    arguments: Sequence[str], sentence: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["powercut", *arguments]) in (2, 11)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert sentence in said
    assert hint in said
    assert said.count("\n") <= 2


def test_a_typed_name_of_a_measured_target_is_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign that was measured on it bound the name."""
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "results.sqlite"))
    plan = {**CAMPAIGN.plan, "target": ["mynbd=nbd://localhost/vol"]}
    with open_store(str(tmp_path / "results.sqlite")) as store:
        store.add_campaign(replace(CAMPAIGN, plan=plan))
    assert main(["powercut", "mynbd/raw/none"]) == 2
    said = capsys.readouterr().err
    assert "is on storage that you have, and no disk below it is logged" in said
    assert "ext4/raw/none" in said
    assert main(["powercut", "other/raw/none"]) == 2
    assert "unknown segment 'other'" in capsys.readouterr().err


def test_needs_leave_out_the_other_paths_with_the_reason() -> None:
    planned = plan_questions(
        PowercutRequest(
            paths=("{ext4,tmpfs}/{raw,qcow2}/{none,unsafe}",),
            clients=(ClientKind.FLUSHES,),
            need=parse_needs(["durable", "format=raw"]),
        )
    )
    assert [str(question.path) for question in planned.questions] == ["ext4/raw/none"]
    reasons = {path.path: path.reason for path in planned.dropped}
    assert reasons["tmpfs/raw/none"] == "it does not meet --need durable: tmpfs is memory"
    assert reasons["ext4/qcow2/none"] == "it does not meet --need format=raw: its format is qcow2"
    assert len(planned.dropped) == 7
    ways_out = {"leave out --need durable", "leave out --need format=raw"}
    assert {path.instead for path in planned.dropped} == ways_out


def answer(*verdicts: PowerCut) -> PowercutAnswer:
    controls = (ControlResult("unsafe", must_lose=True, states=2, losses=1),)
    return PowercutAnswer(controls, tuple(map(crash_verdict, verdicts)))


def table(*verdicts: PowerCut) -> Table[Any]:
    (found,) = view.tables(answer(*verdicts))
    return found


def test_a_path_that_cannot_be_judged_as_asked_is_a_part_of_the_answer() -> None:
    planned = plan_questions(
        PowercutRequest(paths=("ext4/raw/none", "ext4/9p"), clients=(ClientKind.FLUSHES,))
    )
    assert not answer(KEPT).any_failed
    found = replace(answer(KEPT), left_out=planned.left_out)
    assert found.any_failed
    assert [(left["path"], bool(left["reason"])) for left in document(found)["left_out"]] == [
        ("ext4/9p", True)
    ]
    (shown,) = view.tables(found)
    assert shown.intro == ("Not judged as asked: ext4/9p.",)
    needs = plan_questions(
        PowercutRequest(paths=("ext4/{raw,qcow2}/none",), need=parse_needs(["format=raw"]))
    )
    assert needs.dropped
    assert not needs.left_out


def test_the_document_matches_its_schema() -> None:
    found = document(answer(KEPT, LOST, FAILED), table(KEPT, LOST, FAILED).sentences)
    jsonschema.Draft202012Validator(schemas([PowercutAnswer])["vdisklab.powercut/2"]).validate(
        found
    )
    assert found["verdicts"][1]["acknowledged"] == LOST.acknowledged


def test_stored_outcomes_are_shown_in_plain_words() -> None:
    stored = "corrupt in the afterlife"
    first = Counterexample("3f/1-0", stored, "1 sector")
    later = replace(LOST, outcomes={"kept": 1, stored: 2, "unheard of": 1}, counterexample=first)
    verdict = crash_verdict(later)
    assert verdict.outcomes == {"kept": 1, "corrupted by later writes": 2, "unheard of": 1}
    assert verdict.counterexample is not None
    assert verdict.counterexample.outcome == "corrupted by later writes"


def test_stored_keys_and_clients_have_the_words_of_today() -> None:
    stored = replace(
        KEPT, client="fua", settings={"afterlives": 20}, observed={"flushes.unasked": "1"}
    )
    verdict = crash_verdict(stored)
    assert verdict.client_words == "forced writes"
    assert verdict.settings == {"post_recovery_states": 20}
    assert verdict.observed == {"flushes.unrequested": "1"}
    assert crash_verdict(replace(KEPT, client="of a later version")).client_words == (
        "of a later version"
    )


def test_a_path_that_was_judged_without_its_device_is_named() -> None:
    alone = replace(KEPT, path="ext4/raw/none/nvme")
    (note,) = [n for n in table(KEPT, alone, alone).notes if "nvme" in n]
    assert note.startswith("ext4/raw/none/nvme: judged without the device.")
    guest = replace(alone, access="guest")
    assert not any("nvme" in note for note in table(KEPT, guest).notes)


def test_the_headline_says_what_was_asked_and_what_came_out() -> None:
    paths = [replace(KEPT, path=f"ext4/raw/none/{bus}") for bus in ("scsi", "sata", "usb", "ide")]
    never = replace(LOST, path="xfs/raw/none", client="never")
    failed = replace(FAILED, path="zfs/raw/none")
    assert view.headline(answer(*paths, LOST, never, failed)) == (
        "Do acknowledged writes survive power cuts? 4 paths keep all; "
        f"{LOST.path} loses some; "
        "xfs/raw/none loses some, but only of clients that never flush; "
        "zfs/raw/none could not be judged."
    )
    assert view.headline(PowercutAnswer((), ())).startswith("No power cut has been judged yet")


def test_the_table_tells_verdicts_apart() -> None:
    found = table(KEPT, LOST, FAILED)
    cells = [[column.show(row) for column in found.columns] for row in found.rows]
    assert [row[3] for row in cells] == ["survives", "LOSS", "failed"]
    assert [row[5] for row in cells] == ["the same", "over a million", ""]
    assert [row[8] for row in cells] == ["", "bb22/0-0", ""]
    assert [row[9] for row in cells] == ["", "9 sectors lost; …", "no room"]
