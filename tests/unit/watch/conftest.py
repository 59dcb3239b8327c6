"""A server in a thread, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from vdisklab.value import replace
from vdisklab.watch.app import make_app, make_server
from vdisklab.watch.door import Door, make_door, opened
from vdisklab.watch.verb import naming


@contextmanager
def served(db: str, port: int = 0) -> Iterator[Door]:
    """The door of a running server; port 0 is a free one."""
    door = make_door(f"127.0.0.1:{port}")
    with opened(door) as listening:
        door = replace(door, port=listening.getsockname()[1])
        server = make_server(make_app(db, door, naming(None)), door)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield door
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def serving() -> Iterator[Callable[[str], Door]]:
    with ExitStack() as stack:
        yield lambda db: stack.enter_context(served(db))
