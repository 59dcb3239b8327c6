"""What the power cut's page says is in its records, and how records are made and shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.pages import bench
from vdisklab.answers.powercut import present_keys
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import FailureModel, is_cut_short
from vdisklab.powercut.storage_failures import STORAGE_FAILURES

MATRIX = bench("powercut_matrix.py")
AGAIN = bench("powercut_again.py")
RECORDS: dict[str, dict[str, Any]] = bench("pages.py")["record_of"](MATRIX["NAME"])


def document(**changed: object) -> dict[str, Any]:
    """What `vdisklab powercut --format json` prints of one verdict."""
    verdict = {
        "path": "ext4/raw/none", "client": "never", "access": "nbd", "survives": False,
        "states": 4, "possible": 9.0, "exhaustive": False, "acknowledged": 3, "flushes": 0,
        "post_recovery_states": 2, "outcomes": {"kept": 1, "lost": 2, "torn": 1}, "failure": None,
        "wall_seconds": 60.04, "observed": {"qemu.write_cache": "on"},
        "counterexample": {"case": "3f/1-0", "outcome": "lost", "detail": "1 sector lost"},
        "settings": {"writes": 40, "driver": "as-found", "sampling": {"states": 4}},
        "host": {"kernel": "6.18", "qemu": "7.2", "machine_id": "1f"},
    } | changed  # fmt: skip
    control = {"name": "unsafe", "must_lose": True, "states": 1, "losses": 1, "passed": True}
    return {"controls": [control], "verdicts": [verdict]}


SUBJECTS = ["models", "modes", "matrix", "hosts", "every-state", "zfs", "zfs-models", "zfs-power",
            "qemu10", "qemu10-chains", "qemu10-modes", "killed-hosts"]  # fmt: skip


def verdicts(records: list[str]) -> Iterator[tuple[str, DiskPath, str, bool]]:
    """The model, path, client and answer of each verdict."""
    for name in records:
        found = RECORDS[name]
        for verdict in found["verdicts"]:
            model = (found["settings"] | verdict["settings"]).get("model", "power")
            path = parse_path(verdict["path"])
            yield model, path, verdict["client"], verdict["survives"]


def test_what_the_page_tells_a_person_is_in_the_records() -> None:
    for model, path, client, survives in verdicts(SUBJECTS):
        safe = client == "flushes" or path.cache in ("writethrough", "directsync")
        if safe and path.cache != "unsafe":
            assert survives or loses_on_zfs_fuse(path), (model, path, client)


def test_qemu_10_answers_as_7_2_does() -> None:
    newer = [name for name in SUBJECTS if "qemu10" in name]
    older = [name for name in SUBJECTS if name not in newer]
    before = {(model, path, client): kept for model, path, client, kept in verdicts(older)}
    answers = list(verdicts(newer))
    assert len(answers) == 27 + 72 + 2200
    for model, path, client, kept in answers:
        assert before[model, path, client] is kept, (model, path, client)


def loses_on_zfs_fuse(path: DiskPath) -> bool:
    """True for what the records show of images whose file zfs-fuse cuts short."""
    image = path.image
    assert image is not None
    subclusters = bool(image.option("extended_l2"))
    return is_cut_short(path) and subclusters and path.cache in ("writethrough", "directsync")


def test_what_zfs_fuse_loses_of_images_with_subclusters_is_as_the_page_says() -> None:
    questions = 0
    for name in ("zfs-models", "zfs-power"):
        for verdict in RECORDS[name]["verdicts"]:
            path = parse_path(verdict["path"])
            if loses_on_zfs_fuse(path):
                questions += 1
                bad = {name for name in verdict["outcomes"] if name != "kept"}
                assert 1 <= sum(verdict["outcomes"][name] for name in bad) <= 5
                assert path.image is not None
                loses = verdict["client"] == "never" or path.image.backing > 0
                assert ("lost" in bad) is loses
    assert questions == 36


def test_what_the_page_tells_of_a_guest_that_never_flushes_is_in_the_records() -> None:
    seen: set[tuple[str, bool]] = set()
    for model, path, client, survives in verdicts(SUBJECTS):
        if client != "never" or path.cache in ("writethrough", "directsync"):
            continue
        assert path.image is not None
        grows = path.image.is_thin or path.image.backing > 0 or path.image.option("snapshots")
        in_place = not grows and path.cache == "none" and str(path.stack) in ("ext4", "xfs")
        expected = {
            "power": False,
            "plp": in_place,
            "host-crash": in_place,
            "qemu-killed": path.image.format == "raw" or not grows,
            "guest-reset": True,
        }[model]
        assert survives is expected, (model, path)
        seen.add((model, survives))
    assert len(seen) == 8, seen


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "caches"])
def test_each_question_of_a_record_can_be_asked_again(name: str) -> None:
    record = RECORDS[name]
    questions = list(AGAIN["questions_of"](record))
    for question, verdict in zip(questions, record["verdicts"], strict=True):
        assert question.path.canonical == verdict["path"]
        assert MATRIX["_flat"](present_keys(question.stored_settings)).items() >= (
            (record["settings"] | verdict["settings"]).items()
        )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "**LOSS** 3 of 4 (lost, torn)"),
        ({"outcomes": {"kept": 2, "lost": 2}}, "**LOSS** 2 of 4"),
        ({"survives": True, "outcomes": {"kept": 4}}, "ok 4"),
        ({"survives": True, "outcomes": {"kept": 4}, "exhaustive": True}, "ok all 4"),
        ({"survives": None, "outcomes": {}}, "no writes"),
        ({"survives": None, "failure": "QEMU ended"}, "failed: QEMU ended"),
    ],
)
def test_a_cell_says_how_many_states_lost_writes(changed: dict[str, Any], said: str) -> None:
    assert MATRIX["cell"](document(**changed)["verdicts"][0]) == said


def test_a_record_takes_the_last_answer_to_a_question_and_what_differs() -> None:
    other = {"writes": 20, "driver": "queue", "sampling": {"states": 4}}
    later = document(survives=None, counterexample=None)
    record = MATRIX["compact"]([document(), later, document(settings=other)])
    first, second = record["verdicts"]
    assert first["survives"] is None
    assert "found" not in first
    assert second["found"] == "1 sector lost"
    assert record["settings"] == {"sampling.states": 4}
    assert second["settings"] == {"writes": 20, "driver": "queue"}
    assert record["controls"][0]["losses_of_states"] == [[1, 1]] * 3


def test_verdicts_of_two_kernels_are_not_joined() -> None:
    other = {"kernel": "6.1", "qemu": "7.2", "machine_id": "1f"}
    with pytest.raises(SystemExit, match="different kernels"):
        MATRIX["compact"]([document(), document(path="xfs/raw/none", host=other)])


def guest_document(path: str, **changed: object) -> dict[str, Any]:
    settings = {"post_recovery_states": 4, "driver": "as-found", "sampling": {"states": 4}}
    return document(path=f"ext4/raw/{path}", **{"settings": settings} | changed)


def test_answers_are_added_to_a_record_and_stand_with_their_bus() -> None:
    more = {"post_recovery_states": 20, "driver": "as-found", "sampling": {"states": 4}}
    earlier = MATRIX["compact"](
        [
            guest_document("none/ide:write_cache=on"),
            guest_document("none/sata:write_cache=on"),
            guest_document("none/ide:write_cache=off", survives=False),
        ]
    )
    later = MATRIX["compact"](
        [
            guest_document("none/ide:write_cache=off", survives=True, settings=more),
            guest_document("none/ide:write_cache=on", client="flushes", settings=more),
        ]
    )
    record = MATRIX["joined"](earlier, later)
    assert [
        (each["path"].split("/")[-1], each["client"], each["survives"], each["settings"])
        for each in record["verdicts"]
    ] == [
        (
            "ide:write_cache=on",
            "flushes",
            False,
            {"post_recovery_states": 20, "driver": "as-found"},
        ),
        ("ide:write_cache=on", "never", False, {"post_recovery_states": 4, "driver": "as-found"}),
        ("ide:write_cache=off", "never", True, {"post_recovery_states": 20, "driver": "as-found"}),
        ("sata:write_cache=on", "never", False, {"post_recovery_states": 4, "driver": "as-found"}),
    ]
    assert record["settings"] == {"sampling.states": 4}
    assert record["controls"][0]["losses_of_states"] == [[1, 1]] * 5
    elsewhere = earlier | {"host": {"kernel": "6.1", "qemu": "7.2"}}
    with pytest.raises(SystemExit, match="different kernels"):
        MATRIX["joined"](elsewhere, later)


def test_an_answer_replaces_the_one_whose_settings_were_not_shared() -> None:
    short = {"writes": 16, "size": 8, "sampling": {"states": 4}}
    longer = {"writes": 80, "size": 8, "sampling": {"states": 4}}
    several = MATRIX["compact"]([document(settings=short), document(settings=longer)])
    again = MATRIX["compact"]([document(settings=short, survives=True)])
    record = MATRIX["joined"](several, again)
    assert sorted(each["survives"] for each in record["verdicts"]) == [False, True]


def test_columns_may_be_pairs() -> None:
    settings = {"model": "plp", "driver": "as-found", "sampling": {"states": 4}}
    record = MATRIX["compact"]([document(), document(survives=True, settings=settings)])
    wish = MATRIX["Wish"].parse(["r.json", "rows=image", "columns=cache,model", "where=host:ext4"])
    assert MATRIX["table"](record["verdicts"], wish).splitlines() == [
        "| image | none, power | none, plp |",
        "|---|---|---|",
        "| raw | **LOSS** 3 of 4 (lost, torn) | ok 4 |",
    ]


def test_no_cell_holds_two_verdicts() -> None:
    both = [*document()["verdicts"], *document(client="fua")["verdicts"]]
    wish = MATRIX["Wish"].parse(["r.json", "rows=stack"])
    with pytest.raises(SystemExit, match="has two verdicts"):
        MATRIX["table"](both, wish)


def test_a_table_has_a_row_for_each_question_and_blanks_where_none_was_asked() -> None:
    record = MATRIX["compact"](
        [document(), document(path="ext4/raw/unsafe", client="fua", failure="no room")]
    )
    wish = MATRIX["Wish"].parse(["r.json", "rows=stack,client", "where=bus:virtio"])
    assert MATRIX["table"](record["verdicts"], wish).splitlines() == [
        "| stack | client | none | unsafe |",
        "|---|---|---|---|",
        "| ext4/raw | never | **LOSS** 3 of 4 (lost, torn) |  |",
        "| ext4/raw | fua |  | failed: no room |",
    ]
    assert MATRIX["basis"](record, record["verdicts"]) == (
        "2 questions, 8 states (4 with post-recovery writes) in 2 minutes; "
        "the 1 controls passed first, 2 times."
    )
    assert "are not in this record" in MATRIX["basis"](
        record | {"controls": []}, record["verdicts"]
    )


def test_a_cache_mode_is_shown_with_where_its_writes_were() -> None:
    found = {
        "acknowledged": {"writes": {"the host's memory": 39}, "image_in_page_cache": 0.02},
        "flushed": {"writes": {"the medium": 39}, "image_in_page_cache": 0.0},
        "guest_sees": "write back",
    }
    direct = found | {"acknowledged": found["flushed"]}
    shown = MATRIX["cache_table"]({"modes": {"writeback": found, "directsync": direct}})
    assert shown.splitlines()[2:] == [
        "| writeback | the host's memory (39) | the medium (39) | yes, 2.0% | write back "
        "| write cache, page cache |",
        "| directsync | the medium (39) | the medium (39) | no | write back | – |",
    ]


IMAGES = ("raw", "raw:preallocation=off", "qcow2", "qcow2:preallocation=off",
          "qcow2:extended_l2=on:preallocation=off", "qcow2:backing=1", "qcow2:backing=3",
          "qcow2:backing=1:extended_l2=on", "qcow2:backing=3:extended_l2=on",
          "raw:encrypt=luks", "qcow2:encrypt=luks")  # fmt: skip
MODES = ("none", "writeback", "writethrough", "directsync", "unsafe")
MANY = 1000


def answers_of_the_block_layer() -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The verdicts through NBD of every record of QEMU 7.2, by path, client and model."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for record in RECORDS.values():
        if "modes" in record or not record["host"]["qemu"].startswith("7.2"):
            continue
        for verdict in record["verdicts"]:
            settings = record["settings"] | verdict["settings"]
            if verdict["access"] == "nbd" and "during" not in settings and not verdict["failure"]:
                key = (verdict["path"], verdict["client"], settings.get("model", "power"))
                found.setdefault(key, []).append(verdict)
    return found


def test_each_path_was_judged_under_each_model_in_every_state_if_there_are_few() -> None:
    found = answers_of_the_block_layer()
    images = [f"{image}/{mode}" for image in IMAGES for mode in MODES]
    questions = [
        (parse_path(f"{host}/{image}").canonical, client, model)
        for model in FailureModel
        if model not in STORAGE_FAILURES  # nothing dies there, so no crash state is judged
        for host in ("ext4", "xfs", "btrfs", "zfs")
        for image in images
        for client in ("flushes", "never")
    ]
    assert len(questions) == 2200
    for question in questions:
        answers = found.get(question, [])
        assert answers, question
        whole = any(answer["exhaustive"] for answer in answers)
        assert whole or all(answer["possible"] > MANY for answer in answers), question
