"""A race: which path is within a margin of the best, in as few runs as the noise allows.

Each round measures every path that is left. At planned looks a path is dropped if the leader is
ahead of it and it cannot be better than the leader by more than the margin. The race ends when only
the leader is left: no other path can be better by more than the margin.

Sources: sequential comparison with elimination (Paulson, Annals of Mathematical Statistics 35,
1964); an indifference zone, whose boundary drops paths that trail by less than their noise (Kim &
Nelson, ACM TOMACS 11, 2001); many arms and looks (Magirr, Jaki & Whitehead, Biometrika 99, 2012).
The boundary is a one-sided Dunnett test at a level that grows with the rounds; `_between` says
against how many paths. The last two paths are compared by their own differences: the noise of paths
that were dropped says nothing of them. Noise that lasts from round to round widens the boundary
(`lasting_noise`), and first rounds that are shown to be warm-up are thrown away. LEVEL and GROWTH
were chosen by simulation with the noise rules of `pair_noise` (`bench/race.py`).

Pure: numbers in, remaining paths out. All looks are repeated from the numbers, so an interrupted
race goes on as if nothing had happened.

Matrices are cells x rounds of logarithms, negated for latencies so that more is better; NaN where
nothing was measured. Paths are named by their rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import PRECISION, fit, usable
from vdisklab.analysis.best import KEPT_BACK, lead_by_chance
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.lasting_noise import (
    freedom_left,
    inflation,
    lasting_noise,
    warm_up,
)
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.pair_noise import more_rounds, pair_noise
from vdisklab.path.cell import MeasuredCell
from vdisklab.value import HIDDEN, Value, field, replace

LOOKS = (*range(3, 21), *range(22, 34, 2), *range(34, 58, 3), 60)
"""The rounds after which paths may be dropped."""

MOST_ROUNDS = LOOKS[-1]

LEVEL = 0.01
GROWTH = 0.25
"""The level of the look after round b is LEVEL x (b / MOST_ROUNDS) ** GROWTH for an error of 5 %;
proportionally more or less for another error."""

ERROR = 0.05

UNSEEN = 0.6
BOTH_SEEN = 7
"""Before BOTH_SEEN rounds, a path counts as better than it looks by UNSEEN (a logarithm: x1.8), or
by the noise if that is more. A path with one of two speeds at random in each round shows only the
lower one in three rounds in an eighth of races. Then it looks quiet, and no estimate of noise sees
it. Half of a factor of two is hidden then; the rest of UNSEEN is noise."""

SELDOM_SEEN = 0.35
SELDOM = 10
"""For the first SELDOM rounds, a path may be better than it looks by SELDOM_SEEN at least (x1.4):
it may be fast in only a quarter of the rounds, or slow only in the first rounds."""

OWN_ROUNDS = 8
"""From so many rounds on, the last two paths are compared by the spread of their differences."""

USUAL_ROUNDS = 17
"""Most races to within 10 % take fewer runs than so many rounds of all paths after the first look:
at a noise of 12 %, 4 equal paths take 14 and 13 equal ones 11. Paths that differ are decided
sooner; only very unequal noise takes longer (`bench/race.py`)."""


class RaceState(Value):
    """Where a race stands.

    `left` are the rows that are still measured, best first, so the `leader` first. `behind` is the
    share by which the leader may be worse than the best of them, with 1 - `alpha`: 0.1 is 10 %;
    None before the first look, and infinite while nothing bounds it. `best` is True if every other
    path is shown to be worse, not only to be better by no more than the margin. `beaten` has the
    row that led when a row was dropped, and which that row was compared with.
    """

    left: tuple[int, ...]
    leader: int
    behind: float | None
    best: bool
    rounds: int
    margin: float
    alpha: float
    warm_up: int = 0
    beaten: Mapping[int, int] = field(default_factory=dict)

    def behind_leader(self, row: int) -> bool:
        """True if a row was dropped by the leader, or by a row that was itself dropped so."""
        while row in self.beaten:
            row = self.beaten[row]
        return row == self.leader

    @property
    def decided(self) -> bool:
        """True when one path is left."""
        return len(self.left) == 1

    @property
    def ended(self) -> bool:
        """True when it is decided, or has no look left."""
        return self.decided or self.rounds >= MOST_ROUNDS


class RaceOutcome(Value):
    """The result of a race: no path is better than `best` by more than `margin`, if it `decided`.

    `as_good` are the other paths that are left without a decision; `best` is worse than the best of
    them by no more than the share `behind`, None if nothing bounds it. `proven` is True if every
    other path is shown to be worse. Of the `cells` that compete, `raced` were not left out by the
    model of segments (0: the race has not begun), `measured` have numbers and `failed` were given
    up. `lost` are those of them that were still in the race when they began to fail: no number
    says that one of them is worse. They are among `as_good` if they have enough rounds. `step` is
    the metric's step if the margin is that step.
    """

    best: MeasuredCell
    as_good: tuple[MeasuredCell, ...]
    behind: float | None
    proven: bool
    rounds: int
    most_rounds: int
    margin: float
    confidence: float
    cells: int
    raced: int
    measured: int
    failed: int
    lost: tuple[MeasuredCell, ...] = ()
    step: float | None = None
    going_on: Annotated[tuple[MeasuredCell, ...], HIDDEN] = ()
    """What the race measures if it goes on: also paths that do not count here."""

    @property
    def decided(self) -> bool:
        """True if only one path is left."""
        return not self.as_good and self.raced > 0

    @property
    def shows_anything(self) -> bool:
        """False before the first look, when the best path is only the first among a few numbers."""
        return self.rounds >= MIN_ROUNDS

    @property
    def few(self) -> tuple[MeasuredCell, ...]:
        """The paths that failed before they had enough rounds to be compared."""
        return tuple(cell for cell in self.lost if cell not in self.as_good)

    @property
    def left_out(self) -> int:
        """How many paths did not race because the model expects nothing of them."""
        never_raced = self.failed - len(self.lost)
        return max(0, self.cells - self.raced - never_raced) if self.raced else 0


def race_state(logs: Floats, margin: float, alpha: float = ERROR) -> RaceState:
    """Where a race among all rows stands after the rounds (columns) that were measured.

    `margin` is a share (0.1: 10 %). A row with fewer than three numbers can neither lead nor be
    dropped: the other rows are compared without it.
    """
    *_, last = race_states(logs, margin, alpha)
    return last


def race_states(logs: Floats, margin: float, alpha: float = ERROR) -> Iterator[RaceState]:
    """The state after each look, and last that after all rounds.

    Values of later rounds may be changed between two states, as by a simulation that drops paths.
    """
    cells, rounds = logs.shape
    left, best = np.arange(cells), True
    behind: float | None = None
    beaten: dict[int, int] = {}
    leader, warm = 0, 0
    for look in (count for count in LOOKS if count <= rounds):
        if look <= SELDOM:
            warm = max(warm, _warm_up(logs[:, :look]))
        counted = logs[:, warm:look]
        step = _look(counted, left, math.log1p(margin), level(look - warm, alpha), cells - 1)
        if step is None:
            continue
        before = left
        leader, left, behind, strictly = step
        beaten |= dict.fromkeys(set(before.tolist()) - set(left.tolist()), leader)
        best &= strictly
        state = _state(
            counted, left, leader, behind, best=best, margin=margin, alpha=alpha, warm=warm
        )
        yield replace(state, beaten=dict(beaten))
        if len(left) == 1:
            break
    if behind is None:
        leader = int(np.argmax(_means(logs))) if rounds else 0
    state = _state(
        logs[:, warm:], left, leader, behind, best=best, margin=margin, alpha=alpha, warm=warm
    )
    yield replace(state, beaten=beaten)


def _state(
    logs: Floats,
    left: npt.NDArray[np.intp],
    leader: int,
    behind: float | None,
    *,
    best: bool,
    margin: float,
    alpha: float,
    warm: int,
) -> RaceState:
    means = _means(logs)
    others = sorted((row for row in left.tolist() if row != leader), key=lambda row: -means[row])
    return RaceState(
        (leader, *others), leader, behind, best, warm + logs.shape[1], margin, alpha, warm
    )


def _warm_up(logs: Floats) -> int:
    """The first rounds that were warm-up; 0 if too few cells have numbers."""
    chosen = usable(logs)
    if len(chosen.rows) < 2 or chosen.columns[0] != 0:
        return 0
    return warm_up(fit(logs, chosen).residual)


def level(rounds: int, alpha: float = ERROR) -> float:
    """The error of one look's comparison of the leader with all others."""
    return float(alpha / ERROR * LEVEL * (rounds / MOST_ROUNDS) ** GROWTH)


