from __future__ import annotations

import pytest

from tests.unit.analysis.made import cell
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.choice import (
    Behind,
    ChoiceVerdict,
    FromMemory,
    PathChoice,
    PresentDisk,
    Surer,
)
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import CrashVerdicts, known_durability
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Direction
from vdisklab.value import replace
from vdisklab.views.choice import MOST_CHARACTERS, headline, short_headline, verdict_lines

LIBVIRT = PresentDisk(cell("raw/default"), Platform.LIBVIRT)
CHOICE = PathChoice(
    verdict=ChoiceVerdict.TIED,
    cell=cell("raw/none"),
    leader=cell("raw/none"),
    ties=(cell("qcow2/none"), cell("raw/writeback"), cell("raw/native"), cell("raw/default")),
    worse=(cell("qcow2/directsync"),),
    present=(),
    behind=0.174,
    compared=6,
    considered=6,
    confidence=0.95,
    durability=known_durability(cell("raw/none"), CrashVerdicts()),
    surer=Surer(4, 240, 4020.0),
    campaigns=("3f2a",),
)
BEST = replace(CHOICE, verdict=ChoiceVerdict.BEST, behind=0.0, ties=())
CLOSE = replace(CHOICE, verdict=ChoiceVerdict.CLOSE, behind=0.0721)
ONLY = replace(CHOICE, verdict=ChoiceVerdict.ONLY, compared=1, ties=(), worse=(), behind=None)
UNSAFE = cell("raw/unsafe")


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (
            CHOICE,
            "Take raw/none, or keep what you have if it is one of these 5: none of them is shown "
            "to be better",
        ),
        (
            replace(
                CHOICE,
                verdict=ChoiceVerdict.KEEP,
                present=(PresentDisk(CHOICE.cell, Platform.LIBVIRT),),
            ),
            "Take raw/none (libvirt's default) for a new disk: no other path is shown to be better",
        ),
        (
            replace(
                CHOICE,
                verdict=ChoiceVerdict.KEEP,
                ties=CHOICE.ties[-1:],
                present=(
                    PresentDisk(CHOICE.cell, Platform.LIBVIRT),
                    PresentDisk(CHOICE.cell, Platform.OPENSTACK),
                ),
            ),
            "Take raw/none (the default of libvirt and OpenStack) for a new disk: no other path is "
            "shown to be better",
        ),
        (
            replace(CHOICE, verdict=ChoiceVerdict.KEEP, present=(PresentDisk(CHOICE.cell, None),)),
            "Take raw/none (the baseline) for a new disk: no other path is shown to be better",
        ),
        (
            replace(
                CHOICE,
                verdict=ChoiceVerdict.KEEP,
                present=(PresentDisk(CHOICE.cell, Platform.PROXMOX), LIBVIRT),
            ),
            "Take raw/none (Proxmox VE's default) or raw/default (libvirt's default) for a new "
            "disk: no other path is shown to be better",
        ),
        (
            replace(
                CHOICE,
                verdict=ChoiceVerdict.KEEP,
                present=(LIBVIRT, PresentDisk(CHOICE.cell, Platform.LIBVIRT)),
            ),
            "Take raw/none or raw/default (libvirt's default) for a new disk: no other path is "
            "shown to be better",
        ),
        (
            replace(
                CHOICE,
                verdict=ChoiceVerdict.BETTER,
                present=(PresentDisk(UNSAFE, Platform.LIBVIRT),),
            ),
            "Use raw/none: it is better than libvirt's default (95 %); 4 others may be as good",
        ),
        (
            replace(CHOICE, verdict=ChoiceVerdict.SAFER, present=(PresentDisk(UNSAFE, None),)),
            "Use raw/none: raw/unsafe loses flushed data in a power cut",
        ),
        (CLOSE, "Use raw/none for a new disk: within 8 % of the best (95 %)"),
        (
            replace(CLOSE, present=(PresentDisk(CLOSE.cell, Platform.LIBVIRT),)),
            "Use raw/none: within 8 % of the best (95 %), and libvirt's default",
        ),
        (
            replace(CLOSE, compared=4, unranked=(cell("raw/none/scsi"),)),
            "Use raw/none for a new disk: within 8 % of the best of the 4 that were compared "
            "(95 %)",
        ),
        (BEST, "Use raw/none: it is the best of 6 paths (95 %)"),
        (
            replace(BEST, compared=4),
            "Use raw/none: it is the best of 4 paths that qualify (95 %)",
        ),
        (
            replace(CLOSE, behind=0.2, ties=(), confidence=0.9),
            "Use raw/none: within 20 % of the best (90 %)",
        ),
        (
            replace(CLOSE, behind=1.0, ties=(), step=0.1),
            "Use raw/none: within a step of 0.1 of the best (95 %)",
        ),
        (ONLY, "Use raw/none: it is the only one of 6 paths that qualifies"),
        (
            replace(ONLY, considered=1),
            "Nothing to compare: raw/none is the only path with numbers of campaign 3f2a",
        ),
        (
            replace(ONLY, unranked=CHOICE.ties),
            "Nothing to compare yet: of 5 paths only raw/none has enough rounds",
        ),
        (
            replace(BEST, cell=UNSAFE, durability=known_durability(UNSAFE, CrashVerdicts())),
            "Use raw/unsafe only for data that may be lost: it is the best of 6 paths (95 %)",
        ),
    ],
)
def test_the_headline_says_what_to_do_and_how_sure_that_is(choice: PathChoice, says: str) -> None:
    assert headline(choice) == says
    assert len(short_headline(choice)) <= 60


