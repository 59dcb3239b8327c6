"""The answer of `advise`: a sentence, a table of disks, and the lines to paste."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from vdisklab import numbers
from vdisklab.answers.disks import (
    MEASURED_ALONE,
    STARTS,
    Advice,
    DiskAction,
    DisksAnswer,
    ExistingDisk,
    PlannedMeasurement,
    QuickLook,
    StandIn,
    in_place_of,
)
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability, DurabilityKind
from vdisklab.path.platforms import Platform
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.segments import Bus
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import Change
from vdisklab.platforms.registry import dialect_of
from vdisklab.platforms.risk_kinds import (
    AioConflict,
    CannotWork,
    FileVolume,
    FlushesDropped,
    FuaForgotten,
    IdleAio,
    ImageShared,
    MayBeUnseen,
    MayOutgrow,
    NoDiscard,
    NotOfToday,
    PoolMayFill,
    ProbablyVolume,
    QuotaReached,
    Risk,
    SoftMount,
    Throttled,
    UnsafeBefore,
    VolumeShared,
)
from vdisklab.platforms.where_set import write_there
from vdisklab.sanitise import sanitise_line
from vdisklab.units import counted, format_duration
from vdisklab.value import Value, replace
from vdisklab.views import disks
from vdisklab.views.commits import commits_after_a_power_cut
from vdisklab.views.durability import durability_sentence, way_to_test
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_ALWAYS_SAID = (
    FileVolume, IdleAio, ImageShared, MayBeUnseen, MayOutgrow, NotOfToday, PoolMayFill,
    ProbablyVolume, QuotaReached, SoftMount, Throttled, UnsafeBefore, VolumeShared,
)  # fmt: skip
"""Risks that are no loss today, and that change what to do."""


_SHORT_DATABASE = "postgresql-short"
"""The profile of a database that measures in minutes."""

_NOT_KNOWN_YET = "how they compare is not known yet"
"""In place of a gain of which the rounds tell nothing."""

_ALLOCATED = " (this disk once its image is allocated)"

SHOWN = 12
"""Number of disks whose lines are printed; the JSON document has all."""


def advice_headline(answer: DisksAnswer) -> str:
    """One sentence: how many disks to keep, change or measure, and whose storage is unknown."""
    counts = Counter(row.advised.action for row in answer.disks)
    parts = [f"{action} {counts[action]}" for action in DiskAction if counts[action]]
    unseen = disks.unseen_clause(answer.disks)
    return f"{disks.counted_disks(answer.disks)}: {', '.join(parts)}{unseen}"


class NextCommands(Value):
    """The commands that answer from what was measured meanwhile: `again` as typed; `with_profile`
    the same with another profile; `there` the same on the host that has the disks, with another
    profile if one is given; `whole` this answer with all its commands; `running` reads the guests
    that run, whose arguments have the values of a script's variables.
    """

    again: str
    whole: str
    with_profile: Callable[[str], str]
    there: Callable[[PlannedMeasurement, str | None], str]
    running: str = "vdisklab advise"


def tables(answer: DisksAnswer, then: NextCommands) -> Iterator[Table[ExistingDisk]]:
    """One row per disk; details follow as notes, and the lines to paste come last."""
    lines = tuple(_lines(answer, then))
    whole = Table(
        advice_headline(answer),
        _columns(_below(answer)),
        answer.disks,
        (
            *_notes(answer),
            *(() if answer.of_commits else commits_after_a_power_cut(answer.disks, lost=False)),
            *_of_new_disks(answer),
        ),
        intro=(
            *commits_after_a_power_cut(answer.disks, lost=None if answer.of_commits else True),
            *answer.caveats.notes,
            *disks.measured_elsewhere(answer),
            *_of_a_load(answer, then),
        ),
        verbatim=tuple(line.text for line in lines),
        kind=ExistingDisk,
        for_others=frozenset(line.text for line in lines if line.for_node),
    )
    first = tuple(_first_lines(answer, then))
    brief = replace(
        whole,
        columns=_columns(_below_first(answer)),
        verbatim=tuple(line.text for line in first),
        for_others=frozenset(line.text for line in first if line.for_node),
    )
    yield whole if brief.verbatim == whole.verbatim else replace(whole, brief=brief)


def _columns(below: Mapping[str, str]) -> tuple[Column[ExistingDisk], ...]:
    """The columns; `below` has the words for the command that measures a disk."""
    return (
        disks.disk_column(),
        Column("advice", lambda row: str(row.advised.action)),
        disks.power_cut_column(),
        Column("why", partial(_why, below=below), folds=3 * WORDS, whole=True),
        *disks.measured_columns(spare=7),
        Column("change to", _change_to, folds=NAMES, spare=4),
        Column("gain", _gain, spare=5),
        Column("and then", lambda row: disks.safety(row.advised.then), spare=6),
        disks.source_column(),
    )


def _of_a_load(answer: DisksAnswer, then: NextCommands) -> Iterator[str]:
    """The load that the answers are for, or will be for, which the user did not choose, and the
    command that asks for a database's commits."""
    planned = answer.profiles_to_measure
    measured = answer.unasked_profiles
    if answer.profile is not None or answer.of_commits or not (measured or planned):
        return
    with_profile = f"with profile {' and '.join(measured or planned)}"
    said = f"Measured {with_profile}"
    if not measured:
        verb = "command below measures" if len(answer.planned) == 1 else "commands below measure"
        said = f"The {verb} {with_profile}"
    for profile, guests in answer.databases.items():
        names = disks.shown_names([sanitise_line(guest) for guest in guests])
        are = "is a database" if len(guests) == 1 else "are databases"
        yield f"{said}; {names} {are} by name: for commits ask {then.with_profile(profile)}."
    if not answer.databases:
        way = then.with_profile(_SHORT_DATABASE)
        yield f"{said}; for a database's commits ask {way} (`vdisklab profiles` lists all)."


