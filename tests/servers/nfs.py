"""nfs-ganesha, for QEMU's own NFS client."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from tests.servers.daemon import ADDRESS, Daemon, Server, free_port, listens, program, running

_PORTMAPPER = 111

# libnfs speaks NFS 3 and mounts the path, not the pseudo path. Locks are not used.
_CONFIG = """\
NFS_CORE_PARAM {{
  Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port}; Bind_addr = {address};
  Enable_NLM = false; Enable_RQUOTA = false; Allow_Set_Io_Flusher_Fail = true;
}}
EXPORT {{
  Export_Id = 1; Path = {path}; Pseudo = /export; Protocols = 3; Transports = TCP;
  Access_Type = {access}; Squash = No_Root_Squash; SecType = sys;
  FSAL {{ Name = VFS; }}
}}
LOG {{ COMPONENTS {{ ALL = EVENT; }} }}
"""


@contextmanager
def ganesha(directory: Path, export: Path, *, read_only: bool = False) -> Iterator[Server]:
    """nfs-ganesha exports a directory. One at a time on a machine: there is one portmapper."""
    port, mount_port = free_port(), free_port()
    config = directory / "ganesha.conf"
    text = _CONFIG.format(
        port=port, mount_port=mount_port, address=ADDRESS, path=export,
        access="RO" if read_only else "RW",
    )  # fmt: skip
    config.write_text(text)
    log = directory / "ganesha.log"
    daemon = Daemon(
        ("ganesha.nfsd", "-F", "-f", str(config), "-L", str(log), "-p", str(directory / "pid")),
        log,
        lambda: "NFS SERVER INITIALIZED" in log.read_text(errors="replace") and listens(port),
    )
    with Path(program("ganesha.nfsd")).open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        with _portmapper(directory), running(daemon):
            yield Server(f"nfs://{ADDRESS}{export}", directory, (daemon,))


def _portmapper(directory: Path) -> AbstractContextManager[None]:
    if listens(_PORTMAPPER):
        return nullcontext()
    # With `-h 127.0.0.1` Debian's rpcbind 1.2.6 aborts (a double free), so it listens everywhere.
    return running(
        Daemon(("rpcbind", "-f"), directory / "rpcbind.log", lambda: listens(_PORTMAPPER))
    )
