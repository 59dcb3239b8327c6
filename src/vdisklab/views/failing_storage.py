"""What guests keep whose storage fails, in words and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vdisklab.answers.powercut import CrashVerdict
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind, RunOutcome
from vdisklab.results.power_cut import StorageFacts, failure_words
from vdisklab.units import counted, named
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_NOT_NOTICED = "notices nothing"
_AFTERWARDS: Mapping[str, str] = {
    RunOutcome.READ_ONLY: ", but its file system is read-only",
    RunOutcome.RESTART: ", but it takes no write before a restart",
    RunOutcome.REPAIR: ", but its file system needs repair",
    RunOutcome.HANGS: ", but it hangs for good",
    RunOutcome.DATABASE: ", but its database is damaged",
}
_MADE_SAFE: Mapping[str, tuple[str, str]] = {
    ClientKind.FILES: ("files", "fsynced"),
    ClientKind.FLUSHES: ("blocks", "flushed"),
    ClientKind.FUA: ("blocks", "written with FUA"),
    ClientKind.NEVER: ("blocks", "written"),
}
_COMMITTED = ("transactions", "committed")
"""What a client takes for durable, and what it did with it; else it is a database."""
_SHORT = 0.1  # seconds
_WORST_NAMED = 3
"""The headline tells at most that many paths."""


def table(rows: Sequence[CrashVerdict], *, controls: int) -> Table[CrashVerdict]:
    """One row per path, failure and client, in the order of the questions."""
    clients = any(row.client != ClientKind.FILES for row in rows)
    cases = any(row.counterexample for row in rows)
    columns: tuple[Column[CrashVerdict], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("failure", _failure, folds=WORDS),
        *([Column[CrashVerdict]("client", lambda row: row.client)] if clients else []),
        Column("guest", _outcome, phone=True),
        Column("paused\nafter", lambda row: _after(row, "paused_after"), right=True, spare=1),
        Column("told\nafter", lambda row: _after(row, "told_after"), right=True, spare=1),
        Column("lost of\nacknowledged", _lost, right=True, spare=1),
        Column("runs", lambda row: str(row.states), right=True, spare=2),
        Column("requests\nfailed", _failed, right=True, spare=2),
        Column("told", _told, spare=3),
        Column("the guest's kernel", _kernel, folds=WORDS, spare=3),
        *([Column[CrashVerdict]("case", _case, spare=2)] if cases else []),
        Column("detail", _detail, folds=WORDS, spare=2),
    )
    return Table(headline(rows), columns, rows, tuple(_notes(rows, controls)), kind=CrashVerdict)


def headline(rows: Sequence[CrashVerdict]) -> str:
    """What became of the guests, worst first."""
    parts = [_sentence(row) for row in sorted(rows, key=_badness)]
    more = len(parts) - _WORST_NAMED
    if more > 0:
        parts = [*parts[:_WORST_NAMED], f"{counted(more, 'further verdict')} below"]
    return "; ".join(parts) + "."


def _badness(row: CrashVerdict) -> int:
    facts = row.storage
    if facts is None:
        return 1
    return 0 if facts.lost else 3 if _is_whole(facts) else 2


def _is_whole(facts: StorageFacts) -> bool:
    """True if the guest is what it was as soon as its storage is good again."""
    return facts.worst in (RunOutcome.GOES_ON, RunOutcome.PAUSED)


def _sentence(row: CrashVerdict) -> str:
    """One verdict as a clause: what the guest lost, and how it learned of the failure."""
    client = "" if row.client == ClientKind.FILES else f" with client {row.client}"
    facts, where = row.storage, f"{row.path}{client} under {_failure(row)}"
    if row.failure is not None or facts is None:
        return f"{where} could not be judged"
    things, made_safe = _MADE_SAFE.get(row.client, _COMMITTED)
    kept = f"lost nothing that it had {made_safe}"
    if facts.lost:
        kept = f"lost {facts.lost} of {facts.acknowledged} {things} that it had {made_safe}"
    learned = "was never told"
    if facts.told_after is not None:
        learned = f"was told after {_seconds(facts.told_after)}{_in(facts.told_runs, row)}"
    elif facts.paused_after is not None:
        learned = f"was paused after {_seconds(facts.paused_after)}{_in(facts.paused_runs, row)}"
    elif not facts.failed:
        return f"{where} {_NOT_NOTICED}: {_why_nothing_failed(row)}"
    state = "" if facts.lost else _AFTERWARDS.get(facts.worst, "")
    return f"{where} {kept} and {learned}{state}"


def _in(runs: int, row: CrashVerdict) -> str:
    """In how many of its runs, unless in all."""
    return "" if runs == row.states else f" in {runs} of {row.states} runs"


def _why_nothing_failed(row: CrashVerdict) -> str:
    """Why no request failed, and what to judge instead.

    PostgreSQL writes its log to files that it has allocated before.
    """
    if row.model not in (FailureModel.STORAGE_FULL, FailureModel.STORAGE_QUOTA):
        return "no request failed"
    image = parse_path(row.path).image
    is_thin = image is not None and image.is_thin
    longer = "give it longer (--failing-seconds), or take --client files"
    instead = longer if is_thin else "judge a thin image (preallocation=off)"
    return f"no write needed a new place: {instead}"


def _failure(row: CrashVerdict) -> str:
    return failure_words(row.model, row.settings)


def _outcome(row: CrashVerdict) -> str:
    """The outcomes of the runs; one of them alone without its number."""
    if row.failure is not None:
        return "failed"
    if row.storage is not None and not row.storage.failed:
        return _NOT_NOTICED
    if len(row.outcomes) == 1:
        return next(iter(row.outcomes))
    return ", ".join(f"{word} ×{count}" for word, count in row.outcomes.items())


def _after(row: CrashVerdict, moment: str) -> str:
    value = None if row.storage is None else getattr(row.storage, moment)
    return "" if value is None else _seconds(value)


def _seconds(value: float) -> str:
    if value < _SHORT:
        return f"{max(1, round(1000 * value))} ms"
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"


def _lost(row: CrashVerdict) -> str:
    facts = row.storage
    return "" if facts is None else f"{facts.lost} of {facts.acknowledged}"


def _failed(row: CrashVerdict) -> str:
    return "" if row.storage is None else str(row.storage.failed)


def _told(row: CrashVerdict) -> str:
    """In how many runs the program was told, and what."""
    facts = row.storage
    if facts is None or not facts.failed:
        return ""
    if not facts.told:
        return "never"
    return f"{facts.error} in {facts.told_runs} of {row.states} runs"


def _kernel(row: CrashVerdict) -> str:
    facts = row.storage
    return "" if facts is None else ", ".join(facts.kernel)


def _case(row: CrashVerdict) -> str:
    return "" if row.counterexample is None else row.counterexample.case


def _detail(row: CrashVerdict) -> str:
    if row.failure is not None:
        return row.failure
    return "" if row.storage is None else row.storage.detail


def _notes(rows: Sequence[CrashVerdict], controls: int) -> Iterator[str]:
    for model in FailureModel:
        if any(row.model == model for row in rows):
            yield f"Model {model}: {model.survivors}."
    untold = [row.path for row in rows if _was_betrayed(row.storage)]
    if untold:
        yield (
            f"{named(tuple(dict.fromkeys(untold)))}: an fsync failed, was called again, succeeded, "
            "and the file was lost. After a failed fsync a program must write its data again."
        )
    yield (
        "When the storage is good again, vdisklab grows what was full and continues a guest that "
        "QEMU has paused. The image's own file fails, whatever host layers its path names."
    )
    cases = [row.counterexample.case for row in rows if row.counterexample]
    if cases:
        yield f"`vdisklab powercut --replay {cases[0]}` shows the guest's disk after that run."
    yield "Times are medians, from the first request that failed."
    if controls:
        yield f"{counted(controls, 'control')} passed before the first verdict."


def _was_betrayed(facts: StorageFacts | None) -> bool:
    return facts is not None and facts.again_lost > 0
