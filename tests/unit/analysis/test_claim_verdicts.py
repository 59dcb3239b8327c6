from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, P99, START, labelled
from vdisklab.analysis.claim_verdicts import (
    ClaimAnswer,
    ClaimStatus,
    ClaimVerdict,
    Void,
    judge_claims,
)
from vdisklab.analysis.claimfile import Claim, builtin_claims, parse_claims
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.errors import PlanError
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Direction, Failure, FailureKind, Origin, RunOutline
from vdisklab.value import replace
from vdisklab.workload.builtin_profiles import builtin_profiles

FILE = """
article = "mine"
title = "my host"

[[claim]]
name = "{name}"
sentence = "A is B."
left = ["{left}"]
right = ["{right}"]
measures = ["randread-4k-q1/read/{metric}"]
{rest}
"""


def text(**over: str) -> str:
    fields = {"name": "a-is-b", "left": "raw/none", "right": "qcow2/none", "metric": "iops"}
    return FILE.format(**{**fields, "rest": "low = 0.9\nhigh = 1.1", **over})


def claim(**over: str) -> Claim:
    return parse_claims(text(**over), "mine.toml").claims[0]


def outline(path: str = "raw/none", **changes: Any) -> RunOutline:  # noqa: ANN401 - any field
    plain = RunOutline(
        id="1", campaign="c", cell=path, path=path, page_cache=PageCache.BYPASSED, round=1,
        position=1, origin=Origin.GUEST, started=START, wall_seconds=1.0, accelerator="kvm",
        medium="disk",
    )  # fmt: skip
    return replace(plain, **changes)


def test_a_claim_on_a_rate_of_zero_has_a_verdict_and_no_digits() -> None:
    names = {"raw/none": 0.0, "qcow2/none": 10.0}
    data = labelled(
        {(name, round, IOPS): value for name, value in names.items() for round in (1, 2, 3)}
    )
    (answer,) = judge_claims([claim()], data, [])
    assert answer.verdict is ClaimVerdict.FAILS
    assert (answer.ratio, answer.low, answer.high) == (None, None, None)


def test_zeros_against_zeros_do_not_decide_more_than_their_step() -> None:
    stall = MeasureKey("randread-4k-q1", Direction.READ, "longest_stall")
    data = labelled(
        {(name, b, stall): 0.0 for name in ("raw/none", "qcow2/none") for b in range(5)}
    )
    (narrow,) = judge_claims([claim(metric="longest_stall", rest="low = 1.1")], data, [])
    assert (narrow.verdict, narrow.more_rounds) == (ClaimVerdict.INCONCLUSIVE, None)
    assert (narrow.low, narrow.high) == pytest.approx((1.5**-2, 1.5**2))
    (wide,) = judge_claims([claim(metric="longest_stall", rest="low = 0.1\nhigh = 10")], data, [])
    assert wide.verdict is ClaimVerdict.HOLDS


def measured(**cells: Floats) -> Observations:
    names = {"raw": "raw/none", "qcow2": "qcow2/none", "host": "host"}
    return labelled(
        {
            (names[cell], round, IOPS): float(value)
            for cell, values in cells.items()
            for round, value in enumerate(values)
            if np.isfinite(value)
        }
    )


def answered(stated: Claim, observations: Observations, *runs: RunOutline) -> ClaimAnswer:
    return judge_claims([stated], observations, runs or [outline()])[0]


def test_the_articles_claims_are_read_and_each_can_be_measured_by_a_profile_that_exists() -> None:
    files = builtin_claims()
    claims = [stated for file in files for stated in file.claims]
    assert len(files) == 7
    assert len(claims) >= 30
    assert len({(stated.article, stated.name) for stated in claims}) == len(claims)
    assert {stated.profile for stated in claims} <= set(builtin_profiles())


