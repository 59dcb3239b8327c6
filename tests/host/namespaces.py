"""Another mount namespace, as a container has it, which keeps copies of all mounts."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

from vdisklab.host.mounts import mounted_elsewhere
from vdisklab.host.waiting import wait_until


def hold_elsewhere(stack: ExitStack, source: str, how: str = "private") -> None:
    """Holds what is mounted from `source` until the stack closes; `how` is the propagation."""
    argv = ("unshare", "--mount", "--propagation", how, "sleep", "60")
    holder = stack.enter_context(subprocess.Popen(argv))
    stack.callback(holder.kill)
    wait_until(lambda: bool(mounted_elsewhere(source)), timeout=30, what="the other namespace")
