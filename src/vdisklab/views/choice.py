"""The path to use in a sentence, and what stands below it in every answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from vdisklab import numbers
from vdisklab.analysis.measure_words import measure_words
from vdisklab.answers.choice import ChoiceVerdict, PathChoice, PresentDisk, Surer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import Durability
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Direction
from vdisklab.units import counted, format_duration, in_percent, named
from vdisklab.views.durability import durability_sentence, losses

NAMED = 4
"""Maximum number of ties named in a sentence; the others are counted."""

MOST_CHARACTERS = 60
"""Maximum length of a page's headline; the rest stands in the first line below it."""


_DONE = "If that is not worth it to you, you are done."

_SLIGHT = 0.01
"""A lead below this share is not worth a sentence."""

_LONG = 3600.0
"""Seconds above which a race is said to take a budget."""

_MOVED = {Direction.READ: "read came from the disk", Direction.WRITE: "written reached the disk"}


def headline(choice: PathChoice) -> str:
    """`Use raw/none: within 8 % of the best (95 %)`: what to do, and how sure that is."""
    use, sure = _use(choice), f"({in_percent(choice.confidence)})"
    overall = _by(choice)
    match choice.verdict:
        case ChoiceVerdict.ONLY:
            text = _only(choice)
        case ChoiceVerdict.BEST:
            which = " that qualify" if choice.compared < choice.considered else ""
            which = " that were compared" if choice.unranked else which
            which = " that raced" if choice.left_out else which
            text = f"{use}: it is the best of {choice.compared} paths{which}{overall} {sure}"
        case ChoiceVerdict.CLOSE:
            of = f" of the {choice.compared} that were compared" if choice.unranked else ""
            of = f" of the {choice.compared} that raced" if choice.left_out else of
            default = f", and {_whose(choice.kept, choice.cell)}" if choice.keeps else ""
            within = f"within {_behind(choice)} of the best{of}{overall} {sure}"
            text = f"{use}{_for_new_disks(choice)}: {within}{default}"
        case ChoiceVerdict.BETTER:
            as_good = f"; {_others(choice)} may be as good" if choice.ties else ""
            text = f"{use}: it is better than {_beaten(choice)}{overall} {sure}{as_good}"
        case ChoiceVerdict.SAFER:
            text = f"{use}: {choice.present[0].cell.name} loses flushed data in a power cut"
        case ChoiceVerdict.KEEP | ChoiceVerdict.TIED if _loses(choice):
            # One that keeps flushed data would be the answer.
            text = (
                f"{_no_difference(choice)}, and each of them loses flushed data: take none of them "
                "for data that matter"
            )
        case ChoiceVerdict.KEEP:
            text = f"{_take(choice)} for a new disk: no other path is shown to be better{overall}"
        case ChoiceVerdict.TIED if _is_thrown_away(choice):
            text = (
                f"Take {choice.cell.name}: of the {len(choice.tied)} ways that lead, none is shown "
                f"to be better{overall}"
            )
        case ChoiceVerdict.TIED:
            text = (
                f"Take {choice.cell.name}, or keep what you have if it is one of these "
                f"{len(choice.tied)}: none of them is shown to be better{overall}"
            )
        case _:
            assert_never(choice.verdict)
    if choice.hosts is None:
        return text
    # A path may be the best of the mean host and behind on some hosts, which stands below.
    return f"{text}, on average over {counted(choice.hosts, 'host')}"


def _by(choice: PathChoice) -> str:
    """` in the p99 latency of random reads …`: by what the answer goes. A score is what an answer
    goes by if it names no measure, and is named where a load says otherwise."""
    if choice.by is not None:
        return f" in {measure_words(choice.by, seconds=choice.seconds)}"
    return " overall" if choice.behind_in else ""


def _over_hosts(choice: PathChoice) -> str:
    """`, on 9 hosts`, if the answer is over hosts."""
    return "" if choice.hosts is None else f", on {counted(choice.hosts, 'host')}"