def _look(
    logs: Floats, left: npt.NDArray[np.intp], margin: float, error: float, others: int
) -> tuple[int, npt.NDArray[np.intp], float, bool] | None:
    """The leader, the rows that stay, how far the leader may be behind them, and whether all
    dropped rows are shown to be worse; None if fewer than two rows can be compared.
    """
    model = fit(logs, usable(logs))
    place = {row: position for position, row in enumerate(model.rows.tolist())}
    modelled = np.array([row for row in left.tolist() if row in place], dtype=np.intp)
    if len(modelled) < 2:
        return None
    positions = np.array([place[row] for row in modelled.tolist()], dtype=np.intp)
    lasts = lasting_noise(model.residual)
    noise = lasts.widened(pair_noise(model, np.arange(len(model.rows))))
    effect = np.round(model.effect[positions], 12)
    first = int(np.argmax(effect))
    deviation, freedom = noise.between(np.full(len(positions), positions[first]), positions)
    if len(modelled) == 2:
        differences = logs[modelled[0]] - logs[modelled[1]]
        rounds = int(np.isfinite(differences).sum())
        if rounds >= OWN_ROUNDS:
            spread = max(float(np.nanstd(differences, ddof=1)), PRECISION)
            own_lasts = lasting_noise((differences - np.nanmean(differences))[None], lasts.pooled)
            part = float(own_lasts.parts[0])
            deviation = np.full(2, spread * math.sqrt(float(inflation(part, rounds)) / rounds))
            freedom = np.full(2, max(2.0, math.floor((rounds - 1) * float(freedom_left(part)))))
    others = _between(others, len(modelled) - 1)
    limit = deviation * [
        _critical(round(error, 9), others, int(count), logs.shape[1]) for count in freedom
    ]
    if logs.shape[1] < BOTH_SEEN:
        limit = np.maximum(limit, UNSEEN)
    elif logs.shape[1] <= SELDOM:
        limit = np.maximum(limit, SELDOM_SEEN)
    lead = effect[first] - effect
    rivals = np.arange(len(positions)) != first
    # All rounds of the first look may be a slow start: it drops only what is shown to be worse.
    spared = margin if logs.shape[1] > LOOKS[0] else 0.0
    dropped = rivals & (lead >= np.maximum(0.0, limit - spared))
    stay = rivals & ~dropped
    behind = float(np.max((limit - lead)[stay if stay.any() else rivals]))
    unknown = np.array([row for row in left.tolist() if row not in place], dtype=np.intp)
    kept = np.sort(np.concatenate([modelled[~dropped], unknown]))
    strictly = bool((lead > limit)[dropped].all())
    return int(modelled[first]), kept, max(0.0, math.expm1(min(behind, 700.0))), strictly


def _between(began: int, left: int) -> int:
    """The number of rivals to allow for, of those that began and those that are left.

    Those left can still win by chance, but they are left because chance favoured them, too: with
    `left` alone, 6.5 % of 200 simulated races of two noisy paths and three quiet ones were wrong.
    """
    return math.ceil(math.sqrt(began * left))


def _means(logs: Floats) -> Floats:
    """The mean of each row over its rounds; minus infinity without any."""
    count = np.isfinite(logs).sum(axis=1)
    total = np.where(np.isfinite(logs), logs, 0.0).sum(axis=1)
    return np.where(count, total / np.maximum(count, 1), -np.inf)


def _critical(error: float, others: int, freedom: int, rounds: int) -> float:
    """The lead in standard errors that any of the others reaches by chance with this probability.

    A part of the error is kept back for noise that `pair_noise` cannot detect, as in `best`.
    """
    return lead_by_chance(error * (1 - KEPT_BACK / more_rounds(rounds)), others, freedom)
