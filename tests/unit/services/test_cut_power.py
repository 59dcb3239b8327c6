"""What the power cut of a path needs of this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.vocabulary import ClientKind
from vdisklab.services import cut_power
from vdisklab.services.cut_power import PowerCutPlace, judge_power_cuts


@pytest.mark.parametrize("model", FailureModel)
def test_zfs_must_run_if_a_pool_is_recovered(
    model: FailureModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(reason: str) -> None:
        raise HostError(reason)

    monkeypatch.setattr(cut_power, "require_zfs", lambda _host: stop("ZFS does not run"))
    monkeypatch.setattr(cut_power, "open_session", lambda *_: stop("the session begins"))
    path = parse_path("zfs/raw/none")
    question = Question(path, ClientKind.NEVER, QuestionSettings(), model=model)
    place = PowerCutPlace(
        work=tmp_path,
        database=f"sqlite:///{tmp_path}/results.sqlite",
        guest=GuestPlan(),
        guest_cache=tmp_path,
    )
    reason = "the session begins" if model.spares_the_host else "ZFS does not run"
    with pytest.raises(HostError, match=reason):
        judge_power_cuts([question], place, lambda _text: None, new=False)
