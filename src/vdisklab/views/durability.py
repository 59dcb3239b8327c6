"""The crash verdict on a path, in a word and in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from vdisklab import numbers
from vdisklab.analysis.candidates import Recommendation
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import (
    AFTER_A_FLUSH,
    CLAIMED,
    CrashStates,
    CrashVerdicts,
    Durability,
    DurabilityKind,
    HostDisk,
    PowerCutOutcome,
    for_installed_qemu,
    forgets_fua,
    known_durability,
    promise_of,
    what_server_keeps,
    without_made,
)
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.rules import where_judged
from vdisklab.units import counted, in_percent, named

_WORDS = {
    None: "untested",
    PowerCutOutcome.KEPT_ALL: "kept all",
    PowerCutOutcome.KEPT_FLUSHED: "kept flushed",
    PowerCutOutcome.KEPT_FLUSHED_ONLY: "kept flushed",
    PowerCutOutcome.KEPT_UNFLUSHED: "kept unflushed",
    PowerCutOutcome.LOST_UNFLUSHED: "lost unflushed",
    PowerCutOutcome.LOST_FLUSHED: "LOST FLUSHED",
}
_VERBS = {
    (True, False): "loses",
    (True, True): "lose",
    (False, False): "lost",
    (False, True): "each lost",
}
"""The verb by whether a rule or power cuts show a loss, and whether several paths have it."""


def power_cut_word(durability: Durability) -> str:
    """The effect of a power cut on a path in two words: as tested here, otherwise by rule."""
    outcome = durability.outcome
    match durability.kind:
        case DurabilityKind.LOST_BY_CONSTRUCTION if outcome is not PowerCutOutcome.LOST_FLUSHED:
            return "loses data"
        case DurabilityKind.LOST_IN_TEST if outcome is not PowerCutOutcome.LOST_FLUSHED:
            return "LOST DATA"  # a path that needs no flush lost data without one
        case DurabilityKind.BY_SERVER:
            return "by server"
        case DurabilityKind.KEPT_IN_TEST if outcome is None:
            return _WORDS[PowerCutOutcome.KEPT_ALL]  # each kind alone has too few cuts
        case _:
            return "too few" if outcome is None and durability.states.judged else _WORDS[outcome]


def power_cut_text(cell: MeasuredCell, durability: Durability | None) -> str:
    """The word for a cell's path; blank on the host, where no guest depends on it."""
    if durability is None:
        return numbers.MISSING if cell.path is None else ""
    return power_cut_word(durability)


def durability_sentence(
    path: str, durability: Durability, commits: ClientKind | None = None
) -> str:
    """A sentence on the effect of a power cut on a path: as tested here, otherwise by rule. With
    `commits` the command tests those of this database."""
    kept = "every write that the guest had flushed"
    should = "what the guest has flushed should survive a power cut; the rest may be lost"
    if durability.flush_free:
        kept = "every write, flushed or not,"
        should = "what the guest has written should survive a power cut, even without a flush"
    states, where = durability.states, _on(durability.hosts)
    match durability.kind:
        case DurabilityKind.LOST_BY_CONSTRUCTION:
            return f"{path} loses {_loss(durability)}."
        case DurabilityKind.LOST_IN_TEST:
            answer = f"{path} lost {_loss(durability)}."
        case DurabilityKind.KEPT_IN_TEST:
            answer = f"{path} kept {kept} in {_extent(states)}{durability.disk.above}{where}."
        case DurabilityKind.BY_SERVER:
            unknown = what_server_keeps(parse_path(path))
            answer = (
                f"{path} is on a server: {_promised(parse_path(path))}. "
                f"{unknown[:1].upper()}{unknown[1:]}."
            )
        case DurabilityKind.NOT_TESTED:
            few = states.judged
            tested = f"Tested in {few} power cuts{where}, which is too few" if few else "Not tested"
            to_test = "" if durability.elsewhere else way_to_test(path, durability, commits)
            if durability.versions is not None:
                tested += f" with {durability.versions}, and power cuts with others do not count"
                to_test = to_test.replace(": ", ". Where these are installed, ", 1)
            answer = f"{path} {_rule(durability)}, so {should}. {tested}{to_test}."
            answer = " ".join([answer, *_elsewhere(durability)])
        case _:
            assert_never(durability.kind)
    return " ".join([answer, *_unflushed(durability)])


def _promised(path: DiskPath) -> str:
    """When a guest's write is stable on a server, by the path's cache mode, as a clause."""
    mode = path.cache.spelled_out
    if not path.offers_write_cache:
        return f"with cache={mode} each write is flushed, and stable once the server says so"
    if not path.cache.direct:
        return f"with cache={mode} what the guest has flushed is stable once the server says so"
    promise = promise_of(path) or f"{AFTER_A_FLUSH}, or {CLAIMED}"
    return f"a guest's write with cache={mode} is stable {promise}"


def _rule(durability: Durability) -> str:
    if durability.flush_free and durability.disk.keeps_its_cache:
        return "writes in place to a disk that keeps what it completed"
    return "passes flushes on"


def _elsewhere(durability: Durability) -> Iterator[str]:
    """What power cuts showed of the same image on other file systems than the directory's own."""
    file_system = durability.below
    for crashes in durability.elsewhere:
        states = crashes.flushed + crashes.unflushed if durability.flush_free else crashes.flushed
        if states.judged:
            kept = f"lost acknowledged writes in {states.lost} of {states.judged} power cuts"
            if not states.lost:
                kept = f"kept all acknowledged writes in {_extent(states)}"
            yield f"{crashes.path} {kept}."
    if durability.elsewhere:
        yield (
            f"The directory is on {file_system}, where the same may hold."
            if file_system
            else "On which file system the image is, is not known."
        )


