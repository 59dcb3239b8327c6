"""The verdicts of `vdisklab powercut` as table, notes and document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vdisklab.actions.cut_power import PowerCutAnswer
from vdisklab.answers.loading import judged_without_its_device
from vdisklab.path.durability import Cuts, FailureModel
from vdisklab.results.power_cut import DISK_LOG, PowerCut, ReplayedState, outcome_words
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.records import PowerCutDocument, VerdictEntry, VerdictRow
from vdisklab.views.layout import NAMES, WORDS, Column, Table


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
    columns: tuple[Column[PowerCut], ...] = (
        Column("path", lambda cut: cut.path, folds=NAMES),
        Column("client", lambda cut: cut.client, spare=1),
        Column("through", _access, spare=1),
        *([Column[PowerCut]("model", lambda cut: cut.model)] if _has_models(cuts) else []),
        *(
            [Column[PowerCut]("during", lambda cut: cut.during or "")]
            if any(cut.during for cut in cuts)
            else []
        ),
        Column("verdict", verdict_word),
        Column("states", lambda cut: str(cut.states), right=True),
        Column("of all", _possible, spare=1),
        Column("promises", lambda cut: str(cut.promises), right=True, spare=1),
        Column("flushes", lambda cut: str(cut.flushes), right=True, spare=2),
        Column("case", lambda cut: _case(cut) or "", spare=1),
        Column("detail", _detail, folds=WORDS),
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
    return copy_fields(PowerCutDocument, answer, verdicts=tuple(map(_entry, answer.verdicts)))


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
