"""What the observers counted, summed over the blocks of a cell: why one path beats another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Tally(Protocol):
    """Sums over a cell's runs of one measurement; None where nobody could count."""

    @property
    def cell(self) -> str: ...  # noqa: D102

    @property
    def measurement(self) -> str: ...  # noqa: D102

    @property
    def operations(self) -> int | None: ...  # noqa: D102

    @property
    def flushes(self) -> int | None: ...  # noqa: D102

    @property
    def device_flushes(self) -> int | None: ...  # noqa: D102

    @property
    def asked_bytes(self) -> int | None: ...  # noqa: D102

    @property
    def device_bytes(self) -> int | None: ...  # noqa: D102

    @property
    def cpu_seconds(self) -> float | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Workings:
    """How a cell came to its numbers.

    `flushes_per_1000` are flushes that QEMU saw for each thousand reads and writes,
    `device_flushes_per_1000` those that the host's device got; `cpu_per_operation` is in seconds;
    `device_share` the bytes that reached the device for each one that was asked for.
    """

    cell: str
    flushes_per_1000: float | None
    device_flushes_per_1000: float | None
    cpu_per_operation: float | None
    device_share: float | None


def workings(tallies: Iterable[Tally], labels: Mapping[str, str]) -> dict[str, Workings]:
    """For each cell's label what its measurements add up to; `labels` is by fingerprint."""
    groups: dict[str, list[Tally]] = {}
    for tally in tallies:
        groups.setdefault(labels.get(tally.cell, tally.cell), []).append(tally)
    return {label: _workings(label, group) for label, group in groups.items()}


def _workings(label: str, group: list[Tally]) -> Workings:
    def share(part: str, whole: str, factor: float) -> float | None:
        pairs = [
            (getattr(tally, part), getattr(tally, whole))
            for tally in group
            if getattr(tally, part) is not None and getattr(tally, whole)
        ]
        total = sum(pair[1] for pair in pairs)
        return factor * sum(pair[0] for pair in pairs) / total if total else None

    return Workings(
        label,
        share("flushes", "operations", 1000),
        share("device_flushes", "operations", 1000),
        share("cpu_seconds", "operations", 1),
        share("device_bytes", "asked_bytes", 1),
    )
