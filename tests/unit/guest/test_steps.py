"""The host's side of programs whose parts wait for it; a thread plays the guest's script."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from vdisklab.errors import GuestError, TooSlowError, WorkloadError
from vdisklab.guest.agent import Agent
from vdisklab.guest.qemu.qmp import socket_pair
from vdisklab.guest.steps import SCRIPT, StepPort, started_in_steps

from .fake_far_side import channel_to

Message = dict[str, Any]


class Script(threading.Thread):
    """The guest's end of the port: says `said[word]` after each word of the host; `""` is the
    start."""

    def __init__(self, end: socket.socket, said: dict[str, list[str]]) -> None:
        super().__init__(daemon=True)
        self.heard: list[str] = []
        self._end = end
        self._said = said

    def run(self) -> None:
        with suppress(OSError):  # the host's side goes away
            self._serve()

    def _serve(self) -> None:
        self._say("")
        text = ""
        while received := self._end.recv(64):
            text += received.decode()
            while "\n" in text:
                word, _, text = text.partition("\n")
                self.heard.append(word)
                self._say(word)

    def _say(self, word: str) -> None:
        for line in self._said.get(word, []):
            self._end.sendall(f"{line}\n".encode())


USUAL = {"": ["ready 2", "ready 1"], "1": ["done 1"], "2": ["done 2", "ended"]}


@contextmanager
def guest(said: dict[str, list[str]], status: int = 0) -> Iterator[tuple[Agent, StepPort, Script]]:
    """An agent whose programs end with `status`, and a port whose far end says `said`."""

    def answer(request: Message) -> list[Message]:
        if request["execute"] == "guest-exec":
            return [{"return": {"pid": 7}}]
        out = base64.b64encode(b"all is said").decode()
        return [{"return": {"exited": True, "exitcode": status, "out-data": out}}]

    with channel_to(answer, greets=False) as (channel, _), socket_pair() as (near, far):
        script = Script(far, said)
        script.start()
        yield Agent(channel), StepPort(near, channel._loop, channel), script


def test_parts_run_one_after_the_other() -> None:
    looks: list[int] = []
    with (
        guest(USUAL) as (agent, port, script),
        started_in_steps(agent, port, ("fio", "--x"), 2) as program,
    ):
        assert program.argv == (SCRIPT, "2", "fio", "--x")
        assert script.heard == []
        program.run(1, 5, lambda: looks.append(1))
        assert script.heard == ["1"]
        program.run(2, 5, lambda: looks.append(2))
        assert program.finish().stdout == "all is said"
    script.join(5)
    assert script.heard == ["1", "2", "end"]


@pytest.mark.parametrize(
    ("said", "status", "error", "text"),
    [
        ({"": ["ended"]}, 1, WorkloadError, "exited with 1"),
        ({"": ["ended"]}, 0, GuestError, "before it had run"),
        ({"": ["ready 1", "ready 1"]}, 0, GuestError, "instead of `ready`"),
        ({"": ["ready 1", "x" * 200]}, 0, GuestError, "instead of"),
        ({**USUAL, "1": ["ended"]}, 1, WorkloadError, "exited with 1"),
        ({**USUAL, "1": ["done 2"]}, 0, GuestError, "instead of `done 1`"),
        ({**USUAL, "1": []}, 0, TooSlowError, "part 1 of `fio` did not end within 0.1 s"),
    ],
)
def test_what_a_guest_may_say_instead(
    said: dict[str, list[str]], status: int, error: type[Exception], text: str
) -> None:
    with guest(said, status) as (agent, port, _), pytest.raises(error, match=text):  # noqa: SIM117
        with started_in_steps(agent, port, ("fio",), 2) as program:
            program.run(1, 0.1, lambda: None)
