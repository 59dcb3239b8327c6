"""The last lines of `run`: the result of a race, and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.answers.choice import nothing_shown, of_race
from vdisklab.path.named_target import as_typed
from vdisklab.units import counted, named
from vdisklab.views.choice import headline
from vdisklab.views.wording import margin_text

if TYPE_CHECKING:
    from vdisklab.answers.export_command import ExportCommand
    from vdisklab.progress import PathDropped


def next_step(export: ExportCommand | None, campaign: str | None, *, keeps: bool = False) -> str:
    """The commands that show the results of a run and print the configuration of a path.

    `campaign` is named unless it is the newest (None). An answer that `keeps` what is there has
    lines for a new guest only.
    """
    chosen = "" if campaign is None else f" --campaign {campaign}"
    see = f"see it: `vdisklab report{chosen}`"
    if export is None:
        return see
    of = "for a new guest" if keeps else "paste it"
    return f"{see}; {of}{_but(export)}: `{export.text}`"


def export_note(path: str, export: ExportCommand, *, keeps: bool, on: str | None = None) -> str:
    """The sentence above the command that applies an answer. An answer that `keeps` what is there
    also names the verb that asks about disks of guests, which are on the host `on`, or on this one.
    """
    there = "" if on is None else f" on {on}"
    existing = f"For a disk that a guest has, ask `vdisklab advise GUEST`{there}. " if keeps else ""
    return f"{existing}For a new guest, this prints the configuration of {path}{_but(export)}:"


def _but(export: ExportCommand) -> str:
    """` (Proxmox VE has no such disk)`, if the command is for QEMU for that reason."""
    names = " and ".join(platform.full_name for platform in export.cannot)
    have = "has" if len(export.cannot) == 1 else "have"
    return f" for QEMU ({names} {have} no such disk)" if names else ""


def left_out_sentences(left_out: Iterable[PathDropped]) -> Iterator[str]:
    """Which paths were asked for and not measured, and why."""
    for cell in left_out:
        yield as_typed(f"Not measured: {cell.path}: {cell.reason}; {cell.instead}.")


def race_sentences(outcome: RaceOutcome, again: str | None = None) -> Iterator[str]:
    """The path to use and how sure that is. For a race without a decision: the paths left, and the
    cost of deciding. `again` is the command that continues the race.
    """
    after = f"after {counted(outcome.rounds, 'round')}"
    if outcome.measured == 1:
        yield (
            f"Only {outcome.best} of {counted(outcome.cells, 'path')} has numbers ({after}), so "
            "there is nothing to compare it with."
        )
        return
    if not outcome.shows_anything:
        continues = "the same command continues" if again is None else f"`{again}` continues"
        said = nothing_shown(outcome.rounds)
        yield f"{said[0].upper()}{said[1:]}: {continues}."
        return
    yield f"{headline(of_race(outcome))}, {after}."
    if outcome.as_good:
        yield f"Not shown to be worse: {named(outcome.as_good)}."
        if outcome.rounds < outcome.most_rounds:
            command = "The same command" if again is None else f"`{again}`"
            yield f"{command} goes on."
        else:
            yield "The limit of rounds was reached. More --rounds or a longer --runtime decide."
    yield from not_raced(outcome)


def not_raced(outcome: RaceOutcome) -> Iterator[str]:
    """Which paths took no part in the race."""
    if outcome.left_out:
        never = outcome.cells - outcome.measured
        unseen = f"; {never} were never measured" if never else ""
        yield (
            f"{counted(outcome.left_out, 'other path')} did not race: a model of the segments that "
            f"paths share expects no better of them{unseen}. "
            "--every-path races them all."
        )
    if outcome.lost:
        yield (
            f"Failed in the middle of the race: {named(outcome.lost)}. Only the rounds before that "
            "compare it with the others."
        )
    never = outcome.failed - len(outcome.lost)
    if never:
        yield f"{counted(never, 'path')} failed and did not compete."


def ranking_after_race(outcome: RaceOutcome, ranking: Ranking) -> str | None:
    """Why the ranking does not say the same as the race; None if it does."""
    best = ranking.best
    if best is None or best.alone or not outcome.decided or outcome.proven:
        return None
    return (
        "The ranking asks which path is the best of all, and that takes more rounds; the race "
        f"ends with one within {_margin(outcome)} of it."
    )


def race_rule(outcome: RaceOutcome) -> str | None:
    """What a race asks for, which is less than the best of all; None if it has shown the best."""
    if outcome.proven:
        return None
    near = f"one path is shown to be within {_margin(outcome)} of the best"
    after = counted(outcome.rounds, "round")
    if outcome.decided and len(outcome.going_on) > 1:
        return f"A race ends when {near}; {after} have shown that of these paths."
    if outcome.decided:
        return f"A race ends when {near}; this race ended so after {after}."
    if outcome.rounds < outcome.most_rounds:
        return f"A race ends when {near}; {after} have not shown that yet."
    return f"A race ends when {near}; this race reached its limit of {after} before."


def _margin(outcome: RaceOutcome) -> str:
    if outcome.step is not None:
        return f"the step of {outcome.step:g}"
    return margin_text(outcome.margin)


def race_effort(runs: int, outcome: RaceOutcome) -> str:
    """How many runs a race made of how many paths."""
    paths = counted(outcome.cells, "path")
    return f"Measured {outcome.measured} of {paths} in {counted(runs, 'run')}."