def way_to_test(path: str, durability: Durability, commits: ClientKind | None) -> str:
    """Which command tests a path; empty if none can.

    A cut is judged for one guest, with the installed QEMU.
    """
    measured = parse_path(path)
    alone = for_installed_qemu(measured)
    judged = where_judged(alone, durability.below)
    if judged is None:
        return ""
    options = f"{_client_options(judged, commits)}{_model_option(durability.disk)}"
    place = "" if judged == alone else " on a file system"
    name = alone.canonical if judged == alone else str(judged)
    less = "" if alone == without_made(measured) else ", for one guest with the installed QEMU"
    return f": `vdisklab powercut {name}{options}` simulates the cut{place}{less}"


def _client_options(path: DiskPath, commits: ClientKind | None) -> str:
    """Only a database in a guest can write to a directory, and only a guest's cuts count where the
    device drops FUA."""
    if path.shares_directory:
        return " --access guest --client sqlite-extra"
    if commits is not None:
        return f" --access guest --client {commits}"
    return " --access guest" if forgets_fua(path) else ""


def _model_option(disk: HostDisk) -> str:
    return "" if disk is HostDisk.VOLATILE else f" --model {disk.model}"


def disk_note(disk: HostDisk) -> Iterator[str]:
    """The disk that the column `power cut` assumes; empty for the strictest one."""
    if disk is HostDisk.PLP:
        yield (
            "Power cuts are above a disk with power-loss protection (--disk plp): it keeps every "
            "write that it completed; the host's memory is lost."
        )


def hosts_note(power_cuts: Iterable[Durability | None]) -> Iterator[str]:
    """Over hosts: on which the column `power cut` was tested; empty if on none."""
    hosts = sorted({host for found in power_cuts if found is not None for host in found.hosts})
    if hosts:
        yield f"Power cuts were simulated{_on(hosts)}."


def loss_sentences(cells: Iterable[MeasuredCell], verdicts: CrashVerdicts) -> tuple[str, ...]:
    """Which of these cells lose flushed data in a power cut: a sentence for each reason."""
    cells = tuple(cells)
    return losses({cell: known_durability(cell, verdicts) for cell in cells}, cells)


def losses(
    power_cuts: Mapping[MeasuredCell, Durability | None], cells: Iterable[MeasuredCell]
) -> tuple[str, ...]:
    """The same of cells whose durability is known."""
    paths: dict[tuple[bool, str], dict[str, None]] = {}
    for cell in cells:
        kept, path = power_cuts.get(cell), cell.path
        if kept is None or path is None or not path.is_guest_storage or kept.kind.acceptable:
            continue
        by_rule = kept.kind is DurabilityKind.LOST_BY_CONSTRUCTION
        paths.setdefault((by_rule, _loss(kept)), {})[cell.name] = None
    return tuple(
        f"{named(tuple(names))} {_VERBS[by_rule, len(names) > 1]} {loss}."
        for (by_rule, loss), names in paths.items()
    )


def _loss(durability: Durability) -> str:
    """The data that a path loses and why, if it is known to lose any."""
    states, above = durability.states, durability.disk.above
    if durability.kind is DurabilityKind.LOST_BY_CONSTRUCTION:
        return f"flushed data in a power cut{above}: {durability.reason}"
    where = f"{above}{_on(durability.hosts)}"
    return f"acknowledged writes in {states.lost} of {states.judged} power cuts{where}"


def _on(hosts: Sequence[str]) -> str:
    """Where the power cuts of many hosts were; empty for a single host."""
    return f" on {named(hosts)}" if hosts else ""


def _extent(states: CrashStates) -> str:
    """How many states, and the bound on the loss rate (rule of three), unless all were judged."""
    if states.all_judged:
        return f"all {states.judged} power cuts that were possible in its run"
    most = in_percent(states.most_losing, 1)
    return f"{states.judged} power cuts (at most {most} of all lose data, 95 %)"


def _unflushed(durability: Durability) -> Iterator[str]:
    """The loss of a guest that never flushes, if it was tested but did not decide."""
    states = durability.tested.unflushed if durability.tested is not None else CrashStates()
    if durability.flush_free or states.kept is None:
        return
    if states.kept:
        yield f"Unflushed data were kept, too, in {states.judged} power cuts."
    else:
        yield f"Unflushed data were lost in {states.lost} of {states.judged} power cuts."


def basis_sentence(recommendation: Recommendation) -> Iterator[str]:
    """Whether power cuts or rules decided durability; empty if no need asks for it."""
    if any(need.goes_by_power_cuts for need in recommendation.needs):
        durabilities = recommendation.durability.values()
        tested = sum(durability.kind is DurabilityKind.KEPT_IN_TEST for durability in durabilities)
        yield basis(tested, len(durabilities))


def basis(tested: int, paths: int) -> str:
    """How many of the durable paths were judged by power cuts on this host."""
    if tested == 0:
        return (
            "No simulated power cut has tested these paths: they are called durable because "
            "nothing in their stacks is set to drop flushes."
        )
    passed = f"{tested} of {counted(paths, 'durable path')} passed power cuts on this host"
    if tested == paths:
        return f"{passed}."
    return f"{passed}; in the stacks of the others, nothing is configured to drop flushes."
