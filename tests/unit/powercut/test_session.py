"""Which failures are asked again automatically."""

from __future__ import annotations

import pytest

from vdisklab.errors import DirtyHostError, HostError, VdisklabError
from vdisklab.host.mounts import HeldElsewhereError
from vdisklab.powercut.session import repeated_while_held

HELD = HeldElsewhereError("the file system on /dev/loop1 is still mounted, by sleep (1)")


def left_over() -> DirtyHostError:
    """As it comes out of a stack that cannot be removed because of it."""
    try:
        try:
            raise HELD
        finally:
            raise DirtyHostError("the loop device cannot be detached")
    except DirtyHostError as error:
        return error


def failing(*errors: VdisklabError) -> list[VdisklabError]:
    return list(reversed(errors))


def attempt(errors: list[VdisklabError]) -> str:
    if errors:
        raise errors.pop()
    return "answer"


def test_a_mount_in_another_namespace_is_met_again_a_few_times() -> None:
    errors = failing(HELD, left_over(), HELD)
    assert repeated_while_held(lambda: attempt(errors)) == ("answer", 3)
    errors = failing(HELD, HELD, HELD, HELD)
    with pytest.raises(HeldElsewhereError, match="by sleep"):
        repeated_while_held(lambda: attempt(errors))
    assert errors == []


def test_any_other_error_is_final() -> None:
    errors = failing(HostError("no fuse"), HELD)
    with pytest.raises(HostError, match="no fuse"):
        repeated_while_held(lambda: attempt(errors))
    assert errors == [HELD]
    assert repeated_while_held(lambda: "answer") == ("answer", 0)
