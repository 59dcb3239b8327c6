"""What a call to the C library changes is seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource, sys
import numpy as np
from vdisklab.host.syscalls import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def state():
    parts = [np.ones(1_500_000, np.uint8) for _ in range(4)]
state()
begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    state()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


def _page_faults(word: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, word], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert _page_faults("kept") < _page_faults("returned") / 10
