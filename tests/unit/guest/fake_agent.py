"""A guest agent at the end of a socket: it answers as a recorded guest would."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vdisklab.guest.agent import Agent

from .fake_far_side import channel_to

Message = dict[str, Any]

COMMANDS = (
    "guest-sync", "guest-info", "guest-get-osinfo", "guest-exec", "guest-exec-status",
    "guest-file-open", "guest-file-read", "guest-file-write", "guest-file-close",
)  # fmt: skip

DEBIAN = {
    "name": "Debian GNU/Linux", "kernel-release": "6.1.0-38-amd64", "version": "12 (bookworm)",
    "pretty-name": "Debian GNU/Linux 12 (bookworm)", "version-id": "12", "machine": "x86_64",
    "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.147-1 (2025-08-02)", "id": "debian",
}  # fmt: skip
WINDOWS = {
    "name": "Microsoft Windows", "kernel-release": "20348", "version": "Microsoft Windows Server",
    "variant": "server", "pretty-name": "Windows Server 2022 Standard", "version-id": "2022",
    "variant-id": "server", "kernel-version": "10.0", "machine": "x86_64", "id": "mswindows",
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    """What a program in the guest says."""

    stdout: str = ""
    stderr: str = ""
    status: int = 0


Program = Callable[[Sequence[str], str], Said | None]
"""(argv, standard input) -> what it says; None: it never ends."""


@dataclass
class FakeAgent:
    """One guest. `silent_after`: how many questions are answered before it falls silent;
    `anew_after`: before it is restarted and knows no program any more."""

    system: Message
    program: Program
    disabled: tuple[str, ...] = ()
    silent_after: int | None = None
    anew_after: int | None = None
    ran: list[tuple[str, ...]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    _said: list[Said | None] = field(default_factory=list)
    _asked: int = 0

    def answer(self, request: Message) -> list[Message]:
        self._asked += 1
        if self.silent_after is not None and self._asked > self.silent_after:
            return []
        name = request["execute"]
        if self.anew_after is not None and self._asked > self.anew_after:
            # In the words of qemu-ga 7.2 for a number that the agent before it gave.
            return [{"error": {"class": "GenericError", "desc": "Invalid parameter 'pid'"}}]
        return [{"return": self._value(name, request.get("arguments", {}))}]

    def _value(self, name: str, given: Message) -> object:
        if name in ("guest-exec", "guest-exec-status"):
            return self._program(name, given)
        if name.startswith("guest-file"):
            return self._file(name, given)
        commands = [{"name": each, "enabled": each not in self.disabled} for each in COMMANDS]
        return {
            "guest-sync": given.get("id"),
            "guest-info": {"version": "7.2.22", "supported_commands": commands},
            "guest-get-osinfo": self.system,
        }[name]

    def _program(self, name: str, given: Message) -> object:
        if name == "guest-exec":
            return {"pid": self._start(given)}
        return self._status(self._said[given["pid"]])

    def _file(self, name: str, given: Message) -> object:
        if name == "guest-file-open":
            self.files[given["path"]] = b""
            return len(self.files)
        if name == "guest-file-close":
            return {}
        content = base64.b64decode(given["buf-b64"])
        self.files[list(self.files)[given["handle"] - 1]] += content
        return {"count": len(content), "eof": False}

    def _start(self, given: Message) -> int:
        argv = (given["path"], *given.get("arg", ()))
        stdin = base64.b64decode(given.get("input-data", "")).decode()
        self.ran.append(argv)
        self._said.append(self.program(argv, stdin))
        return len(self._said) - 1

    def _status(self, said: Said | None) -> Message:
        if said is None:
            return {"exited": False}
        encoded = {
            key: base64.b64encode(text.encode()).decode()
            for key, text in (("out-data", said.stdout), ("err-data", said.stderr))
            if text
        }
        return {"exited": True, "exitcode": said.status, **encoded}


@contextmanager
def agent_of(fake: FakeAgent) -> Iterator[Agent]:
    """An agent that is spoken to through a real socket."""
    with channel_to(fake.answer, greets=False) as (channel, _):
        yield Agent(channel)