def _for_new_disks(choice: PathChoice) -> str:
    """` for a new disk`, if a guest's disk may well stay what it is: `advise` keeps such a disk."""
    may_stay = choice.stays or choice.ties
    return " for a new disk" if may_stay and not (choice.keeps or _is_thrown_away(choice)) else ""


def _behind_in(choice: PathChoice) -> Iterator[str]:
    """The measure in which the path is shown to be more than 10 % behind another one, and the
    command that decides by this measure."""
    behind = choice.behind_in
    if behind is None:
        return
    more = f"{numbers.percent_at_least(behind.least - 1)} %"
    memory = ", in the host's RAM" if behind.in_memory else ""
    which = measure_words(behind.measure, seconds=behind.seconds)
    where = _on(behind.on, choice.hosts)
    may_be = ", and others may be as good"
    first = "" if behind.first is None else f" By it, {behind.first.label} is first."
    yield (
        f"One load differs: {where}in {which}, {behind.cell.label} is at least {more} better"
        f"{memory}{'' if first else may_be}.{first} If your guests mostly do that, decide by it: "
        f"`vdisklab rank --metric {behind.measure}{' --hosts all' if choice.hosts else ''}`."
    )


def _staying(
    choice: PathChoice, power_cuts: Mapping[MeasuredCell, Durability | None]
) -> Iterator[str]:
    """Which disks that guests have can stay: they keep flushed data, and are not shown to be
    worse."""
    safe = [cell.name for cell in choice.stays if not losses(power_cuts, [cell])]
    if safe and not _is_thrown_away(choice):
        can_stay = "A guest's disk that is one of these can stay, as none is shown to be worse"
        yield f"{can_stay}: {named(safe, NAMED)}."


def _on(hosts: tuple[str, ...], of: int | None) -> str:
    """`on kvm3, `, or `on 5 of 9 hosts, `; empty for all of them together."""
    if not hosts:
        return ""
    return f"on {hosts[0] if len(hosts) == 1 else f'{len(hosts)} of {of} hosts'}, "


def short_headline(choice: PathChoice, most: int = MOST_CHARACTERS) -> str:
    """The headline in at most `most` characters, as far as the path's name allows."""
    use, shorter = _use(choice), []
    match choice.verdict:
        case ChoiceVerdict.ONLY:
            shorter = [_use(choice)] if choice.considered > 1 else ["Only one path was measured"]
            shorter = ["Only one path has enough rounds"] if choice.unranked else shorter
        case ChoiceVerdict.KEEP | ChoiceVerdict.TIED if _loses(choice):
            shorter = [f"{_no_difference(choice)}: all lose data", "All of these lose flushed data"]
        case ChoiceVerdict.KEEP:
            alone = f"Take {choice.cell.name}: nothing is shown to be better"
            several = len({disk.cell for disk in choice.kept}) > 1
            shorter = ["Take your default: nothing is shown to be better"]
            shorter = shorter if several else [alone, *shorter]
        case ChoiceVerdict.TIED if _is_thrown_away(choice):
            shorter = [f"Take {choice.cell.name}: a tie", "These ways tie"]
        case ChoiceVerdict.TIED:
            shorter = [
                f"Take {choice.cell.name}, or keep what you have: a tie",
                f"Take {choice.cell.name}: a tie",
                "These paths tie",
            ]
        case ChoiceVerdict.BEST:
            shorter = [f"{use}: the best of {choice.compared}", use]
        case ChoiceVerdict.CLOSE:
            within = f"within {_behind(choice)} of the best"
            shorter = [f"{use}{_for_new_disks(choice)}: {within}", f"{use}: {within}", use]
        case ChoiceVerdict.BETTER:
            shorter = [f"{use}: better than {_beaten(choice)}", use]
        case ChoiceVerdict.SAFER:
            shorter = [f"{use}: yours loses data", use]
        case _:
            assert_never(choice.verdict)
    shorter = [f"{text}{_over_hosts(choice)}" for text in (*shorter, "Use the path below")]
    whole = (headline(choice), *shorter)
    return next((text for text in whole if len(text) <= most), whole[-1])


def _use(choice: PathChoice) -> str:
    return f"Use {choice.cell.name}{' only for data that may be lost' if _loses(choice) else ''}"


