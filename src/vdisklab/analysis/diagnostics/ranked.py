"""Diagnostics of runs and ranks: cells that failed, were too slow, or have no rank, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated

import numpy as np

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.measure_words import measurement_words
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.rank_intervals import LOOK_SHARE, Ranking, Unranked
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import (
    BEGUN_LATE,
    REPEATED,
    SETTLE,
    Campaign,
    GateCount,
    Origin,
    RunOutline,
)
from vdisklab.units import counted, format_duration, in_percent, named

SHORT_SPAN = 12 * 3600.0
"""Rounds that lie within fewer seconds do not see a day's load and rest."""

_MEANINGS = {
    BEGUN_LATE: "The recorded load came faster than it was done, so latencies hold waiting",
    REPEATED: "The guest's kernel split or joined requests of the recorded load",
}
"""What it means that a gate is not met, unless it is a quick look."""


def more_imports(results: int, campaign: str) -> str:
    """How imported results get repetitions, as a clause."""
    return f"import {results} or more results of each path (import --as PATH --into {campaign})"


class TooFewRounds(Diagnostic):
    """Cells with fewer rounds than a rank needs; `have` is the largest number of rounds, and
    `command` continues the campaign, on the host `on` if the database has several."""

    cells: tuple[MeasuredCell, ...]
    have: int
    want: int
    command: str | None = None
    on: str | None = None
    now: str | None = None
    """Who measures the campaign at this moment, so that nobody need continue it."""
    imported: str | None = None
    """The campaign of imported results, which no `run` continues."""

    @property
    def without_command(self) -> str:
        """What continues the campaign, as a clause, where no whole command does."""
        if self.imported is not None:
            return more_imports(self.want, self.imported)
        on = "" if self.on is None else f" on {self.on}"
        return f"continue{on} with --rounds {self.want} or more"

    def __str__(self) -> str:
        on = "" if self.on is None else f" on {self.on}"
        way = f"{self.without_command[:1].upper()}{self.without_command[1:]}."
        if self.command is not None:
            way = f"To continue{on}: `{self.command}`."
        if self.now is not None:
            way = f"{self.now[0].upper()}{self.now[1:]}."
        return (
            f"{named(self.cells)}: measured in {counted(self.have, 'round')}; a rank needs "
            f"{self.want}. {way}"
        )


class LacksMeasure(Diagnostic):
    """Cells that were measured in `rounds`, enough for a rank (`want`), but without a number of
    these `measures` in some."""

    cells: tuple[MeasuredCell, ...]
    measures: tuple[MeasureKey, ...]
    rounds: int
    want: int

    def __str__(self) -> str:
        which = ", ".join(map(str, self.measures))
        said = (
            f"{named(self.cells)}: measured in {counted(self.rounds, 'round')}, but {which} has a "
            f"number in fewer than {self.want}, which a rank needs."
        )
        if all(key.name != SETTLE for key in self.measures):
            return said
        return (
            f"{said} Its rate did not settle: `vdisklab life` says why; choose a longer --runtime."
        )


class GateMissed(Diagnostic):
    """A condition that does not hold, so that a number is not the disk's: the cells get no rank.

    With `only_said` they do. `seen` is a value, and the condition after a comma.
    """

    gate: str
    seen: str
    cells: tuple[MeasuredCell, ...]
    measurements: tuple[str, ...]
    only_said: bool

    def __str__(self) -> str:
        value, _, condition = self.seen.partition(", ")
        what = f"{self.gate} {value}, not {condition}"
        where = f"{named(self.cells)} in {'; '.join(map(measurement_words, self.measurements))}"
        if self.only_said:
            meaning = _MEANINGS.get(self.gate, "A quick look, good for comparing paths")
            return f"{meaning}: {what} ({where})."
        has = "has" if len(self.cells) == 1 else "have"
        return (
            f"{named(self.cells)} {has} no rank: something else than the disk was the limit in "
            f"{'; '.join(map(measurement_words, self.measurements))} ({what})."
        )


