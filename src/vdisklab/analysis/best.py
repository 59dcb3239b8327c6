"""Which cells may be the best: multiple comparisons with the best.

The question has c - 1 comparisons, not the c(c - 1)/2 of a full ranking: that saves rounds,
unless cells are fast and slow in the same rounds.
Sources: Gupta, Technometrics 7, 1965 (the subset that holds the best); Hsu, Annals of Statistics
12, 1984, and Multiple Comparisons, 1996, chapter 4 (the same with the best chosen by the data).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import Fit
from vdisklab.analysis.distributions import chi2_isf, normal_cdf, t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, different, median
from vdisklab.analysis.pair_noise import PairNoise, common_freedom, more_rounds, pair_noise
from vdisklab.numbers import EITHER_WAY
from vdisklab.path.adjacent import Simplicity, simplicity
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better
from vdisklab.value import HIDDEN, Value, field

PLANNED_POWER = 0.85
PLANNED_POWER_OF_FEW = 0.95
"""Power against one rival; the latter with fewer than ALONE_FROM rounds. In simulations with
several rivals close behind, which all have to be shown to be worse, about 80 % of such leads are
shown (`bench/simulations.py --only reach`).
"""

MOST_ROUNDS = 1000

NEGLIGIBLE = 0.1
"""A lead that is not worth a more complicated path."""

SHOWS_NOTHING = EITHER_WAY - 1
"""A lead or a limit of this share, twice as good, or more says nothing: equal paths have such
limits after three noisy rounds."""

KEPT_BACK = 0.35
"""Share of the allowed error that is not spent on Dunnett's test with three rounds, for noise that
`pair_noise` cannot detect; divided by `more_rounds`."""

KEPT_BACK_OF_TWO = 1.0
"""The same for the test of two cells, divided by the rounds - 1. This test decides if there are few
cells and one is noisier, so it needs the larger reserve.
"""

ALONE_FROM = 5
"""From this number of rounds on, the leader has a test of its own (`_p_of_leading`)."""

BOUNDED = 20
"""So many cells of the set have a bound of their own: each costs a comparison with all others."""

CHALLENGERS = 24
"""The others are compared with this many leading cells."""


_NORMAL = np.linspace(-8, 8, 81)
_WEIGHT = np.exp(-(_NORMAL**2) / 2) / np.exp(-(_NORMAL**2) / 2).sum()
_CHANCE = (np.arange(300) + 0.5) / 300
_TINY = 1e-300
_EXACT = 1e-7
"""How exact the chance of a lead is, as a share of it."""

_MOST_STEPS = 40
_MANY = 1000
"""More degrees of freedom hardly improve the estimate of a standard deviation."""


class BestSet(Value):
    """The cells that may be the best: with confidence 1 - `alpha`, one of them is.

    `cells` are the competitors that are not shown to be worse than another (`rank` adds those that
    are only unlikely to be the best). They are sorted by mean, best first; the first is the leader.
    `beaten` is the number of the other competitors. `runner_up` is the second cell of the set; if
    the leader is alone, the competitor with the second-best mean. `p` is the p-value of the
    leader's lead, over all others if it is alone, else over the runner-up. It is above `alpha`
    unless the leader is alone.

    `noise` is the standard deviation of the logarithm of a competitor's run within its round;
    `rounds` is the median number of rounds of a competitor. `apart` is the standard deviation of
    the difference of two runs in a round: one run is the leader's, the other is of the rival
    hardest to tell from it; `pooled` is False if `apart` comes from these two cells alone. `shared`
    is the share of the noise that competitors have in common, because they are fast and slow in the
    same rounds (0 if that may be chance). `resolution` is the smallest difference of two leaders
    that their rounded values can show.

    `close` are those of `cells` that are shown to be at most `NEGLIGIBLE` behind the leader; the
    leader is one of them. The others may be far behind: three rounds at 12 % noise leave 16 % on
    average between the leader and a cell that ties with it. `use` is the simplest of `close`, the
    one to take. The best is better than it by no more than the share `behind` (0.1: 10 %; 0 if it
    is shown to be the best; None without rivals). The confidence is without the `unranked`
    competitors, which have too few rounds.
    """

    measure: MeasureKey
    alpha: float
    cells: tuple[MeasuredCell, ...]
    beaten: int
    runner_up: MeasuredCell | None
    p: float | None
    noise: float
    rounds: int
    apart: float = 0.0
    pooled: bool = True
    shared: float = 0.0
    resolution: float = 0.0
    close: tuple[MeasuredCell, ...] = ()
    use: MeasuredCell | None = None
    behind: float | None = None
    of_this_look: Annotated[float | None, HIDDEN] = None
    """The part of `alpha` that this look has, if others are possible."""
    unranked: int = 0
    bounds: Annotated[Mapping[MeasuredCell, float], HIDDEN] = field(default_factory=dict)
    """`behind` of the first BOUNDED cells, and of `use`."""

    @property
    def leader(self) -> MeasuredCell:
        """The competitor with the best mean."""
        return self.cells[0]

    @property
    def alone(self) -> bool:
        """True when the leader is shown to be the best."""
        return len(self.cells) == 1

    @property
    def competitors(self) -> int:
        """How many cells compete."""
        return len(self.cells) + self.beaten

    @property
    def shows(self) -> float | None:
        """The smallest lead (0.25: 25 %) that these rounds show at this noise in about 80 % of
        simulated campaigns; None without rivals."""
        if self.competitors < 2:
            return None
        return math.expm1(min(self._least_lead(self.rounds), 700.0))  # e ** 710 overflows

    def rounds_for(self, lead: float) -> int | None:
        """The number of rounds that show this lead as in `shows`; None above 1000."""
        if self.competitors < 2:
            return None
        wanted = math.log1p(lead) + 1e-9  # so that `shows` needs the rounds that there are
        enough = partial(self._show, wanted)
        rounds = MIN_ROUNDS + bisect_left(range(MIN_ROUNDS, MOST_ROUNDS), True, key=enough)
        return rounds if enough(rounds) else None

    def _planned(self, rounds: int) -> tuple[int, int, float]:
        """The sample size of a t-test: with how many others the leader is compared, the degrees of
        freedom, and the standard errors beyond the limit that its lead needs for the power."""
        freedom = common_freedom(self.competitors, rounds) if self.pooled else rounds - 1
        few = rounds < ALONE_FROM
        power = PLANNED_POWER_OF_FEW if few else PLANNED_POWER
        return self.competitors - 1 if few else 1, freedom, float(t_isf(1 - power, freedom))

    def _least_lead(self, rounds: int) -> float:
        """The smallest difference of logarithms that this many rounds show."""
        others, freedom, beyond = self._planned(rounds)
        limit = critical(self.of_this_look or self.alpha, others, freedom, rounds)
        return (limit + beyond) * self.apart / math.sqrt(rounds) + self.resolution

    def _show(self, lead: float, rounds: int) -> bool:
        """True if this many rounds show a difference of logarithms: `_least_lead` turned round,
        without its search for the limit."""
        others, freedom, beyond = self._planned(rounds)
        errors = (lead - self.resolution) * math.sqrt(rounds) / self.apart - beyond
        return p_of_lead(errors, others, freedom, rounds) <= (self.of_this_look or self.alpha)


def competitors(cells: Sequence[MeasuredCell]) -> npt.NDArray[np.intp]:
    """The indices of the cells that a user could choose; all indices if there are none.

    The host's own numbers and the null device do not compete. Of a path measured cold and warm,
    only the cold cell competes, because the warm one shows the host's memory. Cells that are not
    named by a disk path compete.
    """
    return _competitors(tuple((cell.name, cell.page_cache) for cell in cells))


@lru_cache(maxsize=8)
def _competitors(cells: tuple[tuple[str, PageCache], ...]) -> npt.NDArray[np.intp]:
    """`competitors`, computed once for all measures of the same cells."""
    chosen: dict[str, int] = {}
    for place, (name, page_cache) in enumerate(cells):
        path = MeasuredCell(name).path
        if path is not None and not path.is_guest_storage:
            continue
        if page_cache is not PageCache.WARM or name not in chosen:
            chosen[name] = place
    return np.array(sorted(chosen.values()) or range(len(cells)), dtype=np.intp)


def best_set(
    measure: MeasureKey,
    model: Fit,
    fitted: Sequence[MeasuredCell],
    places: npt.NDArray[np.intp],
    alpha: float = 0.05,
) -> BestSet | None:
    """The cells at `places` that may be the best of these; None without any. `fitted` are the rows
    of `model`.
    """
    if not len(places):
        return None
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    # Rounded, so that cells with equal values are ordered by name, not by rounding errors.
    goodness = sign * np.round(model.effect[places], 12)
    cells = [fitted[place] for place in places.tolist()]
    noise = pair_noise(model, places)
    # Cells of observations are sorted, and equal ones stay in that order.
    order = np.argsort(-goodness, kind="stable")
    worse = beaten(goodness, noise, order, alpha)
    may_be_best = order[~worse[order]]
    alone = len(may_be_best) == 1
    first = order[:2] if alone else may_be_best[:2]
    p = None
    if len(order) > 1:
        p = _p_of_being_best(goodness, noise, order)
        if not alone or p > alpha:
            p = _p_of_leading(goodness, noise, first, len(order) - 1)
    apart, pooled = _hardest(noise, order if alone else may_be_best, alpha)
    close = _close(goodness, noise, may_be_best, alpha)
    use = min(close.tolist(), key=lambda row: simplest_first(cells[row]))
    bounds = {
        cells[row]: _behind(goodness, noise, row, may_be_best, alpha)
        for row in dict.fromkeys((use, *order[:BOUNDED].tolist()))
        if len(order) > 1
    }
    return BestSet(
        measure=measure,
        alpha=alpha,
        cells=tuple(cells[row] for row in may_be_best),
        beaten=int(worse.sum()),
        runner_up=cells[first[1]] if len(first) > 1 else None,
        p=p,
        noise=math.sqrt(median(noise.variance)),
        rounds=noise.rounds,
        apart=apart,
        pooled=pooled,
        shared=noise.shared,
        resolution=float(noise.resolution[first].sum()),
        close=tuple(cells[row] for row in close),
        use=cells[use],
        behind=bounds.get(cells[use]),
        bounds=bounds,
    )


def simplest_first(cell: MeasuredCell) -> tuple[bool, Simplicity | None]:
    """A key to sort by, the simplest path first, then cells that are no paths."""
    return (True, None) if cell.path is None else (False, simplicity(cell.path))


def _hardest(noise: PairNoise, cells: npt.NDArray[np.intp], alpha: float) -> tuple[float, bool]:
    """`apart` and `pooled` of a `BestSet`: they compare the first cell with the rival that must
    trail it by most before a difference shows.
    """
    others = cells[1:]
    if not len(others):
        return 0.0, True
    error, freedom = noise.between(np.broadcast_to(cells[:1], others.shape), others)
    widest = int(np.argmax(error * _limits(noise, alpha, len(others), freedom)))
    pooled = common_freedom(len(noise.count), noise.rounds)
    return float(error[widest]) * math.sqrt(noise.rounds), bool(freedom[widest] >= pooled)


def _close(
    goodness: Floats, noise: PairNoise, may_be_best: npt.NDArray[np.intp], alpha: float
) -> npt.NDArray[np.intp]:
    """The cells shown to be at most `NEGLIGIBLE` behind the leader, which is the first.

    The limits hold for all cells at once (Dunnett). The data that chose the leader show its lead
    larger than it is, so these limits are on the safe side.
    """
    leader, others = may_be_best[:1], may_be_best[1:]
    if not len(others):
        return leader
    error, freedom = noise.between(np.broadcast_to(leader, others.shape), others)
    limits = _limits(noise, alpha, len(goodness) - 1, freedom)
    behind = goodness[leader] - goodness[others] + limits * error
    behind += noise.rounded(leader, others)
    return np.concatenate([leader, others[behind <= math.log1p(NEGLIGIBLE)]])


def _behind(
    goodness: Floats, noise: PairNoise, cell: int, may_be_best: npt.NDArray[np.intp], alpha: float
) -> float:
    """The share by which the best is better than a cell, at most.

    The limits hold for all cells at once, so for one that the data chose, too (Hsu 1984).
    """
    others = may_be_best[may_be_best != cell]
    if not len(others):
        return 0.0
    error, freedom = noise.between(np.full(others.shape, cell), others)
    limits = _limits(noise, alpha, len(goodness) - 1, freedom)
    ahead = goodness[others] - goodness[cell] + limits * error
    ahead += noise.rounded(np.full(others.shape, cell), others)
    return max(0.0, math.expm1(min(float(ahead.max()), 700.0)))


def beaten(
    goodness: Floats, noise: PairNoise, order: npt.NDArray[np.intp], alpha: float
) -> npt.NDArray[np.bool_]:
    """For each cell, True if another is shown to be better; `order` has the cells, best first.

    Cells are compared with the first CHALLENGERS only; the others could only make the set smaller.
    The leader is named alone, too, if it is ahead of each other by its own test.
    """
    if len(order) < 2:
        return np.zeros(len(order), dtype=np.bool_)
    worse = np.asarray(ahead(goodness, noise, order[:CHALLENGERS], alpha).any(axis=0))
    p = _p_of_being_best(goodness, noise, order)
    return worse | (np.arange(len(order)) != order[0]) if p <= alpha else worse


def ahead(
    goodness: Floats, noise: PairNoise, challengers: npt.NDArray[np.intp], alpha: float
) -> npt.NDArray[np.bool_]:
    """By challenger and cell, whether the challenger is shown to be better; with two or more cells.

    The error of a challenger's comparisons with all other cells together is `alpha`.
    """
    challenger, other = np.meshgrid(challengers, np.arange(len(goodness)), indexing="ij")
    error, freedom = noise.between(challenger, other)
    lead = goodness[challenger] - goodness[other] - noise.rounded(challenger, other)
    return np.asarray(lead > _limits(noise, alpha, len(goodness) - 1, freedom) * error)


def _limits(noise: PairNoise, alpha: float, others: int, freedom: Floats) -> Floats:
    """The `critical` lead for each number of degrees of freedom."""
    unique, index = np.unique(freedom, return_inverse=True)
    limits = [critical(alpha, others, int(of), noise.rounds) for of in unique]
    return np.asarray(np.array(limits)[index.reshape(freedom.shape)])


def _p_of_being_best(goodness: Floats, noise: PairNoise, order: npt.NDArray[np.intp]) -> float:
    """The p-value of "the first cell is the best".

    From ALONE_FROM rounds on it needs no correction for the number of cells: the leader is rarely
    ahead of its next rival by chance, unless just these two are alike (Gutmann & Maymin, Annals of
    Statistics 15, 1987). With fewer rounds, the cells' noise is too uncertain for that.
    """
    compared = 1 if noise.rounds >= ALONE_FROM else len(order) - 1
    return _p_of_leading(goodness, noise, order, compared)


def _p_of_leading(
    goodness: Floats, noise: PairNoise, order: npt.NDArray[np.intp], compared: int
) -> float:
    """The largest p-value among the first cell's leads, each corrected for `compared` cells."""
    leader, others = np.broadcast_to(order[:1], len(order) - 1), order[1:]
    error, freedom = noise.between(leader, others)
    leads = (goodness[leader] - goodness[others] - noise.rounded(leader, others)) / error
    # With the same degrees of freedom, the smallest lead has the largest p-value.
    least = {of: float(max(0.0, leads[freedom == of].min())) for of in different(freedom).tolist()}
    return max(p_of_lead(lead, compared, int(of), noise.rounds) for of, lead in least.items())


