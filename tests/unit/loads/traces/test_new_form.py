"""A form of trace is a file, a row and the word for how it was seen, as docs/design.md says.

A copy of the source learns traces of a made-up program. A fresh Python then reads such a file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.storage.test_new_layer import ROOT, added

FILE = '''"""Traces of a made-up program: `SECONDS LETTER SECTOR SECTORS`."""

from vdisklab.loads.load import IoKind, RecordedBy
from vdisklab.loads.traces.trace_form import TraceForm, numbers


class ToyReader:
    """Reads its lines."""

    def __init__(self, requests):
        self._requests = requests

    def line(self, line):
        """See `LineReader`."""
        seconds, letter, *place = line.split(b" ")
        found = numbers(seconds, *place)
        if found is None:
            return False
        seconds, sector, sectors = found
        kind = IoKind.READ if letter == b"r" else IoKind.WRITE
        self._requests.begin(
            "", None, seconds * 1_000_000, kind, offset=512 * sector, length=512 * sectors
        )
        return True


FORM = TraceForm(
    RecordedBy.TOY,
    "trace of a toy",
    lambda lines: lines[0].split(b" ")[1:2] in ([b"r"], [b"w"]),
    ToyReader,
    resolution_us=1_000_000,
    epoch_us=0,
)
'''

PROGRAM = """
import json, sys
from pathlib import Path
from vdisklab.loads.load_file import decode, encode
from vdisklab.loads.traces.trace_file import TraceWish, read_trace_file, trace_form

file = Path(sys.argv[1])
form = trace_form(file)
load = decode(encode(read_trace_file(file, form, TraceWish(), "toy")), "toy.load")
source = load.source
print(json.dumps([
    form.title, source.recorded_by, source.recorded_at.isoformat(),
    load.offset.tolist(), load.length.tolist(), load.kind.tolist(),
]))
"""


def test_a_file_a_row_and_a_word_are_a_form_of_trace(tmp_path: Path) -> None:
    source = tmp_path / "src/vdisklab"
    shutil.copytree(
        ROOT / "src/vdisklab", source, ignore=shutil.ignore_patterns("__pycache__", "templates")
    )
    loads = source / "loads"
    (loads / "traces/toy.py").write_text(FILE)
    added(loads / "load.py", 'TENCENT = "tencent"', 'TENCENT = "tencent"\n    TOY = "toy"')
    file = loads / "traces/trace_file.py"
    added(file, "msr_cambridge, tencent\n", "msr_cambridge, tencent, toy\n")
    added(file, "tencent.FORM)", "tencent.FORM, toy.FORM)")
    trace = tmp_path / "trace"
    trace.write_text("1000000000 r 0 8\n1000000002 w 16 1\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(trace)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{ROOT}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "trace of a toy", "toy", "2001-09-09T01:46:40+00:00", [0, 8192], [4096, 512], [0, 1],
    ]  # fmt: skip
