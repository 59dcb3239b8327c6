"""Verdicts of power cuts: their table, their document, and sentences about a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, assert_never

from vdisklab.analysis.candidates import Recommendation
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import (
    Cuts,
    Durability,
    FailureModel,
    HostDisk,
    Keeping,
    PathVerdict,
    Verdicts,
    durability,
)
from vdisklab.render import numbers
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.rankings import PowerCutOutcome
from vdisklab.render.documents.records import (
    ControlEntry,
    PowerCutDocument,
    VerdictEntry,
    VerdictRow,
)
from vdisklab.render.tables.layout import NAMES, WORDS, Column, Table
from vdisklab.render.wording import named
from vdisklab.results.power_cut import DISK_LOG, PowerCut, ReplayedState, outcome_words
from vdisklab.services.answers import judged_without_its_device
from vdisklab.services.cut_power import PowerCutAnswer


def verdict_word(cut: PowerCut) -> str:
    """The verdict in one or two words."""
    if cut.failure is not None:
        return "failed"
    if cut.survives is None:
        return "no promise"
    return "survives" if cut.survives else "LOSS"


def power_cut_table(cuts: Sequence[PowerCut], notes: Sequence[str] = ()) -> Table[PowerCut]:
    """One row per verdict, in the order given; `notes` say how it was judged."""
    title = "Power cuts" if cuts else "No power cut has been judged yet: `vdisklab powercut PATHS…`"
    columns = (
        Column[PowerCut]("path", lambda cut: cut.path, folds=NAMES),
        Column[PowerCut]("client", lambda cut: cut.client, spare=1),
        Column[PowerCut]("through", _access, spare=1),
        *([Column[PowerCut]("model", lambda cut: cut.model)] if _has_models(cuts) else []),
        *(
            [Column[PowerCut]("during", lambda cut: cut.during or "")]
            if any(cut.during for cut in cuts)
            else []
        ),
        Column[PowerCut]("verdict", verdict_word),
        Column[PowerCut]("states", lambda cut: str(cut.states), right=True),
        Column[PowerCut]("of all", _possible, spare=1),
        Column[PowerCut]("promises", lambda cut: str(cut.promises), right=True, spare=1),
        Column[PowerCut]("flushes", lambda cut: str(cut.flushes), right=True, spare=2),
        Column[PowerCut]("case", lambda cut: _case(cut) or "", spare=1),
        Column[PowerCut]("detail", _detail, folds=WORDS),
    )
    return Table(title, columns, cuts, tuple(notes), kind=VerdictRow, record=_row)


def power_cut_notes(answer: PowerCutAnswer) -> tuple[str, ...]:
    """Notes on the verdicts, one or two sentences each."""
    verdicts = answer.verdicts
    models = [model for model in FailureModel if any(cut.model == model for cut in verdicts)]
    notes = [f"Model {model}: {model.survivors}." for model in models]
    notes.append(
        "A verdict is about the recorded run under its model. It says nothing about a drive that "
        "acknowledges flushes without writing."
    )
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


def power_cut_document(answer: PowerCutAnswer) -> PowerCutDocument:
    """All fields of each verdict, and the controls that ran before."""
    return PowerCutDocument(
        controls=tuple(copy_fields(ControlEntry, control) for control in answer.controls),
        verdicts=tuple(_entry(cut) for cut in answer.verdicts),
    )


def _entry(cut: PowerCut) -> VerdictEntry:
    first = cut.counterexample
    return copy_fields(
        VerdictEntry,
        cut,
        outcomes={outcome_words(outcome): count for outcome, count in cut.outcomes.items()},
        counterexample=first and replace(first, outcome=outcome_words(first.outcome)),
    )


def replay_lines(replayed: ReplayedState) -> Iterator[str]:
    """A replayed state, one property on each line."""
    yield f"path      {replayed.path}"
    yield f"client    {replayed.client}: {replayed.promise}"
    yield f"verdict   {outcome_words(replayed.outcome)}"
    if replayed.detail:
        yield f"detail    {replayed.detail}"
    yield f"device    {replayed.device}"
    if replayed.mountpoint is None:
        yield "mounted   no: it does not recover"
    else:
        yield f"mounted   {replayed.mountpoint}"
        yield f"image     {replayed.image}"


def _has_models(cuts: Sequence[PowerCut]) -> bool:
    return any(cut.model != FailureModel.POWER for cut in cuts)


def _row(cut: PowerCut) -> VerdictRow:
    return copy_fields(
        VerdictRow,
        cut,
        model=cut.model,
        during=cut.during,
        access=_access(cut),
        case=_case(cut),
        detail=_detail(cut),
    )


def _access(cut: PowerCut) -> str:
    """The access, and the setting of the guest's driver when there is one."""
    driver = str(cut.settings.get("driver", "as-found"))
    return cut.access if driver == "as-found" else f"{cut.access}, {driver}"