class UnplannedLook(Diagnostic):
    """The campaign has not, or not only, the `planned` rounds; None for a race."""

    planned: int | None
    measured: int

    def __str__(self) -> str:
        share = f"ranks take {in_percent(LOOK_SHARE)} of the stated family-wise error"
        if self.planned is None:
            return (
                "A race ends when its numbers say so. Ranks allow for that: they take "
                f"{in_percent(LOOK_SHARE)} of the stated family-wise error, and show less than "
                "the race's own answer."
            )
        if self.measured < self.planned:
            return (
                f"{self.measured} of {self.planned} planned rounds are measured. Looking earlier "
                f"is allowed: {share} until then, so they show less."
            )
        return (
            f"{counted(self.planned, 'round')} were planned and {self.measured} are measured: "
            f"{share}, as somebody may have looked and gone on."
        )


class ShortSpan(Diagnostic):
    """All rounds of a campaign lie within so many `seconds`: no number says what changes later.

    `on` is the host that measures it again, if that is not this one. `again` is the command, None
    if it needs a file that is not stored.
    """

    campaign: str
    rounds: int
    seconds: Annotated[float, "from the first run's start to the last one's end"]
    on: str | None = None
    again: str | None = None

    def __str__(self) -> str:
        on = "" if self.on is None else f" on {self.on}"
        way = "measuring it again" if self.again is None else f"`{self.again}`"
        return (
            f"All {self.rounds} rounds lie within {format_duration(self.seconds)}. A path that is "
            "slow for longer than that looks slower than it is, and no test of these rounds can "
            f"show it: {way}{on} at another hour shows whether the answer lasts."
        )


class DroppedBySearch(Diagnostic):
    """Cells that lack rounds because a search for the best had no need of them."""

    cells: tuple[MeasuredCell, ...]
    want: int

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: measured in fewer than {self.want} rounds, so without a rank. A "
            "search for the best leaves paths out when it has found better ones; so does "
            "`runs --delete`."
        )


class NoCommonRound(Diagnostic):
    """Cells that were never measured in the same round as the ranked ones."""

    cells: tuple[MeasuredCell, ...]

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: never measured in the same round as the others, so drift "
            "and difference cannot be separated. Measure them in one campaign."
        )


class NothingToCompare(Diagnostic):
    """Only one cell: a rank needs two."""

    cell: MeasuredCell

    def __str__(self) -> str:
        return f"{self.cell} alone could be ranked, and a rank needs two. Measure another with it."


class OlderAnswer(Diagnostic):
    """These campaigns compare nothing, but another campaign of this host compares paths."""

    campaign: str

    def __str__(self) -> str:
        return (
            f"Campaign {self.campaign} of this host compares paths: "
            f"`vdisklab rank --campaign {self.campaign}`."
        )


class Inconclusive(Diagnostic):
    """No pair of the ranked cells is shown to differ."""

    cells: int

    def __str__(self) -> str:
        return (
            f"Inconclusive: none of the {self.cells} cells is shown to differ from another. "
            "More rounds (--rounds) or longer measurements (--runtime) may decide it."
        )


class FailedCell(Diagnostic):
    """A cell that failed in `rounds` rounds; `reason` is that of the last failure."""

    cell: MeasuredCell
    rounds: int
    failure: str
    reason: str

    def __str__(self) -> str:
        rounds = counted(self.rounds, "round")
        return f"{self.cell}: failed in {rounds} ({self.failure}): {self.reason}"


class TooSlow(Diagnostic):
    """Cells whose measurement did not end in time in `rounds` rounds (together).

    They were `measured` in others, or in none.
    """

    cells: tuple[MeasuredCell, ...]
    rounds: int
    measured: bool

    def __str__(self) -> str:
        others = (
            "Medians and ratios are of the other rounds, so they look better than the path is."
            if self.measured
            else "No round has a number, so there is neither a median nor a ratio."
        )
        return (
            f"{named(self.cells)}: too slow to end in time in {counted(self.rounds, 'round')}. "
            f"Ranks count that as the worst value of the round. {others}"
        )