@lru_cache(maxsize=4096)
def p_of_lead(lead: float, others: int, freedom: int, rounds: int) -> float:
    """The adjusted p-value of a lead of `lead` standard errors over one of `others` cells.

    It is the larger of two p-values. Dunnett's test (Journal of the American Statistical
    Association 50, 1955) gives the probability that any of the others falls so far behind by
    chance. A two-sided t-test is needed where two cells tie (Gutmann & Maymin, Annals of Statistics
    15, 1987). KEPT_BACK of the allowed error is reserved for noise that `pair_noise` cannot detect.
    """
    any_other = dunnett(lead, others, freedom) / (1 - KEPT_BACK / more_rounds(rounds))
    of_two = 2 * float(t_sf(lead, freedom)) / (1 - KEPT_BACK_OF_TWO / (rounds - 1))
    return min(1.0, max(any_other, of_two))


@lru_cache(maxsize=4096)
def critical(alpha: float, others: int, freedom: int, rounds: int) -> float:
    """The lead in standard errors whose adjusted p-value is `alpha`."""
    of_two = t_isf(alpha * (1 - KEPT_BACK_OF_TWO / (rounds - 1)) / 2, freedom)
    any_other = alpha * (1 - KEPT_BACK / more_rounds(rounds))
    return max(float(of_two), lead_by_chance(any_other, others, freedom))


