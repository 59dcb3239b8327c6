from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.plan.cache_memory import LEAST, parse_cache_memory
from vdisklab.units import MIB, parse_size


@pytest.mark.parametrize(
    ("text", "of_256_mib"),
    [("25%", 64 * MIB), ("64M", 64 * MIB), ("1%", LEAST), ("100%", 256 * MIB)],
)
def test_a_share_of_the_disk_or_a_size(text: str, of_256_mib: int) -> None:
    memory = parse_cache_memory(text)
    assert memory.of(256 * MIB) == of_256_mib
    assert parse_cache_memory(str(memory)) == memory


@pytest.mark.parametrize("text", ["1%", "6.2%", "0.5%"])
def test_too_small_a_share_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_cache_memory(text).require_enough(256 * MIB)
    assert error.value.hint is not None
    size = parse_size(error.value.hint.rpartition("--size of ")[2].partition(" ")[0])
    parse_cache_memory(text).require_enough(size)
    with pytest.raises(PlanError):
        parse_cache_memory(text).require_enough(size - MIB)


@pytest.mark.parametrize("text", ["6.25%", "25%", "100%", "16M"])
def test_enough_is_taken(text: str) -> None:
    parse_cache_memory(text).require_enough(256 * MIB)


@pytest.mark.parametrize("text", ["", "1M", "0", "x%", "-5%", "lots"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse_cache_memory(text)
