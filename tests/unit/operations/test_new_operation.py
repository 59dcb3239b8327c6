"""An operation is a file and a row, as docs/design.md says.

A copy of the source gets an operation `freeze`. A fresh Python then reads it, judges it, and does
it on a disk whose monitor writes down what it is asked; `powercut` knows it, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

FILE = '''"""The guest's disk stands still for a while."""

from vdisklab.operations.operation import Judging, OperationKind, RunningOperation
from vdisklab.path.options import Number
from vdisklab.path.rules import Impossible


class Freeze(RunningOperation):
    """Takes all requests away."""

    def finish(self) -> None:
        """Freezes the disk."""
        seconds = self.order.option("seconds")
        self.monitor.execute("freeze", {"node": self.disk.node, "seconds": seconds})


def _refusal(path):
    return Impossible("has no image", "add raw") if path.image is None else None


FREEZE = OperationKind(
    "freeze", "no request is answered", Freeze, _refusal,
    options={"seconds": Number(1, 9, default=2)}, judging=Judging(),
)
'''

USE = """
import json
from pathlib import Path
from vdisklab.operations.operation import DiskAccess, OpenDisk
from vdisklab.operations.registry import parse_operation
from vdisklab.path.disk_path import parse_path
from vdisklab.powercut import controls, mid_run

class Monitor:
    asked = []
    def execute(self, command, arguments=None, *, timeout=30.0):
        self.asked.append([command, dict(arguments)])

order = parse_operation("freeze:seconds=3")
disk = OpenDisk("d", 1 << 20, "raw", "d-node", (), Path("/x/d.raw"))
running = order.on(disk, DiskAccess(Monitor(), lambda size: None))
running.start()
running.finish()
print(json.dumps({
    "order": str(order),
    "asked": Monitor.asked,
    "after": list(map(str, running.files_after)),
    "refused": order.refusal(parse_path("lvm/none")).reason,
    "judged": mid_run.parse_judged("freeze").unjudged(parse_path("ext4/raw/none")),
    "controls": [control.name for control in controls.controls_of([], [order])],
}))
"""


def test_a_new_operation_is_a_file_and_a_row(tmp_path: Path) -> None:
    copy = tmp_path / "vdisklab"
    shutil.copytree(ROOT / "src" / "vdisklab", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "operations" / "freeze.py").write_text(FILE)
    registry = copy / "operations" / "registry.py"
    text = registry.read_text()
    assert "OPERATIONS: tuple[OperationKind, ...] = (" in text
    text = text.replace(
        "OPERATIONS: tuple[OperationKind, ...] = (",
        "from vdisklab.operations.freeze import FREEZE\n"
        "OPERATIONS: tuple[OperationKind, ...] = (FREEZE, ",
    )
    registry.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["order"] == "freeze:seconds=3"
    assert answer["asked"] == [["freeze", {"node": "d-node", "seconds": 3}]]
    assert answer["after"] == ["/x/d.raw"]
    assert answer["refused"] == "has no image"
    assert answer["judged"] is None
    assert answer["controls"] == [
        "a freeze:seconds=3, a flushing client",
        "a freeze:seconds=3, and the image before it is read",
    ]
