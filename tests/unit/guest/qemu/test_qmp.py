"""The monitor and the agent against a far side that answers, refuses, is silent, or goes away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.guest.fake_far_side import channel_to
from vdisklab.errors import GuestError, SilentGuestError, StoppedGuestError, WorkloadError
from vdisklab.guest.agent import Agent
from vdisklab.guest.qemu.block_nodes import QmpCommand
from vdisklab.guest.qemu.qmp import Channel, event_loop, open_channel

Message = dict[str, Any]


def ok(value: object) -> list[Message]:
    return [{"return": value}]


def io_error(action: str) -> Message:
    """The event of QEMU 7.2 for a write that found no space."""
    data = {
        "device": "", "nospace": True, "node-name": "s", "action": action,
        "reason": "No space left on device", "operation": "write",
    }  # fmt: skip
    timestamp = {"seconds": 1, "microseconds": 2}
    return {"event": "BLOCK_IO_ERROR", "data": data, "timestamp": timestamp}


def await_event(channel: Channel, seconds: float) -> None:
    with channel.expecting("X", lambda data: True) as wait:
        wait(seconds)


class TestMonitor:
    def test_an_answer(self) -> None:
        with channel_to(lambda request: ok({"status": "running"})) as (channel, side):
            assert channel.execute("query-status") == {"status": "running"}
            channel.perform(QmpCommand("device_del", {"id": "d"}))
        assert [asked["execute"] for asked in side.asked] == ["query-status", "device_del"]
        assert side.asked[1]["arguments"] == {"id": "d"}

    def test_a_refused_command_says_what_qemu_said(self) -> None:
        refusal = {"error": {"class": "GenericError", "desc": "Node 'x' is busy"}}
        with (
            channel_to(lambda request: [refusal]) as (channel, _),
            pytest.raises(GuestError, match="QEMU refused: Node 'x' is busy"),
        ):
            channel.execute("blockdev-del", {"node-name": "x"})

    def test_silence_ends_with_the_deadline(self) -> None:
        with channel_to(lambda request: []) as (channel, _):
            began = time.monotonic()
            with pytest.raises(GuestError, match=r"no answer to stop from QEMU within 0\.1 s"):
                channel.execute("stop", timeout=0.1)
            assert time.monotonic() - began < 15

    def test_a_lost_connection_is_told_at_once(self) -> None:
        with channel_to(lambda request: None) as (channel, _):
            began = time.monotonic()
            with pytest.raises(GuestError, match="connection was lost"):
                channel.execute("stop", timeout=20)
            assert time.monotonic() - began < 15

    def test_a_channel_that_was_lost_stays_lost(self) -> None:
        with channel_to(lambda request: None) as (channel, _):
            for _ in range(2):
                with pytest.raises(GuestError, match="connection was lost"):
                    channel.execute("stop", timeout=5)

    def test_the_event_that_matches_is_waited_for(self) -> None:
        events: list[Message] = [
            {
                "event": "DEVICE_DELETED",
                "data": {"device": name, "path": "/p"},
                "timestamp": {"seconds": 1, "microseconds": 2},
            }
            for name in ("other", "mine")
        ]
        with channel_to(lambda request: [*ok({}), *events]) as (channel, _):
            with channel.expecting(
                "DEVICE_DELETED", lambda data: data.get("device") == "mine"
            ) as wait:
                channel.execute("device_del", {"id": "mine"})
                wait(5.0)
            with (
                channel.expecting("DEVICE_DELETED", lambda data: False) as wait,
                pytest.raises(GuestError, match=r"no event DEVICE_DELETED within 0\.1 s"),
            ):
                wait(0.1)

    def test_what_is_done_while_an_event_is_waited_for(self) -> None:
        event = {"event": "X", "data": {}, "timestamp": {"seconds": 1, "microseconds": 2}}
        asked: list[int] = []

        def answer(request: Message) -> list[Message]:
            asked.append(1)
            return [*ok({}), event] if len(asked) == 3 else ok({})

        with channel_to(answer) as (channel, _):
            with channel.expecting(
                "X", lambda data: True, meanwhile=lambda: channel.execute("query-status")
            ) as wait:
                wait(20)
            assert len(asked) == 3

    def test_a_connection_that_is_lost_while_an_event_is_waited_for(self) -> None:
        """Asking on the way finds it out, and nothing is left of the wait."""
        with (
            channel_to(lambda request: None) as (channel, _),
            channel.expecting(
                "X", lambda data: True, meanwhile=lambda: channel.execute("query-status")
            ) as wait,
            pytest.raises(GuestError, match="connection was lost"),
        ):
            wait(20)

    def test_who_waits_for_an_event_hears_of_a_lost_connection(self) -> None:
        with (
            channel_to(lambda request: None) as (channel, _),
            channel.expecting("X", lambda data: True) as wait,
        ):
            with pytest.raises(GuestError, match="connection was lost"):
                channel.execute("quit")
            began = time.monotonic()
            with pytest.raises(GuestError, match="connection was lost"):
                wait(20)
            assert time.monotonic() - began < 15

    @pytest.mark.parametrize(
        "wait",
        [
            lambda channel: channel.execute("query-status", timeout=20),
            lambda channel: channel.pause(20),
            lambda channel: await_event(channel, 20),
        ],
    )
    def test_a_guest_that_qemu_has_stopped_is_told_at_once(
        self, wait: Callable[[Channel], object]
    ) -> None:
        """Two minutes of silence were seen in an emulated guest on a full disk."""
        with (
            channel_to(lambda request: [io_error("report"), io_error("stop")]) as (channel, _),
            channel.noticing_stops(),
        ):
            with contextlib.suppress(SilentGuestError, StoppedGuestError):
                channel.execute("query-status", timeout=0)
            began = time.monotonic()
            said = "QEMU stopped the guest at a write: No space left"
            with pytest.raises(StoppedGuestError, match=said):
                wait(channel)
            assert time.monotonic() - began < 15

    def test_an_error_that_reaches_the_guest_stops_nothing(self) -> None:
        with (
            channel_to(lambda request: [io_error("report"), *ok(1)]) as (channel, _),
            channel.noticing_stops(),
        ):
            assert channel.execute("query-status") == 1
            channel.pause(0.01)
            assert channel.execute("query-status") == 1

    @pytest.mark.parametrize(
        ("gone", "said"), [(True, "ended before"), (False, "sent no greeting")]
    )
    def test_no_greeting(self, gone: bool, said: str) -> None:
        near, far = socket.socketpair()
        loop = asyncio.new_event_loop()
        with near, far:
            if gone:
                far.close()
            with (
                pytest.raises(GuestError, match=said),
                open_channel(loop, near, "monitor", negotiate=True, timeout=20 if gone else 0.3),
            ):
                pytest.fail("not reached")
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def hostile(piece: bytes, *, times: int = 1) -> Iterator[Channel]:
    """An agent that answers the first command with these bytes, so many times; %ID is the id."""
    near, far = socket.socketpair()

    def answer() -> None:
        with far, contextlib.suppress(OSError):
            asked = json.loads(far.recv(1 << 16))
            said = piece.replace(b"%ID", json.dumps(asked["id"]).encode())
            for _ in range(times):
                far.sendall(said)
            far.recv(1)

    thread = threading.Thread(target=answer, daemon=True)
    with near, event_loop() as loop:
        thread.start()
        with open_channel(loop, near, "agent", negotiate=False, timeout=5.0) as channel:
            yield channel
    thread.join(20)


EVENT = b'{"event": "X", "data": {}, "timestamp": {"seconds": 1, "microseconds": 2}}\n'


class TestHostileAgent:
    """A guest decides what its agent sends."""

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (b'{"id": %ID, "return": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "nested too deep"),
            (b'{"id": %ID, "return": ' + b"[" * 900 + b"]" * 900 + b"}\n", "more than 64 deep"),
            (b'{"id": %ID, "return": ' + b'{"a":' * 90 + b"1" + b"}" * 91 + b"\n", "64 deep"),
            (b'{"id": %ID, "return": ' + b"9" * 1_000_000 + b"}\n", "not JSON"),
            (b'{"id": %ID, "return": "' + b"x" * (65 << 20) + b'"}\n', "64 MiB in one line"),
            (b'{"id": %ID, "return": [' + b"[]," * (1 << 20) + b"[]]}\n", "values at once"),
            (b'{"id": %ID, "return": "\xff"}\n', "not JSON"),
            (b'{"id": [], "return": 1}\n', "without a proper name"),
            (b'{"id": %ID, "event": {}}\n', "without a proper name"),
            (b"[]\n", "not JSON"),
        ],
        ids=lambda value: value[:30] if isinstance(value, bytes) else value,
    )
    def test_an_answer_out_of_bounds_is_an_error_of_the_guest(
        self, answer: bytes, said: str
    ) -> None:
        with hostile(answer) as channel, pytest.raises(GuestError, match=f"it sent .*{said}"):
            channel.execute("guest-info", timeout=20)

    def test_a_number_that_is_no_time_is_an_error_of_the_guest(self) -> None:
        for time_said in (b'"now"', b"{}", b"9" * 400):
            with (
                hostile(b'{"id": %ID, "return": ' + time_said + b"}\n") as channel,
                pytest.raises(GuestError, match="guest-get-time is not a time"),
            ):
                Agent(channel).clock_seconds()

    def test_a_flood_of_events_ends_and_is_not_kept(self) -> None:
        flood = EVENT * 100_000  # 7 MB
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with (
            hostile(flood, times=100) as channel,
            pytest.raises(GuestError, match="it sent messages without end"),
        ):
            channel.execute("guest-info", timeout=60)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 << 10, "KiB"

    def test_a_large_answer_within_the_bounds(self) -> None:
        content = base64.b64encode(b"x" * (16 << 20))
        answer = b'{"id": %ID, "return": {"buf-b64": "' + content + b'"}}\n'
        with hostile(answer) as channel:
            assert channel.execute("guest-file-read")["buf-b64"] == content.decode()


def exited(**more: object) -> Message:
    return {"exited": True, "exitcode": 0, **more}


def running(state: Message, *, after: int = 0) -> Any:  # noqa: ANN401 - an Answer
    """An agent that starts everything as process 7 and says `state` when asked often enough."""
    asked = [0]

    def answer(request: Message) -> list[Message]:
        if request["execute"] == "guest-exec":
            return ok({"pid": 7})
        asked[0] += 1
        return ok(state if asked[0] > after else {"exited": False})

    return answer


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class TestAgent:
    def test_a_program_that_ends_well(self) -> None:
        state = exited(**{"out-data": encoded("out ü\n"), "err-data": encoded("err")})
        with channel_to(running(state, after=2), greets=False) as (channel, side):
            ended = Agent(channel).run(("/usr/bin/fio", "--x"), timeout=5, stdin="job")
        assert (ended.status, ended.stdout, ended.stderr) == (0, "out ü\n", "err")
        started = side.asked[0]["arguments"]
        assert (started["path"], started["arg"]) == ("/usr/bin/fio", ["--x"])
        assert base64.b64decode(started["input-data"]) == b"job"

    @pytest.mark.parametrize(
        ("state", "said"),
        [
            (exited(exitcode=2, **{"err-data": encoded("a\nno such disk\n")}), "2 .*no such disk"),
            ({"exited": True, "signal": 9}, "killed by signal 9"),
            (exited(**{"out-truncated": True}), "more than the guest agent can pass on"),
        ],
    )
    def test_a_program_that_ends_badly(self, state: Message, said: str) -> None:
        with (
            channel_to(running(state), greets=False) as (channel, _),
            pytest.raises(WorkloadError, match=said),
        ):
            Agent(channel).run(("fio",), timeout=5)

    @pytest.mark.parametrize("damage", ["not base64!", "YQ", "YQ=YQ=="])
    def test_damaged_base64(self, damage: str) -> None:
        with (
            channel_to(running(exited(**{"out-data": damage})), greets=False) as (channel, _),
            pytest.raises(GuestError, match="damaged base64"),
        ):
            Agent(channel).run(("fio",), timeout=5)

    def test_a_program_that_does_not_end_is_killed(self) -> None:
        with (
            channel_to(running({}, after=1 << 30), greets=False) as (channel, side),
            pytest.raises(GuestError, match=r"`fio` did not end within 0\.2 s"),
        ):
            Agent(channel).run(("fio",), timeout=0.2)
        assert side.asked[-1]["arguments"]["arg"] == ["-c", "kill -9 7"]

    def test_nothing_is_asked_while_it_must_still_run(self) -> None:
        asked: list[float] = []
        with channel_to(running(exited()), greets=False) as (channel, side):
            began = time.monotonic()
            Agent(channel).run(
                ("fio",), timeout=5, expected=1.2, watch=lambda: asked.append(time.monotonic())
            )
        assert time.monotonic() - began >= 1.2
        assert [request["execute"] for request in side.asked] == ["guest-exec", "guest-exec-status"]
        assert 1 <= len(asked) <= 2

    def test_a_slow_watch_looks_seldom(self) -> None:
        looks: list[float] = []

        def look() -> None:
            looks.append(time.monotonic())
            until = time.thread_time() + 0.05
            while time.thread_time() < until:
                pass

        with channel_to(running(exited(), after=40), greets=False) as (channel, side):
            agent = Agent(channel)
            agent.run(("dd",), timeout=50, watch=look)
            assert len(looks) == 1
            assert len(side.asked) > 30  # polled, but not watched
            agent.run(("fio",), timeout=50, expected=1.2, watch=look)
        assert len(looks) == 1  # a look costs 5 s, as the first run showed

    def test_an_agent_that_goes_away(self) -> None:
        with (
            channel_to(lambda request: None, greets=False) as (channel, _),
            pytest.raises(GuestError, match="connection was lost"),
        ):
            Agent(channel).run(("fio",), timeout=5)

    def test_synchronising(self) -> None:
        def echo(request: Message) -> list[Message]:
            return ok(request["arguments"]["id"])

        with channel_to(echo, greets=False) as (channel, _):
            Agent(channel).synchronise(timeout=5)
        with (
            channel_to(lambda request: ok(-1), greets=False) as (channel, _),
            pytest.raises(GuestError, match="answered -1"),
        ):
            Agent(channel).synchronise(timeout=5)

    @pytest.mark.parametrize("answer", [{"return": {}}, {"return": {"exited": "?"}}, {"return": 5}])
    def test_an_answer_of_unknown_form_is_an_error_of_the_guest(self, answer: Message) -> None:
        with (
            channel_to(lambda request: [answer], greets=False) as (channel, _),
            pytest.raises(GuestError),
        ):
            Agent(channel).run(("fio",), timeout=5)


class TestFiles:
    @staticmethod
    def holding(content: bytes, *, at_once: int = 4) -> Any:  # noqa: ANN401 - an Answer
        """An agent with one open file, which it sends a few bytes at a time."""
        left = [content]

        def answer(request: Message) -> list[Message]:
            if request["execute"] == "guest-file-open":
                return ok(1000)
            if request["execute"] == "guest-file-close":
                return ok({})
            piece, left[0] = left[0][:at_once], left[0][at_once:]
            text = base64.b64encode(piece).decode()
            return ok({"count": len(piece), "buf-b64": text, "eof": not left[0]})

        return answer

    @pytest.mark.parametrize("text", ["", "1", "1000, 5\n2000, ü\n"])
    def test_all_pieces_make_the_text(self, text: str) -> None:
        with channel_to(self.holding(text.encode()), greets=False) as (channel, side):
            assert Agent(channel).read_file("/run/log") == text
        assert side.asked[0]["arguments"] == {"path": "/run/log", "mode": "r"}
        assert side.asked[-1]["execute"] == "guest-file-close"

    def test_a_file_that_is_missing(self) -> None:
        refusal = {"error": {"class": "GenericError", "desc": "No such file or directory"}}
        with (
            channel_to(lambda request: [refusal], greets=False) as (channel, _),
            pytest.raises(WorkloadError, match=r"did not write /run/log .*No such file"),
        ):
            Agent(channel).read_file("/run/log")

    def test_an_agent_that_sends_nothing_for_ever_is_not_waited_for(self) -> None:
        def answer(request: Message) -> list[Message]:
            return ok({"buf-b64": "", "eof": False} if "read" in request["execute"] else 1)

        with channel_to(answer, greets=False) as (channel, _):
            assert Agent(channel).read_file("/run/log") == ""
