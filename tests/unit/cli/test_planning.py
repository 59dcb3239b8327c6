"""What no host could measure is refused before anything is tried on this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vdisklab.cli.campaign_options import ask, make_plan
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.request import Request
from vdisklab.progress import Event


def refused(request: Request, said: str) -> list[Event]:
    """Everything that was begun before a request was refused with these words."""
    seen: list[Event] = []
    with open_ledger() as ledger, pytest.raises(PlanError, match=said):
        make_plan(LocalHost(), ledger, request, seen.append)
    return seen


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"blocks": 0}, "blocks is 0"),
        ({"runtime": "0"}, "runtime is 0"),
        ({"size": "1M"}, "size is 1M"),
        ({"memory": "16M"}, "guest's memory is 16M"),
        ({"baseline": "raw/nonsense"}, "nonsense"),
        ({"profile": "fio-40jobs", "size": "16M"}, "fio-40jobs|too small|needs"),
    ],
)
def test_nothing_is_tried_for_a_plan_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object], said: str
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    request = ask(paths=["ext4/raw/none"], directory=tmp_path, **wrong)  # type: ignore[arg-type]
    assert refused(request, said) == []


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img")
@pytest.mark.parametrize(("profile", "size"), [("boot", "1G"), ("growth-short", "4G")])
def test_what_takes_our_own_guest_is_refused_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, size: str
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    image = tmp_path / "guest.qcow2"
    LocalHost().run("qemu-img", "create", "-q", "-f", "qcow2", image, "1M")
    request = ask(
        paths=["raw/none"], directory=tmp_path, profile=profile, size=size, memory="1G", guest=image
    )
    assert refused(request, "boots or installs what our micro guest holds") == []
