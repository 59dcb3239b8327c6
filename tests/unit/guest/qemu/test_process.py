"""Waits for QEMU: a Ctrl-C leaves nothing that asyncio would complain of, and each has an end."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from typing import Any, cast

import pytest

from vdisklab.errors import SilentGuestError
from vdisklab.guest.qemu.qmp import BoundedClient, Channel, event_loop


class SilentClient:
    """Never answers."""

    name = "qmp"

    def renew_budget(self) -> None:
        """There is no answer."""

    async def execute(self, _command: str, _arguments: object) -> Any:  # noqa: ANN401
        await asyncio.Event().wait()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_wait_leaves_no_task() -> None:
    with event_loop() as loop:
        channel = Channel(cast("BoundedClient", SilentClient()), loop)
        loop.call_later(0.01, interrupt)
        with pytest.raises(KeyboardInterrupt):
            channel.execute("query-status")
        assert asyncio.all_tasks(loop) == set()


def test_a_question_that_was_interrupted_before_it_began_is_no_warning() -> None:
    with warnings.catch_warnings(record=True) as said, event_loop() as loop:
        warnings.simplefilter("always")
        channel = Channel(cast("BoundedClient", SilentClient()), loop)
        loop.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            channel.execute("query-status")
        gc.collect()
    assert [str(each.message) for each in said] == []


def test_a_ctrl_c_within_a_task_is_no_warning_when_the_loop_is_closed() -> None:
    """It is raised again by each task that waits for that one, also while the loop is closed."""

    async def greeted() -> None:
        interrupt()

    def ask() -> None:
        with event_loop() as loop:
            loop.run_until_complete(asyncio.wait_for(greeted(), 5))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            ask()
        gc.collect()
    assert [str(each.message) for each in said] == []


@pytest.mark.parametrize(("speed", "least"), [(1.0, 0.2), (0.5, 0.4), (0.0, 0.8)])
def test_seconds_in_which_qemu_waits_for_a_cpu_do_not_count(speed: float, least: float) -> None:
    """Its clock runs slower then; if it stands still, the wait ends all the same."""
    with event_loop() as loop:
        silent = cast("BoundedClient", SilentClient())
        channel = Channel(silent, loop, lambda: speed * time.monotonic())
        began = time.monotonic()
        with pytest.raises(SilentGuestError, match=r"within 0\.2 s"):
            channel.execute("query-status", timeout=0.2)
        assert time.monotonic() - began >= least


def test_a_ctrl_c_while_the_connection_is_closed_prints_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The signal may arrive in a background task, for which closing the connection waits."""

    async def send() -> None:
        interrupt()

    async def disconnect(sender: asyncio.Task[None]) -> None:
        await sender

    def ask() -> None:
        with event_loop() as loop:
            sender = loop.create_task(send())
            try:
                loop.run_until_complete(asyncio.sleep(1))
            finally:
                loop.run_until_complete(asyncio.wait_for(disconnect(sender), 5))

    with pytest.raises(KeyboardInterrupt):
        ask()
    gc.collect()
    assert caplog.messages == []
