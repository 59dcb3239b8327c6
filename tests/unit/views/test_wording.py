from __future__ import annotations

from typing import Any

import pytest

from tests.unit.analysis.made import cell
from vdisklab.analysis.diagnostics.baseline import NoBaseline
from vdisklab.analysis.diagnostics.caveats import Emulated, InEmulatedHost
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import (
    DroppedBySearch,
    FailedCell,
    Inconclusive,
    NoCommonRound,
    NothingToCompare,
    SharedRounds,
    TooFewRounds,
    TooSlow,
)
from vdisklab.analysis.diagnostics.recorded import FromPageCache, OpenLoad, SeveralGuests
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Comparison, Ratio, Verdict
from vdisklab.analysis.score import NoScore, Role, Score
from vdisklab.analysis.summary import Summary
from vdisklab.documents import plain
from vdisklab.results.model import Direction
from vdisklab.views.wording import compared, difference, difference_in


@pytest.mark.parametrize(
    ("ratio", "says"),
    [
        (Ratio(5, 0.803, 0.574, 1.12), "between 43 % slower and 12 % faster"),
        (
            Ratio(3, 0.5, 0.004, 59.0),
            "not shown to be faster or slower: so few rounds tell nothing",
        ),
        (Ratio(2, 8.0, 1.2, 53.0), "at least 20 % faster"),
        (Ratio(2, 0.02, 0.001, 0.4), "at least 60 % slower"),
        (Ratio(5, 1.2, 1.1, 1.3), "between 10 and 30 % faster"),
        (Ratio(5, 0.8, 0.79, 0.82), "between 18 and 21 % slower"),
        (Ratio(5, 1.5, 0.996, 2.94), "between 0.4 % slower and 2.9 times as fast"),
        (Ratio(5, 1.1, 1.00094, 1.3), "between 0.1 and 30 % faster"),
        (Ratio(5, 1.1, 1.0003, 1.3), "between under 0.1 and 30 % faster"),
        (Ratio(5, 2.38, 2.36, 2.41), "2.4 times as fast"),
        (Ratio(5, 0.01, 0.005, 0.02), "between 50 and 200 times slower"),
        (Ratio(2, 1.25), "25 % faster"),
        (Ratio(2, 1234.0), "1200 times as fast"),
        (Ratio(3, 0.0), "infinitely slower"),
        (Ratio(3), "not comparable, as one value is zero"),
        (Ratio(0), "in no round with the other"),
    ],
)
def test_a_ratio_in_words(ratio: Ratio, says: str) -> None:
    assert difference(ratio) == says
    assert difference(ratio, of="host") == says.replace("few rounds", "few hosts")


@pytest.mark.parametrize(
    ("measure", "says"),
    [
        ("make/none/allocated", "between 80 and 90 % less"),
        ("delete/none/given_back", "between 80 and 90 % less"),
        ("sql/none/flushes", "between 80 and 90 % less"),
        ("make/none/duration", "between 5.0 and 10 times as fast"),
        ("randread/read/iops", "between 80 and 90 % slower"),
    ],
)
def test_bytes_and_counts_are_more_or_less_not_fast(measure: str, says: str) -> None:
    assert difference_in(MeasureKey.parse(measure), Ratio(5, 0.15, 0.1, 0.2)) == says


