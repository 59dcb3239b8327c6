"""A server that root starts."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another")

_PROGRAM = """
import os, sys
from pathlib import Path
from vdisklab.watch.app import without_root
became = without_root([Path(file) for file in sys.argv[1:]])
print(became, *os.getresuid(), *os.getresgid(), len(os.getgroups()))
"""


@pytest.mark.parametrize("readable", [True, False])
def test_root_becomes_nobody(readable: bool) -> None:
    nobody = pwd.getpwnam("nobody")
    with TemporaryDirectory() as place:
        file = Path(place) / "results.sqlite"
        file.touch()
        Path(place).chmod(0o755 if readable else 0o700)
        said = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(file)], capture_output=True, text=True, check=True
        ).stdout.split()
    if readable:
        assert said == ["True", *[str(nobody.pw_uid)] * 3, *[str(nobody.pw_gid)] * 3, "0"]
    else:
        assert said[:7] == ["False", *["0"] * 6]
