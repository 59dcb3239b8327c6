"""Finds the best path that meets all needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated

import numpy as np

from vdisklab.analysis.additive import LEAST_ROUNDS, fit, usable
from vdisklab.analysis.best import critical, p_of_lead
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.pair_noise import pair_noise
from vdisklab.analysis.paired_ratios import Ratio, paired_ratios, rounds_needed
from vdisklab.analysis.rank_intervals import Ranking, Unranked, WithoutRank, rank
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, Durability, durability
from vdisklab.path.needs import DURABLE, Need, meets, with_error_policy
from vdisklab.path.segments import CacheMode, PageCache
from vdisklab.results.model import Better
from vdisklab.value import HIDDEN, Value, replace

RatioOf = Callable[[MeasuredCell, MeasuredCell], Ratio]
"""The ratio of the first to the second within rounds, turned so that above 1 means better."""


class Price(Value):
    """What one need costs: how much better the path would be that is recommended without it."""

    need: Need
    without: Annotated[
        MeasuredCell,
        "what is recommended without this need; the recommended cell if the need costs nothing",
    ]
    ratio: Annotated[Ratio | None, "ratio of that cell to the recommended one, of the two alone"]


class Recommendation(Value):
    """The path to use, chosen from those that meet all needs."""

    measure: Annotated[MeasureKey, "the measure that decided"]
    needs: tuple[Need, ...]
    considered: Annotated[int, "paths that were measured"]
    excluded: Annotated[Mapping[Need, int], "need: paths that it rules out"]
    ranking: Annotated[Ranking, "of the paths that meet all needs"]
    cell: Annotated[
        MeasuredCell,
        "the one to use: the best, or the leader of a tie, or the simplest that is shown to be "
        "within 10 % of the leader",
    ]
    ties: Annotated[
        tuple[MeasuredCell, ...],
        "the cells that may all be the best, the leader first; empty if the best is known",
    ]
    prices: Annotated[
        tuple[Price, ...], "none for a need without which no path could be recommended"
    ]
    default: Annotated[
        MeasuredCell | None, "the most similar measured cell with QEMU's default cache mode"
    ]
    over_default: Annotated[
        Ratio | None,
        "ratio of the recommended cell to that default; the ranks, which compare all paths at "
        "once, set an end that is exactly 1",
    ]
    safe: Annotated[
        MeasuredCell | None, "what to use to keep flushed data; null if the recommended cell does"
    ]
    over_safe: Annotated[Ratio | None, "ratio of the recommended cell to that one"]
    durability: Annotated[Mapping[MeasuredCell, Durability], HIDDEN]

    def with_ratios(self, ratio: RatioOf) -> Recommendation:
        """The same with other ratios of the same paths."""

        def of(cell: MeasuredCell, other: MeasuredCell | None, shown: Ratio | None) -> Ratio | None:
            return None if other is None or shown is None else ratio(cell, other)

        return replace(
            self,
            over_default=of(self.cell, self.default, self.over_default),
            over_safe=of(self.cell, self.safe, self.over_safe),
        )


def candidates(cells: Iterable[MeasuredCell]) -> Mapping[MeasuredCell, DiskPath]:
    """The cells that a guest could use, one for each path.

    If a path was measured cold and warm, the cold cell is used: a warm cell shows the speed of the
    host's memory, and a guest shares the page cache with others.
    """
    return _candidates(tuple(cells))


@lru_cache(maxsize=8)
def _candidates(cells: tuple[MeasuredCell, ...]) -> Mapping[MeasuredCell, DiskPath]:
    """`candidates`, computed once for all questions about the same cells."""
    by_name: dict[str, MeasuredCell] = {}
    for cell in cells:
        if cell.name not in by_name or cell.page_cache is not PageCache.WARM:
            by_name[cell.name] = cell
    usable_cells = {
        cell: path
        for cell in by_name.values()
        if (path := cell.path) is not None and path.is_guest_storage
    }
    return MappingProxyType(usable_cells)


def possible_winners(ranking: Ranking) -> tuple[MeasuredCell, ...]:
    """The cells that may be the best, the leader first; none without a ranking."""
    return () if ranking.best is None else ranking.best.cells


def to_use(ranking: Ranking) -> MeasuredCell | None:
    """The simplest cell that is the leader or is shown to be close to it; None without a ranking.

    Any other cell of a tie may be far behind the leader.
    """
    return None if ranking.best is None else ranking.best.use


def ratio_of(
    observations: Observations,
    measure: MeasureKey,
    a: MeasuredCell,
    b: MeasuredCell,
    tests: int = 1,
) -> Ratio:
    """The ratio of `a` to `b` within rounds, turned so that above 1 always means better.

    It is one of several `tests` (Bonferroni).
    """
    both = narrowed(observations, (a, b))
    grid = both.grid(measure)
    first, second = (grid[both.place[cell]] for cell in (a, b))
    if measure.quantity.better is Better.LOWER:
        first, second = second, first
    resolution = both.resolution(measure).sum(keepdims=True) if a != b else None
    level = 1 - 0.05 / tests
    ratio = paired_ratios(first, second, measure.quantity, level, resolution=resolution)[0]
    return replace(ratio, p=None if ratio.p is None else min(1.0, tests * ratio.p))


def ratios_among(
    observations: Observations,
    measure: MeasureKey,
    cells: Collection[MeasuredCell],
    alpha: float = 0.05,
) -> RatioOf:
    """Like `ratio_of`, for cells that the data chose from these, such as the leader.

    The best mean of many is better by chance, too, so the interval must hold for whichever cell is
    chosen: it has Dunnett's two-sided limits, with the noise of the set of the best. `p` and
    `rounds_needed` are corrected likewise. Two cells alone need no correction: the data had no
    choice.
    """
    part = narrowed(observations, cells)
    logs = part.ranked_logs(measure)
    usable_cells = usable(logs, LEAST_ROUNDS)
    others = len(usable_cells.rows) - 1
    if others < 2:
        return partial(ratio_of, observations, measure)
    model = fit(logs, usable_cells, part.resolution(measure), logs == part.logs(measure))
    noise = pair_noise(model, np.arange(others + 1))
    place = {part.cells[row]: position for position, row in enumerate(model.rows.tolist())}

    def ratio(a: MeasuredCell, b: MeasuredCell) -> Ratio:
        alone = ratio_of(observations, measure, a, b)
        if alone.ratio is None or alone.low is None or not {a, b} <= place.keys() or a == b:
            return alone
        first, other = np.array([place[a]]), np.array([place[b]])
        errors, freedom = noise.between(first, other)
        # Not all their rounds are common ones.
        least = float(np.minimum(noise.count[first], noise.count[other])[0])
        error = float(errors[0]) * math.sqrt(max(1.0, least / alone.pairs))
        degrees, rounding = int(freedom[0]), float(noise.rounded(first, other)[0])
        lead = math.log(alone.ratio)
        beyond = max(0.0, abs(lead) - rounding)
        half = critical(alpha / 2, others, degrees, noise.rounds) * error + rounding
        p = min(1.0, 2 * p_of_lead(beyond / error, others, degrees, noise.rounds))
        (needed,) = rounds_needed(
            np.array([beyond]), np.array([error * math.sqrt(alone.pairs)]), alpha / others
        )
        more = alone.pairs + 1 if p > alpha else MIN_ROUNDS
        return replace(
            alone,
            low=math.exp(lead - half),
            high=math.exp(lead + half),
            p=p,
            rounds_needed=max(int(needed), more) if math.isfinite(needed) else None,
        )

    return ratio


def _is_beside(cell: MeasuredCell) -> bool:
    """True for the host's own speed and the null device."""
    return cell.path is not None and not cell.path.is_guest_storage


