"""Measures in sentences: plain words for the names of built-in profiles, others as they are."""

from __future__ import annotations

import pytest

from vdisklab.analysis.measure_words import key_words, measure_words, measurement_words
from vdisklab.analysis.observations import MeasureKey
from vdisklab.workload.builtin_profiles import builtin_profile, builtin_profiles

NAMES_OF_THEIR_OWN = (
    "bonnie", "boot", "dd", "delete", "discard", "fileserver", "first-write", "second-write",
    "third-write", "growth", "install", "life", "mail", "mixed", "oltp-and-log", "quiet",
    "restore", "backup", "sysbench", "randwrite-4k-open",
)  # fmt: skip
"""How names begin that say in words what is measured, or that are a program's."""


@pytest.mark.parametrize(
    ("key", "phrase"),
    [
        ("first-write/none/duration", "the time for the first write and flush"),
        ("randwrite-4k-q1/write/sustained", "random writes of 4 KiB, one at a time"),
        ("seqread-1m-q32/read/bandwidth", "sequential reads of 1 MiB, 32 at a time"),
        ("randwrite-512-q1", "random writes of 512 bytes, one at a time"),
        ("rnd4k-q32t1-read/read/iops", "random reads of 4 KiB, 32 at a time"),
        (
            "randread-4k-q1/read/latency_p99",
            "the p99 latency of random reads of 4 KiB, one at a time",
        ),
        (
            "randrw-8k-q16/write/iops",
            "the writes among random reads and writes of 8 KiB, 16 at a time",
        ),
        (
            "randread-4k-q32-j4/read/iops",
            "random reads of 4 KiB, 32 at a time by each of 4 jobs",
        ),
        ("score/none/overall_ratio", "overall ratio"),
        ("mine/read/iops", "mine/read/iops"),
        ("randread-4k-q1/read/allocated", "randread-4k-q1/read/allocated"),
        ("tpcb-like-c1/none/transactions", "transactions of PostgreSQL like TPC-B with one client"),
    ],
)
def test_words(key: str, phrase: str) -> None:
    assert key_words(key) == phrase


def test_a_time_is_part_of_the_name() -> None:
    measure = MeasureKey.parse("randwrite-4k-q1/write/sustained")
    assert measure_words(measure, seconds=0.5) == "0.5 s of random writes of 4 KiB, one at a time"
    assert measure_words(measure, seconds=60).startswith("60 s of random writes")
    assert key_words("randread-4k-q1", seconds=0.5).startswith("0.5 s of random reads")
    assert key_words("mine", seconds=0.5) == "mine"


@pytest.mark.parametrize(
    ("key", "is_burst"),
    [
        ("seqwrite-1m-q1/write/bandwidth", True),
        ("rnd4k-q1t1-write/write/bandwidth", True),
        ("seqwrite-1m-q1/write/sustained", False),
        ("seqread-1m-q1/read/bandwidth", False),
        ("fsync-4k-q1/write/bandwidth", False),
        ("mine/write/bandwidth", False),
    ],
)
def test_writes_as_a_program_saw_them_have_another_name(key: str, is_burst: bool) -> None:
    """Old campaigns have no sustained rate: their titles equalled those of rates that last."""
    said = measure_words(MeasureKey.parse(key), seconds=0.5)
    assert said.startswith("a burst of 0.5 s of ") is is_burst


def test_every_name_of_a_profile_has_words_or_is_some() -> None:
    names = {
        each.name for name in builtin_profiles() for each in builtin_profile(name).measurements
    }
    without = {name for name in names if measurement_words(name) == name}
    assert [name for name in sorted(without) if not name.startswith(NAMES_OF_THEIR_OWN)] == []
