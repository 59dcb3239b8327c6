"""Connections that send nothing end, and never keep others out."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from vdisklab.host.waiting import wait_until
from vdisklab.results.store import open_store

DESCRIPTORS = 160
"""Of the server; 64 of them are no connection's."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may search, with a database."""
    with tempfile.TemporaryDirectory(prefix="vdisklab-test-") as directory:
        Path(directory).chmod(0o755)
        with open_store(f"sqlite:///{directory}/r.sqlite"):
            pass
        yield Path(directory)


@contextmanager
def watching(place: Path, options: Sequence[str] = ()) -> Iterator[tuple[int, str, int]]:
    """The port, the first lines and the process of `vdisklab watch` with few descriptors."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [
        "watch",
        "--db",
        str(place / "r.sqlite"),
        "--listen",
        f"127.0.0.1:{port}",
        *options,
    ]
    limit = f"import resource, runpy, sys; resource.setrlimit(7, ({DESCRIPTORS}, {DESCRIPTORS})); "
    limit += "sys.argv[0] = 'vdisklab'; runpy.run_module('vdisklab', run_name='__main__')"
    with (
        (place / "said").open("w") as said,
        subprocess.Popen([sys.executable, "-c", limit, *arguments], stderr=said) as server,
    ):
        try:
            text = (place / "said").read_text
            wait_until(lambda: "open http" in text(), timeout=60, what="the server")
            yield port, text(), server.pid
        finally:
            server.terminate()
            server.wait(30)


def status_of(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().status


def test_connections_that_send_nothing_keep_nobody_out(place: Path) -> None:
    assert resource.RLIMIT_NOFILE == 7
    with watching(place) as (port, _, _), ExitStack() as idle:
        ends = [
            idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for _ in range(DESCRIPTORS - 40)
        ]
        ends[0].sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        assert status_of(port) == 200
        assert ends[0].recv(1) == b""
        assert time.monotonic() - began < 60


def test_a_second_request_without_its_end_is_not_waited_for(place: Path) -> None:
    with (
        watching(place) as (port, _, _),
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        assert connection.sock is not None
        connection.sock.sendall(b"GET / HT")
        assert connection.sock.recv(1) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another")
def test_root_reads_its_key_and_becomes_nobody(place: Path) -> None:
    certificates = pytest.importorskip("vdisklab.fleet.certificates")
    certificates.make_certificates(place / "tls", datetime.now(UTC))
    pem = place / "tls" / "scheduler.pem"
    assert pem.stat().st_mode & 0o077 == 0
    with watching(place, ["--cert", str(pem)]) as (port, said, process):
        assert "root's" not in said
        status = Path(f"/proc/{process}/status").read_text()
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        secured = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        with closing(secured) as connection:
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 200
        with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
            assert silent.recv(1) == b""  # no handshake came
