"""How long a server may take to answer, and the error if it does not let go of what we made."""

from __future__ import annotations

import shlex

from vdisklab.errors import CommandError, CommandTimeoutError, LeftOnTargetError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry

ANSWER_SECONDS = 30.0
"""How long a server may take to answer a question; QEMU's own drivers wait for ever."""


def undone(host: Host, entry: Entry, *command: str, timeout: float = ANSWER_SECONDS) -> str:
    """What a command says that undoes something on a server.

    Raises LeftOnTargetError, with the ways out, if it fails: the thing stays where it is.
    """
    try:
        return host.run(*command, timeout=timeout).stdout
    except (CommandError, CommandTimeoutError) as error:
        said = error.stderr.strip() if isinstance(error, CommandError) else error.message
        raise LeftOnTargetError(
            f"{entry.name} is left as it is: {said.rpartition(': ')[2] or 'no reason given'}",
            hint="run `vdisklab clean` when its server can be written again, or `vdisklab clean "
            f"--forget {shlex.quote(entry.name)}` if it never can",
        ) from error
