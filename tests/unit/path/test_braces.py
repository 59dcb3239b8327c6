"""Our brace expansion against bash's own, and its bounds."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.errors import PlanError
from vdisklab.path.braces import expand, expand_segments, shortened

BASH = shutil.which("bash")


def bash_expands(patterns: list[str]) -> list[list[str]]:
    """What bash makes of each pattern, from one process; globbing is off, no words are quoted."""
    assert BASH is not None, "these tests compare with bash, which is not installed"
    script = ["set -f", *(rf"printf '\037'; printf '%s\n' {pattern}" for pattern in patterns)]
    done = subprocess.run(
        [BASH, "--norc", "--noprofile"],
        input="\n".join(script),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"LC_ALL": "C"},
    )
    assert done.stderr == ""
    records = done.stdout.split("\037")[1:]
    # Without words printf still writes one line, which is empty.
    return [[line for line in record.split("\n") if line] for record in records]


ODD = [
    "{a,b", "a}{b,c}", "{a}", "{a,b}{", "{{a,b}", "{}", "{,}", "a{}b{c,d}", "{a,b}}", "{{a,b},c",
    "{}{a,b}", "{}{,a}", "{}a,b}", "{},a}", "{},{a,b}}", "{{},a}", "{{},{}}", "a{},b}", "x{}",
    "{a,}{}", "}{,a}", "{a{b,c}}", "{a{b,c}", "{{,}", "{a,{b,c}", "{{{a,b}}", "{a}{b,c}", "{",
    "{1..4}", "{01..10..3}", "{a..c}", "{1..1}", "{10..1..3}", "{1..4..-1}", "{-05..3}",
    "{1..4..0}", "{1..2..x}", "{1..a}", "{a..f..2}", "{a..z,b}", "{1..}", "{..2}", "{..}",
    "{a,b}..{c,d}", "{1..3}{", "{{1..3}", "x{1..3},y", "{1..3,}", "{{1..3},}",
    "{-3..0}", "{00..1}", "{-0..1}", "{-01..1}", "{0..-01}", "{a...c}", "{1...3}", "{1..3..2..1}",
    "{1..05..2}", "{1..-9..04}", "{0x1..3}", "{9..+1}", "{Z..A..5}", "{_..a}", "{1..2}}{a,b}",
    "{1..99999999999999999999}", "{1..x}{a,b}", "{1..x}{a,b", "{..}a,b}", "{a..}b..c}",
    "ext4/{raw,}/none", "{,ext4/}raw", "zfs:recordsize={4,64}k/raw", "a,b", "{a,,b}", "{a,b,}c",
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "expected"), list(zip(ODD, bash_expands(ODD), strict=True)), ids=ODD
)
def test_odd_patterns_expand_as_in_bash(pattern: str, expected: list[str]) -> None:
    assert expand(pattern) == expected


def test_a_brace_after_two_dots_keeps_the_outer_braces() -> None:
    """Bash drops them: it gives the words 1..2 and 1..3."""
    assert expand("{1..{2,3}}") == ["{1..2}", "{1..3}"]


# The one form in which bracex and bash differ: dots beside other braces, in no sequence.
SEQUENCE = re.compile(r"\{[-+]?\w+\.\.[-+]?\w+(\.\.[-+]?\w+)?\}")


def has_dots_beside_braces(pattern: str) -> bool:
    rest = SEQUENCE.sub("", pattern)
    return ".." in rest and "{" in rest


# Pieces, rather than letters, make braces that mean something more often.
pieces = st.sampled_from(
    ["{", "}", ",", "{", "}", ",", "..", ".", "/", ":", "=", "-", "_", "a", "c", "raw", "ext4",
     "1", "0", "03", "-2", "{a,b}", "{1..3}", "{,", "{}"]
)  # fmt: skip
soup = st.lists(pieces, min_size=1, max_size=14).map("".join)
nested = st.recursive(
    st.sampled_from(["", "a", "ext4", "xfs/", "raw", "x=1", "{1..3}", "{b..d}", "{3..01}"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}"),
        st.lists(inner, min_size=1, max_size=3).map("/".join),
    ),
    max_leaves=8,
)
bounds = st.sampled_from(
    ["0", "1", "7", "-3", "00", "-07", "012", "+2", "a", "f", "k", "", "x1", "-"]
)
steps = st.sampled_from(["", "..2", "..-3", "..0", "..", "..05", "..b"])
sequences = st.builds("{{{}..{}{}}}".format, bounds, bounds, steps)
pattern_lists = st.lists(st.one_of(soup, nested, sequences), min_size=60, max_size=120)


@settings(max_examples=12, deadline=None)
@given(pattern_lists)
def test_any_pattern_expands_as_in_bash(patterns: list[str]) -> None:
    for pattern, expected in zip(patterns, bash_expands(patterns), strict=True):
        if not has_dots_beside_braces(pattern):
            assert expand(pattern) == expected, pattern


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("{,ext4/}raw", ["raw", "ext4/raw"]),
        ("ext4/{raw,}/none", ["ext4/raw/none", "ext4/none"]),
        ("{ext4,}/raw/{none,}", ["ext4/raw/none", "ext4/raw", "raw/none", "raw"]),
        ("{,}", []),
        ("ext4//none", ["ext4//none"]),
        ("/raw/", ["/raw/"]),
        ("{raw", ["{raw"]),
    ],
)
def test_empty_alternative_drops_its_segment(pattern: str, paths: list[str]) -> None:
    assert expand_segments(pattern) == paths


@pytest.mark.parametrize(
    "pattern",
    [
        "{1..100001}",
        "{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}",
        "{1..9000000000000000000}",
        "{" + ",".join(["{1..999}"] * 200) + "}",
        "{a,b}" * 800,
        "{x," * 1000 + "}" * 1000,
        "{" * 5000,
        "{" * 400,
        "{a," * 300,
        "{a" * 40 + "}" * 40 + "," * 3900,
        "{a..C}",
    ],
    ids=lambda pattern: pattern[:30],
)
def test_patterns_without_bounds_are_refused(pattern: str) -> None:
    with pytest.raises(PlanError) as caught:
        expand(pattern)
    assert caught.value.hint
    assert len(str(caught.value)) < 200


def test_many_words_within_the_bound() -> None:
    assert len(expand("{1..20000}")) == 20_000


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        (
            ["host", "ext4/raw/none", "ext4/raw/writeback", "ext4/qcow2/none",
             "ext4/qcow2/writeback", "xfs/raw/none"],
            ["host", "ext4/{raw,qcow2}/{none,writeback}", "xfs/raw/none"],
        ),
        (
            ["raw/none/virtio:qemu=old", "raw/none/virtio:qemu=new", "raw/none"],
            ["raw/none/virtio:qemu={old,new}", "raw/none"],
        ),
        (["a/raw/none", "b/raw/none"], ["a/raw/none", "b/raw/none"]),  # a place of its own
        (["raw/none", "raw/{odd", "raw/directsync"], ["raw/none", "raw/{odd", "raw/directsync"]),
        ([], []),
    ],
)  # fmt: skip
def test_neighbours_that_differ_in_one_segment_are_one_pattern(
    paths: list[str], patterns: list[str]
) -> None:
    assert shortened(paths) == patterns


SEGMENT = st.sampled_from(["raw", "qcow2", "none", "virtio:a=b", "virtio:a=c", "virtio", "x{", ""])


@given(st.lists(st.lists(SEGMENT, min_size=1, max_size=4).map("/".join), max_size=12, unique=True))
def test_what_is_shortened_expands_to_the_same_words_in_the_same_order(paths: list[str]) -> None:
    """The order decides which campaign a command continues."""
    patterns = shortened(paths)
    assert len(patterns) <= len(paths)
    if patterns != paths:
        assert [path for pattern in patterns for path in expand_segments(pattern)] == paths
