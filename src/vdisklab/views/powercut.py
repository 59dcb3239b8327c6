"""The answer of `powercut` in words and columns."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.powercut import CrashVerdict, PowercutAnswer
from vdisklab.path.durability import CrashStates, FailureModel
from vdisklab.results.power_cut import ReplayedState, outcome_words
from vdisklab.units import counted, in_percent, named
from vdisklab.value import replace
from vdisklab.views import failing_storage
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_MOST_STATES = 1_000_000
"""More possible states than that are only said to be many."""
_NAMED = 3
"""A sentence names at most that many paths of a kind."""


def tables(answer: PowercutAnswer) -> Iterator[Table[CrashVerdict]]:
    """One row per verdict, in the order of the questions; first the paths that have none."""
    first, *others = _tables(answer)
    left = tuple(dict.fromkeys(dropped.path for dropped in answer.left_out))
    missing = (f"Not judged as asked: {named(left, _NAMED)}.",) if left else ()
    yield from (replace(first, intro=(*missing, *first.intro)), *others)


def _tables(answer: PowercutAnswer) -> Iterator[Table[CrashVerdict]]:
    failing = [row for row in answer.verdicts if _fails_storage(row)]
    rows = [row for row in answer.verdicts if not _fails_storage(row)]
    if failing:
        yield failing_storage.table(failing, controls=0 if rows else len(answer.controls))
        if not rows:
            return
    models = any(row.model != FailureModel.POWER for row in rows)
    columns: tuple[Column[CrashVerdict], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("client", lambda row: row.client_words, spare=1, phone=True),
        Column("through", _access, spare=1),
        *([Column[CrashVerdict]("model", lambda row: row.model)] if models else []),
        *(
            [Column[CrashVerdict]("during", lambda row: row.during or "")]
            if any(row.during for row in rows)
            else []
        ),
        Column("verdict", verdict_word),
        Column("states\njudged", lambda row: str(row.states), right=True, phone=False),
        Column("states\npossible", _possible, right=True, spare=1),
        Column("acknowledged\nwrites", lambda row: str(row.acknowledged), right=True, spare=1),
        Column("flushes", lambda row: str(row.flushes), right=True, spare=2),
        Column("case", lambda row: row.counterexample.case if row.counterexample else "", spare=1),
        Column("detail", _detail, folds=WORDS),
    )
    shown = replace(answer, verdicts=tuple(rows))
    yield Table(headline(shown), columns, rows, tuple(_notes(shown)), kind=CrashVerdict)


def _fails_storage(row: CrashVerdict) -> bool:
    return row.model in set(FailureModel) and FailureModel(row.model).fails_storage


def verdict_word(row: CrashVerdict) -> str:
    """The verdict in one or two words."""
    if row.failure is not None:
        return "failed"
    if row.survives is None:
        return "no writes"
    return "survives" if row.survives else "LOSS"


def headline(answer: PowercutAnswer) -> str:
    """The question, and the outcome for each path."""
    rows = answer.verdicts
    if not rows and answer.interrupted:
        return "Interrupted before the first verdict."
    if not rows:
        return "No power cut has been judged yet: `vdisklab powercut PATHS…`"
    models = dict.fromkeys(_failures(row) for row in rows)
    paths: dict[tuple[str, str], list[str]] = {}
    for path in dict.fromkeys(row.path for row in rows):
        paths.setdefault(_came_out([row for row in rows if row.path == path]), []).append(path)
    parts = (
        f"{named(found) if len(found) <= _NAMED else counted(len(found), 'path')} "
        f"{verbs[len(found) > 1]}"
        for verbs, found in paths.items()
    )
    return f"Do acknowledged writes survive {named(tuple(models))}? {'; '.join(parts)}."


def _failures(row: CrashVerdict) -> str:
    return FailureModel(row.model).failure[1] if row.model in set(FailureModel) else row.model


def _came_out(rows: list[CrashVerdict]) -> tuple[str, str]:
    """The outcome in words: for one path, and for several."""
    if any(row.flushed_lost for row in rows):
        return "loses some", "lose some"
    if any(row.survives is False for row in rows):
        never = "of clients that never flush"
        return f"loses some, but only {never}", f"lose some, but only {never}"
    if any(row.failure for row in rows):
        return "could not be judged", "could not be judged"
    if all(row.survives is None for row in rows):
        return "acknowledged no write", "acknowledged no write"
    return "keeps all", "keep all"


def _notes(answer: PowercutAnswer) -> Iterator[str]:
    rows = answer.verdicts
    alone = dict.fromkeys(row.path for row in rows if row.without_device)
    if alone:
        yield (
            f"{', '.join(alone)}: judged without the device. QEMU's NVMe device with a write cache "
            "forgets FUA, which the block layer alone honours: --access guest judges both."
        )
    sampled = [row.states for row in rows if row.survives and not row.exhaustive]
    if sampled:
        yield (
            "Where a sample of n states survived, at most 3/n of all states lose (95 %, rule of "
            f"three): here {in_percent(CrashStates(min(sampled)).most_losing, 2)} or less."
        )
    for model in FailureModel:
        if any(row.model == model for row in rows):
            yield f"Model {model}: {model.survivors}."
    if rows:
        yield (
            "A verdict is about the recorded run under its model. It says nothing about a drive "
            "that acknowledges flushes without writing."
        )
    if answer.controls:
        yield f"{counted(len(answer.controls), 'control')} passed before the first verdict."


def replay_lines(replayed: ReplayedState) -> Iterator[str]:
    """A replayed state, one property on each line."""
    yield f"path      {replayed.path}"
    yield f"client    {replayed.client}: {replayed.expects}"
    if replayed.failure:
        yield f"failure   {replayed.failure}"
    yield f"verdict   {outcome_words(replayed.outcome)}"
    if replayed.detail:
        yield f"detail    {replayed.detail}"
    yield f"device    {replayed.device}"
    if not replayed.has_filesystem:
        yield "mounted   no: the client wrote to the disk itself"
    elif replayed.mountpoint is None:
        yield "mounted   no: it does not recover"
    else:
        yield f"mounted   {replayed.mountpoint}"
    if replayed.image is not None:
        yield f"image     {replayed.image}"


def _access(row: CrashVerdict) -> str:
    """The access, and the setting of the guest's driver when there is one."""
    return row.access if row.driver is None else f"{row.access}, {row.driver}"


def _possible(row: CrashVerdict) -> str:
    """The number of possible states in words."""
    if row.failure is not None:
        return ""
    if row.exhaustive:
        return "the same"
    return f"{row.possible:,.0f}" if row.possible <= _MOST_STATES else "over a million"


def _detail(row: CrashVerdict) -> str:
    if row.failure is not None:
        return row.failure
    if row.counterexample is not None:
        return row.counterexample.detail
    return row.claim if row.survives is None else ""