def _of_new_disks(answer: DisksAnswer) -> Iterator[str]:
    """Why a disk is kept where `recommend` names another path: the verb answers for a new disk."""
    kept = (row.advised for row in answer.disks if row.advised.action is DiskAction.KEEP)
    if any(not advice.reason and advice.other is not None for advice in kept):
        yield (
            "A disk that is there is kept unless a change is shown to be better; for a new disk "
            "ask `vdisklab recommend`."
        )


def _change_to(row: ExistingDisk) -> str:
    if row.advised.to is not None and row.advised.path is None:
        return _changed_settings(row, row.advised.to)
    return str(named_as(row, row.advised.to) or numbers.MISSING)


def named_as(row: ExistingDisk, path: DiskPath | None) -> DiskPath | None:
    """A path of the disk's settings under the disk's own name: on its file system, with its image
    as it was made."""
    return None if path is None else in_place_of(row.path, path)


def _gain(row: ExistingDisk) -> str:
    return disks.gain_text(row.advised.gain) if row.advised.to else numbers.MISSING


def _below(answer: DisksAnswer) -> dict[str, str]:
    """The words for the command below the table that measures a disk, by the disk's name."""
    several = len(answer.planned) > 1
    return _once_running(answer) | {
        name: f"command {place} below" if several else "the command below"
        for place, planned in enumerate(answer.planned, 1)
        for name in planned.disks
    }


def _once_running(answer: DisksAnswer) -> dict[str, str]:
    """The same of the unknown disks whose settings a start of the guest decides."""
    return {
        row.name: f"the {'last ' if answer.planned else ''}command below while the guest runs"
        for row in answer.disks
        if row.advised.action is DiskAction.UNKNOWN and row.disk.known_once_running
    }


def _below_first(answer: DisksAnswer) -> dict[str, str]:
    """The same where only the first command is printed."""
    return _once_running(answer) | {
        name: "the command below" if place == 1 else f"command {place} (--why prints it)"
        for place, planned in enumerate(answer.planned, 1)
        for name in planned.disks
    }


