"""QEMU's answer about an image is not confused with no answer in time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from vdisklab.errors import GuestError, GuestTimeoutError, SilentGuestError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.host.ledger import open_ledger
from vdisklab.powercut import nbd
from vdisklab.powercut.nbd import NbdDisk, RestartingDaemon
from vdisklab.storage.qcow2_header import BadImageError


class Daemon:
    """A storage daemon that runs on."""

    def alive(self, *, grace: float = 0.0) -> bool:
        """Always."""
        del grace
        return True


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        (GuestTimeoutError("QEMU did not answer"), GuestTimeoutError),
        (SilentGuestError("no answer to blockdev-add within 30 s"), SilentGuestError),
        (GuestError("the disk answered a request with error 5"), BadImageError),
    ],
)
def test_an_image_is_bad_only_if_qemu_says_so(
    said: GuestError, raised: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def failing(*_: object) -> Iterator[NbdDisk]:
        raise said
        yield

    monkeypatch.setattr(nbd, "nbd_disk", failing)
    with open_ledger(tmp_path) as ledger:
        daemon = RestartingDaemon(ledger, tmp_path, "d", cast("Any", Daemon()))
        with pytest.raises(raised):
            daemon.with_disk(cast("Disk", None), lambda _: None)
        assert (daemon._running is None) is (raised is not BadImageError)


def test_a_request_without_an_answer_in_time_is_a_timeout() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.1)
        with pytest.raises(GuestTimeoutError, match="did not answer"):
            NbdDisk(ours).sync()