def _possible(cut: PowerCut) -> str:
    """The number of possible states; `all` when all were judged."""
    if cut.failure is not None:
        return ""
    return "all" if cut.exhaustive else f"{cut.possible:.3g}"


def _case(cut: PowerCut) -> str | None:
    return None if cut.counterexample is None else cut.counterexample.case


def _detail(cut: PowerCut) -> str:
    if cut.failure is not None:
        return cut.failure
    if cut.counterexample is not None:
        return cut.counterexample.detail
    return cut.claim if cut.survives is None else ""


_WORDS = {
    None: "untested",
    PowerCutOutcome.KEPT_ALL: "kept all",
    PowerCutOutcome.KEPT_FLUSHED: "kept flushed",
    PowerCutOutcome.KEPT_FLUSHED_ONLY: "kept flushed",
    PowerCutOutcome.KEPT_UNFLUSHED: "kept unflushed",
    PowerCutOutcome.LOST_UNFLUSHED: "lost unflushed",
    PowerCutOutcome.LOST_FLUSHED: "LOST FLUSHED",
}


def power_cut_word(durability: Durability) -> str:
    """What a power cut does to a path, in two words: as tested here, otherwise by rule."""
    outcome = outcome_of(durability.tested or PathVerdict(""))
    match durability.keeping:
        case Keeping.LOST_BY_CONSTRUCTION if outcome is not PowerCutOutcome.LOST_FLUSHED:
            return "loses data"
        case Keeping.LOST_IN_TEST if outcome is not PowerCutOutcome.LOST_FLUSHED:
            return "LOST DATA"  # a path that needs no flush lost data without one
        case _:
            return "too few" if outcome is None and durability.cuts.judged else _WORDS[outcome]


def power_cut_of(cell: MeasuredCell, verdicts: Verdicts) -> str:
    """The word for a cell's path; blank on the host, where no guest depends on it."""
    path = cell.path
    if path is None:
        return numbers.MISSING
    return "" if path.on_host else power_cut_word(durability(path, verdicts))


def keeping_of(cell: MeasuredCell, verdicts: Verdicts) -> Keeping | None:
    """What happens to flushed data, for documents; None on the host and for a free name."""
    path = cell.path
    return None if path is None or path.on_host else durability(path, verdicts).keeping


def outcome_of(verdict: PathVerdict) -> PowerCutOutcome | None:
    """The outcome of both kinds of clients together; None where too few states were judged."""
    return {
        (None, None): None,
        (None, True): PowerCutOutcome.KEPT_UNFLUSHED,
        (None, False): PowerCutOutcome.LOST_UNFLUSHED,
        (True, None): PowerCutOutcome.KEPT_FLUSHED,
        (True, True): PowerCutOutcome.KEPT_ALL,
        (True, False): PowerCutOutcome.KEPT_FLUSHED_ONLY,
    }.get((verdict.flushed.kept, verdict.unflushed.kept), PowerCutOutcome.LOST_FLUSHED)


def power_cut_fields(verdict: PathVerdict | None) -> dict[str, Any]:
    """The fields `power_cut`, `power_cut_states` and `power_cut_broken` of a row."""
    verdict = verdict or PathVerdict("")
    cuts = verdict.flushed + verdict.unflushed
    return {
        "power_cut": outcome_of(verdict),
        "power_cut_states": cuts.judged or None,
        "power_cut_broken": cuts.broken if cuts.judged else None,
    }


