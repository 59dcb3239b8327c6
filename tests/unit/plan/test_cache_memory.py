from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.plan.cache_memory import LEAST, parse_cache_memory
from vdisklab.units import MIB


@pytest.mark.parametrize(
    ("text", "of_256_mib"),
    [("25%", 64 * MIB), ("64M", 64 * MIB), ("1%", LEAST), ("100%", 256 * MIB)],
)
def test_a_share_of_the_disk_or_a_size(text: str, of_256_mib: int) -> None:
    memory = parse_cache_memory(text)
    assert memory.of(256 * MIB) == of_256_mib
    assert parse_cache_memory(str(memory)) == memory


@pytest.mark.parametrize("text", ["", "1M", "0", "x%", "-5%", "lots"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse_cache_memory(text)
