"""What a path keeps by rule, before any power was cut."""

from __future__ import annotations

import pytest

from vdisklab.analysis.durability import Cuts, Keeping, PathVerdict, durability, forgets_fua
from vdisklab.analysis.needs import Need, NeedKind, meets
from vdisklab.plan.path import parse_path


@pytest.mark.parametrize(
    ("path", "forgets"),
    [
        ("raw/none/nvme", True),
        ("raw/default/nvme", True),
        ("raw/none/nvme:write_cache=auto", True),
        ("raw/writethrough/nvme:write_cache=on", True),
        ("raw/none/nvme:write_cache=off", False),
        ("raw/writethrough/nvme", False),
        ("raw/none", False),
        ("ext4/host", False),
    ],
)
def test_nvme_with_a_write_cache_is_not_durable(path: str, forgets: bool) -> None:
    parsed = parse_path(path)
    assert forgets_fua(parsed) is forgets
    assert meets(parsed, Need(NeedKind.DURABLE), {}) is not forgets


def test_no_cut_through_another_device_makes_good_for_it() -> None:
    """Verdicts through NBD never see the device; its rule stands."""
    path = parse_path("raw/none/nvme")
    found = durability(path, {path.canonical: PathVerdict(path.canonical, Cuts(60, 0))})
    assert found.keeping is Keeping.LOST_BY_CONSTRUCTION
    assert "write_cache=off" in (found.reason or "")
