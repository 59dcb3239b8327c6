"""`recommend` and `audit`: answers, their reasons, and sentences for what cannot be answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.made import CAMPAIGN, START, _run

from cli.fake_store import FakeStore, install
from vdisklab.analysis.durability import Keeping, durability
from vdisklab.analysis.needs import MEANING, NeedKind, meets, parse_need
from vdisklab.cli.main import main
from vdisklab.cli.verdicts import verdicts_of
from vdisklab.errors import PlanError
from vdisklab.export.form import Wish
from vdisklab.export.registry import EXPORTERS, Form
from vdisklab.plan.path import parse_path
from vdisklab.result.model import Run
from vdisklab.result.powercut import PowerCut

SPEEDS = {
    "host": 1.0,
    "raw/none": 0.8,
    "raw/default": 0.5,
    "qcow2/none": 0.79,
    "qcow2/directsync": 0.3,
    "raw/unsafe": 1.4,
    "lvm/none/virtio:discard=unmap": 0.7,
}


def runs(blocks: int = 5, speeds: dict[str, float] = SPEEDS) -> Iterator[Run]:
    rng = np.random.default_rng(3)
    clock = START
    for block in range(1, blocks + 1):
        for place, (path, speed) in enumerate(speeds.items(), start=1):
            clock += timedelta(seconds=10)
            noise = float(np.exp(rng.normal(0, 0.01)))
            state = "cold" if "default" in path or "unsafe" in path else "bypassed"
            canonical = path if path == "host" else str(parse_path(path))
            yield _run(CAMPAIGN.id, canonical, state, block, place, clock, speed * noise)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    made = FakeStore(all_runs=list(runs()))
    install(monkeypatch, made)
    return made


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_best_is_unsafe_until_durability_is_needed(
    store: FakeStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, "recommend")["path"] == "raw/unsafe"
    found = answer(capsys, "recommend", "--need", "durable")
    assert found["path"] == "raw/none"
    assert found["excluded"] == {"durable": 1}
    (price,) = found["prices"]
    assert price["without"] == "raw/unsafe (cold)"
    assert price["ratio"] == pytest.approx(1.4 / 0.8, rel=0.05)
    said = " ".join(found["sentences"])
    assert "run `vdisklab powercut raw/none`" in said
    assert "×1.75 as good" in said or "×1.7" in said


@pytest.mark.parametrize(
    ("needs", "path"),
    [
        (["format=qcow2"], "qcow2/none"),
        (["no-flush-safe"], "qcow2/directsync"),
        (["discard"], "lvm/none/virtio:discard=unmap"),
        (["snapshots", "durable", "live-migration"], "qcow2/none"),
    ],
)
def test_each_need_narrows_the_choice(
    store: FakeStore, capsys: pytest.CaptureFixture[str], needs: list[str], path: str
) -> None:
    words = [word for need in needs for word in ("--need", need)]
    assert answer(capsys, "recommend", *words)["path"] == path


def test_the_table_says_why(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--need", "durable"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "Use raw/none: the best by weighted overall of 5 paths that qualify, of 6 measured." in out
    )
    assert "Beside QEMU's default (raw/default (cold)) it is ×1." in out
    assert "under emulation" in out


def test_weights_of_ones_own_decide(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "recommend", "--need", "durable", "--weights", "read=3,write=1")
    assert found["measure"] == "score/none/weighted_mix"
    measure = "randread-4k-q1/read/latency_p99=1"
    assert answer(capsys, "recommend", "--weights", measure)["path"] == "raw/unsafe"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--need", "fast"], "is no need"),
        (["--need", "format"], "is no need"),
        (["--need", "durable=yes"], "is no need"),
        (["--need", "format=qed"], "meets: format=qed"),
        (["--weights", "read"], "is no weight"),
        (["--weights", "read=-1"], "is no weight"),
        (["--weights", "read=nan"], "is no weight"),
        (["--weights", "read=0,write=0"], "all weights are zero"),
        (["--weights", "nonsense=1"], "was not measured"),
    ],
)
def test_bad_wishes_end_in_a_sentence(
    store: FakeStore, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["recommend", *words]) == PlanError.exit_code
    err = capsys.readouterr().err
    assert sentence in err
    assert "hint: " in err


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ([], "no path that a guest could use"),
        (list(runs(1)), "1 of 3 blocks"),
        (list(runs(5, {"host": 1.0})), "no path that a guest could use"),
        ([run for run in runs(5) if run.path != "host"], "no path has the measure"),
    ],
)
def test_too_little_data_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: list[Run],
    sentence: str,
) -> None:
    install(monkeypatch, FakeStore(all_runs=made))
    assert main(["recommend"]) == PlanError.exit_code
    assert sentence in capsys.readouterr().err


def test_a_single_path_is_recommended_and_said_to_be_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = list(runs(5, {"host": 1.0, "raw/none": 0.8}))
    install(monkeypatch, FakeStore(all_runs=made))
    found = answer(capsys, "recommend")
    assert found["path"] == "raw/none"
    assert any("nothing was compared" in each for each in found["sentences"])


def test_mixed_hosts_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(CAMPAIGN, id="beef", host=replace(CAMPAIGN.host, machine_id="other"))
    install(monkeypatch, FakeStore(all_campaigns=(CAMPAIGN, other), all_runs=list(runs())))
    assert main(["recommend", "--campaign", "c0ffee", "--campaign", "beef"]) == 2
    assert "two machines" in capsys.readouterr().err


class Cut:
    def __init__(self, path: str, cuts: int, broken: int) -> None:
        self.path, self.cuts, self.broken = path, cuts, broken


def test_a_verdict_of_power_cuts_counts() -> None:
    path = parse_path("ext4/raw/none")
    lost = {path.canonical: Cut(path.canonical, 100, 3)}
    kept = {path.canonical: Cut(path.canonical, 100, 0)}
    assert durability(path, {}).keeping is Keeping.NOT_TESTED
    assert durability(path, lost).keeping is Keeping.LOST_IN_TEST
    assert durability(path, kept).keeping is Keeping.KEPT_IN_TEST
    assert not meets(path, parse_need("durable"), lost)


@pytest.mark.parametrize(
    "text", ["tmpfs/raw/none", "ext4:barrier=off/raw/none", "zfs:sync=disabled/raw/none",
             "raw/unsafe"]
)  # fmt: skip
def test_what_drops_flushes_is_known_without_a_test(text: str) -> None:
    found = durability(parse_path(text), {})
    assert found.keeping is Keeping.LOST_BY_CONSTRUCTION
    assert found.reason


def test_every_need_is_explained() -> None:
    assert set(MEANING) == set(NeedKind)


def exported(tmp_path: Path, text: str) -> str:
    file = tmp_path / f"{text.replace('/', '_')}.xml"
    file.write_text(EXPORTERS[Form.LIBVIRT](Wish(parse_path(text), "/srv/none.img", "web")).text)
    return str(file)


def test_an_audited_disk_has_its_standing(
    store: FakeStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [exported(tmp_path, text) for text in ("raw/default", "qcow2/none/ide")]
    first, second = answer(capsys, "audit", *files)["disks"]
    assert first["path"] == "raw/default"
    assert first["standing"]["exact"] is True
    assert first["standing"]["better"] == "raw/none"
    assert first["standing"]["gain"] == pytest.approx(1.6, rel=0.05)
    assert second["standing"] is None
    assert [risk["kind"] for risk in second["risks"]] == ["hangs-on-guest-flushes", "slow-bus"]
    assert main(["audit", *files]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not measured here: `vdisklab run qcow2/none/ide`" in out


def test_an_audit_needs_no_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = answer(capsys, "audit", exported(tmp_path, "raw/unsafe"))
    assert "Measure first" in str(found["why_no_speed"])


@pytest.mark.parametrize("content", ["", "<domain/>", "\x00", "<a/>"])
def test_a_damaged_domain_ends_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    file = tmp_path / "x.xml"
    file.write_text(content)
    assert main(["audit", str(file)]) == PlanError.exit_code
    assert "hint: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["/nonexistent.xml"]])
def test_nothing_to_audit_is_said(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["audit", *words]) == PlanError.exit_code


CUT_KEPT = PowerCut(
    id="aa", fingerprint="f", path="raw/none", client="flushes", access="nbd", host=CAMPAIGN.host,
    started=START, wall_seconds=1.0, survives=True, claim="…", states=100, possible=100.0,
    exhaustive=True, promises=8, flushes=3, leaked_states=0, repaired_states=0, afterlives=2,
    outcomes={"kept": 100}, settings={}, seen={},
)  # fmt: skip
CUT_LOST = replace(CUT_KEPT, id="bb", survives=False, outcomes={"kept": 90, "lost": 10})


def test_power_cuts_of_this_machine_decide(
    store: FakeStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.all_cuts = (CUT_KEPT,)
    found = answer(capsys, "recommend", "--need", "durable")
    assert "raw/none kept all that was promised in 100 power cuts" in " ".join(found["sentences"])
    store.all_cuts = (CUT_KEPT, CUT_LOST)
    found = answer(capsys, "recommend", "--need", "durable")
    assert found["path"] == "qcow2/none"
    assert found["excluded"] == {"durable": 2}


def test_a_client_that_never_flushes_counts_where_none_is_needed() -> None:
    never = replace(CUT_LOST, client="never")
    assert verdicts_of([never]) == {}
    assert verdicts_of([replace(never, path="raw/directsync")])["raw/directsync"].broken == 10
    failed = replace(CUT_LOST, failure="no room", survives=None)
    assert verdicts_of([failed]) == {}
