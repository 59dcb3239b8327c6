"""A real fleet for tests: a scheduler and workers as processes, each with its own state."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from distributed.security import Security

from vdisklab.fleet.certificates import FleetRole, find_certificates, make_certificates
from vdisklab.fleet.quiet_settings import apply_settings, security_of


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Fleet:
    """Processes by name; `directory` has certificates, states and logs."""

    directory: Path
    port: int = field(default_factory=free_port)
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    listen: str = ""

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def tls(self) -> Path:
        return self.directory / "tls"

    def security(self, role: FleetRole = FleetRole.CLIENT) -> Security:
        apply_settings()
        return security_of(find_certificates(self.tls, role, datetime.now(UTC)), role)

    def scheduler(self) -> None:
        self._start("scheduler", ["scheduler", "--listen", self.listen or self.address])

    def worker(
        self, name: str, before: tuple[str, ...] = (), port: int = 0, **environment: str
    ) -> None:
        address = environment.get("VDISKLAB_SCHEDULER", self.address)
        arguments = ["worker", "--scheduler", address, "--as", name, "--port", str(port)]
        self._start(name, arguments, before, environment)

    def state(self, name: str) -> Path:
        return self.directory / f"state-{name}"

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def _start(
        self,
        name: str,
        arguments: list[str],
        before: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.state(name).mkdir(exist_ok=True)
        with (self.directory / f"{name}.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                [*before, sys.executable, "-m", "vdisklab", "fleet", *arguments, "--tls", self.tls],
                stdout=log,
                stderr=log,
                env={**os.environ, "VDISKLAB_STATE": str(self.state(name)), **(environment or {})},
            )

    def kill(self, name: str) -> None:
        self.nodes[name].kill()
        self.nodes[name].wait()

    def end(self) -> None:
        for node in self.nodes.values():
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
        for node in self.nodes.values():
            try:
                node.wait(60)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


@contextmanager
def fleet_in(directory: Path) -> Iterator[Fleet]:
    """A fleet without nodes; all that are started end with the context."""
    make_certificates(directory / "tls", datetime.now(UTC))
    fleet = Fleet(directory)
    try:
        yield fleet
    finally:
        fleet.end()
