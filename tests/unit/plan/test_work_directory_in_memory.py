"""A work directory on tmpfs cannot be taken out of the page cache."""

from __future__ import annotations

import pytest

from vdisklab.errors import HostError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.matrix import expand_matrix

IN_MEMORY = Capabilities(on_tmpfs=True)


def test_its_files_are_warm_and_those_of_a_loop_device_may_be_cold() -> None:
    paths = ("raw/{writeback,none}", "tmpfs/raw/writeback", "ext4/raw/writeback")
    cells = expand_matrix(paths, capabilities=IN_MEMORY).cells
    assert [cell.label for cell in cells] == [
        "raw/writeback (warm)",
        "raw/none",
        "tmpfs/raw/writeback (warm)",
        "ext4/raw/writeback (cold)",
        "ext4/raw/writeback (warm)",
    ]


def test_cold_is_refused_with_a_way_out() -> None:
    with pytest.raises(HostError, match=r"a work directory in memory .* cannot be cold") as told:
        expand_matrix(("raw/writeback",), PageCacheChoice.COLD, IN_MEMORY)
    assert told.value.hint == "leave --page-cache out, or choose a --dir on a disk"
