"""QEMU in a directory of the caller of sudo, who moves it in mid-run: a link takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.caller_of_sudo import make_prize, swapping
from tests.lab import Lab
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CELLS_FAILED
from vdisklab.storage.site import Site

pytestmark = [pytest.mark.guest, pytest.mark.host]

HOT_PLUGGED = "qcow2:backing=2/writeback"
"""With backing files that a header names."""

AT_BOOT = "qcow2/none/ide"


@pytest.fixture(autouse=True)
def shared_state(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))


# A guest takes 10 s of CPU. Each commit lets QEMU's storage daemon open images by the same names
# (tests/host/test_caller_of_sudo).
@pytest.mark.nightly
@pytest.mark.parametrize("path", [HOT_PLUGGED, AT_BOOT])
def test_guests_go_on_with_the_right_images(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Even if nothing looks whether the directory was moved: images are made after that, too."""
    monkeypatch.setattr(Site, "require_in_place", lambda _site: None)
    monkeypatch.setattr(Site, "moved", lambda _site: None)
    prize = make_prize(tmp_path)
    before = prize.seen()
    with swapping(lab.work, prize, monkeypatch) as tally:
        assert main([*lab.arguments(path)]) == 0
        assert tally.stat().st_size == 1
    (run,) = lab.runs()
    assert run.failure is None
    assert prize.seen() == before


def test_cells_fail_with_a_sentence(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prize = make_prize(tmp_path)
    before = prize.seen()
    with swapping(lab.work, prize, monkeypatch):
        assert main([*lab.arguments("{raw,qcow2}/none")]) == EXIT_CELLS_FAILED
    said = [run.failure.sentence for run in lab.runs() if run.failure]
    assert len(said) == 2
    assert all(each.startswith("the work directory was moved: ") for each in said)
    assert prize.seen() == before
