"""`run --stream`: each run as a line that can be read back at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.results.values import a_campaign, a_run
from vdisklab.actions.export_data import stream_of_runs
from vdisklab.errors import HostError, PlanError
from vdisklab.results.exchange import read_export


def test_each_run_is_a_line_that_is_complete_when_it_is_written(tmp_path: Path) -> None:
    campaign, file = a_campaign(), tmp_path / "runs"
    file.write_text("before\n")
    runs = [a_run(campaign, round=round) for round in (1, 2)]
    with stream_of_runs(file) as publish:
        for number, run in enumerate(runs, start=1):
            publish(campaign, run)
            before, *lines = file.read_bytes().splitlines()
            assert before == b"before"
            assert len(lines) == number
            (whole,) = read_export(lines[-1], name="line").campaigns
            assert whole.campaign == campaign
            assert whole.runs == (run,)


def test_a_stream_without_runs_leaves_no_new_file(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("")
    for file in (old, new):
        with suppress(PlanError), stream_of_runs(file):
            raise PlanError("the plan is refused")
    assert list(tmp_path.iterdir()) == [old]


def test_a_file_that_cannot_be_written_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="Is a directory") as refused, stream_of_runs(tmp_path):
        pass
    assert "--stream" in str(refused.value.hint)
    with (
        pytest.raises(HostError, match="No space left on device"),
        stream_of_runs(Path("/dev/full")) as publish,
    ):
        publish(a_campaign(), a_run(a_campaign()))
