"""The platforms whose file is there: each is a leaf, and may be missing."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from vdisklab.path.platforms import Platform


@cache
def present() -> tuple[Platform, ...]:
    """The platforms with a file of their own, in the order of their rows; none is imported."""
    return tuple(
        platform
        for platform in Platform
        if platform.module == platform.value and find_spec(f"{__package__}.{platform.module}")
    )
