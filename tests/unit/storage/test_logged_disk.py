"""The logged disk's server."""

from __future__ import annotations

import subprocess
import sys


def test_the_server_does_not_load_numpy() -> None:
    """It locks all its memory, and with numpy that was 136 MiB instead of 20."""
    code = "import sys, vdisklab.storage.disk_server; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
