"""Verdicts of power cuts as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import assert_never

from vdisklab.analysis.recommend import Recommendation
from vdisklab.path.durability import Cuts, Durability, Keeping, PathVerdict
from vdisklab.render.document import Json, document, host_json
from vdisklab.render.tables.layout import Column, Table, Value, text
from vdisklab.results.powercut import DISK_LOG, PowerCut
from vdisklab.services.answers import judged_without_its_device
from vdisklab.services.powercut import PowerCutAnswer, ReplayedCase

_COLUMNS = (
    Column("path", "path", folds=True),
    Column("client", "client"),
    Column("access", "through"),
    Column("survives", "verdict"),
    Column("states", "states", right=True),
    Column("exhaustive", "of all"),
    Column("promises", "promises", right=True),
    Column("flushes", "flushes", right=True, only_wide=True),
    Column("case", "case"),
    Column("detail", "what was found", folds=True),
)


def verdict_word(found: PowerCut) -> str:
    """The verdict in one word or two."""
    if found.failure is not None:
        return "failed"
    if found.survives is None:
        return "no promise"
    return "survives" if found.survives else "LOSS"


def power_cut_table(found: Sequence[PowerCut], notes: Sequence[str] = ()) -> Table:
    """One row per verdict, in the order given; `notes` say how it was judged."""
    rows = tuple(
        (
            text(each.path),
            text(each.client),
            text(_through(each)),
            Value(each.survives, verdict_word(each)),
            Value(each.states, str(each.states)),
            Value(each.exhaustive, _share(each)),
            Value(each.promises, str(each.promises)),
            Value(each.flushes, str(each.flushes)),
            _case(each),
            text(_detail(each)),
        )
        for each in found
    )
    title = "Power cuts" if rows else "No power cut has been judged yet: `vdisklab powercut PATHS…`"
    return Table(title, _COLUMNS, rows, tuple(notes))


def power_cut_notes(answer: PowerCutAnswer) -> tuple[str, ...]:
    """What to know when reading the verdicts, one sentence or two for each point."""
    verdicts = answer.verdicts
    notes = [
        "A verdict is about the recorded run under one model of a disk: what completed before "
        "the last flush is durable, any subset of the rest may be. It says nothing of a drive "
        "that lies."
    ]
    sampled = [cut.states for cut in verdicts if cut.survives and not cut.exhaustive]
    if sampled:
        notes.append(
            "Where a sample of n states survived, at most 3/n of all states lose (95 %, rule of "
            f"three): here {Cuts(min(sampled)).most_losing:.2%} or less."
        )
    kernel = dict.fromkeys(cut.seen[DISK_LOG] for cut in verdicts if DISK_LOG in cut.seen)
    if kernel:
        notes.append(f"The disk was logged by the kernel's {', '.join(kernel)}, not through FUSE.")
    partial = dict.fromkeys(cut.path for cut in verdicts if judged_without_its_device(cut))
    if partial:
        notes.append(
            f"{', '.join(partial)}: judged without the device. QEMU's NVMe device with a write "
            "cache forgets FUA, which the block layer alone honours: --access guest judges both."
        )
    if answer.controls:
        notes.append(f"{len(answer.controls)} controls passed before the first verdict.")
    return tuple(notes)


def power_cut_document(answer: PowerCutAnswer) -> Json:
    """The JSON document: all that is known of each verdict, and the controls before them."""
    return document(
        "powercut",
        1,
        controls=[{**asdict(each), "passed": each.passed} for each in answer.controls],
        verdicts=[_verdict(cut) for cut in answer.verdicts],
    )


def replay_lines(replayed: ReplayedCase) -> Iterator[str]:
    """A replayed state, one property on each line."""
    yield f"path      {replayed.path}"
    yield f"client    {replayed.client}: {replayed.client.promise}"
    yield f"verdict   {replayed.outcome}"
    if replayed.detail:
        yield f"found     {replayed.detail}"
    yield f"device    {replayed.device}"
    if replayed.mountpoint is None:
        yield "mounted   no: it does not recover"
    else:
        yield f"mounted   {replayed.mountpoint}"
        yield f"image     {replayed.image}"


def _through(found: PowerCut) -> str:
    """The access, and the setting of the guest's driver when there is one."""
    driver = str(found.settings.get("driver", "as-found"))
    return found.access if driver == "as-found" else f"{found.access}, {driver}"


def _share(found: PowerCut) -> str:
    if found.failure is not None:
        return ""
    return "all" if found.exhaustive else f"{found.possible:.3g}"


def _case(found: PowerCut) -> Value:
    bad = found.counterexample
    return Value(None, "") if bad is None else text(bad.case)


def _detail(found: PowerCut) -> str:
    if found.failure is not None:
        return found.failure
    if found.counterexample is not None:
        return found.counterexample.detail
    return found.claim if found.survives is None else ""


def _verdict(found: PowerCut) -> Json:
    bad = found.counterexample
    return {
        "id": found.id,
        "path": found.path,
        "client": found.client,
        "access": found.access,
        "started": found.started.isoformat(),
        "wall_seconds": found.wall_seconds,
        "survives": found.survives,
        "claim": found.claim,
        "states": found.states,
        "possible": found.possible,
        "exhaustive": found.exhaustive,
        "promises": found.promises,
        "flushes": found.flushes,
        "leaked_states": found.leaked_states,
        "repaired_states": found.repaired_states,
        "afterlives": found.afterlives,
        "outcomes": dict(found.outcomes),
        "settings": dict(found.settings),
        "seen": dict(found.seen),
        "counterexample": (
            None
            if bad is None
            else {"case": bad.case, "outcome": bad.outcome, "detail": bad.detail}
        ),
        "failure": found.failure,
        "host": host_json(found.host),
    }


