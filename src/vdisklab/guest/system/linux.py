"""A Linux user guest: it lacks vdisklab's scripts, so they are passed to its shell."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from vdisklab.guest.agent import Agent
from vdisklab.guest.system.guest_system import (
    Family,
    GuestDisk,
    UnfitGuestError,
    find_by_script,
)
from vdisklab.host.waiting import patience
from vdisklab.results.model import Check

_SETTLE_SECONDS = 600.0
_ASK_SECONDS = 60.0

# Services that still start after the agent's first answer would disturb a measurement. systemd
# reports when all are started (systemctl(1), is-system-running); other init systems do not.
_SETTLE = "command -v systemctl >/dev/null || exit 0; systemctl is-system-running --wait"
_MISSING = 'for p in "$@"; do command -v "$p" >/dev/null || echo "$p"; done'
_VERSIONS = "uname -sr; fio --version"


class LinuxGuest:
    """Linux with the QEMU guest agent, a POSIX shell and the programs that measure."""

    family = Family.LINUX
    scratch = "/tmp"  # noqa: S108 - of a guest that is thrown away
    stderr_log = None

    def __init__(self, name: str, agent_version: str) -> None:
        self._name = name
        self._agent_version = agent_version

    def await_ready(self, agent: Agent) -> None:
        """Waits until systemd has started everything, or has given up on some of it."""
        agent.run(
            ("sh", "-c", _SETTLE), timeout=_SETTLE_SECONDS * patience(), allowed=range(-64, 256)
        )

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """Looks for each program on the agent's PATH. Raises UnfitGuestError."""
        ended = agent.run(("sh", "-c", _MISSING, "sh", *programs), timeout=_ASK_SECONDS)
        missing = ended.stdout.split()
        if missing:
            raise UnfitGuestError(
                f"the guest ({self._name}) has no {', '.join(missing)}",
                hint="install them in the image, or measure another profile",
            )

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """Passes the micro guest's script find-disk to the shell on standard input."""
        script = (
            resources.files("vdisklab.guest.image").joinpath("guestfiles/find-disk.sh").read_text()
        )
        return find_by_script(
            agent, ("sh", "-s"), serial, script.replace("/usr/bin/busybox usleep 5000", "sleep 0.1")
        )

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """System, kernel, agent, fio, and the state of systemd."""
        state = agent.run(
            ("sh", "-c", _SETTLE), timeout=_ASK_SECONDS, allowed=range(-64, 256)
        ).stdout.strip()
        lines = agent.run(
            ("sh", "-c", _VERSIONS), timeout=_ASK_SECONDS, allowed=range(-64, 256)
        ).stdout.splitlines()
        known = {
            "guest.system": self._name,
            "guest.kernel": lines[0] if lines else "",
            "guest.fio": lines[1] if len(lines) > 1 else "",
            "guest.agent": self._agent_version,
            "guest.state": state,
        }
        return tuple(Check(name, None, value) for name, value in known.items() if value)
