"""A weighting of the user's own: how many times as good as the baseline, over several measures.

    mix = product of (value / baseline in the same block) ** (weight / sum of weights)

The weighted geometric mean of ratios: its order does not hang on units, nor on which path is the
baseline (Fleming & Wallace, Communications of the ACM 29, 1986). Where less is better, as for
latency, the ratio is turned over.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vdisklab.analysis.observations import MeasureKey, Observations, logarithms
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better, Direction

MIX = MeasureKey("score", Direction.NONE, "weighted_mix")


def add_mix(
    observations: Observations, baseline: MeasuredCell, weights: Mapping[MeasureKey, float]
) -> Observations:
    """Adds the mix as one more measure; a cell that lacks one of its measures has none.

    `baseline` has to be one of the cells, and the weights' sum more than zero.
    """
    row = observations.place[baseline]
    total = sum(weights.values())
    mixed = np.zeros((len(observations.cells), len(observations.blocks)))
    for measure, weight in weights.items():
        logs = logarithms(observations.grid(measure))
        sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
        mixed += sign * weight / total * (logs - logs[row])
    rows, columns = np.nonzero(np.isfinite(mixed))
    count = len(rows)
    return Observations(
        cell=np.concatenate([observations.cell, rows.astype(np.int32)]),
        block=np.concatenate([observations.block, columns.astype(np.int32)]),
        measure=np.concatenate(
            [observations.measure, np.full(count, len(observations.measures), dtype=np.int32)]
        ),
        value=np.concatenate([observations.value, np.exp(mixed[rows, columns])]),
        cells=observations.cells,
        blocks=observations.blocks,
        measures=(*observations.measures, MIX),
    )