@pytest.mark.parametrize("verdict", ChoiceVerdict)
def test_a_pages_headline_has_room_for_the_longest_path(verdict: ChoiceVerdict) -> None:
    long = cell("raw/none/scsi:aio=io_uring:detect_zeroes=on:iothread=on")
    present = (PresentDisk(long, Platform.PROXMOX),)
    choice = replace(CHOICE, verdict=verdict, cell=long, present=present)
    assert 0 < len(short_headline(choice, 50)) <= 50


def test_below_it_are_ties_safety_and_what_it_costs_to_tell_them_apart() -> None:
    choice = replace(CHOICE, ties=(UNSAFE,), verdict=ChoiceVerdict.BETTER)
    verdicts = {UNSAFE: known_durability(UNSAFE, CrashVerdicts())}
    lines = dict(verdict_lines(choice, verdicts))
    assert list(lines) == ["Tied", "Worse", "Safety"], "without a command there is no hint"
    assert lines["Tied"].startswith("Not shown to be worse: raw/unsafe. raw/unsafe loses flushed")
    assert lines["Worse"] == "Shown to be worse: qcow2/directsync."
    assert lines["Safety"].startswith("raw/none passes flushes on")
    surer = Surer(4, 240, 4020.0, command="vdisklab run raw/none raw/unsafe --find best")
    assert dict(verdict_lines(replace(choice, surer=surer), verdicts))["Cost"] == (
        "To tell them apart, race them: `vdisklab run raw/none raw/unsafe --find best`: usually "
        "less than 33 min 30 s, at most 1 h 07 min (240 more runs; `--budget 30m` ends it earlier)."
    )
    race = dict(verdict_lines(replace(choice, surer=Surer(0, 12, 60.0)), verdicts))
    assert race["Cost"] == (
        "To tell them apart, run its command again, which continues the race: usually less than "
        "30 s, at most 1 min 00 s (12 more runs)."
    )
    whole = replace(choice, surer=Surer(0, 12, 60.0, command="vdisklab run raw/{none,unsafe}"))
    assert dict(verdict_lines(whole, verdicts))["Cost"].startswith(
        "To tell them apart, run `vdisklab run raw/{none,unsafe}`, which continues the race: "
    )


def test_a_tie_says_what_is_at_stake_and_what_it_costs_to_know() -> None:
    surer = Surer(0, 12, 60.0, command="vdisklab run raw/{none,writeback}")
    tie = replace(
        CHOICE,
        verdict=ChoiceVerdict.KEEP,
        present=(LIBVIRT,),
        leader=CHOICE.ties[0],
        ahead=0.314,
        behind=0.4,
        surer=surer,
    )
    tied, stake, *_ = verdict_lines(tie, {})
    assert tied[0] == "Tied", "what is told apart is named first"
    assert stake == (
        "At stake",
        "So far qcow2/none leads raw/none by 31 %, which may be chance; the best is at most "
        "40 % better (95 %). To find out, run `vdisklab run raw/{none,writeback}`, which "
        "continues the race. The race takes at most 1 min 00 s, usually less than 30 s (12 more "
        "runs). If that is not worth it to you, you are done.",
    )
    rare = replace(tie, surer=replace(surer, usual=False))
    takes = "The race takes at most 1 min 00 s (12 more runs)."
    assert takes in dict(verdict_lines(rare, {}))["At stake"]
    level = dict(verdict_lines(replace(tie, ahead=0.0, surer=None), {}))
    assert level["At stake"] == "The best is at most 40 % better than raw/none (95 %)."


