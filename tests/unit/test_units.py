"""Sizes and durations are read as written, and written so that they can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab import units
from vdisklab.answers.method import EXPLANATIONS
from vdisklab.errors import PlanError
from vdisklab.units import (
    format_bytes,
    format_duration,
    format_size,
    format_throughput,
    in_percent,
    parse_duration,
    parse_percentage,
    parse_size,
)


@given(st.integers(0, 1 << 59))
def test_size_round_trip(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 1 << 20), st.sampled_from("kMGT"))
def test_sizes_have_one_shortest_spelling(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert len(format_size(parse_size(text))) <= len(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("64k", 65536), ("64K", 65536), ("1M", 1 << 20), ("2GiB", 2 << 30),
     ("1 TB", 1 << 40), (" 7 ", 7), ("0", 0), ("512b", 512)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5G", "1Q", "1 k k", "0x10", "1e3", "٣k", "9" * 5000, "1\u212a"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(PlanError, match="is not a size") as caught:
        parse_size(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5.0), ("500ms", 0.5), ("1.5s", 1.5), ("30m", 1800.0), ("2h", 7200.0), (" 1 S ", 1.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1", "1.", ".5", "1d", "inf", "nan", "٣", "9" * 500])
def test_no_durations(text: str) -> None:
    with pytest.raises(PlanError, match="is not a duration") as caught:
        parse_duration(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (12.3, "12 s"), (59.7, "1 min 00 s"),
     (185, "3 min 05 s"), (3599.9, "1 h 00 min"), (7800, "2 h 10 min")],
)  # fmt: skip
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (12 << 20, "12.0 MiB"),
     (300 << 30, "300 GiB"), (5 << 40, "5.0 TiB"), (-1536, "-1.5 KiB")],
)  # fmt: skip
def test_bytes_for_people(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("size", "operations", "text"),
    [(12e6, 3000.4, "12 MB/s, 3000 IOPS"), (5e6, None, "5 MB/s"),
     (4.1e5, 99.6, "0.41 MB/s, 100 IOPS"),
     (0, 0, "0 MB/s, 0 IOPS"), (51, 0.1, "<0.01 MB/s, 0.1 IOPS"), (9.96e6, None, "10 MB/s")],
)  # fmt: skip
def test_throughput_that_is_not_zero_is_not_shown_as_zero(
    size: float, operations: float | None, text: str
) -> None:
    assert format_throughput(size, operations) == text


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.5 %", 0.005), ("0.1", 0.1)])
def test_shares(text: str, share: float) -> None:
    assert parse_percentage(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "-1%", "3 percent", "101%", "nan"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(PlanError, match="is not a percentage"):
        parse_percentage(text)


def test_a_percentage_is_written_in_one_way() -> None:
    """`12 %`, as sentences have it; a style sheet's lengths are no percentages of anything."""
    assert in_percent(0.123) == "12 %"
    assert in_percent(0.0123, 1) == "1.2 %"
    shares = (0.0, 0.0001, 0.004, 0.01, 0.99, 0.996, 0.99999, 1.0, 1.0001, 1.4)
    assert [in_percent(share) for share in shares] == [
        "0 %", "under 0.1 %", "0.4 %", "1 %", "99 %", "99.6 %", "over 99.9 %",
        "100 %", "100 %", "140 %",
    ]  # fmt: skip
    source = Path(units.__file__).parent
    assert not any(re.search(r"\d%", entry.how) for entry in EXPLANATIONS)
    formatted = re.compile(r":\.\d%\}")
    assert [
        file for file in source.rglob("*.py") if formatted.search(file.read_text("utf-8"))
    ] == []