@pytest.mark.parametrize(
    ("ratio", "rest", "verdict"),
    [
        (1.0, "low = 0.9\nhigh = 1.1", ClaimVerdict.HOLDS),
        (1.5, "low = 0.9\nhigh = 1.1", ClaimVerdict.FAILS),
        (0.6, "low = 0.9\nhigh = 1.1", ClaimVerdict.FAILS),
        (1.5, "low = 1.2", ClaimVerdict.HOLDS),
        (1.1, "low = 1.2", ClaimVerdict.FAILS),
        (0.3, "high = 0.5", ClaimVerdict.HOLDS),
        (1.101, "low = 0.9\nhigh = 1.1", ClaimVerdict.INCONCLUSIVE),
    ],
)
def test_verdicts(ratio: float, rest: str, verdict: ClaimVerdict) -> None:
    rng = np.random.default_rng(1)
    drift = np.exp(np.cumsum(rng.normal(0, 0.3, 6)))
    noise = np.exp(rng.normal(0, 0.01, 6))
    found = answered(claim(rest=rest), measured(raw=ratio * drift * noise, qcow2=drift))
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(ratio, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.ratio is not None
    assert found.low < found.ratio < found.high
    assert (found.more_rounds is None) is (verdict is not ClaimVerdict.INCONCLUSIVE)


def test_a_claim_that_is_shown_alone_but_not_among_others_says_so() -> None:
    """The interval lay in the range, and the verdict was `inconclusive (1 more round)`."""
    rng = np.random.default_rng(3)
    data = measured(raw=1.06 * np.exp(rng.normal(0, 0.02, 5)), qcow2=np.ones(5))
    range_of = "low = 0.9\nhigh = 1.1"
    (alone,) = judge_claims([claim(rest=range_of)], data, [outline()])
    assert alone.verdict is ClaimVerdict.HOLDS
    claims = [claim(rest=range_of), *(claim(name=f"c{n}", rest="low = 1.06") for n in range(9))]
    first, *_ = judge_claims(claims, data, [outline()])
    assert (first.low, first.high, first.verdict) == (
        alone.low, alone.high, ClaimVerdict.INCONCLUSIVE,
    )  # fmt: skip
    more = "s" * (first.more_rounds != 1)
    assert first.sentence == (
        f"inconclusive (alone it holds, not among 10 claims; {first.more_rounds} more round{more})"
    )


@pytest.mark.parametrize(
    ("p99", "verdict"),
    [(0.004, ClaimVerdict.HOLDS), (0.03, ClaimVerdict.FAILS), (0.0101, ClaimVerdict.INCONCLUSIVE)],
)
def test_a_value_is_in_its_range_or_not(p99: float, verdict: ClaimVerdict) -> None:
    """A shared drift is no excuse: nothing is divided by another path's value."""
    noise = np.exp(np.random.default_rng(1).normal(0, 0.02, 6))
    (stated,) = parse_claims(
        text(metric="latency_p99", rest="high = 0.01\nof_value = true").replace(
            'right = ["qcow2/none"]', ""
        ),
        "mine.toml",
    ).claims
    assert (stated.unit, stated.absolute, stated.stated) == ("s", True, "< 0.01")
    values = {("raw/none", round, P99): p99 * by for round, by in enumerate(noise)}
    found = answered(stated, labelled(values))
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(p99, rel=0.02)
    assert found.claim.cells == (stated.pairs[0][0],)


def test_a_value_says_nothing_under_emulation() -> None:
    (etcd,) = (file for file in builtin_claims() if file.article == "etcd")
    stated = etcd.claims[0]
    assert stated.of_value
    p99 = MeasureKey("etcd-wal", Direction.WRITE, "sync_p99")
    values = {("raw/none", round, p99): 0.02 for round in range(4)}
    found = answered(stated, labelled(values), replace(outline(), accelerator="tcg"))
    assert found.status is ClaimStatus.VOID


def test_what_discards_give_back_is_judged_also_where_it_is_nothing_and_under_emulation() -> None:
    (discard,) = (file for file in builtin_claims() if file.article == "discard")
    values = {
        (path, round, MeasureKey(name, Direction.TRIM, "freed_image")): value
        for path, name, value in (
            *((f"{image}/none/virtio:discard=unmap", "delete-fstrim", 134e6)
              for image in ("raw", "qcow2")),
            *((f"{image}/none", "delete-fstrim", 0.0) for image in ("raw", "qcow2")),
        )
        for round in range(3)
    }  # fmt: skip
    emulated = replace(outline(), accelerator="tcg")
    found = judge_claims(discard.claims, labelled(values), [emulated])
    verdicts = {stated.claim.name: stated.status for stated in found}
    assert verdicts == {
        "unmap-and-fstrim-give-back": ClaimStatus.HOLDS,
        "unmap-and-mount-option-give-back": ClaimStatus.NOT_MEASURED,
        "unmap-alone-gives-nothing-back": ClaimStatus.NOT_MEASURED,
        "ignored-discards-give-nothing-back": ClaimStatus.HOLDS,
    }
    values_of = {stated.claim.name: (stated.low, stated.ratio, stated.high) for stated in found}
    assert values_of["ignored-discards-give-nothing-back"][:2] == (0, 0)
    low, given, high = values_of["unmap-and-fstrim-give-back"]
    assert given == pytest.approx(134e6)
    assert low is not None
    assert high is not None
    assert low < 134e6 < high


@pytest.mark.parametrize("stored", [Direction.READ, Direction.NONE])
def test_a_stall_is_found_however_its_observer_stored_it(stored: Direction) -> None:
    stall = MeasureKey("randread-4k-q1", stored, "longest_stall")
    observations = labelled(
        {
            (path, round, stall): value
            for path, values in {"raw/none": (0.0, 0.0, 0.1), "qcow2/none": (2.0, 2.1, 2.0)}.items()
            for round, value in enumerate(values)
        }
    )
    found = answered(claim(metric="longest_stall", rest="high = 0.5"), observations)
    assert found.verdict is ClaimVerdict.HOLDS


def test_two_rounds_are_inconclusive_and_one_more_is_asked_for() -> None:
    found = answered(claim(), measured(raw=np.ones(2), qcow2=np.ones(2)))
    assert (found.verdict, found.more_rounds) == (ClaimVerdict.INCONCLUSIVE, 1)
    assert found.low is None


@pytest.mark.parametrize(
    "observations",
    [
        measured(raw=np.ones(5)),
        measured(),
        # never in one round
        measured(raw=np.array([1, np.nan, 1, np.nan]), qcow2=np.array([np.nan, 1, np.nan, 1])),
    ],
)
def test_what_lacks_a_side_is_not_measured_and_names_both_cells(observations: Observations) -> None:
    failed = outline(failure=Failure(FailureKind.STATE, "no O_DIRECT"))
    found = answered(claim(), observations, failed)
    assert found.verdict is ClaimVerdict.NOT_MEASURED
    assert [cell.label for cell in found.missing] == ["raw/none", "qcow2/none"]
    assert found.failures == ("raw/none: no O_DIRECT",)


def test_guest_against_host_is_void_under_emulation_and_in_a_lab() -> None:
    stated = claim(right="host", rest="high = 1.0")  # nobody has to say that it is absolute
    numbers = measured(raw=np.array([0.5, 0.51, 0.52]), host=np.ones(3))
    host = outline("host", accelerator=None, origin=Origin.HOST)
    assert answered(stated, numbers, outline(), host).void is None
    assert answered(stated, numbers, outline(accelerator="tcg"), host).void is Void.EMULATION
    nested = outline(accelerator="kvm", emulated=True)
    assert answered(stated, numbers, nested, host).void is Void.EMULATED
    assert answered(stated, numbers, outline(origin=Origin.LAB), host).void is Void.LAB
    relative = claim(right="host", rest="high = 1.0\nabsolute = false")
    assert answered(relative, numbers, outline(accelerator="tcg"), host).void is None


def test_a_claim_that_is_void_is_void_whether_its_numbers_decide_it_or_not() -> None:
    """Else more rounds would be asked for, and the answer after them would be void."""
    stated = claim(right="host", rest="high = 1.0")
    host = outline("host", accelerator=None, origin=Origin.HOST)
    for values in ([0.9, 1.1, 1.02], [0.9, 1.1]):
        numbers = measured(raw=np.array(values), host=np.ones(len(values)))
        open_under_kvm = answered(stated, numbers, outline(), host)
        assert open_under_kvm.status is ClaimStatus.INCONCLUSIVE
        found = answered(stated, numbers, outline(accelerator="tcg"), host)
        assert (found.status, found.more_rounds) == (ClaimStatus.VOID, None)
        assert found.sentence == "void: emulation (here it is inconclusive)"


def test_one_bad_pair_refutes_a_claim_about_all_pairs() -> None:
    stated = claim(left="{raw,qcow2}/none", right="host", rest="high = 1.0")
    found = answered(stated, measured(raw=np.full(4, 2.0), qcow2=np.full(4, 0.1), host=np.ones(4)))
    assert found.status is ClaimStatus.FAILS
    assert found.ratio == pytest.approx(2.0)
    assert found.rounds == 4
    assert found.sentence == "fails for raw/none against host"


def test_a_claim_about_all_pairs_holds_only_if_each_is_shown() -> None:
    stated = claim(left="{raw,qcow2}/none", right="host", rest="low = 1.0")
    sure = np.array([3.0, 3.1, 3.0, 2.9])
    held = answered(stated, measured(raw=sure, qcow2=sure, host=np.ones(4)))
    assert held.status is ClaimStatus.HOLDS
    unsure = np.array([0.8, 1.5, 1.2, 0.9])
    found = answered(stated, measured(raw=sure, qcow2=unsure, host=np.ones(4)))
    assert found.status is ClaimStatus.INCONCLUSIVE
    assert found.decides is not None
    assert found.decides.left.label == "qcow2/none"
    assert found.ratio == pytest.approx(np.exp(np.log(unsure).mean()))


def test_each_measure_is_tested_unless_the_claim_is_about_all_together() -> None:
    text_of = text(rest="low = 1.0").replace(
        'measures = ["', 'measures = ["seqread-1m-q1/read/bandwidth", "'
    )
    bandwidth = MeasureKey("seqread-1m-q1", Direction.READ, "bandwidth")
    numbers = {
        (path, round, key): value * (1 + round / 1000 if path == "raw/none" else 1.0)
        for path, values in {"raw/none": (4.0, 0.5), "qcow2/none": (1.0, 1.0)}.items()
        for key, value in zip((bandwidth, IOPS), values, strict=True)
        for round in range(5)
    }
    mean, each = (
        answered(parse_claims(text_of + more, "mine.toml").claims[0], labelled(numbers))
        for more in ("each_measure = false\n", "")
    )
    assert mean.status is ClaimStatus.HOLDS
    assert each.status is ClaimStatus.FAILS
    assert each.sentence == "fails in random reads of 4 KiB, one at a time"


@pytest.mark.slow
def test_claims_about_many_pairs_rarely_fail_if_each_is_just_true() -> None:
    """Every ratio is the bound itself. Half of the pairs decide a claim that every pair is above
    it, so it never holds for more than the error."""
    rng = np.random.default_rng(8)
    stated = claim(left="{raw,qcow2,vdi,vhdx}/none", right="host", rest="low = 1.0")
    names = [cell.label for cell in stated.cells]
    verdicts = []
    for _ in range(300):
        numbers = {
            (name, round, IOPS): float(np.exp(rng.normal(0, 0.05)))
            for name in names
            for round in range(5)
        }
        verdicts.append(answered(stated, labelled(numbers)).status)
    for wrong in (ClaimStatus.FAILS, ClaimStatus.HOLDS):
        assert verdicts.count(wrong) / 300 <= 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (text(left="raw/nonne"), r"key 'left' of claim 'a-is-b' of mine.toml: unknown segment"),
        (text(right="zvol/raw/none"), r"key 'right' of claim 'a-is-b' .* cannot exist"),
        (text(metric="speed"), r"key 'measures' of claim 'a-is-b' .*unknown metric 'speed'"),
        (text(rest="low = 1.2\nhigh = 1.1"), r"claim 'a-is-b' of mine.toml has an empty range"),
        (text(rest="low = 1.1\nhigh = 1.1"), "has an empty range"),
        (text(rest=""), "has no range"),
        (text(rest="low = -1"), "key 'low' of claim 'a-is-b'"),
        (text(rest="high = inf"), "key 'high' of claim 'a-is-b'"),
        (text(rest='low = "x"'), "key 'low' in the 1st"),
        (text(rest='low = "0.9"'), "key 'low' in the 1st .* should be a number"),
        (text(rest="low = true"), "key 'low' in the 1st .* should be a number"),
        (text(rest="low = nan"), "key 'low' of claim 'a-is-b' of mine.toml is nan"),
        (text(rest="lou = 1"), "key 'lou' in the 1st"),
        (text(left="{raw,qcow2}/none", right="{raw,qcow2,vdi}/none"), "compares 2 paths"),
        (text(right="raw/none"), "compares raw/none with itself"),
        (text(rest="high = 1.0\nof_value = true"), "claim 'a-is-b' of mine.toml is about a value"),
        (text().replace('right = ["qcow2/none"]', ""), "expands to no path"),
        (text(rest='low = 1\npage_cache = "hot"'), "page_cache"),
        ("article =", "not valid TOML"),
        ("", "missing"),
    ],
)
def test_a_bad_file_names_file_claim_and_key(content: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse_claims(content, "mine.toml")


def test_contradictory_claims_are_refused_also_when_their_sides_are_exchanged() -> None:
    first = text(rest="low = 1.2")
    again = "[[claim]]" + text(name="b-is-a", rest="high = 1.1").split("[[claim]]")[1]
    with pytest.raises(PlanError, match=r"'a-is-b' and 'b-is-a' of mine.toml contradict"):
        parse_claims(first + again, "mine.toml")
    turned = text(name="b-is-a", left="qcow2/none", right="raw/none", rest="low = 1.2")
    with pytest.raises(PlanError, match="contradict"):
        parse_claims(first + "[[claim]]" + turned.split("[[claim]]")[1], "mine.toml")
    alike = text(name="b-is-a", rest="low = 1.1").split("[[claim]]")[1]
    assert len(parse_claims(first + "[[claim]]" + alike, "mine.toml").claims) == 2
    with pytest.raises(PlanError, match="2 claims named"):
        parse_claims(first + "[[claim]]" + first.split("[[claim]]")[1], "mine.toml")


def test_three_claims_of_one_contrast_are_held_against_the_range_that_all_leave() -> None:
    first = text(rest="low = 0.5\nhigh = 0.8")
    second = "[[claim]]" + text(name="second", rest="low = 0.7").split("[[claim]]")[1]
    third = "[[claim]]" + text(name="third", rest="high = 0.6").split("[[claim]]")[1]
    assert len(parse_claims(first + second, "mine.toml").claims) == 2
    with pytest.raises(PlanError, match=r"'second' and 'third' of mine.toml contradict"):
        parse_claims(first + second + third, "mine.toml")


def test_a_thousand_claims_are_read_in_a_moment() -> None:
    """Each was once held against every other."""
    head, claim_text = text(name="c0").split("[[claim]]")
    many = (claim_text.replace('"c0"', f'"c{number}"') for number in range(1500))
    start = time.monotonic()
    parse_claims(head + "".join(f"[[claim]]{each}" for each in many), "mine.toml")
    assert time.monotonic() - start < 15


def test_a_number_that_the_measurement_does_not_give_is_told() -> None:
    stated = claim(metric="latency_p99")
    found = answered(stated, measured(raw=np.ones(3), qcow2=np.ones(3)))
    assert found.verdict is ClaimVerdict.NOT_MEASURED
    assert found.failures == (
        "raw/none: randread-4k-q1 was measured but has no read/latency_p99",
        "qcow2/none: randread-4k-q1 was measured but has no read/latency_p99",
    )


@pytest.mark.slow
@pytest.mark.parametrize("families", [60, pytest.param(300, marks=pytest.mark.nightly)])
def test_claims_that_are_just_true_rarely_fail_in_a_family_of_twenty(families: int) -> None:
    """The ratio is the bound itself, so a settled "fails" is an error: at most 5 % (Holm)."""
    rng = np.random.default_rng(7)
    file = text(rest="low = 1.0")
    claims = [
        replace(parse_claims(file, "m").claims[0], name=str(key), measures=(key,))
        for key in (MeasureKey(f"m{number:02d}", Direction.READ, "iops") for number in range(20))
    ]
    wrong = 0
    for _ in range(families):
        numbers = {
            (path, round, stated.measures[0]): float(np.exp(rng.normal(0, 0.05)))
            for stated in claims
            for path in ("raw/none", "qcow2/none")
            for round in range(5)
        }
        found = judge_claims(claims, labelled(numbers), [outline()])
        wrong += any(each.verdict is ClaimVerdict.FAILS for each in found)
    assert wrong / families <= 0.05 + 2 * (0.05 * 0.95 / families) ** 0.5
