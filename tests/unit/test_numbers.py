from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab import numbers
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.results.model import METRICS
from vdisklab.units import format_bytes
from vdisklab.views.wording import difference


def test_only_requests_are_iops() -> None:
    assert {name for name, metric in METRICS.items() if metric.shown_unit == "IOPS"} == {"iops"}
    assert {metric.unit for metric in METRICS.values()} == {
        metric.shown_unit for metric in METRICS.values() if metric.name != "iops"
    }


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.234e9, "B/s", "1.23 GB/s"),
        (999.6e6, "B/s", "1.00 GB/s"),
        (0.2e6, "B/s", "200 kB/s"),
        (65536.0, "B", "64.0 KiB"),
        (134_217_728.0, "B", "128 MiB"),
        (1.5 * 2**30, "B", "1.50 GiB"),
        (1000.0, "B", "1000 B"),
        (0.0, "B", "0 B"),
        (12_345.0, "IOPS", "12.3k IOPS"),
        (512.0, "IOPS", "512 IOPS"),
        (12_345.0, "1/s", "12.3k/s"),
        (512.0, "1/s", "512/s"),
        (85e-6, "s", "85.0 µs"),
        (0.0123, "s", "12.3 ms"),
        (90.0, "s", "90.0 s"),
        (3e-12, "s", "0.00300 ns"),
        (0.0, "B/s", "0 B/s"),
        (0.0, "s", "0 s"),
        (0.5, "1", "0.500"),
        (None, "B/s", "–"),
        (math.nan, "B/s", "– B/s"),
    ],
)
def test_values(value: float | None, unit: str, text: str) -> None:
    assert numbers.value(value, unit) == text


@given(st.floats(1e-6, 1e12))
def test_three_digits_are_near_enough(value: float) -> None:
    assert float(numbers.digits(value)) == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("value", "text"), [(9.999, "10.0"), (99.95, "100"), (0.09996, "0.100"), (12345.0, "12300")]
)
def test_rounding_into_the_next_magnitude(value: float, text: str) -> None:
    assert numbers.digits(value) == text


def test_intervals_share_the_scale_of_their_value() -> None:
    scale = numbers.scale(1.2e9, "B/s")
    assert scale.interval(0.95e9, 1.3e9) == "0.950–1.30"
    assert scale.interval(None, 1.0) == "–"
    assert numbers.ratio(1.5) == "×1.50"
    assert numbers.ratio(None) == "–"


@pytest.mark.parametrize(
    ("low", "high", "ratio", "gain"),
    [
        (1.1, 1.37, "1.10–1.37", "+50 % (10–37)"),
        (0.2, 1.9, "0.200–1.90", "+50 % (-80 to 90)"),
        (0.55, 4.0, "0.550–4.00", "+50 % (-45 to 300)"),
        (0.4, 2.5, "not known", "not known"),
        (0.0115, 28.0, "not known", "not known"),
        (2.0, 28.0, "above 2.00", "+50 % (above 100)"),
        (0.0115, 0.5, "below 0.500", "+50 % (below -50)"),
    ],
)
def test_the_interval_of_a_ratio_that_says_nothing_is_words(
    low: float, high: float, ratio: str, gain: str
) -> None:
    assert numbers.ratio_interval(low, high) == ratio
    assert numbers.interval(numbers.RATIO, low, high) == ratio
    assert numbers.interval(numbers.scale(1e6, "B/s"), 3e4, 8e6) == "0.0300–8.00"
    assert numbers.gain(1.5, low, high) == gain


@pytest.mark.parametrize(
    ("p", "text"),
    [(None, "–"), (0.0001, "<0.001"), (0.0312, "0.031"), (0.5, "0.50"), (1.0, "1.00")],
)
def test_probabilities(p: float | None, text: str) -> None:
    assert numbers.probability(p) == text


def test_places() -> None:
    assert numbers.place(1, 1) == "1"
    assert numbers.place(1, 3) == "1–3"


@pytest.mark.parametrize(
    ("number", "unit"),
    [(2560.0, "IOPS"), (2.5e6, "IOPS"), (12.0, "IOPS"), (1200.0, "1/s"), (2e8, "B/s"),
     (2e-4, "s"), (0.5, "1")],
)  # fmt: skip
def test_a_bar_writes_a_number_as_every_table_does(number: float, unit: str) -> None:
    scale = numbers.scale(number, unit)
    assert numbers.scaled(number / scale.factor, scale.suffix.strip()) == scale.with_unit(number)


@given(st.integers(1, 1 << 44))
def test_an_amount_of_bytes_has_the_units_of_every_other_view(size: int) -> None:
    """`life` and `plan` write amounts by `format_bytes`, `rank` and `compare` by a scale."""
    if size / 1024 ** int(math.log(size, 1024)) < 999.5:  # where both round to the same unit
        assert numbers.value(size, "B").split()[1] == format_bytes(size).split()[1]


@given(st.floats(0.11, 1.99))
def test_a_gain_in_a_table_is_that_of_a_sentence(ratio: float) -> None:
    """`trend` has both on one screen: `3.4 % slower` and `-3.4 %`."""
    said = difference(Ratio(1, ratio)).partition(" ")[0]
    shown = numbers.gain(ratio, None, None).removesuffix(" %").lstrip("+-")
    assert shown == said or (said, shown) == ("under", "0")
