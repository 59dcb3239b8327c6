"""Deleting and trimming: the commands, recorded answers, and mutilated ones."""

from __future__ import annotations

import pytest

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, Sample
from vdisklab.units import KIB, MIB
from vdisklab.workload.discard import Discard
from vdisklab.workload.program import Outputs, Subject, Timing

PROGRAM = Discard()
PLACE = Subject("/mnt/x", 400 * MIB, is_device=False, is_directory=True)


def plan(*, trim: bool = True) -> MeasurementPlan:
    return MeasurementPlan("one", "discard", {"trim": trim}, "ext4")


def test_a_file_is_written_before_and_deleted_while_all_is_counted() -> None:
    made = PROGRAM.script(plan(), PLACE, Timing(5, 0, 0.5))
    (fill,) = made.prepare
    assert fill.command[3:] == ("fill", "/mnt/x", "64")
    assert made.command[3:] == ("delete", "/mnt/x", "trim")
    assert made.observe == ("freed_image", "freed_device")
    assert PROGRAM.script(plan(trim=False), PLACE, Timing(5, 0)).command[-1] == "/mnt/x"


def test_a_disk_too_small_is_refused_with_a_way_out() -> None:
    with pytest.raises(PlanError, match="needs 144 MiB and the disk has room for 135") as refused:
        PROGRAM.script(plan(), Subject("/mnt/x", 150 * MIB, is_device=False), Timing(5, 0))
    assert "--size" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("name", "freed", "trimmed"),
    [
        ("fstrim-busybox-1.35.0.txt", 131073, "241067008"),
        ("fstrim-2.38.1.txt", 16384, "20443136"),
        ("fstrim-2.38.1-refused.txt", 16384, "refused"),
    ],
)
def test_recorded(name: str, freed: int, trimmed: str) -> None:
    found = PROGRAM.parse(plan(), Outputs(recorded(name)))
    assert found.samples == (Sample("freed_guest", Direction.TRIM, float(freed * KIB)),)
    assert [(check.name, check.observed) for check in found.checks] == [("one.trimmed", trimmed)]


def test_what_was_not_trimmed_has_no_number_of_it() -> None:
    assert not PROGRAM.parse(plan(trim=False), Outputs("used 131087 14\n")).checks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the last line was: nothing"),
        ("rm: cannot remove '/mnt/x/deleted': Read-only file system\n", "Read-only"),
        ("used 14 14\n", "freed nothing"),
        ("fstrim: FITRIM: Input/output error\nused 131087 14\n", "fstrim failed: .*Input/output"),
    ],
)
def test_mutilated(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        PROGRAM.parse(plan(), Outputs(text))