class RankedBy(Value):
    """How cells are ranked, which of a ranking may be the best, which of these to use, and the
    ratios of cells that the data chose.
    """

    rank: Callable[[Observations, MeasureKey], Ranking] = rank
    winners: Callable[[Ranking], tuple[MeasuredCell, ...]] = possible_winners
    to_use: Callable[[Ranking], MeasuredCell | None] = to_use
    ratios: Callable[[Observations, MeasureKey, Collection[MeasuredCell]], RatioOf] = ratios_among
    connects: bool = True
    """Cells that do not compete, such as the host's own, connect those of different rounds."""

    def among(
        self, observations: Observations, measure: MeasureKey, cells: Collection[MeasuredCell]
    ) -> Ranking:
        """Some cells ranked by a measure."""
        kept = set(cells)
        if self.connects:
            kept |= {cell for cell in observations.cells if _is_beside(cell)}
        return self.rank(narrowed(observations, kept), measure)

    def without(self, gone: Callable[[MeasureKey], Collection[MeasuredCell]]) -> RankedBy:
        """The same, but the cells that are `gone` for a measure get no rank."""

        def ranked(observations: Observations, measure: MeasureKey) -> Ranking:
            left = gone(measure)
            ranking = self.rank(
                narrowed(observations, [cell for cell in observations.cells if cell not in left]),
                measure,
            )
            counts = np.isfinite(observations.grid(measure)).sum(axis=1).tolist()
            places = zip(observations.cells, counts, strict=True)
            without = (WithoutRank(cell, count, Unranked.GATE_MISSED)
                       for cell, count in places if cell in left)  # fmt: skip
            return replace(ranking, unranked=(*ranking.unranked, *without))

        return replace(self, rank=ranked)

    def once(self) -> RankedBy:
        """The same ranking, but observations with equal numbers are ranked only once."""
        rankings: dict[tuple[object, ...], Ranking] = {}

        def ranked(observations: Observations, measure: MeasureKey) -> Ranking:
            numbers = (observations.ranked_logs(measure), observations.grid(measure),
                       observations.resolution(measure))  # fmt: skip
            key = (measure, observations.cells, observations.rounds, observations.too_slow,
                   *(grid.tobytes() for grid in numbers))  # fmt: skip
            if key not in rankings:
                rankings[key] = self.rank(observations, measure)
            return rankings[key]

        return replace(self, rank=ranked)

    def ratio_of(self, observations: Observations, measure: MeasureKey) -> RatioOf:
        """The ratio of two paths, one of them chosen by the data."""
        return self.ratios(observations, measure, candidates(observations.cells))


