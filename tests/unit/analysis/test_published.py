from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import labelled
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.published import (
    PublishedTable,
    Shape,
    builtin_publications,
    compare_shape,
    find_series,
    flat,
    in_si,
    lines_missing,
    parse_publication,
)
from vdisklab.errors import PlanError
from vdisklab.results.model import Direction

TEXT = """
article = "a"
title = "t"
author = "x"

[[table]]
name = "modes"
series = "modes"
title = "modes"
header = "MB/s read write"
machine = "m"
program = "p"
statistic = "one run"
unit = "MB/s"
baseline = "host"
column = [
    { title = "read", measure = "seqread-1m-q1/read/bandwidth" },
    { title = "write", measure = "seqwrite-1m-q1/write/bandwidth" },
]
row = [
    { label = "host", path = "host", cells = ["200", "100"] },
    { label = "none", path = "raw/none", cells = ["100", "1.9 GB/s"] },
    { label = "old", cells = ["7", "8"] },
]
"""


def table() -> tuple[PublishedTable, ...]:
    return parse_publication(TEXT, "a.toml").tables


def ours(read: float, rounds: int = 5) -> Observations:
    rng = np.random.default_rng(3)
    key = MeasureKey("seqread-1m-q1", Direction.READ, "bandwidth")
    return labelled(
        {
            (cell, round, key): level * float(np.exp(rng.normal(0, 0.02)))
            for cell, level in (("raw/none", read), ("host", 1e9))
            for round in range(rounds)
        }
    )


@pytest.mark.parametrize(
    ("printed", "unit", "value", "si"),
    [
        ("4644", "MiB/s", 4644 * 2**20, "B/s"),
        ("2337 (page cache)", "MB/s", 2337e6, "B/s"),
        ("16:52 min", "min", 1012.0, "s"),
        ("[ 855.6 IOPS]", "1/s", 855.6, "1/s"),
        ("< 9310.23 us>", "us", pytest.approx(0.00931023), "s"),
        ("1.7 GB/s", "MB/s", 1.7e9, "B/s"),
        ("2987MB/s", "MB/s", 2987e6, "B/s"),
        ("less than 0.2 MB/sec", "MB/s", 0.2e6, "B/s"),
        ("1GB / sec", "MB/s", 1e9, "B/s"),
        ("+++++", "1/s", None, "1/s"),
    ],
)
def test_numbers_as_printed(printed: str, unit: str, value: float | None, si: str) -> None:
    assert in_si(printed, unit) == (value, si)


@pytest.mark.parametrize("printed", ["", "fast", "–"])
def test_what_is_no_number(printed: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        in_si(printed, "MB/s")
    with pytest.raises(ValueError, match="is not a known unit"):
        in_si("1", "parsec")


def test_all_articles_ship() -> None:
    found = builtin_publications()
    assert len(found) == 5
    assert sum(len(table.numbers) for each in found for table in each.tables) == 293
    unsafe = [
        number
        for each in found
        for table in each.tables
        for number in table.numbers
        if (table.article, number.path) == ("sokolkov-2013", "lvm/unsafe")
    ]
    assert [number.value for number in unsafe] == [54e6, 2257e6]


def test_an_article_is_checked_through_its_markup() -> None:
    (only,) = table()
    article = (
        "<p>MB/s</p> <td>read</td>\n<td>write</td> host <b>200</b> 100 none 100 1.9 GB/s old 7 8"
    )
    assert lines_missing(only, article) == ()
    assert lines_missing(only, article.replace("200", "201")) == only.lines
    assert flat("a &lt; 3 < b > &#8216;") == "a < 3 < b > ‘"


def test_a_cell_too_few_names_the_row() -> None:
    with pytest.raises(PlanError, match=r"row 'old' of table 'modes' of a\.toml has 1 cells"):
        parse_publication(TEXT.replace('["7", "8"]', '["7"]'), "a.toml")
    with pytest.raises(PlanError, match=r"row 'old', column 'write' of table 'modes'"):
        parse_publication(TEXT.replace('"8"', '"x"'), "a.toml")


def test_shapes_compare_over_their_own_baselines() -> None:
    same = compare_shape(table(), ours(0.5e9))
    assert [row.shape for row in same.rows] == [Shape.AGREES, Shape.NOT_MEASURED]
    assert same.rows[0].published == 0.5
    other = compare_shape(table(), ours(0.8e9)).rows[0]
    assert other.shape is Shape.DIFFERS
    assert other.factor == pytest.approx(0.5 / 0.8, rel=0.05)
    assert compare_shape(table(), ours(0.8e9, rounds=2)).rows[0].shape is Shape.TOO_FEW


def test_what_is_missing_is_named_with_its_baseline() -> None:
    found = compare_shape(table(), ours(1e9))
    assert [cell.label for cell in found.missing] == ["host", "raw/none"]


def test_series_are_found_by_article_or_in_full() -> None:
    every = builtin_publications()
    assert find_series("debatty-2024", every)[0].name == "cache-modes"
    assert len(find_series("host-filesystems-2021/crystaldiskmark", every)) == 6
    with pytest.raises(PlanError, match="several series"):
        find_series("host-filesystems-2021", every)
    with pytest.raises(PlanError, match="no published numbers named 'salter'"):
        find_series("salter", every)
    for name in ("salter-2013", "debatty-2024/scaleway"):
        with pytest.raises(PlanError, match=f"{name}' have no baseline"):
            find_series(name, every)
