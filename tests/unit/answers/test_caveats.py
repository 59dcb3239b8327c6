"""What an answer says of the way to KVM: what `doctor` says on the host that measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import stored
from vdisklab.answers.caveats import caveats_with_remedy, way_to_kvm_here
from vdisklab.guest.accelerator import way_to_kvm
from vdisklab.host.facts import machine_id
from vdisklab.results.model import Campaign
from vdisklab.value import replace

HERE = replace(CAMPAIGN, host=replace(CAMPAIGN.host, machine_id=machine_id()))
ELSEWHERE = replace(HERE, id="bbbbbbb2", host=replace(HERE.host, machine_id="a" * 16))


def remedies(*campaigns: Campaign, way_here: Callable[[], str | None]) -> str:
    with stored(campaign_runs(3), campaigns=[CAMPAIGN]) as store:
        outlines = store.outlines((CAMPAIGN.id,))
    caveats = caveats_with_remedy(outlines, campaigns, way_here=way_here)
    (finding,) = caveats.findings
    (note,) = caveats.notes
    (remedy,) = caveats.remedies
    assert str(finding) == note
    assert note.endswith(remedy)
    return remedy


@pytest.mark.parametrize("module", ["kvm_pvm", "kvm_amd"])
def test_no_group_and_no_bios_where_they_cannot_help(tmp_path: Path, module: str) -> None:
    """/dev/kvm opens here, but `usermod` and the BIOS were advised below every answer."""
    (tmp_path / "sys/module" / module).mkdir(parents=True)
    device = tmp_path / "kvm"
    device.touch()
    said = remedies(HERE, way_here=partial(way_to_kvm, device, tmp_path))
    assert "usermod" not in said
    assert "BIOS" not in said
    if module == "kvm_pvm":
        assert said == (
            "To measure under KVM: use another host, with AMD-V or VT-x: this host's KVM (module "
            "kvm_pvm) boots only kernels that are built as PVM guests."
        )
    else:
        assert said == "`vdisklab doctor` boots a guest under KVM here, and says what it lacks."


def test_of_another_host_only_its_doctor_knows(tmp_path: Path) -> None:
    way = partial(way_to_kvm, tmp_path / "kvm", tmp_path)
    assert remedies(ELSEWHERE, way_here=way) == (
        "`vdisklab doctor` on bench1 says what KVM needs there."
    )
    assert remedies(HERE, ELSEWHERE, way_here=way) == (
        "`vdisklab doctor` on each of these hosts says what KVM needs on it."
    )
    assert remedies(way_here=way) == "`vdisklab doctor` says what KVM needs."
    away = replace(HERE, plan={**HERE.plan, "directory": "/nowhere/qs"})
    assert remedies(away, way_here=way) == "`vdisklab doctor` says what KVM needs.", "an import"
    assert remedies(HERE, way_here=way).startswith("To measure under KVM: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody, as watch does")
def test_a_process_that_became_nobody_advises_its_caller(tmp_path: Path) -> None:
    """`watch` of root asked as nobody, and printed `usermod --append -G kvm nobody`."""
    device = tmp_path / "kvm"
    device.touch(mode=0o600)
    before = way_to_kvm_here(device)
    tmp_path.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        # Without this host's /sys: where KVM boots no guest, no group is advised to anyone.
        asked_now = "nobody" in (way_to_kvm(device, Path("/nowhere")) or "")
        os._exit(0 if asked_now and way_to_kvm_here(device) == before else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert "nobody" not in (before or "")
