"""All samples of some campaigns as columns: what the analysis computes with.

A value per sample and dataclass would take gigabytes; here a sample costs 32 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from vdisklab.result.model import Failure, Origin

Codes = npt.NDArray[np.int32]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunOutline:
    """A run, measured or failed, without its numbers: cheap to load for a whole campaign."""

    id: str
    campaign: str
    cell: str
    path: str
    page_cache: str
    block: int
    position: int
    origin: Origin
    started: datetime
    accelerator: str | None
    medium: str | None
    failure: Failure | None
    wall_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """One entry per sample of a measured run, in all arrays at the same index.

    `campaign`, `run`, `cell` and `measure` hold indices into the vocabularies of the plural
    name; `block` and `position` are the run's own numbers, from 1. Blocks of different
    campaigns are different blocks. A measure is spelled `measurement name/direction/metric`.
    """

    campaigns: tuple[str, ...]
    runs: tuple[str, ...]
    cells: tuple[str, ...]
    measures: tuple[str, ...]
    campaign: Codes
    run: Codes
    cell: Codes
    block: Codes
    position: Codes
    measure: Codes
    value: Values

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.value)


class _Codebook:
    """Numbers words in the order of their first appearance."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def encode(self, words: Iterable[Any]) -> Codes:
        codes = self._codes
        return np.fromiter((codes.setdefault(word, len(codes)) for word in words), np.int32)

    @property
    def words(self) -> tuple[Any, ...]:
        return tuple(self._codes)


def collect(
    measurements: Sequence[Sequence[Any]], samples: Iterable[Sequence[Sequence[Any]]]
) -> Observations:
    """The columns of measurements and of their samples, which come in pieces.

    A measurement is `(key, name, run, campaign, cell, block, position)`, in ascending order of
    keys; a sample is `(measurement key, metric, direction, value)`.
    """
    keys, names, runs, campaigns, cells, blocks, positions = (
        zip(*measurements, strict=True) if measurements else ((),) * 7
    )
    books = {"name": _Codebook(), "run": _Codebook(), "campaign": _Codebook(), "cell": _Codebook()}
    quantities = _Codebook()
    places: list[npt.NDArray[np.intp]] = []
    kinds: list[Codes] = []
    values: list[Values] = []
    ordered_keys = np.array(keys, np.int64)
    for piece in samples:
        owners, metrics, directions, numbers = zip(*piece, strict=True)
        places.append(np.searchsorted(ordered_keys, np.array(owners, np.int64)))
        kinds.append(quantities.encode(zip(directions, metrics, strict=True)))
        values.append(np.array(numbers, np.float64))
    place = _joined(places, np.intp)
    measure, measures = _measures(
        books["name"].encode(names)[place], books["name"].words, _joined(kinds), quantities.words
    )
    return Observations(
        campaign=books["campaign"].encode(campaigns)[place],
        run=books["run"].encode(runs)[place],
        cell=books["cell"].encode(cells)[place],
        block=np.array(blocks, np.int32)[place],
        position=np.array(positions, np.int32)[place],
        measure=measure,
        value=_joined(values, np.float64),
        campaigns=books["campaign"].words,
        runs=books["run"].words,
        cells=books["cell"].words,
        measures=measures,
    )


def _joined(pieces: Sequence[npt.NDArray[Any]], kind: type = np.int32) -> npt.NDArray[Any]:
    return np.concatenate(pieces) if pieces else np.array([], kind)


def _measures(
    name: Codes, names: Sequence[str], quantity: Codes, quantities: Sequence[tuple[str, str]]
) -> tuple[Codes, tuple[str, ...]]:
    """The measure of each sample as a code, and the vocabulary: only the pairs that occur."""
    width = max(len(quantities), 1)
    pairs, codes = np.unique(name.astype(np.int64) * width + quantity, return_inverse=True)
    spelled = tuple(
        "/".join((names[pair // width], *quantities[pair % width])) for pair in pairs.tolist()
    )
    return codes.astype(np.int32), spelled


@dataclass(frozen=True, slots=True)
class CellTally:
    """What was counted over all runs of a cell in one measurement; None: nobody counted.

    `operations`, `flushes` and `asked_bytes` are QEMU's counts, or the program's own where there
    was no guest; `device_*` those of the host's device.
    """

    cell: str
    measurement: str
    operations: int | None
    flushes: int | None
    device_flushes: int | None
    asked_bytes: int | None
    device_bytes: int | None
    cpu_seconds: float | None


@dataclass(frozen=True, slots=True)
class Example:
    """One run of a cell, the newest measured, with what a person wants to see of it."""

    cell: str
    run: str
    block: int
    started: datetime
    accelerator: str | None
    medium: str | None
    commands: tuple[str, ...]
    checks: tuple[tuple[str, str | None, str], ...]
    measurements: tuple[tuple[str, str], ...]
