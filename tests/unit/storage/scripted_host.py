"""A host that runs nothing: it notes what it was told, and answers from a script."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from pathlib import Path

from vdisklab.errors import CommandError
from vdisklab.host.command import Completed, LocalHost, PathArg

# Files and directories in the private directory of a test harm nobody.
_FOR_REAL = ("mkdir", "truncate", "fallocate")


class ScriptedHost:
    """Fails at the first program whose line contains `fail_on`; loop devices stay in its mind."""

    def __init__(self, fail_on: str = "") -> None:
        self.lines: list[str] = []
        self.fail_on = fail_on
        self._loops: dict[str, str] = {}

    def verbs(self) -> list[str]:
        """What changed the host: each program without its arguments, in order."""
        changing = [
            line for line in self.lines if "--json" not in line and line.split()[0] not in _FOR_REAL
        ]
        return ["losetup --detach" if "--detach" in line else line.split()[0] for line in changing]

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,  # noqa: ARG002 - the protocol's
        allowed: Collection[int] = (0,),  # noqa: ARG002
        stdin: str | None = None,  # noqa: ARG002
        watch: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        command = tuple(os.fspath(word) for word in argv)
        if command[0] == "env":  # Site.run_marked
            command = command[2:]
        line = " ".join(command)
        self.lines.append(line)
        if self.fail_on and self.fail_on in line:
            raise CommandError(command, 1, "no space left on device")
        if command[0] in _FOR_REAL:
            return LocalHost().run(*command)
        return Completed(command, 0, self._answer(command), "")

    def which(self, program: str) -> Path | None:
        return Path("/usr/bin") / program

    def _answer(self, command: tuple[str, ...]) -> str:
        if command[0] != "losetup":
            return ""
        if "--show" in command:
            self._loops[f"/dev/scripted{len(self._loops)}"] = command[-1]
            return f"/dev/scripted{len(self._loops) - 1}\n"
        if "--detach" in command:
            self._loops.pop(command[-1])
            return ""
        devices = [
            {"name": name, "dio": True}
            for name, file in self._loops.items()
            if command[-1] in (name, file)
        ]
        return json.dumps({"loopdevices": devices})
