"""Ctrl-C while QEMU is asked something leaves nothing behind that asyncio would complain of."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any, cast

import pytest
from qemu.qmp import QMPClient

from vdisklab.guest.qemu.process import event_loop
from vdisklab.guest.qemu.qmp import Channel


class SilentClient:
    """Never answers."""

    name = "qmp"

    async def execute(self, _command: str, _arguments: object) -> Any:  # noqa: ANN401
        await asyncio.Event().wait()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_wait_leaves_no_task() -> None:
    with event_loop() as loop:
        channel = Channel(cast("QMPClient", SilentClient()), loop)
        loop.call_later(0.01, interrupt)
        with pytest.raises(KeyboardInterrupt):
            channel.execute("query-status")
        assert asyncio.all_tasks(loop) == set()


def test_a_question_that_was_interrupted_before_it_began_is_no_warning() -> None:
    with warnings.catch_warnings(record=True) as said, event_loop() as loop:
        warnings.simplefilter("always")
        channel = Channel(cast("QMPClient", SilentClient()), loop)
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