def _why(row: ExistingDisk, below: Mapping[str, str]) -> str:
    """The reason in a few words, with what to run for a disk that is unknown."""
    advice = row.advised
    if advice.to is not None:
        return _why_changed(row, advice, advice.to)
    serious = "".join(
        f"{risk.short}; "
        for risk in row.risks
        if (risk.serious or isinstance(risk, SoftMount)) and not _outweighed(row, risk)
    )
    if advice.action is DiskAction.CHANGE:
        on_unknown_storage = advice.path is None and not _does_not_start(row)
        if on_unknown_storage and not advice.reason.startswith("set "):
            return f"{serious}set cache none"
        return serious + (_refused(row) or advice.in_short or advice.reason.partition(":")[0])
    if advice.action is DiskAction.KEEP:
        kept = advice.reason or f"{_if_like(advice)}no other setting is shown to be better"
        is_kept = not row.disk.is_thrown_away
        grows = "; discard=unmap lets it shrink" if is_kept and NoDiscard() in row.risks else ""
        return f"{serious}{kept}{grows}"
    reason = disks.said_first(row, advice.reason)
    if advice.measurable and advice.reason != MEASURED_ALONE:
        reason = "not measured yet"
    reason = reason if advice.begun is None else str(advice.begun)
    run = below.get(row.name)
    return serious + (reason if run is None else f"{reason}: run {run}")


def _why_changed(row: ExistingDisk, advice: Advice, to: DiskPath) -> str:
    settings = _changed_settings(row, to)
    if advice.reason.endswith(STARTS):
        return f"does not start, as {_refused(row)}; {settings}"
    gain = disks.known_gain(advice.gain)
    if gain is None:
        gain = "its cost was not measured" if advice.gain is None else _NOT_KNOWN_YET
    by_server = advice.then is not None and advice.then.kind is DurabilityKind.BY_SERVER
    keeps = "passes flushes on" if by_server else "keeps flushed data"
    kept = f"{keeps}, " if advice.for_safety else ""
    if advice.elsewhere is not None and advice.gain is not None and advice.for_safety:
        gain = f"{gain} in {advice.elsewhere}"  # it is safer on any storage
    condition = "" if advice.for_safety else _if_like(advice)
    fault = _fault_of_bus(row) if _moves(row) else ""
    fault = f"{fault}; " if fault else ""
    return f"{fault}{condition}{settings}: {kept}{gain}"


def _moves(row: ExistingDisk) -> bool:
    """True for advice to give a disk another bus."""
    path, to = row.advised.path or row.disk.assumed, row.advised.to
    return path is not None and to is not None and path.attachment.bus is not to.attachment.bus


def _fault_of_bus(row: ExistingDisk) -> str:
    """Why no setting makes a disk safe on its bus, as a clause; empty if it is refused there."""
    if not any(isinstance(risk, FuaForgotten) for risk in row.risks):
        return ""
    return "QEMU's NVMe device answers FUA writes too early"


def _moved(row: ExistingDisk) -> Iterator[str]:
    """What another bus means inside the guest, whose kernel names devices by their drivers."""
    path, to = row.advised.path or row.disk.assumed, row.advised.to
    if path is None or to is None or not _moves(row):
        return
    now, then = (_NAMES.get(each.attachment.bus, "sda") for each in (path, to))
    if now != then:
        yield (
            f"with another bus the disk is named /dev/{then} in the guest, or the like, and no "
            f"longer /dev/{now}: its fstab and boot loader must name a UUID or label."
        )


_NAMES = {Bus.VIRTIO: "vda", Bus.NVME: "nvme0n1"}
"""What Linux calls the first disk of a bus; the others are SCSI disks to it."""


def _if_like(advice: Advice) -> str:
    """The condition of advice by measurements in another place; empty if they are of the disk's."""
    return "" if advice.elsewhere is None else f"if its storage is like {advice.elsewhere}: "