class SharedRounds(Diagnostic):
    """Ranked cells are fast and slow in the same rounds, which makes up `share` of their noise."""

    share: float
    rounds: int

    def __str__(self) -> str:
        return (
            f"{in_percent(self.share)} of the noise is shared: some paths speed up and slow down "
            "together, or one is far noisier than the others, which looks the same. "
            f"{counted(self.rounds, 'round')} cannot separate them. The set of paths that may be "
            "the best allows for it. Ranks do not: up to 12 % of such campaigns have a wrong one, "
            "instead of 5 %."
        )


def slow_diagnostics(
    observations: Observations, among: Collection[MeasuredCell] | None = None
) -> tuple[TooSlow, ...]:
    """A diagnostic for cells that were too slow in some rounds, and one for those too slow in all.

    `among` limits the cells; None takes all.
    """
    counts = observations.rounds_of()
    never = {cell for cell, row in observations.place.items() if not counts[row]}
    slow = [cell for cell, _ in observations.too_slow if among is None or cell in among]
    return _too_slow(slow, never)


def _too_slow(slow: Sequence[MeasuredCell], never: Collection[MeasuredCell]) -> tuple[TooSlow, ...]:
    """`slow` has a cell once for each round, `never` those without a measured round."""
    return tuple(
        TooSlow(tuple(sorted(set(cells))), len(cells), measured)
        for measured in (True, False)
        if (cells := [cell for cell in slow if (cell not in never) is measured])
    )


def span_diagnostics(
    campaign: Campaign,
    runs: Iterable[RunOutline],
    on: str | None = None,
    again: str | None = None,
) -> tuple[ShortSpan, ...]:
    """That the rounds of a campaign say nothing of another hour, if they lie within `SHORT_SPAN`.

    Imported numbers have no times of their own, and fewer than `MIN_ROUNDS` show nothing yet.
    """
    measured = [run for run in runs if run.failure is None and run.campaign == campaign.id]
    rounds = len({run.round for run in measured})
    if rounds < MIN_ROUNDS or any(run.origin is Origin.IMPORTED for run in measured):
        return ()
    began = min(run.started for run in measured)
    seconds = max(
        (run.started - began).total_seconds() + (run.wall_seconds or 0.0) for run in measured
    )
    return (ShortSpan(campaign.id, rounds, seconds, on, again),) if seconds < SHORT_SPAN else ()


def dropped_by_search(runs: Iterable[RunOutline]) -> frozenset[MeasuredCell]:
    """The cells that a campaign left out of a round that was not its last one.

    Only a search for the best (`run --find`) does that.
    """
    rounds: dict[str, set[int]] = {}
    tried: dict[tuple[str, MeasuredCell], set[int]] = {}
    for run in runs:
        rounds.setdefault(run.campaign, set()).add(run.round)
        tried.setdefault((run.campaign, run.measured_cell), set()).add(run.round)
    return frozenset(
        cell
        for (campaign, cell), of_cell in tried.items()
        if rounds[campaign] - of_cell - {max(rounds[campaign])}
    )


def failed_cells(runs: Iterable[RunOutline]) -> tuple[FailedCell, ...]:
    """The cells with failed rounds that no later run measured, by label."""
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    measured = {
        (run.measured_cell, run.campaign, run.round) for run in ordered if run.failure is None
    }
    failures: dict[MeasuredCell, FailedCell] = {}
    counted: dict[MeasuredCell, set[tuple[str, int]]] = {}
    for run in ordered:
        cell = run.measured_cell
        if run.failure is None or (cell, run.campaign, run.round) in measured:
            continue
        rounds = counted.setdefault(cell, set())
        rounds.add((run.campaign, run.round))
        failures[cell] = FailedCell(cell, len(rounds), run.failure.kind.value, run.failure.sentence)
    return tuple(failures[cell] for cell in sorted(failures))


