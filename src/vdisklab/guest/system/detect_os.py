"""Detects the operating system of a user guest by asking its agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vdisklab.errors import GuestError
from vdisklab.guest.agent import Agent
from vdisklab.guest.system.guest_system import GuestSystem, UnfitGuestError
from vdisklab.guest.system.linux import LinuxGuest
from vdisklab.guest.system.windows import WindowsGuest

_NEEDED = (
    "guest-exec", "guest-exec-status", "guest-file-open", "guest-file-read", "guest-file-close",
    "guest-get-osinfo",
)  # fmt: skip


def detect_os(agent: Agent, diskspd: Path | None) -> GuestSystem:
    """The operating system of a guest, as its agent reports it.

    Raises UnfitGuestError when its agent does not allow running programs, which is the default on
    Red Hat's distributions.
    """
    info = agent.query("guest-info")
    if not isinstance(info, dict) or not isinstance(info.get("supported_commands", []), list):
        raise GuestError(
            f"the guest agent's answer to guest-info is not as expected: {info!r:.200}",
            hint="install a current qemu-guest-agent in the guest",
        )
    version = str(info.get("version", "unknown"))
    allowed = {
        str(command.get("name"))
        for command in info.get("supported_commands", ())
        if isinstance(command, dict) and command.get("enabled")
    }
    missing = [name for name in _NEEDED if name not in allowed]
    if missing:
        raise UnfitGuestError(
            f"the guest's agent ({version}) does not allow {', '.join(missing)}",
            hint="allow it in the guest: --allow-rpcs or --block-rpcs of qemu-ga, on Red Hat's "
            "distributions in /etc/sysconfig/qemu-ga",
        )
    system = agent.query("guest-get-osinfo")
    if not isinstance(system, dict):
        raise GuestError(
            f"the guest agent's answer to guest-get-osinfo is not as expected: {system!r:.200}",
            hint="install the qemu-guest-agent of the guest's distribution in it",
        )
    name = _name(system)
    if system.get("id") == "mswindows":
        return WindowsGuest(name, version, diskspd)
    return LinuxGuest(name, version)


def _name(system: Mapping[str, Any]) -> str:
    return str(system.get("pretty-name") or system.get("name") or system.get("id") or "unknown")
