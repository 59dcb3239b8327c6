"""Campaigns without a guest through the real command line: interrupted, continued, failing."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from vdisklab.cli.shell.main import main
from vdisklab.results.model import FailureKind

pytestmark = pytest.mark.host


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, tmp_path / "state")
    made.prepare()
    yield made
    assert made.leftovers() == []


# Each commit kills campaigns and continues them in test_killed_campaigns.
@pytest.mark.parametrize(
    "stopped_by",
    [
        signal.SIGINT,
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in (signal.SIGKILL, signal.SIGTERM)
        ),
    ],
)
def test_what_is_measured_is_kept_and_the_same_command_continues(
    lab: Lab, stopped_by: signal.Signals
) -> None:
    runs = lab.stop_and_continue(
        stopped_by, lab.arguments("{,ext4/}host", rounds=2, runtime="300ms"), planned=4
    )
    assert sorted((run.round, run.path) for run in runs) == [
        (round, path) for round in (1, 2) for path in ("ext4/host", "host")
    ]


def test_a_cell_that_fails_is_recorded_and_the_campaign_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fio is first on PATH as a script that fails on the first stack it is given."""
    real = shutil.which("fio")
    fake = lab.directory / "bin" / "fio"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *filename=*/stack*) '
        "echo 'fio: no such luck' >&2; exit 1;; esac\n"
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    status, printed = lab.run("{,ext4/}host", rounds=2)
    assert status == 8, printed
    runs = lab.runs()
    assert len(runs) == 4
    for run in runs:
        if run.path == "host":
            assert run.failure is None, printed
            assert run.measurements
        else:
            assert run.failure is not None
            assert run.failure.kind in (FailureKind.STORAGE, FailureKind.WORKLOAD)
            assert "no such luck" in run.failure.message
            assert run.measurements == ()


def test_a_profile_without_scores_is_measured_all_the_same(lab: Lab) -> None:
    status, printed = lab.run("host")
    assert status == 0, printed
    assert "worst s" in printed, "a profile without scores shows all its numbers instead"
    assert "Traceback" not in printed


def test_two_directories_are_measured_in_turns_and_shown_side_by_side(lab: Lab) -> None:
    places = [lab.work / name for name in ("local", "round")]
    for place in places:
        place.mkdir()
    arguments = (
        "run", "--here", *(word for place in places for word in ("--dir", str(place))),
        "--profile", str(lab.directory / "short.toml"), "--rounds", "2", "--runtime", "200ms",
        "--ramp", "0", "--size", "16M", "--db", str(lab.database),
    )  # fmt: skip
    status, printed = lab.call(*arguments)
    for place in places:
        assert list(place.iterdir()) == []
        place.rmdir()
    assert status == 0, printed
    assert printed.count("host in") == 4, printed  # each measurement in each place
    runs = sorted(lab.runs(), key=lambda run: run.started)
    first, second = runs[0].campaign, runs[1].campaign
    assert first != second
    assert [(run.campaign, run.round) for run in runs] == [
        (first, 1), (second, 1), (first, 2), (second, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (("--guest-memory", "900T"), "a guest with 900.0 TiB of memory does not fit"),
        (("--size", "900T"), "free; choose a smaller --size"),
    ],
)
def test_what_run_would_refuse_is_told_by_plan_as_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wish: tuple[str, str],
    said: str,
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    assert main(["plan", "raw/none", *wish, "--dir", str(tmp_path), "--format", "json"]) == 0
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]
    assert said in refusal
