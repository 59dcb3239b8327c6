"""The other side of a channel: answers as a script says, in a thread, over a socket pair."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vdisklab.guest.qemu.qmp import Channel, event_loop, open_channel

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}, "capabilities": []}}

Answer = Callable[[dict[str, Any]], list[dict[str, Any]] | None]
"""(request) -> messages to send back; None ends the connection."""


class FarSide(threading.Thread):
    """Plays QEMU or the agent until the near side goes away, or `answer` returns None."""

    def __init__(self, end: socket.socket, answer: Answer, *, greets: bool) -> None:
        super().__init__(daemon=True)
        self.asked: list[dict[str, Any]] = []
        self._end = end
        self._answer = answer
        self._greets = greets

    def run(self) -> None:
        # The near side may go away while an answer is on its way to it.
        with self._end, suppress(BrokenPipeError, ConnectionResetError):
            if self._greets:
                self._send(GREETING)
            for request in self._requests():
                if request.get("execute") == "qmp_capabilities":
                    self._send({"return": {}})  # which qemu.qmp asks without an id
                    continue
                self.asked.append(request)
                answers = self._answer(request)
                if answers is None:
                    return
                for message in answers:
                    kind = {"return", "error"} & message.keys()
                    self._send({**message, "id": request["id"]} if kind else message)

    def _requests(self) -> Iterator[dict[str, Any]]:
        """JSON objects, which qemu.qmp sends without anything in between."""
        text = ""
        while received := self._end.recv(1 << 16):
            text += received.decode()
            while text:
                try:
                    request, end = json.JSONDecoder().raw_decode(text)
                except json.JSONDecodeError:
                    break  # the rest is on its way
                text = text[end:].lstrip()
                yield request

    def _send(self, message: dict[str, Any]) -> None:
        self._end.sendall(json.dumps(message).encode() + b"\n")


@contextmanager
def channel_to(answer: Answer, *, greets: bool = True) -> Iterator[tuple[Channel, FarSide]]:
    """A channel whose far side answers so; a monitor if it greets, else an agent."""
    near, far = socket.socketpair()
    side = FarSide(far, answer, greets=greets)
    side.start()
    name = "monitor" if greets else "agent"
    with (
        near,
        event_loop() as loop,
        open_channel(loop, near, name, negotiate=greets, timeout=5.0) as channel,
    ):
        yield channel, side
    side.join(5.0)