def _refused(row: ExistingDisk) -> str:
    """Why the guest does not start with a disk; empty if it starts."""
    kinds = AioConflict | CannotWork
    return next((risk.reason for risk in row.risks if isinstance(risk, kinds)), "")


def _does_not_start(row: ExistingDisk) -> bool:
    return any(risk.blocks for risk in row.risks)


def _changed_settings(row: ExistingDisk, to: DiskPath) -> str:
    """The settings to change.

    On unknown storage only the cache mode is named: which aio mode follows it depends on the
    storage.
    """
    path, assumed = row.advised.path, row.disk.assumed
    if path is None and (assumed is None or assumed.cache is not to.cache):
        moves = assumed is not None and assumed.attachment.bus is not to.attachment.bus
        return f"cache {to.cache}{f', bus {to.attachment.bus}' * moves}"
    present = path or assumed
    return (_settings(present, to) if present else "") or _left_out(row)


def _left_out(row: ExistingDisk) -> str:
    """What to leave out of a disk that the platform refuses, as a clause, where no setting
    changes."""
    found = (risk.instead for risk in row.risks if isinstance(risk, CannotWork))
    return next(found, "").partition(", or ")[0]


def _settings(path: DiskPath, to: DiskPath) -> str:
    """The settings that differ, as a path spells them: `cache none, aio=threads`."""
    changes = [] if path.cache is to.cache else [f"cache {to.cache}"]
    now, then = path.attachment, to.attachment
    changes += [] if now.bus is then.bus else [f"bus {then.bus}"]
    changed = (name for name in dict(now.options) | dict(then.options))
    changes += (
        f"{name}={then.word(name)}" for name in changed if now.word(name) != then.word(name)
    )
    return ", ".join(changes)


def advice_sentence(row: ExistingDisk) -> str:
    """The answer for a disk to keep or to change, without its name."""
    entry = row.advised
    if entry.to is not None and entry.path is None:
        settings = _changed_settings(row, entry.to)
        verb = "" if settings == _left_out(row) else "change to "
        return f"{verb}{settings}: {_why_change(entry, row.power_cut)}."
    if entry.to is not None and entry.to == entry.path:
        return f"{_changed_settings(row, entry.to)}: {_why_change(entry, row.power_cut)}."
    if entry.to is not None:
        condition = "" if entry.for_safety else _if_like(entry)
        to, fault = named_as(row, entry.to), _fault_of_bus(row) if _moves(row) else ""
        platform = row.disk.platform.full_name
        fault = fault and f"{fault}, and {platform} has no setting against it; with the other bus "
        return f"{condition}change to {to}: {fault}{_why_change(entry, row.power_cut)}."
    if entry.action is DiskAction.CHANGE and entry.reason.startswith(("set ", "give ")):
        return f"{entry.reason}."
    if entry.action is DiskAction.CHANGE:
        return f"no line is printed, as {entry.reason}."
    return f"{_why_kept(row, entry)}."


def _why_kept(row: ExistingDisk, entry: Advice) -> str:
    if entry.reason:
        return f"keep it: {entry.reason}"
    kept, best = row.path or entry.path, _best_other(entry)
    condition = _if_like(entry).removesuffix(": ")
    only = f", {condition}" if condition else ""
    return f"keep {kept}{_as_measured(row)}{only}: no other setting is shown to be better{best}"


def _best_other(entry: Advice) -> str:
    """The best other setting, and how many rounds would decide if it is better."""
    if entry.gain is None:
        return ""
    needed, gain = entry.gain.rounds_needed, disks.gain_words(entry.gain)
    if gain is None:
        return f"; the best other is {entry.other}, and {_NOT_KNOWN_YET}"
    more = ""
    if needed is not None and entry.gain.a_is_more:
        more = f", and about {needed} rounds (--rounds {needed}) would probably show which it is"
    return f"; the best other is {entry.other}, {gain}{_over(entry)}{more}"


