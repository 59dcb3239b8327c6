"""An nbdkit plugin in Python: a file as a disk whose requests take at least the stated times.

    nbdkit python slow_disk_plugin.py disk=FILE read=MS write=MS flush=MS

Requests run side by side, as on a disk with a queue. A flush takes its time and writes nothing
through: the host's own flushes vary by a factor of seven, and nobody cuts the power of this disk.
"""

from __future__ import annotations

import os
import time

import nbdkit  # type: ignore[import-not-found]

API_VERSION = 2

_options: dict[str, str] = {}


def thread_model() -> int:
    return int(nbdkit.THREAD_MODEL_PARALLEL)


def config(key: str, value: str) -> None:
    _options[key] = value


def open(readonly: bool) -> int:  # noqa: ARG001
    return os.open(_options["disk"], os.O_RDWR)


def close(handle: int) -> None:
    os.close(handle)


def get_size(handle: int) -> int:
    return os.fstat(handle).st_size


def can_flush(handle: int) -> bool:  # noqa: ARG001
    return True


def can_fua(handle: int) -> int:  # noqa: ARG001
    return int(nbdkit.FUA_NONE)


def can_multi_conn(handle: int) -> bool:  # noqa: ARG001
    return True


def _wait(kind: str, begin: float) -> None:
    left = float(_options[kind]) / 1000 - (time.monotonic() - begin)
    if left > 0:
        time.sleep(left)


def pread(handle: int, buffer: bytearray, offset: int, flags: int) -> None:  # noqa: ARG001
    begin = time.monotonic()
    if os.preadv(handle, [buffer], offset) != len(buffer):
        raise OSError("read beyond the end")
    _wait("read", begin)


def pwrite(handle: int, buffer: bytearray, offset: int, flags: int) -> None:  # noqa: ARG001
    begin = time.monotonic()
    if os.pwrite(handle, buffer, offset) != len(buffer):
        raise OSError("short write")
    _wait("write", begin)


def flush(handle: int, flags: int) -> None:  # noqa: ARG001
    _wait("flush", time.monotonic())
