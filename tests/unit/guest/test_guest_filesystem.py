"""Mounting in the guest: what its kernel lacks is said with a way out."""

from __future__ import annotations

from typing import cast

import pytest

from vdisklab.errors import WorkloadError
from vdisklab.guest.agent import CompletedInGuest
from vdisklab.guest.hotplug import guest_filesystem
from vdisklab.guest.machine import Machine


class FakeGuest:
    """A guest of which every mount fails with this message; it is its own agent."""

    def __init__(self, said: str) -> None:
        self.said = said

    @property
    def agent(self) -> FakeGuest:
        return self

    def run(self, argv: tuple[str, ...], **_options: object) -> CompletedInGuest:
        if argv[0] == "mount":
            raise WorkloadError(f"`mount` exited with 32 in the guest: {self.said}")
        return CompletedInGuest(argv, 0, "", "", 0.1)


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ("mount: /mnt: unknown filesystem type '9p'.", "kernel has no driver for 9p", "--guest"),
        ("mount: /mnt: permission denied.", "exited with 32", None),
    ],
)
def test_a_kernel_without_the_driver_is_named(said: str, message: str, hint: str | None) -> None:
    with (
        pytest.raises(WorkloadError, match=message) as error,
        guest_filesystem(cast(Machine, FakeGuest(said)), "tag", "9p", ("trans=virtio",)),
    ):
        pytest.fail("not reached")
    assert (hint or "") in (error.value.hint or "")
