"""What starting a guest needs of this host."""

from __future__ import annotations

from pathlib import Path

from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.progress import Progress
from vdisklab.value import Value


class GuestContext(Value):
    """The services needed to start a guest: host, ledger, cache directory, progress."""

    host: Host
    ledger: Ledger
    cache: Path
    progress: Progress
