from __future__ import annotations

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.factors import factor_levels
from vdisklab.path.segments import PageCache


def levels(*names: str) -> list[list[int]]:
    table: list[list[int]] = factor_levels([MeasuredCell(name) for name in names]).tolist()
    return table


def test_factors_are_the_segments_that_differ() -> None:
    assert levels("raw/none", "raw/unsafe", "qcow2/none") == [[0, 0], [1, 0], [0, 1]]


def test_an_omitted_option_has_the_level_of_its_default() -> None:
    assert levels("raw/none", "raw/none/virtio:aio=threads", "raw/none/virtio:aio=native") == [
        [0],
        [0],
        [1],
    ]


def test_layers_and_page_cache_are_factors() -> None:
    cells = [
        MeasuredCell("zfs:recordsize=4k/raw/unsafe", PageCache.COLD),
        MeasuredCell("zfs/raw/unsafe", PageCache.COLD),
        MeasuredCell("zfs/raw/unsafe", PageCache.WARM),
        MeasuredCell("ext4/raw/unsafe", PageCache.WARM),
    ]
    assert factor_levels(cells).tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1]]


def test_factors_that_divide_cells_in_the_same_way_are_one() -> None:
    assert levels("raw/none", "qcow2/unsafe") == [[0], [1]]
    assert levels("raw/none") == [[]]
    assert levels("my VM", "raw/none/nvme", "raw/none") == [[0, 0], [1, 1], [1, 2]]


def test_a_cache_mode_on_servers_of_unequal_promises_is_not_one_level() -> None:
    cells = ["nbd:at=a/raw/none", "nfs:at=a/raw/none", "nbd:at=a/raw/unsafe", "dir:at=a/raw/none"]
    columns = list(zip(*levels(*cells), strict=True))
    assert (0, 1, 2, 3) in columns  # no two share the cache mode's level
