"""A kind of storage that the user names is a row of facts and a file, as docs/design.md says.

A copy of the source gets a disk on a server that QEMU's driver `gluster` opens. A fresh Python then
reads its URL, judges its paths, and opens it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.storage.test_new_layer import ROOT, added

ROW = """    TOY = (
        "toy",
        _target("toy://HOST/DISK", "after a flush", "toydriver", takes_format=True,
                schemes=("toy",)),
    )

    def __new__("""

FILE = """
from urllib.parse import unquote
from vdisklab.path.named_target import urlsplit_of
from vdisklab.storage.server_url import server_of

def members(target, secret):
    parts = urlsplit_of(target.name, target.place)
    held = {"password-secret": secret} if secret else {}
    return {"server": server_of(parts, 4000), "disk": unquote(parts.path[1:]), **held}

def promises(host, target, url):
    return {"toy.can_flush": "on"}
"""

PROGRAM = """
import json
from pathlib import Path
from vdisklab.path.backing import BackingDevices
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import promise_of
from vdisklab.path.named_target import parse_target, with_targets
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.matrix import judge_paths
from vdisklab.host.command import LocalHost
from vdisklab.storage.remote import promises
from vdisklab.storage.server_url import url_of

target = parse_target("san=toy://10.0.0.5/a%20disk")
path = parse_path(with_targets("san/qcow2/none", [target]))
backing = BackingDevices(targets=(target,))
matrix = judge_paths((path,), PageCacheChoice.BOTH, Capabilities(), backing)
url = url_of(target, Path("/root/key"))
print(json.dumps({
    "canonical": path.canonical, "by QEMU": path.opened_by_qemu, "promise": promise_of(path),
    "raw": with_targets("san/raw/none", [target]), "cells": [str(cell) for cell in matrix.cells],
    "promises": promises(LocalHost(), target, url),
    "node": url.node, "server": url.server, "objects": list(url.objects),
}))
"""


def test_a_row_and_a_file_are_a_target(tmp_path: Path) -> None:
    source = tmp_path / "src/vdisklab"
    shutil.copytree(
        ROOT / "src/vdisklab", source, ignore=shutil.ignore_patterns("__pycache__", "templates")
    )
    added(source / "path/segments.py", "    def __new__(", ROW)
    (source / "storage/servers/toy.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{ROOT}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "canonical": "toy:at=san/qcow2/none",
        "by QEMU": True,
        "promise": "after a flush",
        "promises": {"toy.can_flush": "on"},
        "raw": "toy:at=san/raw/none",
        "cells": ["toy:at=san/qcow2/none"],
        "node": {
            "driver": "toydriver", "disk": "a disk", "password-secret": "secret",
            "server": {"host": "10.0.0.5", "port": "4000"},
        },
        "server": ["10.0.0.5", 4000],
        "objects": [{"qom-type": "secret", "id": "secret", "file": "/root/key"}],
    }  # fmt: skip
