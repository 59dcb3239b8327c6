from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.qemu import as_running, monitor_of
from vdisklab.value import replace

DISK = ConfiguredDisk("web", "d0", "/a.img", parse_path("raw/writeback"))


@pytest.mark.parametrize(
    ("arguments", "monitor"),
    [
        ("-qmp unix:/run/q.sock,server=on,wait=off", "/run/q.sock"),
        ("--qmp unix:q.sock", "q.sock"),
        ("-chardev socket,id=m,path=/run/m,server=on -mon chardev=m,mode=control", "/run/m"),
        ("-chardev socket,id=m,path=/run/m -mon m,mode=control", "/run/m"),
        ("-chardev socket,id=m,path=/run/m -mon chardev=m", None),
        ("-qmp tcp:localhost:4444", None),
        ("-mon chardev=x,mode=control", None),
        ("-qmp", None),
    ],
)
def test_the_monitor(arguments: str, monitor: str | None) -> None:
    assert monitor_of(arguments.split()) == (None if monitor is None else Path(monitor))


def entry(**inserted: object) -> list[object]:
    return [None, {"qdev": "/machine/peripheral/d0/virtio-backend", "inserted": inserted}]


def cache(*, writeback: bool, direct: bool) -> dict[str, bool]:
    return {"writeback": writeback, "direct": direct, "no-flush": False}


@pytest.mark.parametrize(
    ("answer", "path", "source"),
    [
        (entry(file="/a.img", drv="raw"), "raw/writeback", "/a.img"),
        (entry(file="/a.s1", drv="qcow2"), "qcow2/writeback", "/a.s1"),
        (entry(cache=cache(writeback=True, direct=True)), "raw/none", "/a.img"),
        (entry(cache=cache(writeback=False, direct=True)), "raw/directsync", "/a.img"),
        (entry(cache=cache(writeback=True, direct=False)), "raw/writeback", "/a.img"),
        (entry(file="json:{}", drv="strange", cache=7), "raw/writeback", "/a.img"),
        ([{"qdev": "d1", "inserted": {"file": "/b"}}], "raw/writeback", "/a.img"),
        ([{"qdev": "d0"}], "raw/writeback", "/a.img"),
        ([{"device": "d0", "inserted": {"file": "/b"}}], "raw/writeback", "/b"),
        ({"qdev": "d0"}, "raw/writeback", "/a.img"),
        (None, "raw/writeback", "/a.img"),
    ],
)
def test_what_runs_counts(answer: object, path: str, source: str) -> None:
    found = as_running(DISK, answer)
    assert found == replace(DISK, path=parse_path(path), source=source)
