"""btrfs verifies what it reads in the reader's memory: reads of a replay must not share a place."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.loads.loads import load
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.loads.folding import folded
from vdisklab.loads.load import IoKind
from vdisklab.loads.replay_plan import encode_plan
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import KIB, MIB

pytestmark = pytest.mark.host

_SOURCE = Path(__file__).parents[2] / "src/vdisklab/workload/programs/replay.c"
_READS, _EACH, _TURNS = 8, 64 * KIB, 50


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_reads_side_by_side_are_not_taken_for_damage(tmp_path: Path) -> None:
    program, requests = tmp_path / "replay", tmp_path / "plan"
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, _SOURCE], check=True)
    size = _READS * _EACH
    recording = load(
        *(
            (turn * 100_000, IoKind.READ, place * _EACH, _EACH, 50_000)
            for turn in range(_TURNS)
            for place in range(_READS)
        ),
        disk_bytes=size,
    )
    requests.write_bytes(encode_plan(recording, folded(recording, size)))
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        build_stack(site, parse_path("btrfs/raw/none").layers, 256 * MIB, "s") as target,
    ):
        disk = target.on_host / "disk"
        disk.write_bytes(os.urandom(size))
        command: list[str | Path] = [program, "fast", requests, disk, "60"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"done {_READS * _TURNS}\n" in done.stdout
