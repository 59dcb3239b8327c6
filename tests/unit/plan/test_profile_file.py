"""Profiles in TOML, the built-in one among them."""

from __future__ import annotations

from importlib import resources

import pytest

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.plan.profile_file import parse_profile

GOOD = """
name = "mine"
title = "My own"
[[measurement]]
name = "one"
program = "fio"
rw = "read"
iodepth = 4
rate = 1.5
fsync = true
extra = ["--a", "--b"]
"""


def test_settings_are_all_further_keys() -> None:
    profile = parse_profile(GOOD, "mine.toml")
    assert (profile.name, profile.title, profile.description) == ("mine", "My own", "")
    assert profile.measurements == (
        MeasurementPlan(
            name="one",
            program="fio",
            settings={
                "rw": "read", "iodepth": 4, "rate": 1.5, "fsync": True, "extra": ("--a", "--b"),
            },
        ),
    )  # fmt: skip


def test_quick_writes_before_it_reads_at_both_depths() -> None:
    text = resources.files("vdisklab.workload").joinpath("profiles/quick.toml").read_text()
    profile = parse_profile(text, "quick.toml")
    assert profile.name == "quick"
    assert [measurement.name for measurement in profile.measurements] == [
        "seqwrite-1m-q1", "seqwrite-1m-q32", "randwrite-4k-q1", "randwrite-4k-q32",
        "seqread-1m-q1", "seqread-1m-q32", "randread-4k-q1", "randread-4k-q32",
    ]  # fmt: skip
    for measurement in profile.measurements:
        pattern, size, depth = measurement.name.split("-")
        rw = pattern.removeprefix("seq")
        assert measurement.program == "fio"
        assert measurement.settings == {
            "rw": rw, "bs": {"1m": "1M", "4k": "4k"}[size], "iodepth": int(depth[1:]),
        }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (("name =", "nmae ="), "key 'nmae' of mine.toml is unknown", "did you mean name?"),
        (('name = "mine"', ""), "key 'name' of mine.toml is missing", 'name = "quick"'),
        (('title = "My own"', "title = 1"), "'title' of mine.toml should be a text", "title ="),
        (('"mine"', '"My Own"'), "'name' of mine.toml should have only lower-case", "name ="),
        (
            ('program = "fio"', ""),
            r"key 'program' in the 1st \[\[measurement\]\] of mine.toml is missing",
            'program = "fio"',
        ),
        (("rate = 1.5", "rate = nan"), r"key 'rate' in the 1st .* a setting is", "measurement"),
        (("rate = 1.5", "rate = [1]"), "a list of strings", "measurement"),
        (("rate = 1.5", "rate = {a = 1}"), "a list of strings", "measurement"),
        (("[[measurement]]", "[measurement]"), "'measurement' of mine.toml should be a list", ""),
        (
            (GOOD[GOOD.index("[[") :], "measurement = []"),
            "should not be an empty list",
            "program",
        ),
        ((GOOD, "=" * 9), "mine.toml is not valid TOML", "quotes"),
        ((GOOD, "a = " + "[" * 5000), "mine.toml is not valid TOML", "quotes"),
        ((GOOD, "a = " + "9" * 5000), "mine.toml is not valid TOML", "quotes"),
    ],
)
def test_errors_name_file_table_and_key(change: tuple[str, str], message: str, hint: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_profile(GOOD.replace(*change, 1), "mine.toml")
    assert hint in (caught.value.hint or "")


def test_two_measurements_of_one_name_are_refused() -> None:
    twice = GOOD + GOOD[GOOD.index("[[") :]
    with pytest.raises(PlanError, match="have the name 'one'"):
        parse_profile(twice, "mine.toml")


def test_the_second_table_is_named() -> None:
    wrong = GOOD + '[[measurement]]\nname = "two"\nprogram = 2\n'
    with pytest.raises(PlanError, match=r"key 'program' in the 2nd \[\[measurement\]\]"):
        parse_profile(wrong, "mine.toml")
