from __future__ import annotations

import numpy as np

from tests.unit.analysis.made import cell, observed
from vdisklab.analysis.diagnostics.bursts import burst_diagnostics
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
        "c00: a burst of writes goes to memory at 1,900 MB/s; lasting writes 210 MB/s "
        "(seqwrite-1m-q1)."
    )
    assert not list(burst_diagnostics(data, (SEEN,)))
