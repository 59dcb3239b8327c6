"""A host layer is a row of facts, a file and its line in the stack, as docs/design.md says.

A copy of the source gets a layer `dm` that maps a device onto itself. A fresh Python then parses
it, judges it, plans it, sizes it, builds it with a host that runs nothing, and removes it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

ROW = """    DM = (
        "dm",
        LayerFacts(
            options={"count": Number(1, 8, default=1)},
            room=4 * MIB,
            in_place=True,
            twice="maps everything twice",
            kernel=KernelPart(driver=("device-mapper", "dm_mod")),
            device="/dev/mapper/{}",
        ),
    )

    def __new__("""

FILE = '''"""A device that is mapped onto itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry
from vdisklab.path.disk_path import Layer
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.storage.undo import Removable


@contextmanager
def mapped(site: Site, below: Device, layer: Layer, name: str, _size: int) -> Iterator[Device]:
    """The device below under another name."""
    node = site.unique(name)
    with site.tracked(TOY, node):
        site.run("dmsetup", "create", node, below.path)
        yield below.device(Path("/dev/mapper") / node, {"dm.count": str(layer.option("count"))})


def unmap(host: Host, entry: Entry) -> None:
    """Removes it."""
    host.run("dmsetup", "remove", entry.name)


TOY = Removable("toy device", unmap)
'''

PROGRAM = """
import json, sys
from pathlib import Path
from tests.unit.storage.scripted_host import ScriptedHost
from vdisklab.inspection import host_features

from vdisklab.host.ledger import open_ledger, pending
from vdisklab.path.backing import BackingDevices
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import writes_in_place
from vdisklab.path.rules import impossible
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.matrix import judge_paths
from vdisklab.platforms.request import ExportRequest
from vdisklab.path.backing import size_for
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import UNDO, build_stack

path, work, host = parse_path("dm:count=2/none"), Path(sys.argv[1]), ScriptedHost()
with open_ledger(work / "state") as ledger, open_site(host, ledger, work) as site:
    with build_stack(site, path.layers, 8 << 20, "s", allocate=False) as top:
        kinds, built = [entry.kind for entry in pending(ledger.path)], top.properties
matrix = judge_paths((path,), PageCacheChoice.BOTH, Capabilities(), BackingDevices())
print(json.dumps({
    "canonical": path.canonical,
    "twice": impossible(parse_path("dm/dm/none")).reason,
    "above": impossible(parse_path("ext4/dm/none")).reason,
    "cells": [str(cell) for cell in matrix.cells],
    "in_place": writes_in_place(path),
    "size": size_for(path.layers, 8 << 20),
    "place": ExportRequest(path, name="g").place("/d"),
    "kernel": dict(host_features._LAYERS)["dm"].driver,
    "cleaned": "toy device" in UNDO, "kinds": kinds, "built": dict(built),
    "verbs": [" ".join(line.split()[:2]) for line in host.lines if line.startswith("dmsetup")],
}))
"""


def added(file: Path, before: str, text: str) -> None:
    """Puts a text in place of its only occurrence in a file."""
    content = file.read_text()
    assert content.count(before) == 1
    file.write_text(content.replace(before, text))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    source = tmp_path / "src/vdisklab"
    shutil.copytree(
        ROOT / "src/vdisklab", source, ignore=shutil.ignore_patterns("__pycache__", "templates")
    )
    added(source / "path/segments.py", "    def __new__(", ROW)
    (source / "storage/dm.py").write_text(FILE)
    stack = source / "storage/stack.py"
    added(
        stack,
        "    LayerKind.LUKS: HostLayer(",
        "    LayerKind.DM: HostLayer(dm.mapped, (dm.TOY,)),\n    LayerKind.LUKS: HostLayer(",
    )
    added(stack, "luks, lvm,", "dm, luks, lvm,")
    return tmp_path


def test_a_row_and_a_file_are_a_layer(copied: Path) -> None:
    work = copied / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(work)],
        env={**os.environ, "PYTHONPATH": f"{copied / 'src'}:{ROOT}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert "toy device" in seen.pop("kinds")
    assert seen.pop("built") == {"loop.direct_io": "on", "dm.count": "2"}
    assert seen == {
        "canonical": "dm:count=2/none",
        "twice": "dm on dm maps everything twice",
        "above": "dm needs a block device below, and ext4 is a directory",
        "cells": ["dm:count=2/none"],
        "in_place": True,
        "size": 13 << 20,
        "place": "/dev/mapper/g",
        "kernel": ["device-mapper", "dm_mod"],
        "cleaned": True,
        "verbs": ["dmsetup create", "dmsetup remove"],
    }


FILESYSTEM = """    TOYFS = (
        "toyfs",
        LayerFacts(
            holds_files=True,
            recovery=RecoveryFacts(((("toyfsck", "-y"), (0, 1)),), alone=True),
            packages=("toyfs-tools",),
        ),
    )

    def __new__("""

JUDGING = """
from vdisklab.lab.lab_image import PACKAGES
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import JUDGED, not_judgeable
from vdisklab.path.segments import LayerKind
from vdisklab.powercut.recovery import ALONE, RECOVERIES

kind = LayerKind("toyfs")
assert not_judgeable(parse_path("toyfs/raw/none")) is None
assert kind in JUDGED and kind in ALONE and kind in RECOVERIES
assert "toyfs-tools" in PACKAGES
"""


def test_a_file_systems_row_says_how_it_is_judged(tmp_path: Path) -> None:
    """The power cut and the lab learn it from the row."""
    source = tmp_path / "src/vdisklab"
    shutil.copytree(
        ROOT / "src/vdisklab", source, ignore=shutil.ignore_patterns("__pycache__", "templates")
    )
    added(source / "path/segments.py", "    def __new__(", FILESYSTEM)
    done = subprocess.run(
        [sys.executable, "-c", JUDGING],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{ROOT}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