class Shown(StrEnum):
    """What the cuts of one path came to, of both kinds of clients together."""

    KEPT_ALL = "kept-all"
    KEPT_FLUSHED = "kept-flushed"
    KEPT_FLUSHED_ONLY = "kept-flushed-only"
    KEPT_UNFLUSHED = "kept-unflushed"
    LOST_UNFLUSHED = "lost-unflushed"
    LOST_FLUSHED = "lost-flushed"


NOT_TRIED = "not tried"

_WORDS = {
    None: NOT_TRIED,
    Shown.KEPT_ALL: "all",
    Shown.KEPT_FLUSHED: "flushed",
    Shown.KEPT_FLUSHED_ONLY: "flushed",
    Shown.KEPT_UNFLUSHED: "unflushed",
    Shown.LOST_UNFLUSHED: "not all",
    Shown.LOST_FLUSHED: "LOSES",
}

POWER_CUT_COLUMNS = (
    Column("power_cut", "power cut\nkeeps"),
    Column("power_cut_states", "", only_data=True),
    Column("power_cut_broken", "", only_data=True),
)


def power_cut_values(found: PathVerdict | None, *, applies: bool = True) -> tuple[Value, ...]:
    """What was found by cutting the power, and nothing that was not: for POWER_CUT_COLUMNS.

    Blank where it does not apply: on the host itself no guest is promised anything.
    """
    verdict = found or PathVerdict("")
    shown, cuts = shown_verdict(verdict), verdict.flushed + verdict.unflushed
    word = "too few" if shown is None and cuts.judged else _WORDS[shown]
    return (
        Value(None if shown is None else shown.value, word if applies else ""),
        Value(cuts.judged or None, ""),
        Value(cuts.broken if cuts.judged else None, ""),
    )


def shown_verdict(verdict: PathVerdict) -> Shown | None:
    """The verdict as a whole; None where no cut was judged."""
    return {
        (None, None): None,
        (None, True): Shown.KEPT_UNFLUSHED,
        (None, False): Shown.LOST_UNFLUSHED,
        (True, None): Shown.KEPT_FLUSHED,
        (True, True): Shown.KEPT_ALL,
        (True, False): Shown.KEPT_FLUSHED_ONLY,
    }.get((verdict.flushed.kept, verdict.unflushed.kept), Shown.LOST_FLUSHED)


def durability_sentence(path: str, found: Durability) -> str:
    """What a power cut takes: as it was tested here, else as the rules have it."""
    flush = "even without a flush" if found.flush_free else "once the guest has flushed it"
    match found.keeping:
        case Keeping.LOST_BY_CONSTRUCTION:
            return f"{path} loses flushed data in a power cut: {found.reason}."
        case Keeping.LOST_IN_TEST:
            said = (
                f"{path} lost promised data in {found.cuts.broken} of {found.cuts.judged} "
                "power cuts."
            )
        case Keeping.KEPT_IN_TEST:
            said = f"{path} kept all that was promised in {_extent(found.cuts)}: {flush}."
        case Keeping.NOT_TESTED:
            few = found.cuts.judged
            tested = f"tested in {few} power cuts, which is too few" if few else "not tested"
            said = (
                f"{path} passes flushes on, so data ought to be safe {flush}; {tested}: "
                f"run `vdisklab powercut {path}`."
            )
        case _:
            assert_never(found.keeping)
    return " ".join([said, *_unflushed(found)])


def _extent(cuts: Cuts) -> str:
    """How many cuts, and what so many can show: the rule of three, unless they were all."""
    if cuts.all_judged:
        return f"all {cuts.judged} power cuts that its run could have met"
    return f"{cuts.judged} power cuts (at most {cuts.most_losing:.1%} of all lose, 95 %)"


def _unflushed(found: Durability) -> Iterator[str]:
    """What a guest that never flushes loses, where that was tested and did not decide."""
    cuts = found.tested.unflushed if found.tested is not None else Cuts()
    if found.flush_free or cuts.kept is None:
        return
    if cuts.kept:
        yield f"What was never flushed was kept, too, in {cuts.judged} power cuts."
    else:
        yield (
            f"What was written and never flushed was lost in {cuts.broken} of {cuts.judged} "
            "power cuts."
        )


def keeping_word(found: Durability) -> str:
    """The same in two words."""
    return {
        Keeping.LOST_BY_CONSTRUCTION: "loses data",
        Keeping.LOST_IN_TEST: "lost data",
        Keeping.KEPT_IN_TEST: "kept all",
        Keeping.NOT_TESTED: "not tested",
    }[found.keeping]


def basis_sentence(found: Recommendation) -> Iterator[str]:
    """By what the needs of safety were decided: verdicts of power cuts, or rules."""
    if not any(need.goes_by_power_cuts for need in found.needs):
        return
    tested = sum(each.keeping is Keeping.KEPT_IN_TEST for each in found.durability.values())
    yield basis(tested, len(found.durability))


def basis(tested: int, paths: int) -> str:
    """How many of the paths that count as durable were judged by power cuts on this host."""
    if tested == paths:
        return f"Durable: {tested} of {paths} paths by power cuts on this host."
    return (
        f"Durable: {tested} of {paths} paths by power cuts on this host, the others by rule alone: "
        "nothing in their stacks is told to drop flushes."
    )
