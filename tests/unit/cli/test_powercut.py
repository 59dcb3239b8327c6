"""`vdisklab powercut` at the edge: what it refuses, and what it prints."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from result.test_power_cuts import FAILED, KEPT, LOST

from vdisklab.cli.main import main
from vdisklab.report.powercut import power_cut_document, power_cut_table, verdict_word


@pytest.mark.parametrize(
    ("arguments", "sentence", "hint"),
    [
        ((), "no path is named", "vdisklab powercut ext4"),
        (("raw/none",), "no host layer to put a logged disk under", "ext4/raw/none"),
        (("ext4/host",), "no guest disk", "format"),
        (("ext4/none",), "no image format says which", "ext4/raw/none"),
        (("tmpfs/raw/none",), "cannot yet be judged on tmpfs", "ext4, xfs, btrfs"),
        (("ext4/vdi/none",), "cannot yet be judged on vdi", "raw, qcow2"),
        (("ext4/raw/none", "--states", "9", "--exhaustive"), "exclude each other", "one of them"),
        (("ext4/raw/none", "--tear", "1000"), "--tear 1000", "4096"),
        (("--replay", "nonsense"), "'nonsense' names no case", "ID/EPOCH-BITS"),
        (("--replay", "abcd/0-0"), "holds no recording", ""),
    ],
)
def test_what_cannot_be_judged_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["powercut", *arguments]) in (2, 11)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert sentence in said
    assert hint in said
    assert said.count("\n") <= 2


def test_the_document_is_that_of_the_schema() -> None:
    control = {
        "name": "unsafe", "must_lose": True, "states": 2, "losses": 1, "note": "", "passed": True,
    }  # fmt: skip
    found = power_cut_document([KEPT, LOST, FAILED], [control])
    text = (files("vdisklab.report") / "schemas" / "powercut.json").read_text("utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    jsonschema.validate(json.loads(json.dumps(found)), json.loads(text))


def test_the_table_tells_verdicts_apart() -> None:
    assert [verdict_word(each) for each in (KEPT, LOST, FAILED)] == ["survives", "LOSS", "failed"]
    table = power_cut_table([KEPT, LOST, FAILED])
    cells = [[value.text for value in row] for row in table.rows]
    assert [row[4] for row in cells] == ["all", "3e+26", ""]
    assert [row[7] for row in cells] == ["", "bb22/0-0", ""]
    assert [row[8] for row in cells] == ["", "9 sectors lost; …", "no room"]
