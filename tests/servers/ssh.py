"""sshd with a host key and a user's key of its own."""

from __future__ import annotations

import base64
import getpass
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.daemon import ADDRESS, Daemon, Server, accepts, free_port, listens, run, running

_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {directory}/host
AuthorizedKeysFile {directory}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
LogLevel VERBOSE
Subsystem sftp internal-sftp {options}
"""
_PRIVILEGE_SEPARATION = Path("/run/sshd")


@contextmanager
def sshd(directory: Path, files: Path, *, read_only: bool = False) -> Iterator[Server]:
    """sshd for the user of the tests. The file `key` of the directory opens it.

    QEMU knows no key files, only an agent: one that holds the key is in the environment.
    """
    port = free_port()
    for name in ("host", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", directory / name)
    config = directory / "sshd_config"
    config.write_text(
        _CONFIG.format(
            port=port, address=ADDRESS, directory=directory, options="-R" if read_only else ""
        )
    )
    agent_socket = directory / "agent.sock"
    environment = {"SSH_AUTH_SOCK": str(agent_socket)}
    daemon = Daemon(
        ("sshd", "-D", "-e", "-f", str(config)), directory / "sshd.log", lambda: listens(port)
    )
    agent = Daemon(
        ("ssh-agent", "-D", "-a", str(agent_socket)), directory / "agent.log",
        lambda: accepts(agent_socket), sockets=[agent_socket],
    )  # fmt: skip
    with ExitStack() as stack:
        if not _PRIVILEGE_SEPARATION.exists():  # systemd makes it for the service
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755)
            stack.callback(_PRIVILEGE_SEPARATION.rmdir)
        stack.enter_context(running(daemon, agent))
        run("ssh-add", "-q", directory / "key", environment=environment)
        hash_ = hashlib.sha256(base64.b64decode((directory / "host.pub").read_text().split()[1]))
        url = (
            f"ssh://{getpass.getuser()}@{ADDRESS}:{port}{files}"
            f"?host_key_check=sha256:{hash_.hexdigest()}"
        )
        yield Server(url, directory, (daemon,), environment=environment)