def _as_measured(row: ExistingDisk) -> str:
    """The measured path that a disk is kept by, if its image was allocated otherwise."""
    standing, path = row.advised.standing, row.path
    found = None if standing is None else standing.cell.path
    if standing is None or found is None or path is None or None in (path.image, found.image):
        return ""
    made = [image.word("preallocation") for image in (path.image, found.image) if image]
    same = len(set(made)) == 1
    allocated = _ALLOCATED if found.image and found.image.word("preallocation") == "unset" else ""
    return "" if same else f", measured as {standing.cell.name}{allocated}"


def _over(entry: Advice) -> str:
    """The measured path that a gain is over, if its image is made otherwise than the disk's."""
    if entry.gain_over is None:
        return ""
    return f" over {entry.gain_over.name}{_ALLOCATED}"


def _why_change(entry: Advice, now: Durability | None) -> str:
    tested = entry.then is not None and entry.then.kind is DurabilityKind.KEPT_IN_TEST
    kept = "flushed data is kept then" if tested else "it passes flushes on (untested)"
    if entry.then is not None and not entry.then.kind.acceptable:
        kept = f"it still loses flushed data: {entry.then.reason}"
    if entry.reason.endswith(STARTS):
        return f"{entry.reason}; {kept}"
    if entry.gain is None:
        return f"{kept}; {entry.reason}"
    size = disks.gain_words(entry.gain)
    gain = _NOT_KNOWN_YET if size is None else f"it is {size} by the overall score{_over(entry)}"
    if entry.for_safety:
        return f"{kept}; {gain}"
    untested = "" if _equally_tested(now, entry.then) else " by its settings (untested)"
    return f"{gain}, as safe{untested}"


def _equally_tested(now: Durability | None, then: Durability | None) -> bool:
    """True unless only the present path's power cuts were tested."""
    return now is not None and then is not None and now.kind is then.kind


def _risks_of(row: ExistingDisk, *, weight: int) -> Iterator[str]:
    """The risks of this weight that change what to do."""
    for risk in row.risks:
        cured = isinstance(risk, FlushesDropped | FuaForgotten | CannotWork | AioConflict)
        changed = cured and row.advised.to is not None
        said = isinstance(risk, _ALWAYS_SAID) or (risk.serious and not changed)
        if said and not _outweighed(row, risk) and risk.weight == weight:
            yield str(risk)


def _outweighed(row: ExistingDisk, risk: Risk) -> bool:
    """True for dropped flushes of a disk whose writes are thrown away on purpose anyway."""
    return row.disk.is_thrown_away and isinstance(risk, FlushesDropped)


def _sentences(
    row: ExistingDisk, commits: ClientKind | None = None, *, simulates: bool = False
) -> Iterator[str]:
    """What is only to know about a disk, without its name; if it `simulates`, the
    command that tests the commits of a database on its path."""
    entry = row.advised
    yield from _risks_of(row, weight=0)
    yield from disks.made_sentence(row)
    if entry.to is not None and entry.then is not None and entry.path is not None:
        yield durability_sentence(str(named_as(row, entry.to)), entry.then, commits)
    if entry.to is None and simulates:
        yield from _to_simulate(row, commits)
    over_rebuilt = disks.gain_words(entry.over_rebuilt)
    if entry.rebuilt is not None and over_rebuilt is not None:
        yield (
            f"{entry.rebuilt} is {over_rebuilt}, but needs "
            f"{_needed(entry.path, entry.rebuilt)}: `vdisklab export {entry.rebuilt}` writes its "
            "configuration."
        )
    over_default = disks.gain_words(entry.over_default)
    if over_default is not None:
        yield (
            f"compared with the disk of a new guest of {row.disk.platform.full_name} it is "
            f"{over_default}."
        )
    # Last: the table's reason has its short form.
    yield from (str(risk) for risk in row.risks if isinstance(risk, NoDiscard))


