"""What the profiles that come with vdisklab ask of a disk: a recorded load is compared with it.

    python bench/shapes.py record WORK [PROFILE…]    # some minutes; what is there already stays
    python bench/shapes.py write WORK                # src/vdisklab/loads/profile_shapes.json

`record` runs each profile in an emulated guest on raw/none, and records with QEMU's trace events
what it asks of its disk. Shares and sizes do not depend on how fast the machine is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replay import Recorder, recording, run
from vdisklab.campaign import measure_cell
from vdisklab.campaign.attachment import AttachedDisk
from vdisklab.campaign.context import CampaignContext
from vdisklab.loads import likeness
from vdisklab.loads.characteristics import characteristics_of
from vdisklab.loads.likeness import LIKE, shape_of
from vdisklab.loads.load_file import read_load
from vdisklab.path.cell import Cell
from vdisklab.plan.profile import MeasurementPlan

PATH = "raw/none"
SECONDS = "5"
SIZE = "512M"
"""The least for which mkfs.ext4 takes blocks of 4 KiB."""

_SIZES = {"postgresql": "768M", "mariadb": "2G", "rocksdb": "2G", "mail": "1G"}
_SHORT = {"postgresql": "postgresql-short"}
"""Profiles with a short form that does the same, on less data."""

OUTPUT = Path(likeness.__file__).with_name("profile_shapes.json")


def one_by_one(
    context: CampaignContext, cell: Cell, attachment: AttachedDisk, plans: Sequence[MeasurementPlan]
) -> list[Any]:
    """Each measurement by itself, where one fio would make several: each has a recording."""
    return [measure_cell._measure(context, cell, attachment, plan) for plan in plans]


def record(work: Path, profiles: list[str]) -> None:
    work.mkdir(exist_ok=True)
    vars(measure_cell)["_measure_all"] = one_by_one
    for profile in profiles:
        if list(work.glob(f"{profile}_*.load")):
            continue
        recorder = Recorder(work, of=f"{profile}_")
        with recording(recorder):
            run(
                work, work, f"shape-{profile}", "--profile", _SHORT.get(profile, profile),
                "--size", _SIZES.get(profile, SIZE), "--rounds", "1", "--runtime", SECONDS,
                "--ramp", "0",
                paths=(PATH,),
            )  # fmt: skip


def write(work: Path) -> None:
    """One row for each measurement of a profile that moved something."""
    rows = []
    for file in sorted(work.glob("*_*.load")):
        profile, rest = file.stem.split("_", 1)
        found = characteristics_of(read_load(file))
        if profile in LIKE and found.write_share is not None:
            rows.append({"profile": profile, "measurement": rest.split("-raw_")[0],
                         **shape_of(found)._asdict()})  # fmt: skip
    OUTPUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def main() -> None:
    verb, work, *profiles = sys.argv[1:]
    if verb == "record":
        record(Path(work).absolute(), profiles or sorted(LIKE))
    else:
        write(Path(work))


if __name__ == "__main__":
    main()
