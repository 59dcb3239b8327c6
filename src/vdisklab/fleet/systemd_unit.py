"""The systemd units of the worker and the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.errors import PlanError


def systemd_unit(command: Sequence[str], *, of_scheduler: bool) -> str:
    """The unit as text (systemd.service(5), systemd.kill(5)).

    A killed worker must not take its campaign with it: KillMode=process leaves the child alone. An
    orderly stop waits until the campaign has removed what it has built.
    """
    node = "scheduler" if of_scheduler else "worker"
    lines = [
        "[Unit]",
        f"Description=vdisklab fleet {node}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        f"ExecStart={' '.join(map(_quoted, command))}",
        "Restart=always",
        "RestartSec=5",
    ]
    if not of_scheduler:
        lines += [
            "# PGPASSWORD=… or VDISKLAB_DB=… of this host, mode 0600; or use /root/.pgpass.",
            "EnvironmentFile=-/etc/vdisklab/fleet/worker.env",
            "KillMode=process",
            "TimeoutStopSec=900",
        ]
    else:
        lines += ["NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes"]
        lines += ["StateDirectory=vdisklab"]  # Dask writes a lock there
    lines += ["", "[Install]", "WantedBy=multi-user.target", ""]
    return "\n".join(lines)


def _quoted(word: str) -> str:
    """A word of a command line (systemd.syntax(7)): % and $ are doubled."""
    if "\n" in word or "\0" in word:
        raise PlanError(
            f"{word!r} cannot stand in a systemd unit", hint="choose a name on one line"
        )
    escaped = word.replace("%", "%%").replace("$", "$$")
    plain = all(char.isalnum() or char in "/._-:=%$" for char in escaped)
    if plain and escaped:
        return escaped
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'
