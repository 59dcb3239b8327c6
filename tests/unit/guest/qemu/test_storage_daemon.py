"""A disk is exported and taken back in order, by what a daemon is asked over its socket."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.guest.fake_far_side import Answer, channel_to
from tests.unit.guest.fake_qemu import SERIAL, SIZE, refusing
from vdisklab.errors import GuestError, HostError
from vdisklab.guest.qemu import block_nodes
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import StorageDaemon, start_storage_daemon
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.path.disk_path import parse_path

FILE, NODE, DEV = (f"{SERIAL}-{part}" for part in ("file", "node", "dev"))
STAMP = {"seconds": 1, "microseconds": 2}
DELETED = {"event": "BLOCK_EXPORT_DELETED", "data": {"id": DEV}, "timestamp": STAMP}


def spelled(asked: list[dict[str, Any]]) -> list[str]:
    names = [each["arguments"].get("id") or each["arguments"]["node-name"] for each in asked]
    return [f"{each['execute']} {name}" for each, name in zip(asked, names, strict=True)]


def plain(text: str, file: Path) -> Disk:
    path = parse_path(text)
    return Disk(
        SERIAL,
        SIZE,
        {"driver": "file", "filename": str(file)},
        "qcow2",
        path.cache,
        path.attachment,
    )


@contextmanager
def daemon_that(answer: Answer) -> Iterator[tuple[StorageDaemon, list[dict[str, Any]]]]:
    with channel_to(answer) as (channel, side):
        # Nobody asks whether it lives; in its directory nobody listens.
        process = cast("subprocess.Popen[bytes]", SimpleNamespace(pid=os.getpid()))
        yield StorageDaemon(channel, "nobody", ("daemon",), Path("/e"), process), side.asked


def agreeable(request: dict[str, Any]) -> list[dict[str, Any]]:
    ended = [DELETED] if request["execute"] == "block-export-del" else []
    return [{"return": {}}, *ended]


def test_the_way_there_and_back(image: Path) -> None:
    with (
        daemon_that(agreeable) as (daemon, asked),
        daemon.export(plain("qcow2/writethrough", image)),
    ):
        asked.append({"execute": "use", "arguments": {"id": "it"}})
    assert spelled(asked) == [
        f"blockdev-add {FILE}", f"blockdev-add {NODE}", f"block-export-add {DEV}", "use it",
        f"block-export-del {DEV}", f"blockdev-del {NODE}", f"blockdev-del {FILE}",
    ]  # fmt: skip
    export = asked[2]["arguments"]
    assert (export["node-name"], export["name"], export["writethrough"]) == (NODE, SERIAL, True)


def test_half_an_export_is_taken_back(image: Path) -> None:
    def refuses(request: dict[str, Any]) -> list[dict[str, Any]]:
        adding = request["execute"] == "block-export-add"
        return refusing("no such luck") if adding else [{"return": {}}]

    with daemon_that(refuses) as (daemon, asked):
        with (
            pytest.raises(GuestError, match="no such luck"),
            daemon.export(plain("raw/none", image)),
        ):
            pytest.fail("not reached")
        assert spelled(asked)[-2:] == [f"blockdev-del {NODE}", f"blockdev-del {FILE}"]


def test_nobody_listens() -> None:
    with (
        daemon_that(agreeable) as (daemon, _),
        pytest.raises(GuestError, match="NBD server does not answer"),
    ):
        daemon.connect()


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [("exit 1", GuestError, "ended before its monitor"), (None, HostError, "is not installed")],
)
def test_a_daemon_that_does_not_answer_leaves_nothing(
    script: str | None,
    error: type[Exception],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if script is not None:
        program = tmp_path / block_nodes.DAEMON
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_ledger(tmp_path / "state") as ledger:
        with (
            pytest.raises(error, match=said),
            start_storage_daemon(ledger, tmp_path, f"d-{tmp_path.name}"),
        ):
            pytest.fail("not reached")
        assert pending(ledger.path) == []