def durability_sentence(path: str, durability: Durability) -> str:
    """What a power cut does to a path: as tested here, otherwise by rule."""
    condition = "even without a flush" if durability.flush_free else "once the guest has flushed it"
    cuts, above = durability.cuts, durability.disk.above
    match durability.keeping:
        case Keeping.LOST_BY_CONSTRUCTION:
            return f"{path} loses {_loss(durability)}."
        case Keeping.LOST_IN_TEST:
            answer = f"{path} lost {_loss(durability)}."
        case Keeping.KEPT_IN_TEST:
            answer = f"{path} kept all that was promised in {_extent(cuts)}{above}: {condition}."
        case Keeping.NOT_TESTED:
            few = cuts.judged
            tested = f"tested in {few} power cuts, which is too few" if few else "not tested"
            answer = (
                f"{path} {_rule(durability)}, so data should be safe {condition}; {tested}: "
                f"run `vdisklab powercut {path}{_model_option(durability.disk)}`."
            )
        case _:
            assert_never(durability.keeping)
    return " ".join([answer, *_unflushed(durability)])


def _rule(durability: Durability) -> str:
    if durability.flush_free and durability.disk.keeps_its_cache:
        return "writes in place to a disk that keeps what it completed"
    return "passes flushes on"


def _model_option(disk: HostDisk) -> str:
    return "" if disk is HostDisk.VOLATILE else f" --model {disk.model}"


def disk_note(disk: HostDisk) -> Iterator[str]:
    """What the column `power cut` assumes, unless it is the strictest disk."""
    if disk is HostDisk.PLP:
        yield (
            "Power cuts are above a disk with power-loss protection (--disk plp): it keeps every "
            "write that it completed; the host's memory is lost."
        )


def loss_sentences(cells: Iterable[MeasuredCell], verdicts: Verdicts) -> tuple[str, ...]:
    """Which of these cells lose flushed data in a power cut: a sentence for each reason."""
    paths: dict[tuple[bool, str], dict[str, None]] = {}
    for cell in cells:
        path = cell.path
        if path is not None and path.is_guest_storage:
            kept = durability(path, verdicts)
            if not kept.keeping.acceptable:
                known = kept.keeping is Keeping.LOST_BY_CONSTRUCTION
                paths.setdefault((known, _loss(kept)), {})[cell.name] = None
    return tuple(
        f"{named(tuple(names))} {_VERBS[known, len(names) > 1]} {loss}."
        for (known, loss), names in paths.items()
    )


_VERBS = {
    (True, False): "loses",
    (True, True): "lose",
    (False, False): "lost",
    (False, True): "each lost",
}
"""The verb by whether a rule or power cuts show a loss, and whether several paths have it."""


def _loss(durability: Durability) -> str:
    """What a path loses and why, if it is known to lose data."""
    cuts, above = durability.cuts, durability.disk.above
    if durability.keeping is Keeping.LOST_BY_CONSTRUCTION:
        return f"flushed data in a power cut{above}: {durability.reason}"
    return f"promised data in {cuts.broken} of {cuts.judged} power cuts{above}"


def _extent(cuts: Cuts) -> str:
    """How many cuts, and the bound on the loss rate (rule of three), unless all were judged."""
    if cuts.all_judged:
        return f"all {cuts.judged} power cuts that were possible in its run"
    return f"{cuts.judged} power cuts (at most {cuts.most_losing:.1%} of all lose data, 95 %)"


def _unflushed(durability: Durability) -> Iterator[str]:
    """What a guest that never flushes loses, if it was tested but did not decide."""
    cuts = durability.tested.unflushed if durability.tested is not None else Cuts()
    if durability.flush_free or cuts.kept is None:
        return
    if cuts.kept:
        yield f"Unflushed data were kept, too, in {cuts.judged} power cuts."
    else:
        yield f"Unflushed data were lost in {cuts.broken} of {cuts.judged} power cuts."


def basis_sentence(recommendation: Recommendation) -> Iterator[str]:
    """Whether power cuts or rules decided durability; empty if no need asks for it."""
    if any(need.goes_by_power_cuts for need in recommendation.needs):
        durabilities = recommendation.durability.values()
        tested = sum(durability.keeping is Keeping.KEPT_IN_TEST for durability in durabilities)
        yield basis(tested, len(durabilities))


def basis(tested: int, paths: int) -> str:
    """How many of the durable paths were judged by power cuts on this host."""
    if tested == paths:
        return f"Durable: {tested} of {paths} paths by power cuts on this host."
    return (
        f"Durable: {tested} of {paths} paths by power cuts on this host, the others by rule alone: "
        "nothing in their stacks is configured to drop flushes."
    )
