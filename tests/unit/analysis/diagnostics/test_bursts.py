from __future__ import annotations

import numpy as np

from tests.unit.analysis.made import cell, labelled, observed
from vdisklab.analysis.diagnostics.bursts import burst_diagnostics, unlasting_diagnostics
from vdisklab.analysis.observations import MeasureKey
from vdisklab.results.model import Direction

SEEN = MeasureKey("seqwrite-1m-q1", Direction.WRITE, "bandwidth")
LASTS = MeasureKey("seqwrite-1m-q1", Direction.WRITE, "sustained")


def test_a_burst_is_told_where_it_means_something() -> None:
    data = observed({
        SEEN: np.array([[1.9e9, 1.9e9], [2.2e8, 2.2e8], [1.0e9, 1.0e9]]),
        LASTS: np.array([[2.1e8, 2.1e8], [2.1e8, 2.1e8], [np.nan, np.nan]]),
    })  # fmt: skip
    (burst,) = burst_diagnostics(data, (SEEN, LASTS))
    assert burst.cell == cell("c00")
    assert str(burst) == (
        "c00: a burst of writes goes to memory at 1.90 GB/s; with the time until the disk has "
        "them, writes reach 210 MB/s "
        "(sequential writes of 1 MiB, one at a time)."
    )
    assert not list(burst_diagnostics(data, (SEEN,)))


def test_why_a_disk_on_a_server_has_no_lasting_rate() -> None:
    far, synced, local = "nbd:at=far/raw/unsafe", "nbd:at=far/raw/writeback", "raw/unsafe"
    numbers = {(path, 1, SEEN): 9e8 for path in (far, synced, local)}
    data = labelled({**numbers, (synced, 1, LASTS): 2e8, (local, 1, LASTS): 2e8})
    (found,) = unlasting_diagnostics(data, (SEEN, LASTS))
    assert found.cells == (cell(far),)
    assert "no sustained rate. With cache=unsafe" in str(found)
    whole = labelled({**numbers, **{(path, 1, LASTS): 2e8 for path in (far, synced, local)}})
    assert not list(unlasting_diagnostics(whole, (SEEN, LASTS)))
    assert not list(unlasting_diagnostics(data, ()))