def _loses(choice: PathChoice) -> bool:
    """True if the path of the answer is known to lose what the guest has flushed."""
    return choice.durability is not None and not choice.durability.kind.acceptable


def _is_thrown_away(choice: PathChoice) -> bool:
    """True for a way to make disks, which are thrown away: there is none to keep."""
    return choice.cell.path is not None and choice.cell.path.attachment.made is not None


def _only(choice: PathChoice) -> str:
    """Why there is no comparison."""
    if choice.unranked:
        return (
            f"Nothing to compare yet: of {counted(len(choice.unranked) + 1, 'path')} only "
            f"{choice.cell.name} has enough rounds"
        )
    if choice.considered > 1:
        qualifies = f"the only one of {choice.considered} paths that qualifies"
        return f"{_use(choice)}: it is {qualifies}"
    campaigns = f" of campaign {' and '.join(choice.campaigns)}" if choice.campaigns else ""
    return f"Nothing to compare: {choice.cell.name} is the only path with numbers{campaigns}"


def _no_difference(choice: PathChoice) -> str:
    count = len(choice.tied)
    return f"No difference shown {'between' if count == 2 else 'among'} these {count}"


def _others(choice: PathChoice) -> str:
    return counted(len(choice.ties), "other")


def _whose(disks: tuple[PresentDisk, ...], cell: MeasuredCell) -> str:
    """`libvirt's default`, `the default of libvirt and OpenStack`, or `the baseline`."""
    owned = [disk for disk in disks if disk.cell == cell and disk.of is not None]
    names = [disk.of.full_name for disk in owned if disk.of is not None]
    if not names:
        return "the baseline"
    otherwise = {disk.but for disk in owned}
    but = "" if None in otherwise else f" but for {' or '.join(sorted(filter(None, otherwise)))}"
    if len(names) == 1:
        return f"{names[0]}'s default{but}"
    return f"the default of {', '.join(names[:-1])} and {names[-1]}{but}"


def _take(choice: PathChoice) -> str:
    """`Take raw/none (libvirt's default)`; of several platforms or file systems, the disk of each:
    nobody said which of them is there."""
    cells: dict[str, dict[str, None]] = {}
    for cell in (choice.cell, *(disk.cell for disk in choice.kept)):
        cells.setdefault(_whose(choice.kept, cell), {})[cell.name] = None
    each = [f"{' or '.join(names)} ({whose})" for whose, names in cells.items()]
    return f"Take {' or '.join(each)}"


def _beaten(choice: PathChoice) -> str:
    """What somebody may have now, which is shown to be worse."""
    owners = dict.fromkeys(_whose(choice.present, disk.cell) for disk in choice.present)
    return " and ".join(owners)


def _behind(choice: PathChoice) -> str:
    if choice.step is not None:
        return f"a step of {choice.step:g}"
    return _percent(choice.behind or 0.0)


def _percent(share: float) -> str:
    """A share in whole percent, rounded up: it is a limit."""
    return f"{numbers.percent_at_most(share, least=1)} %"


def keeps_what_is_there(choice: PathChoice) -> bool:
    """True if nothing is shown that is worth a change of a guest's disk."""
    return choice.verdict in (ChoiceVerdict.KEEP, ChoiceVerdict.TIED)


def names_a_disk(choice: PathChoice) -> bool:
    """True if a new guest may be given the answer's path: not if each of these paths loses data, if
    there was nothing to compare it with, or if it is a way to make disks that are thrown away."""
    alone = choice.considered == 1 or choice.unranked
    if choice.verdict is ChoiceVerdict.ONLY and alone:
        return False
    return not _is_thrown_away(choice) and not (keeps_what_is_there(choice) and _loses(choice))