def _to_simulate(row: ExistingDisk, commits: ClientKind | None) -> Iterator[str]:
    """The command that tests a database's commits on the disk's path, if none has yet."""
    found = row.power_cut
    if row.path is not None and found is not None and found.kind is DurabilityKind.NOT_TESTED:
        way = way_to_test(str(row.path), found, commits).removeprefix(": ")
        if way:
            yield f"{way}."


def _where_measured(row: ExistingDisk) -> Iterator[str]:
    """That the speeds are of another storage than the disk's, which decides nothing for it."""
    entry = row.advised
    if entry.elsewhere is not None and entry.on_device_here:
        yield (
            f"the speeds are those of {entry.elsewhere}; the disk's own device holds its data, and "
            "was not measured."
        )
    elif entry.elsewhere is not None and (entry.directory is None or entry.stands_in):
        where = "cannot be seen as this user" if entry.own_unseen else "is not on this host"
        yield (
            f"the speeds are those of {entry.elsewhere}; the disk's own storage {where}, and was "
            "not measured."
        )
    elif entry.elsewhere is not None and entry.elsewhere_gone:
        yield (
            f"measured in {entry.elsewhere}, a directory that is gone, so perhaps on another file "
            "system than this disk: --measure measures on the disk's own."
        )
    elif entry.elsewhere is not None and entry.elsewhere_unseen:
        yield (
            f"measured in {entry.elsewhere}, which cannot be seen as this user, so perhaps on "
            "another file system than this disk: --measure measures on the disk's own."
        )
    elif entry.elsewhere is not None:
        yield (
            f"measured in {entry.elsewhere}, on another file system than this disk: --measure "
            "measures on its own."
        )


def _action(row: ExistingDisk, action: DiskAction) -> Iterator[str]:
    """What to do about a disk if it is this; the column says all of an unknown one, and of an
    ephemeral one with which the guest starts."""
    is_ephemeral = row.disk.ephemeral and not _does_not_start(row)
    if row.advised.action is action and not is_ephemeral:
        yield advice_sentence(row)


def _notes(answer: DisksAnswer) -> Iterator[str]:
    """What the reader must do comes first, then what harms guests, then what is only to know."""
    yield from answer.notes
    yield from disks.said_of(answer.disks, partial(_action, action=DiskAction.CHANGE))
    yield from disks.said_of(answer.disks, _where_measured)
    yield from disks.said_of(answer.disks, _moved)
    for weight in (2, 1):
        yield from disks.said_of(answer.disks, partial(_risks_of, weight=weight))
    yield from disks.said_of(answer.disks, partial(_action, action=DiskAction.KEEP))
    simulates = answer.profile is not None and answer.of_commits
    yield from disks.said_of(
        answer.disks, partial(_sentences, commits=answer.commits, simulates=simulates)
    )


def _needed(path: DiskPath | None, rebuilt: DiskPath) -> str:
    bus = rebuilt.attachment.bus
    other_bus = path is not None and path.attachment.bus is not bus
    return f"the driver of {bus} in the guest" if other_bus else "a converted image"


class _Line(Value):
    """A line to paste or above one; `for_node` are read and run on another host."""

    text: str
    for_node: bool = False


def _lines(answer: DisksAnswer, then: NextCommands) -> Iterator[_Line]:
    yield from map(_Line, _changes(answer))
    several, said = len(answer.planned) > 1, [""]
    for place, planned in enumerate(answer.planned, 1):
        number = f"command {place}" if several else ""
        clauses = [each for each in (planned.not_with, planned.lacks) if each not in said]
        said += clauses
        yield from (_Line(f"# {sanitise_line(clause)}") for clause in clauses)
        for_node = planned.stands_in is StandIn.NODE
        if planned.quick is not None:
            first = _quick_look(planned, planned.quick, number, then)
            yield from (_Line(text, for_node) for text in first)
            number = f"{number} in full" if number else "in full"
        yield _Line(f"# {f'{number}: ' if number else ''}{_planned(planned, then)}", for_node)
        yield _Line(planned.command, for_node)
    yield from _read_running(answer, then)


