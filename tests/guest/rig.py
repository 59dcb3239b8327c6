"""A guest for the tests of the image: the least that boots one and asks its agent."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vdisklab.guest.image.guest_image import IMAGE_SERIAL, GuestImage
from vdisklab.path.architecture import X86_64

BOOT_SECONDS = 180.0
"""For a machine under load; on an idle one it is two."""


class Agent:
    """The guest agent at the end of a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def ask(self, command: str, **arguments: object) -> Any:  # noqa: ANN401
        request = {"execute": command, "arguments": arguments}
        self._channel.sendall(json.dumps(request).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._channel.recv(1 << 16)
            assert part, "the guest is gone"
            answer += part
        return json.loads(answer)["return"]

    def run(self, path: str, *arguments: str, timeout: float = 240) -> tuple[int, str, str]:
        """Exit status, output and errors of a program in the guest."""
        pid = self.ask("guest-exec", path=path, arg=arguments, **{"capture-output": True})["pid"]
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            status = self.ask("guest-exec-status", pid=pid)
            if status["exited"]:
                texts = (base64.b64decode(status.get(key, "")) for key in ("out-data", "err-data"))
                out, err = (text.decode() for text in texts)
                return status.get("exitcode", -1), out, err
            time.sleep(0.02)
        raise AssertionError(f"{path} did not end within {timeout} s")


@contextmanager
def running(
    image: GuestImage, console: Path, *devices: str, machine: str = "q35"
) -> Iterator[Agent]:
    """The agent of a guest that has `devices` (further arguments for QEMU)."""
    agent, agent_end = socket.socketpair()
    monitor, monitor_end = socket.socketpair()
    ends = (agent_end.fileno(), monitor_end.fileno())
    process = subprocess.Popen(
        arguments(image, console, machine, *ends) + list(devices),
        pass_fds=ends,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    agent_end.close()
    monitor_end.close()
    try:
        agent.settimeout(BOOT_SECONDS)
        _await_agent(monitor, process, console)
        found = Agent(agent)
        assert found.ask("guest-sync", id=7) == 7
        yield found
    finally:
        process.kill()
        process.communicate()
        agent.close()
        monitor.close()


def arguments(
    image: GuestImage, console: Path, machine: str, agent: int, monitor: int
) -> list[str]:
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", machine, "-accel", "tcg,thread=multi", "-cpu", X86_64.emulated_cpu,
        "-smp", "1", "-m", "1024",
        "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", image.append,
        "-serial", f"file:{console}",
        "-blockdev", f"driver=file,filename={image.root},node-name=image,read-only=on",
        "-device", f"virtio-blk-pci,drive=image,serial={IMAGE_SERIAL}",
        "-device", "virtio-serial-pci",
        "-chardev", f"socket,id=agent,fd={agent}",
        # Without an id QEMU does not tell when the guest opens the port.
        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0,id=agentport",
        "-chardev", f"socket,id=monitor,fd={monitor}",
        "-mon", "chardev=monitor,mode=control",
    ]  # fmt: skip


def _await_agent(monitor: socket.socket, process: subprocess.Popen[bytes], console: Path) -> None:
    """Returns when the guest opens the agent's port: what is sent before may be lost."""
    monitor.settimeout(BOOT_SECONDS)
    monitor.sendall(b'{"execute": "qmp_capabilities"}\n')
    said = b""
    while b"VSERPORT_CHANGE" not in said:
        part = monitor.recv(1 << 16)
        if not part:
            assert process.stderr is not None
            log = console.read_text(errors="replace")[-2000:]
            raise AssertionError(f"QEMU ended: {process.stderr.read()!r}; console: {log}")
        said += part


def disk(number: int, path: Path, device: str) -> Sequence[str]:
    """Arguments for one more disk."""
    node = f"disk{number}"
    return (
        "-blockdev", f"driver=file,filename={path},node-name={node}",
        "-device", f"{device},drive={node}",
    )  # fmt: skip