def verdict_lines(
    choice: PathChoice,
    power_cuts: Mapping[MeasuredCell, Durability | None],
    look_first: str = "",
) -> Iterator[tuple[str, str]]:
    """The lines below the path: the paths of a tie, what is at stake and what is worse, the effect
    of a power cut, the cost of telling them apart. Each names its subject. `power_cuts` has the
    durability of the ties; `look_first` is a host to look at before more hosts are measured.
    """
    alike = keeps_what_is_there(choice)
    all_lose = alike and _loses(choice)  # as the headline says
    yield from (("But", line) for line in _behind_in(choice))
    yield from (("Guests", line) for line in _staying(choice, power_cuts))
    if choice.ties:
        cells = choice.tied if alike else choice.ties
        names = named([cell.name for cell in cells], NAMED + 2 * alike)
        lost = () if all_lose else losses(power_cuts, choice.ties)
        is_kept = not lost and not all_lose and not _is_thrown_away(choice)
        is_said = choice.verdict is ChoiceVerdict.TIED or not is_kept  # by the headline
        can_stay = "keep any you have" if alike else "a guest's disk that is one of these can stay"
        can_stay = "" if is_said else f", so {can_stay}"
        how_many = f"These {len(cells)} tie" if alike else "Not shown to be worse"
        yield "Tied", " ".join((f"{how_many}{can_stay}: {names}{_left_the_race(choice)}.", *lost))
    if alike and (stake := " ".join(_stake(choice, look_first))):
        yield "At stake", stake
    if choice.from_memory:
        yield "RAM", _of_memory(choice)
    if choice.ties and choice.worse:
        worse = named([cell.name for cell in choice.worse], NAMED)
        yield "Worse", f"Shown to be worse: {worse}."
    if choice.ties and choice.not_best:
        others_named = named([cell.name for cell in choice.not_best], NAMED)
        than = f"not shown to be worse than {choice.cell.name}"
        yield "Not the best", f"Shown not to be the best, but {than}: {others_named}."
    if choice.unranked:
        few = named([cell.name for cell in choice.unranked], NAMED)
        yield "Missing", f"Too few numbers to be compared, so it may be better: {few}."
    if all_lose:
        cuts = (choice.durability, *(power_cuts.get(cell) for cell in choice.ties))
        reasons = dict.fromkeys(cut.reason for cut in cuts if cut is not None and cut.reason)
        if reasons:
            yield "Safety", f"Why they lose data: {'; '.join(reasons)}."
    elif choice.durability is not None and not _is_thrown_away(choice):
        yield "Safety", durability_sentence(choice.cell.name, choice.durability, choice.commits)
    if choice.verdict is ChoiceVerdict.ONLY:
        yield from (("Cost", line) for line in _to_compare(choice))
    elif not alike and (to_tell := _to_tell_apart(choice.surer)):
        yield "Cost", to_tell


def _left_the_race(choice: PathChoice) -> str:
    """Why a race's tie has fewer paths than its ranks, which ask whether a difference is shown."""
    others = choice.compared - len(choice.tied)
    if not keeps_what_is_there(choice) or choice.worse or choice.not_best or others <= 0:
        return ""
    which = "it is not" if others == 1 else "none of them is"
    return (
        f"; {counted(others, 'other')} left the race, as {which} better than the leader by more "
        f"than its margin ({in_percent(choice.confidence)})"
    )


def _of_memory(choice: PathChoice) -> str:
    """`… only 12 % of the bytes read came from the disk and 0–7 % of the bytes written …`."""
    parts = " and ".join(
        f"{_shares(memory.low, memory.high)} of the bytes {_MOVED[memory.direction]}"
        for memory in choice.from_memory
    )
    few = "" if parts.startswith("none ") else "only "
    uses = choice.cell.page_cache is not PageCache.BYPASSED
    instead = " Cache mode none shows the disk's own speed." if uses else ""
    return (
        f"The speed of {choice.cell.name} is mostly that of the host's RAM: {few}{parts} meanwhile."
        f"{instead}"
    )


def _shares(low: float, high: float) -> str:
    """`3 %`, `0–7 %`, `none`."""
    ends = [f"{100 * share:.0f}" for share in (low, high)]
    return "none" if ends == ["0", "0"] else f"{'–'.join(dict.fromkeys(ends))} %"


