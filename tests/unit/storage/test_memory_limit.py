"""The limit in files like those of both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.storage.memory_limit import BoundedMemory

V1 = "cache 1000\nrss 500000\nmapped_file 0\n"
V2 = "anon 500000\nfile 1000\nkernel 20000\n"


@pytest.mark.parametrize(
    ("is_v2", "stat", "file", "limit"),
    [
        (False, V1, "memory.limit_in_bytes", "1500000"),
        (True, V2, "memory.high", "1520000"),
        (True, V2.replace("kernel 20000\n", ""), "memory.high", "1500000"),
    ],
)
def test_pages_get_the_amount_beside_the_process_memory(
    tmp_path: Path, is_v2: bool, stat: str, file: str, limit: str
) -> None:
    (tmp_path / "memory.stat").write_text(stat)
    memory = BoundedMemory(tmp_path, is_v2=is_v2, amount=1_000_000)
    memory.renew()
    assert (tmp_path / file).read_text() == limit
    of_v1 = "" if is_v2 else ", all of which may be dirty"
    assert memory.check().observed == f"limit {limit} bytes, of these 1000000 for pages{of_v1}"
