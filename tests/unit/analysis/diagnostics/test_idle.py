from __future__ import annotations

import pytest

from tests.unit.analysis.made import cell
from vdisklab.analysis.diagnostics.idle import idle_diagnostics
from vdisklab.results.model import CellSums

CELLS = {name: cell(name) for name in ("a", "b")}
RANKED = tuple(CELLS.values())


def busy(path: str, seconds: float | None, name: str = "quiet-db") -> CellSums:
    nothing = (None,) * 6
    return CellSums(path, name, *nothing, busy_seconds=seconds, busy_of=10.0)


def test_paths_that_were_all_idle_most_of_the_time() -> None:
    sums = [busy("a", 0.2), busy("b", 0.9), busy("b", 9.9, "another")]
    (found,) = idle_diagnostics(sums, CELLS, RANKED, {"quiet-db"}, fixed=True)
    assert str(found) == (
        "The load was too small to show a difference: every path had a request in at most 9 % of "
        "the time (quiet-db). Raise --load."
    )
    (other,) = idle_diagnostics(sums, CELLS, RANKED, {"quiet-db"}, fixed=False)
    assert "iodepth" in str(other)


@pytest.mark.parametrize(
    "sums",
    [
        [busy("a", 0.2), busy("b", 7.0)],
        [busy("a", 0.2)],
        [busy("a", 0.2), busy("b", None)],
        [busy("a", 0.2), busy("b", 0.2, "another")],
        [],
    ],
)
def test_nothing_is_said_if_a_path_was_busy_or_nobody_counted(sums: list[CellSums]) -> None:
    assert not list(idle_diagnostics(sums, CELLS, RANKED, {"quiet-db"}, fixed=True))


def test_nothing_is_said_without_paths() -> None:
    assert not list(idle_diagnostics([busy("a", 0.2)], CELLS, (), {"quiet-db"}, fixed=True))