@lru_cache(maxsize=8192)
def lead_by_chance(chance: float, others: int, freedom: int) -> float:
    """The lead in standard errors that, among equal cells, one has over any of `others` with this
    probability: what `dunnett` gives the chance of.

    It is above the lead over one other cell, and below Bonferroni's, who adds up the chances of
    all. Between them it is looked for by the method of false position in the form called Illinois
    (Dowell & Jarratt, BIT 11, 1971): the chance's logarithm is almost a straight line.
    """
    low, high = (float(t_isf(chance / cells, freedom)) for cells in (1, others))

    def excess(lead: float) -> float:
        return math.log(max(dunnett(lead, others, freedom), _TINY) / chance)

    if others == 1 or (above := excess(low)) <= 0:
        return low
    while (below := excess(high)) > 0:  # by the error of `dunnett`'s sum
        low, high, above = high, 2 * high, below
    moved = 0
    for _ in range(_MOST_STEPS):
        middle = (low * below - high * above) / (below - above)
        found = excess(middle)
        if abs(found) < _EXACT:
            return middle
        if found > 0:
            low, above, below = middle, found, below / 2 if moved > 0 else below
            moved = 1
        else:
            high, above, below = middle, above / 2 if moved < 0 else above, found
            moved = -1
    return high


def dunnett(lead: float, others: int, freedom: int) -> float:
    """The probability that, among equal cells, one leads any of `others` by this much.

    All comparisons share one cell, so their correlation is 1/2. Given that cell's noise (normal)
    and the common standard deviation (chi), they are independent. Of one other cell, this is the
    one-sided t-test.
    """
    if others == 1:
        return float(t_sf(lead, freedom))
    deviations = _deviations(min(freedom, _MANY))[:, None]
    below = _power(normal_cdf(math.sqrt(2) * lead * deviations + _NORMAL), others)
    return 1 - float((below @ _WEIGHT).mean())


def _power(base: Floats, exponent: int) -> Floats:
    """`base ** exponent` by squaring: numpy's power takes as long as all the rest of `dunnett`."""
    answer = np.ones_like(base)
    while exponent:
        if exponent & 1:
            answer *= base
        exponent >>= 1
        if exponent:
            base = base * base
    return answer


@lru_cache(maxsize=4096)
def _deviations(freedom: int) -> Floats:
    """Equally probable standard deviations of a sample with `freedom` degrees of freedom."""
    answer: Floats = np.sqrt(chi2_isf(_CHANCE, freedom) / freedom)
    return answer