def _read_running(answer: DisksAnswer, then: NextCommands) -> Iterator[_Line]:
    """The command that settles what a configuration leaves open."""
    names = tuple(_once_running(answer))
    if names:
        shown = sanitise_line(disks.shown_names(names))
        start = "start the guest; while it runs, this reads on its host what it was started with"
        yield _Line(f"# {shown}: {start}:")
        yield _Line(then.running)


def _first_lines(answer: DisksAnswer, then: NextCommands) -> Iterator[_Line]:
    """The changes, the one command that comes first, and how the others are printed."""
    yield from map(_Line, _changes(answer))
    yield from _first_planned(answer, then)
    yield from _read_running(answer, then)


def _first_planned(answer: DisksAnswer, then: NextCommands) -> Iterator[_Line]:
    """The command to measure with that comes first, and how the others are printed."""
    if not answer.planned:
        return
    first = answer.planned[0]
    clauses = dict.fromkeys(filter(None, (first.not_with, first.lacks)))
    yield from (_Line(f"# {sanitise_line(clause)}") for clause in clauses)
    for_node = first.stands_in is StandIn.NODE
    if first.quick is not None:
        yield from (_Line(text, for_node) for text in _quick_look(first, first.quick, "", then))
    else:
        yield _Line(f"# {_planned(first, then)}", for_node)
        yield _Line(first.command, for_node)
    later = tuple(_later(answer.planned))
    if later:
        yield _Line(f"# {_how_later(later, then)}")


def _later(planned: Sequence[PlannedMeasurement]) -> Iterator[float]:
    """The seconds of all commands but the first."""
    times = ((each.quick and each.quick.seconds, each.command_seconds) for each in planned)
    every = (seconds for both in times for seconds in both if seconds is not None)
    yield from islice(every, 1, None)


def _how_later(seconds: Sequence[float], then: NextCommands) -> str:
    """How the commands after the first are printed, and how long they take."""
    least, most = map(format_duration, (min(seconds), max(seconds)))
    if len(seconds) == 1:
        return f"then one more command, of about {most}: {then.whole} prints it"
    times = f"about {least}" if least == most else f"about {least} to {most}"
    return f"then {len(seconds)} more commands, of {times} each: {then.whole} prints them"


def _changes(answer: DisksAnswer) -> Iterator[str]:
    """The lines to paste that change disks, each with what undoes it."""
    all_disks = ((row, row.advised.change) for row in answer.disks)
    changes = [(row, change) for row, change in all_disks if change is not None]
    by_line: dict[str, list[tuple[ExistingDisk, Change]]] = {}
    for row, change in changes:
        by_line.setdefault(change.paste, []).append((row, change))
    shown = [each for together in [*by_line.values()][:SHOWN] for each in together]
    for together in [*by_line.values()][:SHOWN]:
        row, change = together[0]
        names = sanitise_line(", ".join(disks.name_of(each) for each, _ in together))
        yield f"# {names}, {_when_and_where(row.disk, change)}{_in_script(row)}"
        yield change.paste
        yield f"#   undo: {change.undo}"
    guests = [together[0][0].disk.guest for together in [*by_line.values()][:SHOWN]]
    for guest in (name for name in dict.fromkeys(guests) if guests.count(name) > 1):
        yield f"# undo the changes to {sanitise_line(guest)} from the last to the first"
    if len(changes) > len(shown):
        yield f"# … and {counted(len(changes) - len(shown), 'more disk')}: see --format json"


def _when_and_where(disk: ConfiguredDisk, change: Change) -> str:
    """From when on a change holds, and on which node of a cluster its line is run."""
    when = "for clones made from then on" if disk.template else "from its next start on"
    if dialect_of(disk.platform).must_be_stopped:
        when = "for both lines stop each guest that has it first: a running one loses it at once"
    alone = disk.platform is Platform.QEMU and disk.whole is None
    instead = ", instead of its arguments" if alone else ""
    node = f"; run it on node {sanitise_line(change.node)}" if change.node else ""
    return f"{when}{instead}{node}"


