"""What a call to the C library changes is seen in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from vdisklab.path.architecture import SYSTEM_CALLS

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


def test_the_flag_of_direct_transfers_is_this_systems() -> None:
    """On Arm it has another number than on x86, where the same means O_DIRECTORY."""
    assert SYSTEM_CALLS[platform.machine()].o_direct == os.O_DIRECT
    assert SYSTEM_CALLS["x86_64"].o_direct == 0o40000
    assert SYSTEM_CALLS["aarch64"].o_direct == 0o200000