def _stake(choice: PathChoice, look_first: str) -> Iterator[str]:
    """What may be gained, and the command that decides: `So far raw/none leads …`."""
    name, cell, surer = choice.cell.name, choice.leader.name, choice.surer
    if choice.behind is None:
        yield from _cannot_tell(choice, look_first)
        return
    most = f"the best is at most {_percent(choice.behind)} better"
    sure = f"({in_percent(choice.confidence)})"
    if choice.ahead is not None and choice.ahead >= _SLIGHT:
        lead = f"{numbers.percent(100 * choice.ahead)} %"
        yield f"So far {cell} leads {name} by {lead}, which may be chance; {most} {sure}."
    else:
        yield f"{most[0].upper()}{most[1:]} than {name} {sure}."
    if choice.hosts is not None:
        yield f"To find out, {_more_hosts(look_first)}. {_DONE}"
    if surer is None or not (way := _way(surer)):
        return
    usually = _usually(surer)
    usual = "" if usually is None else f", usually less than {format_duration(usually)}"
    takes = f"The race takes {_most(surer)}{usual} ({_runs(surer)})."
    yield f"To find out, {way}. {takes} {_DONE}"


def _cannot_tell(choice: PathChoice, look_first: str) -> Iterator[str]:
    """That the rounds show nothing of a tie: neither a lead nor a limit is a finding."""
    if not choice.ties:
        return
    count, measured = len(choice.tied), counted(choice.rounds, "round")
    way = _to_tell_apart(choice.surer)
    if choice.hosts is not None:
        measured = counted(choice.hosts, "host")
        way = f"To tell them apart, {_more_hosts(look_first)}."
    elif choice.surer is not None and not way:
        effort = _effort(choice.surer)
        way = f"To tell them apart, measure them without --rounds, as a race: {effort}."
    best = "better" if count == 2 else "the best"
    yield f"{measured} cannot tell which of these {count} is {best}, or by how much."
    if way:
        yield way


def _more_hosts(look_first: str) -> str:
    first = f"look at {look_first} first, then " if look_first else ""
    return f"{first}measure more hosts"


def _way(surer: Surer) -> str:
    """What tells tied paths apart; empty if no command does."""
    on = "" if surer.on is None else f" on {surer.on}"
    if not surer.paths:
        again = "run its command again" if surer.command is None else f"run `{surer.command}`"
        return f"{again}{on}, which continues the race"
    return f"race them{on}: `{surer.command}`" if surer.command else ""


def _to_compare(choice: PathChoice) -> Iterator[str]:
    """The command that gives a path something to be compared with."""
    surer = choice.surer
    if surer is None or surer.command is None:
        return
    on = "" if surer.on is None else f" on {surer.on}"
    what = "To compare it, race it" if surer.paths else "To compare them, continue the campaign"
    yield f"{what}{on}: `{surer.command}`: {_effort(surer)}."


def _to_tell_apart(surer: Surer | None) -> str:
    """The command that tells tied paths apart, in a sentence; empty if there is none."""
    if surer is None or not (way := _way(surer)):
        return ""
    return f"To tell them apart, {way}: {_effort(surer)}."


def _effort(surer: Surer) -> str:
    """How long it takes to tell tied paths apart."""
    usually = _usually(surer)
    usual = "" if usually is None else f"usually less than {format_duration(usually)}, "
    return f"{usual}{_most(surer)} ({_runs(surer)})"


def _usually(surer: Surer) -> float | None:
    """The seconds that most races take less than; None if that is not known, or reads as the most.
    Where nobody planned the race, half of its rounds are enough for most."""
    if not surer.usual:
        return None
    usually = surer.seconds / 2 if surer.seconds_usually is None else surer.seconds_usually
    return None if format_duration(usually) == format_duration(surer.seconds) else usually


def _most(surer: Surer) -> str:
    return f"at most {format_duration(surer.seconds)}"


def _runs(surer: Surer) -> str:
    command = surer.command or ""
    is_race = " --rounds " not in command  # `run` refuses a budget beside a number of rounds
    earlier = "; `--budget 30m` ends it earlier" if is_race and surer.seconds > _LONG else ""
    if " --budget " in command:
        earlier = "; run it again each time that its budget ends it"
    return f"{counted(surer.runs, 'more run')}{earlier}"