def test_rounds_that_show_nothing_give_neither_a_lead_nor_a_limit() -> None:
    """`at most 6.9 times as good` was said of paths of which `compare` knew nothing."""
    surer = Surer(0, 12, 60.0, command="vdisklab run raw/{none,writeback}")
    tie = replace(CHOICE, leader=CHOICE.ties[0], ahead=0.9, behind=None, rounds=3, surer=surer)
    assert dict(verdict_lines(tie, {}))["At stake"] == (
        "3 rounds cannot tell which of these 5 is the best, or by how much. To tell them apart, "
        "run `vdisklab run raw/{none,writeback}`, which continues the race: usually less than "
        "30 s, at most 1 min 00 s (12 more runs)."
    )
    unnamed = dict(verdict_lines(replace(tie, surer=replace(surer, paths=5, command=None)), {}))
    assert unnamed["At stake"].endswith(
        "To tell them apart, measure them without --rounds, as a race: usually less than 30 s, at "
        "most 1 min 00 s (12 more runs)."
    )
    on_hosts = dict(verdict_lines(replace(tie, surer=None, hosts=3), {}))
    assert on_hosts["At stake"] == (
        "3 hosts cannot tell which of these 5 is the best, or by how much. To tell them apart, "
        "measure more hosts."
    )
    apart = dict(verdict_lines(replace(tie, surer=None, hosts=3), {}, "kvm2"))["At stake"]
    assert apart.endswith("To tell them apart, look at kvm2 first, then measure more hosts.")


def test_the_speed_of_memory_is_said_first() -> None:
    cold = MeasuredCell("raw/writeback", PageCache.COLD)
    moved = (FromMemory(Direction.READ, 0.07, 0.07), FromMemory(Direction.WRITE, 0.001, 0.07))
    first, *_ = verdict_lines(replace(BEST, cell=cold, from_memory=moved), {})
    assert first == (
        "RAM",
        "The speed of raw/writeback is mostly that of the host's RAM: only 7 % of the bytes read "
        "came from the disk and 0–7 % of the bytes written reached the disk meanwhile. Cache mode "
        "none shows the disk's own speed.",
    )
    nothing = (FromMemory(Direction.WRITE, 0.0, 0.001),)
    (_, said), *_ = verdict_lines(replace(BEST, cell=cold, from_memory=nothing), {})
    assert "RAM: none of the bytes written reached the disk meanwhile." in said


def test_a_tie_names_all_its_paths_and_by_how_much_one_may_be_better() -> None:
    tied = dict(verdict_lines(CHOICE, {}))
    assert tied["Tied"] == (
        "These 5 tie: raw/none, qcow2/none, raw/writeback, raw/native, raw/default."
    )
    assert tied["At stake"] == "The best is at most 18 % better than raw/none (95 %)."


def test_the_paths_that_left_a_race_are_counted() -> None:
    """In the sentence of the tie: the table below has them in the same ranks."""
    lines = dict(verdict_lines(replace(CHOICE, worse=(), compared=len(CHOICE.tied) + 3), {}))
    assert lines["Tied"] == (
        "These 5 tie: raw/none, qcow2/none, raw/writeback, raw/native, raw/default; 3 others left "
        "the race, as none of them is better than the leader by more than its margin (95 %)."
    )
    whole = dict(verdict_lines(replace(CHOICE, compared=len(CHOICE.tied)), {}))
    assert "left the race" not in whole["Tied"]


def test_that_all_lose_data_is_said_once() -> None:
    lost = known_durability(UNSAFE, CrashVerdicts())
    other = cell("qcow2/unsafe")
    choice = replace(CHOICE, cell=UNSAFE, leader=UNSAFE, ties=(other,), durability=lost)
    assert "each of them loses flushed data" in headline(choice)
    lines = dict(verdict_lines(choice, {other: known_durability(other, CrashVerdicts())}))
    assert lines["Tied"] == "These 2 tie: raw/unsafe, qcow2/unsafe."
    kept = dict(verdict_lines(replace(choice, verdict=ChoiceVerdict.KEEP), {}))
    assert "keep any" not in kept["Tied"], "the headline says to take none of them"
    assert lost is not None
    assert lines["Safety"] == f"Why they lose data: {lost.reason}."