def gate_diagnostics(
    counts: Iterable[GateCount], cells: Mapping[str, MeasuredCell]
) -> tuple[GateMissed, ...]:
    """One diagnostic for each gate that was not met."""
    found: dict[tuple[str, bool], list[GateCount]] = {}
    for gated in counts:
        found.setdefault((gated.gate, gated.only_said), []).append(gated)
    return tuple(
        GateMissed(
            gate,
            ones[0].seen,
            tuple(sorted({cells[gated.cell] for gated in ones})),
            tuple(dict.fromkeys(gated.measurement for gated in ones)),
            said,
        )
        for (gate, said), ones in found.items()
    )


def lacking_measures(
    observations: Observations,
    ranking: Ranking,
    parts: Collection[MeasureKey],
    want: int,
) -> tuple[LacksMeasure, ...]:
    """The cells without a rank that were measured in `want` rounds or more, by those of `parts`
    that they lack: the ranked measure is made of these."""
    rounds = dict(zip(observations.cells, observations.rounds_of().tolist(), strict=True))
    counts = {key: np.isfinite(observations.grid(key)).sum(axis=1) for key in parts}
    found: dict[tuple[MeasureKey, ...], list[MeasuredCell]] = {}
    for row in ranking.unranked:
        if row.reason is Unranked.TOO_FEW_ROUNDS and rounds.get(row.cell, 0) >= want:
            place = observations.place[row.cell]
            lacks = tuple(key for key, count in counts.items() if count[place] < want)
            if lacks:
                found.setdefault(lacks, []).append(row.cell)
    return tuple(
        LacksMeasure(tuple(cells), measures, max(rounds[cell] for cell in cells), want)
        for measures, cells in found.items()
    )


def ranking_diagnostics(
    ranking: Ranking,
    want: int,
    dropped: Collection[MeasuredCell] = (),
    lacking: Sequence[LacksMeasure] = (),
) -> tuple[Diagnostic, ...]:
    """Diagnostics of the ranking itself; `want` is the least number of rounds for a rank.

    A search has `dropped` some cells; `lacking` have the rounds, but not the ranked measure.
    """
    diagnostics: list[Diagnostic] = [*lacking]
    without = {cell for lacks in lacking for cell in lacks.cells}
    short = [
        cell
        for cell in ranking.unranked
        if cell.reason is Unranked.TOO_FEW_ROUNDS and cell.cell not in without
    ]
    few = [cell for cell in short if cell.cell not in dropped]
    apart = [cell for cell in ranking.unranked if cell.reason is Unranked.NO_COMMON_ROUND]
    if few:
        cells = tuple(cell.cell for cell in few)
        diagnostics.append(TooFewRounds(cells, max(cell.rounds for cell in few), want))
    if len(few) < len(short):
        left = tuple(cell.cell for cell in short if cell.cell in dropped)
        diagnostics.append(DroppedBySearch(left, want))
    if apart:
        diagnostics.append(NoCommonRound(tuple(cell.cell for cell in apart)))
    diagnostics += [
        NothingToCompare(cell.cell)
        for cell in ranking.unranked
        if cell.reason is Unranked.NOTHING_TO_COMPARE
    ]
    if ranking.inconclusive:
        diagnostics.append(Inconclusive(len(ranking.rows)))
    never = {row.cell for row in ranking.rows if not row.rounds}
    never |= {row.cell for row in ranking.unranked if not row.rounds}
    diagnostics += _too_slow([cell for cell, _ in ranking.too_slow], never)
    if ranking.best is not None and ranking.best.shared:
        diagnostics.append(SharedRounds(ranking.best.shared, ranking.best.rounds))
    return tuple(diagnostics)