def _in_script(row: ExistingDisk) -> str:
    """What to write in the script that makes the disk, so that it makes it so; empty without
    one."""
    disk, to, now = row.disk, row.advised.to, row.disk.path or row.disk.assumed
    if disk.changed_in or not disk.changed_at or to is None or now is None:
        return ""
    if to.cache.spelled_out is now.cache.spelled_out:
        return ""
    return f"; and {sanitise_line(write_there(disk.changed_at, to.cache.spelled_out))}"


def _quick_look(
    planned: PlannedMeasurement, quick: QuickLook, number: str, then: NextCommands
) -> Iterator[str]:
    """The short profile and its command, which may come first."""
    first = f"{number}, a quick look first" if number else "a quick look first"
    where, later = "", then.with_profile(quick.profile)
    if planned.stands_in is StandIn.NODE:
        where = f" on {_host_of(planned)}"
        later = f"{then.there(planned, quick.profile)} there"
    elif planned.stands_in is StandIn.SERVER:
        where = " on a host that reaches the server"
    time = f"about {format_duration(quick.seconds)}, {quick.differs}"
    time = sanitise_line("; ".join((time, *planned.said)))
    yield f"# {first} ({time}): run this{where}, then {later}:"
    yield quick.command


def _host_of(planned: PlannedMeasurement) -> str:
    """The host on which a command is run, in words if its name is not known."""
    its = "its" if len(planned.disks) == 1 else "their"
    return planned.node or f"the host that has {its} storage"


def _time_of(planned: PlannedMeasurement, *, races: bool) -> str:
    """`usually under 9 min 00 s, at most 26 min 00 s` for a race, as `plan` says it; else about how
    long its rounds take."""
    usually, most = map(format_duration, (planned.command_seconds, planned.seconds))
    if races and usually != most:
        return f"usually under {usually}, at most {most}"
    return f"about {usually}"


def _planned(planned: PlannedMeasurement, then: NextCommands) -> str:
    again = then.again
    its = "its" if len(planned.disks) == 1 else "their"
    names = sanitise_line(disks.shown_names(planned.disks))
    paths = counted(len(planned.request.paths), "path")
    races = planned.race is not None and not planned.race.groups
    goal = f"{'find the best of' if races else 'measure'} {paths} for {names}"
    time = _time_of(planned, races=races)
    if races:
        time = f"{time}, until one is shown to be good enough"
    elif (rounds := planned.request.rounds) is not None:
        time = f"{time} for {counted(rounds, 'round')}"
    time = f"{time}; no guest is touched"
    if planned.race is not None and planned.race.groups and planned.stands_in is None:
        time = f"{time}; --measure races the paths of each instead"
    if planned.as_root:
        time = f"{time}, as root, who may write there"
    time = sanitise_line("; ".join((time, *planned.said)))
    match planned.stands_in:
        case None if planned.begun is not None:
            return f"{names}: {planned.begun}; to continue ({time}), run this, then {again}:"
        case None:
            return f"to {goal} ({time}), run this, then {again}:"
        case StandIn.SERVER:
            return (
                f"to {goal} on {its} server ({time}), run this on a host that reaches the server, "
                f"then {again}:"
            )
        case StandIn.NODE:
            copied = "" if planned.finds_guests else " and a copy of what was read here"
            return (
                f"to {goal} ({time}), run this on {_host_of(planned)}, with vdisklab{copied}, then "
                f"{then.there(planned, None)} there:"
            )
        case StandIn.KIND:
            return f"to {goal} ({time}), run this, then {again}:"
        case StandIn.STORAGE:
            return (
                f"to {goal} in this directory, as {its} storage is not on this host "
                f"(--dir names a better place; {time}), run this, then {again}:"
            )
