"""What the power cut of a path needs of this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.results.values import a_power_cut
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import AccessKind, ClientKind
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut import action
from vdisklab.powercut.action import JudgingSetup, judge_power_cuts
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.results.store import open_store


@pytest.mark.parametrize("model", FailureModel)
def test_zfs_must_run_if_a_pool_is_recovered(
    model: FailureModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(reason: str) -> None:
        raise HostError(reason)

    monkeypatch.setattr(action, "require_zfs", lambda _host: stop("ZFS does not run"))
    monkeypatch.setattr(action, "open_session", lambda *_: stop("the session begins"))
    path = parse_path("zfs/raw/none")
    question = Question(path, ClientKind.NEVER, QuestionSettings(), model=model)
    setup = JudgingSetup(
        work=tmp_path,
        database=f"sqlite:///{tmp_path}/results.sqlite",
        guest=GuestPlan(),
        guest_cache=tmp_path,
    )
    reason = "the session begins" if model.spares_the_host else "ZFS does not run"
    with pytest.raises(HostError, match=reason):
        judge_power_cuts([question], setup, lambda _text: None, new=False)


@pytest.mark.parametrize(
    ("access", "requested", "answered"),
    [
        (AccessKind.GUEST, None, True),
        (AccessKind.GUEST, Accelerator.TCG, True),
        (AccessKind.GUEST, Accelerator.KVM, False),
        (AccessKind.NBD, Accelerator.KVM, True),
    ],
)
def test_a_requested_accelerator_is_not_answered_with_a_verdict_of_another_one(
    access: AccessKind,
    requested: Accelerator | None,
    answered: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: object) -> None:
        raise HostError("the session begins")

    monkeypatch.setattr(action, "open_session", stop)
    question = Question(parse_path("raw/none"), ClientKind.NEVER, QuestionSettings(), access=access)
    setup = JudgingSetup(
        work=tmp_path,
        database=f"sqlite:///{tmp_path}/results.sqlite",
        guest=GuestPlan(accelerator=requested),
        guest_cache=tmp_path,
    )
    observed = {} if access is AccessKind.NBD else {"guest.accelerator": "tcg"}
    stored = a_power_cut(
        fingerprint=question.fingerprint,
        access=access,
        observed=observed,
        host=collect_facts(LocalHost()),
        failure=None,
    )
    with open_store(setup.database) as store:
        store.add_power_cut(stored)
    if answered:
        answer = judge_power_cuts([question], setup, lambda _text: None, new=False)
        assert [verdict.id for verdict in answer.verdicts] == [stored.id]
    else:
        with pytest.raises(HostError, match="the session begins"):
            judge_power_cuts([question], setup, lambda _text: None, new=False)