def test_a_measure_in_which_the_choice_is_behind_stands_behind_the_answer() -> None:
    """The first sentence is one to act on; the doubt has the command that goes by the measure."""
    measure = MeasureKey("seqwrite-1m-q1", Direction.WRITE, "sustained")
    choice = replace(BEST, behind_in=Behind(measure, cell("raw/writeback"), 1.309))
    assert headline(choice) == "Use raw/none: it is the best of 6 paths overall (95 %)"
    assert next(iter(verdict_lines(choice, {}))) == (
        "But",
        "One load differs: in sequential writes of 1 MiB, one at a time, raw/writeback is at least "
        "30 % better, and others may be as good. If your guests mostly do that, decide by it: "
        "`vdisklab rank --metric seqwrite-1m-q1/write/sustained`.",
    )
    memory = Behind(measure, cell("raw/writeback"), 1.309, in_memory=True)
    said = dict(verdict_lines(replace(BEST, behind_in=memory), {}))["But"]
    assert "at least 30 % better, in the host's RAM, and others" in said


def test_two_screens_that_differ_by_the_measure_say_by_what_they_rank() -> None:
    """The screen to which the answer referred had another path first, and did not say why."""
    measure = MeasureKey("seqwrite-1m-q1", Direction.WRITE, "sustained")
    behind = Behind(measure, cell("raw/writeback"), 1.309, first=cell("qcow2/writeback"))
    said = dict(verdict_lines(replace(BEST, behind_in=behind), {}))["But"]
    assert said.startswith(
        "One load differs: in sequential writes of 1 MiB, one at a time, raw/writeback is at least "
        "30 % better. By it, qcow2/writeback is first. If your guests mostly do that"
    )
    latency = MeasureKey("randread-4k-q1", Direction.READ, "latency_p99")
    in_it = "in the p99 latency of 3 s of random reads of 4 KiB, one at a time"
    for verdict in set(ChoiceVerdict) - {ChoiceVerdict.ONLY, ChoiceVerdict.SAFER}:
        choice = replace(CHOICE, verdict=verdict, by=latency, seconds=3.0)
        assert in_it in headline(choice)
        assert len(short_headline(choice)) <= MOST_CHARACTERS


def test_a_disk_that_is_not_shown_to_be_worse_can_stay() -> None:
    """`advise` keeps such a disk: `recommend` does not say to change it, and is for new disks."""
    stays = (cell("qcow2/writeback"), UNSAFE)
    close = replace(CHOICE, verdict=ChoiceVerdict.CLOSE, ties=(), behind=0.08, stays=stays)
    assert headline(close) == "Use raw/none for a new disk: within 8 % of the best (95 %)"
    cuts = {UNSAFE: known_durability(UNSAFE, CrashVerdicts())}
    assert dict(verdict_lines(close, cuts))["Guests"] == (
        "A guest's disk that is one of these can stay, as none is shown to be worse: "
        "qcow2/writeback."
    )


def test_a_race_that_goes_on_is_not_told_to_start_without_rounds() -> None:
    tie = replace(CHOICE, behind=None, rounds=3, surer=Surer(0, 12, 60.0))
    said = dict(verdict_lines(tie, {}))["At stake"]
    assert "run its command again, which continues the race" in said
    assert "--rounds" not in said


def test_a_number_of_rounds_has_no_budget() -> None:
    """`run --rounds 3 --budget 30m` is refused."""
    surer = Surer(0, 240, 4020.0, command="vdisklab run raw/{none,native} --rounds 3", usual=False)
    few = replace(ONLY, unranked=CHOICE.ties, surer=surer)
    assert dict(verdict_lines(few, {}))["Cost"] == (
        "To compare them, continue the campaign: `vdisklab run raw/{none,native} --rounds 3`: at "
        "most 1 h 07 min (240 more runs)."
    )
    race = replace(surer, command="vdisklab run raw/{none,native} --find best")
    cost = dict(verdict_lines(replace(few, surer=race), {}))["Cost"]
    assert cost.endswith("(240 more runs; `--budget 30m` ends it earlier).")


def test_what_most_races_take_is_said_only_if_it_is_less() -> None:
    """`usually less than 2 h, at most 2 h`."""
    surer = Surer(0, 12, 7210.0, command="vdisklab run raw/none", seconds_usually=7201.0)
    better = replace(CHOICE, verdict=ChoiceVerdict.BETTER, surer=surer)
    cost = dict(verdict_lines(better, {}))["Cost"]
    assert "usually" not in cost
    assert "at most 2 h" in cost
    stake = dict(verdict_lines(replace(CHOICE, verdict=ChoiceVerdict.KEEP, surer=surer), {}))
    assert "takes at most 2 h" in stake["At stake"]


def test_an_answer_over_hosts_is_of_their_mean_and_not_of_each() -> None:
    """Read once, `the best, on 9 hosts` was the best on each of them."""
    found = headline(replace(BEST, hosts=9))
    assert found == "Use raw/none: it is the best of 6 paths (95 %), on average over 9 hosts"
    assert len(short_headline(replace(BEST, hosts=9))) <= MOST_CHARACTERS
