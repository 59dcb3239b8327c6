"""One language of needs: every word in every verb that has `--need`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.stored import Database
from vdisklab.actions.find_best import make_search
from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.needs import Need, NeedKind, meets, parse_need
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import Request
from vdisklab.platforms.registry import forms
from vdisklab.platforms.request import ExportRequest
from vdisklab.powercut.request import PowercutRequest, plan_questions

VALUES = {
    NeedKind.FORMAT: tuple(ImageFormat),
    NeedKind.CACHE: tuple(CacheMode),
    NeedKind.BUS: tuple(Bus),
    NeedKind.LAYER: tuple(LayerKind),
}
WORDS = [
    f"{kind}={value}" if value else str(kind)
    for kind in NeedKind
    for value in VALUES.get(kind, ("",))
]
PATHS = ("ext4/raw/none", "ext4/qcow2/none", "ext4/raw/none/scsi", "ext4/raw/directsync")


def searched(need: Need, directory: Path) -> set[str]:
    """The paths that `run --find` measures."""
    search = make_search(
        RunRequest(find=SearchFor.BEST, need=(need,), unsafe=not need.goes_by_power_cuts)
    )
    assert search is not None
    request = Request(paths=("host", *PATHS), directory=directory)
    plan = build_plan(request, Capabilities(), Profile("p", "t", ()))
    cells = search.narrow(plan, CrashVerdicts()).plan.cells
    return {str(cell.path) for cell in cells if cell.path.is_guest_storage}


def judged(need: Need, _directory: Path) -> set[str]:
    """The paths that `powercut` judges."""
    planned = plan_questions(PowercutRequest(paths=PATHS, need=(need,)))
    return {str(question.path) for question in planned.questions}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("verb", [searched, judged])
def test_run_and_powercut_take_the_paths_that_meet_it(
    verb: Callable[[Need, Path], set[str]], word: str, tmp_path: Path
) -> None:
    need = parse_need(word)
    met = {path for path in PATHS if meets(parse_path(path), need, CrashVerdicts())}
    if met:
        assert verb(need, tmp_path) == met
        return
    with pytest.raises(PlanError, match=f"no path meets {word}: ") as caught:
        verb(need, tmp_path)
    assert caught.value.hint


each_third = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
"""All needs take a verb 3 s, and a commit decides each of them once, above."""


@pytest.mark.usefixtures("database")
@each_third
def test_recommend_names_a_path_that_meets_it_or_says_that_none_does(
    every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in WORDS[::every]:
        status = main(["recommend", "--need", word, "--format", "json"])
        out, err = capsys.readouterr()
        if status == 0:
            path = parse_path(json.loads(out)["path"])
            assert meets(path, parse_need(word), CrashVerdicts()), word
        else:
            assert status == PlanError.exit_code
            assert err.startswith("error: none of the ")
            assert word in err
            assert "hint: " in err


def test_audit_answers_it_for_a_disk(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.xml"
    path = parse_path("qcow2/none")
    file.write_text(forms()["libvirt"].write(ExportRequest(path, "/x/a.img", "web")).text)
    needs = [word for name in WORDS for word in ("--need", name)]
    assert main(["audit", str(file), "--db", database.url, "--format", "json", *needs]) == 0
    document = json.loads(capsys.readouterr().out)
    (disk,) = document["disks"]
    assert document["needs"] == WORDS
    for word in WORDS:
        met = word not in disk["lacks"] and word not in disk["undecided"]
        assert met == meets(path, parse_need(word), CrashVerdicts()) or word in disk["undecided"]


@each_third
def test_export_refuses_a_path_that_does_not_meet_it(
    every: int, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in WORDS[::every]:
        met = meets(parse_path("ext4/qcow2/none"), parse_need(word), CrashVerdicts())
        arguments = ["export", "ext4/qcow2/none", "--need", word, "--db", database.url]
        assert main(arguments) == (0 if met else PlanError.exit_code)
        said = capsys.readouterr().err
        assert met or f"does not meet --need {word}" in said