WORDED: list[tuple[Diagnostic, str]] = [
    (TooFewRounds((cell("a"),), 1, 3), "a: measured in 1 round; a rank needs 3."),
    (
        TooFewRounds((cell("a"),), 1, 3, imported="3f2a"),
        "3. Import 3 or more results of each path (import --as PATH --into 3f2a).",
    ),
    (TooFewRounds((cell("a"),), 1, 3, "vdisklab run a"), "3. To continue: `vdisklab run a`."),
    (
        TooFewRounds((cell("a"), cell("b"), cell("c"), cell("d"), cell("e")), 2, 3),
        "a, b, c and 2 more: measured in 2 rounds",
    ),
    (DroppedBySearch((cell("a"),), 3), "a: measured in fewer than 3 rounds, so without a rank"),
    (TooSlow((cell("a"),), 2, measured=False), "too slow to end in time in 2 rounds"),
    (NoCommonRound((cell("a"),)), "a: never measured in the same round"),
    (NothingToCompare(cell("a")), "a alone could be ranked"),
    (SeveralGuests((2,)), "Rates are summed over 2 guests."),
    (SeveralGuests((1, 4)), "measured in 1, 4 guests at once"),
    (SeveralGuests((4,), disks=True), "a time is that of the last of them"),
    (SeveralGuests((1, 4), disks=True), "made 1, 4 at once, and times grow with their number"),
    (
        SeveralGuests((1, 4), disks=True, command="c", fewest=True),
        "This is about disks made alone; about 4 at once: `c`.",
    ),
    (SeveralGuests((1, 4), command="c"), "their number: `c` ranks those of one number."),
    (OpenLoad(), "rates show the requested load"),
    (Inconclusive(4), "none of the 4 cells is shown to differ"),
    (
        Emulated(),
        "under emulation (TCG): good for comparing host-side choices, not for the speed of a KVM",
    ),
    (InEmulatedHost(), "proof that code works under KVM, not a measure of speed"),
    (
        FromPageCache(cell("a"), "seqread", Direction.READ, 0.03),
        "a in seqread: read from the host's page cache; only 3 % of the bytes came from the "
        "device.",
    ),
    (
        FromPageCache(cell("a"), "w", Direction.WRITE, 0.0),
        "wrote into the host's page cache; only 0 %",
    ),
    (
        FromPageCache(cell("a"), "w", Direction.WRITE, 0.15, lasting=True),
        "a in w: only 15 % of the bytes reached the device while the program wrote. The sustained "
        "rate counts the time until the rest had; other numbers show a burst into the host's "
        "memory.",
    ),
    (FailedCell(cell("a"), 1, "guest", "it died"), "a: failed in 1 round (guest): it died"),
    (NoBaseline(cell("host")), "No scores: the baseline host has no numbers"),
    (
        NoScore(cell("a"), Score.READ, (Role.RANDOM_READ,), ()),
        "a: no read ratio, as it lacks 4 KiB",
    ),
    (
        NoScore(cell("a"), Score.READ, (), (Role.RANDOM_READ,)),
        "as the baseline lacks 4 KiB random read",
    ),
    (
        NoScore(cell("a"), "overall_ratio", ("x/read/iops",), ()),
        "no overall ratio, as it lacks x/r",
    ),
    (NoScore(cell("a"), Score.READ, (), ()), "as no round holds all its measures"),
    (
        SharedRounds(0.7, 4),
        "70 % of the noise is shared: some paths speed up and slow down together, or one is far "
        "noisier than the others, which looks the same. 4 rounds cannot separate them.",
    ),
    (
        NoScore(cell("a"), "weighted_mix", (), (), zero=("x/read/latency_p99",)),
        "a: no weighted mix in the rounds in which its x/read/latency_p99 is zero, because a ratio "
        "to zero is unknown. `vdisklab rank --metric x/read/latency_p99` counts them.",
    ),
    (
        NoScore(cell("a"), "weighted_mix", (), (), ("x/read/iops",), ("x/read/iops",)),
        "unknown; no other path has one either, because this is the baseline.",
    ),
    (
        NoScore(cell("a"), Score.READ, (), (), (Role.RANDOM_READ,)),
        "because the baseline's 4 KiB random read is zero: a ratio to zero is unknown",
    ),
]


def finding_json(finding: Diagnostic) -> Any:  # noqa: ANN401 - JSON
    return plain(finding)


@pytest.mark.parametrize(("finding", "part"), WORDED)
def test_sentences(finding: Diagnostic, part: str) -> None:
    assert part in str(finding)
    assert finding_json(finding)["text"] == str(finding)


def test_kinds_in_json() -> None:
    assert finding_json(FailedCell(cell("a"), 1, "guest", "died")) == {
        "kind": "failed-cell",
        "text": "a: failed in 1 round (guest): died",
        "cell": "a",
        "rounds": 1,
        "failure": "guest",
        "reason": "died",
    }


IOPS_OF = MeasureKey("randread-4k-q1", Direction.READ, "iops")
P99 = MeasureKey("randread-4k-q1", Direction.READ, "latency_p99")


@pytest.mark.parametrize(
    ("measure", "found", "ratio", "sentence"),
    [
        (IOPS_OF, Verdict.A_BETTER, Ratio(5, 1.2, 1.1, 1.3), "between 10 and 30 % faster"),
        (IOPS_OF, Verdict.B_LIKELY, Ratio(5, 0.8, 0.7, 0.9), "between 10 and 30 % slower, likely"),
        (
            IOPS_OF,
            Verdict.NONE_SHOWN,
            Ratio(5, 0.803, 0.574, 1.12),
            "between 43 % slower and 12 % faster",
        ),
        (IOPS_OF, Verdict.TOO_FEW, Ratio(2), "too few rounds (2)"),
        (
            P99,
            Verdict.A_BETTER,
            Ratio(5, 0.5, 0.4, 0.8),
            "between 25 % faster and 2.5 times as fast",
        ),
        (P99, Verdict.B_BETTER, Ratio(5, 1.25, 1.25, 1.25), "20 % slower"),
        (P99, Verdict.B_BETTER, Ratio(5), "not comparable, as one value is zero"),
    ],
)
def test_comparisons(measure: MeasureKey, found: Verdict, ratio: Ratio, sentence: str) -> None:
    of = Summary(cell("a"), measure, 5, 1.0, None, None, None)
    row = Comparison(cell("a"), cell("b"), measure, "1/s", of, of, ratio, None, found, main=True)
    assert compared(row) == sentence
