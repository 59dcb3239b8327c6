"""O_DIRECT that is accepted and not done."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest

from tests.unit.analysis.made import START, cell
from vdisklab.analysis.diagnostics.recorded import (
    SERVED_FROM_CACHE,
    ColdInPart,
    NotDirect,
    age_diagnostics,
    direct_diagnostics,
    dirty_diagnostics,
    evidence_diagnostics,
    queue_diagnostics,
)
from vdisklab.plan.accelerator import Accelerator
from vdisklab.results.model import MAY_BE_DIRTY, CellSums, Direction, Example, RanUnder
from vdisklab.storage.zfs import directness

CELLS = {
    "a": cell("zfs/raw/none"),
    "b": cell("zfs/raw/writeback (cold)"),
    "c": cell("ext4/raw/none"),
}


def example(fingerprint: str, checks: Sequence[tuple[str, str | None, str]]) -> Example:
    return Example(
        fingerprint, "1", 1, START, RanUnder(Accelerator.KVM), None, (), tuple(checks), ()
    )


def seen(fingerprint: str, o_direct: str, version: str | None = "2.1.11") -> Example:
    checks: list[tuple[str, str | None, str]] = [("host.zfs.o_direct", None, o_direct)]
    if version is not None:
        checks.append(("host.zfs.version", None, version))
    return example(fingerprint, checks)


def test_only_what_was_to_bypass_the_cache_and_did_not() -> None:
    runs = [seen("a", SERVED_FROM_CACHE), seen("b", SERVED_FROM_CACHE), example("c", ())]
    (found,) = direct_diagnostics(runs, CELLS)
    assert found == NotDirect((cell("zfs/raw/none"),), "2.1.11")
    assert "ZFS 2.1.11 accepts O_DIRECT and serves it from its cache" in str(found)
    assert direct_diagnostics([seen("a", "direct", "2.3.0")], CELLS) == ()
    (unknown,) = direct_diagnostics([seen("a", SERVED_FROM_CACHE, None)], CELLS)
    assert unknown.version == "of an unknown version"


def test_a_memory_that_may_be_dirty_as_a_whole_is_told_of_what_uses_it() -> None:
    limit = "limit 3 bytes, of these 2 for pages"
    runs = [
        example("a", [("host.cache_memory", None, limit + MAY_BE_DIRTY)]),
        example("b", [("host.cache_memory", None, limit + MAY_BE_DIRTY)]),
        example("c", [("host.cache_memory", None, limit)]),
    ]
    (found,) = dirty_diagnostics(runs, CELLS)
    assert found.cells == (CELLS["b"],)
    assert "random writes through the page cache look faster here" in str(found)
    assert dirty_diagnostics(runs[2:], CELLS) == ()


def test_the_words_are_those_that_are_read_back() -> None:
    assert SERVED_FROM_CACHE in inspect.getsource(directness)


def test_settings_of_queues_that_no_path_sets_and_that_differ() -> None:
    runs = [
        example("a", [("guest.scheduler", None, "none"), ("host.nr_requests", None, "64")]),
        example("b", [("guest.scheduler", None, "mq-deadline"), ("host.nr_requests", None, "64")]),
        example("c", [("guest.scheduler", "bfq", "bfq")]),
    ]
    (found,) = queue_diagnostics(runs)
    assert found.setting == "guest.scheduler"
    assert "scheduler of the disk's queue (guest)" in str(found)
    assert "none (1 cell), mq-deadline (1 cell)" in str(found)


def test_what_ageing_did_is_told_with_the_numbers_of_pieces() -> None:
    age = ("host.age.state", None, "fill=80%,rewrites=2")
    pieces = [
        (f"host.age.{what}_extents_{when}", None, number)
        for what, counts in (("file", ("3", "90")), ("image", ("1", "99")))
        for when, number in zip(("before", "after"), counts, strict=True)
    ]
    (found,) = age_diagnostics([example("a", [age, *pieces]), example("b", [age])], CELLS)
    assert found.age == "fill=80%,rewrites=2"
    assert "aged first (--age fill=80%,rewrites=2)" in str(found)
    assert " 3 and 90. Pieces of the disk in the image " in str(found)
    assert str(found).endswith(" 1 and 99.")
    assert list(age_diagnostics([example("a", [])], CELLS)) == []


@pytest.mark.parametrize(
    ("path", "direction", "reached", "share"),
    [
        ("b", Direction.READ, 68, 0.68),
        ("b", Direction.READ, 95, None),
        ("b", Direction.READ, 110, None),
        ("b", Direction.READ, 40, None),  # FromPageCache says that
        ("b", Direction.WRITE, 68, None),
        ("c", Direction.READ, 68, None),
    ],
)
def test_a_cold_cell_that_read_its_disk_twice(
    path: str, direction: Direction, reached: int, share: float | None
) -> None:
    counts = [100, reached, 0, 0] if direction is Direction.READ else [0, 0, 100, reached]
    sums = [CellSums(path, "m", *[None] * 6, *counts), CellSums(path, "n", *[None] * 6)]
    measured = {("m", direction)}
    found = [
        diagnostic
        for diagnostic in evidence_diagnostics(sums, (), CELLS, measured, None)
        if isinstance(diagnostic, ColdInPart)
    ]
    assert found == ([] if share is None else [ColdInPart((CELLS[path],), share)])