OVER_ROUNDS = RankedBy()
UNPLANNED_LOOK = RankedBy(partial(rank, unplanned_look=True))


def recommend_path(
    observations: Observations,
    measure: MeasureKey,
    needs: Sequence[Need],
    verdicts: CrashVerdicts,
    ranked: RankedBy = OVER_ROUNDS,
    *,
    decided: Sequence[MeasuredCell] = (),
) -> Recommendation | None:
    """The best path by a measure, without prices; None when no ranked path meets all needs.

    `decided` is the path to use, and then those that may also be the best, if that is known.
    """
    paths = candidates(observations.cells)
    met = {
        need: {cell for cell, path in paths.items() if _meets(path, need, verdicts)}
        for need in needs
    }
    meeting = _qualified(paths, met.values())
    ranking = ranked.among(observations, measure, meeting)
    order = (
        [row.cell for row in ranking.rows]
        or list(decided)
        or _by_value(observations, measure, meeting)
    )
    if not order:
        return None
    ties = decided or ranked.winners(ranking)
    chosen = decided[0] if decided else ranked.to_use(ranking) or order[0]
    default = _default(paths, paths[chosen])
    ratio = ranked.ratio_of(observations, measure)
    safe = None
    if not meets(paths[chosen], DURABLE, verdicts):
        keeping = [cell for cell in meeting if meets(paths[cell], DURABLE, verdicts)]
        safe = ranked.to_use(ranked.among(observations, measure, keeping))
    return Recommendation(
        measure=measure,
        needs=tuple(needs),
        considered=len(paths),
        excluded={need: len(paths) - len(cells) for need, cells in met.items()},
        ranking=ranking,
        cell=chosen,
        ties=tuple(ties) if len(ties) > 1 else (),
        prices=(),
        default=default,
        over_default=None if default is None or default == chosen else ratio(chosen, default),
        safe=safe,
        over_safe=None if safe is None else ratio(chosen, safe),
        durability={cell: durability(paths[cell], verdicts) for cell in order},
    )


def qualified(
    observations: Observations, needs: Sequence[Need], verdicts: CrashVerdicts
) -> list[MeasuredCell]:
    """The cells that a guest could use and that meet all needs."""
    paths = candidates(observations.cells)
    return [
        cell for cell, path in paths.items() if all(_meets(path, need, verdicts) for need in needs)
    ]


def _meets(path: DiskPath, need: Need, verdicts: CrashVerdicts) -> bool:
    """True if the path meets the need, or does with another error policy: that costs no speed."""
    return meets(with_error_policy(path, [need], verdicts), need, verdicts)


def _qualified(
    paths: Iterable[MeasuredCell], met: Iterable[Collection[MeasuredCell]]
) -> list[MeasuredCell]:
    """The cells that are in all of these sets, in their order."""
    wanted = tuple(met)
    return [cell for cell in paths if all(cell in cells for cells in wanted)]


def _by_value(
    observations: Observations, measure: MeasureKey, cells: Sequence[MeasuredCell]
) -> list[MeasuredCell]:
    """A list of the only cell that can be best without a rank; empty if there are several.

    It is the only cell with enough rounds for a rank, or the only cell with the measure.
    """
    grid = narrowed(observations, cells)
    rounds = np.isfinite(grid.grid(measure)).sum(axis=1)
    measured = [cell for cell, count in zip(grid.cells, rounds, strict=True) if count]
    enough = [cell for cell, count in zip(grid.cells, rounds, strict=True) if count >= MIN_ROUNDS]
    return next(
        (cells_of_rank for cells_of_rank in (enough, measured) if len(cells_of_rank) == 1), []
    )


def _default(paths: Mapping[MeasuredCell, DiskPath], chosen: DiskPath) -> MeasuredCell | None:
    """The cell with QEMU's default cache mode that is otherwise most similar to the chosen one.

    That mode is writeback, whether a path says so or nothing.
    """
    default = CacheMode.DEFAULT.spelled_out
    defaults = [
        cell
        for cell, path in paths.items()
        if path.cache.spelled_out is default and path.offers_write_cache
    ]

    def unlike(cell: MeasuredCell) -> tuple[bool, bool, bool, bool, MeasuredCell]:
        path = paths[cell]
        return (
            path.layers != chosen.layers,
            path.image != chosen.image,
            path.attachment != chosen.attachment,
            path.cache is not CacheMode.DEFAULT,
            cell,
        )

    return min(defaults, key=unlike, default=None)
