"""`vdisklab watch`: a page that shows a campaign while it runs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from vdisklab.answers.caveats import way_to_kvm_here
from vdisklab.answers.loading import database_url, open_results
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import DbOptions, takes_options
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import HostError, extra_hint
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import FILE, TEXT
from vdisklab.results.database import parse_address
from vdisklab.value import replace

PANEL = VerbPanel.MEASURE


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(DbOptions):
    """Where the page is served, and to whom."""

    listen: str = option(
        TEXT,
        "Serve the page here; other machines need the token that is printed.",
        "127.0.0.1:8765",
        metavar="ADDRESS[:PORT]",
        formerly="port",
    )
    cert: Path | None = option(FILE, "Serve TLS with this certificate (PEM).", metavar="FILE")
    key: Path | None = option(FILE, "The key of --cert, if it is not in its file.", metavar="FILE")


@takes_options()
def watch(request: WatchOptions) -> None:
    """Show a campaign that runs, and those before it, as a page in a browser.

    It only reads: the page can be opened, closed and opened again at any time, in mid-run and
    afterwards. To see it from another machine, forward the port: ssh -L 8765:127.0.0.1:8765 HOST.

    Examples:

        vdisklab watch

        vdisklab watch --listen 192.0.2.7 --cert kvm1.pem
    """
    if importlib.util.find_spec("uvicorn") is None or importlib.util.find_spec("starlette") is None:
        raise HostError(
            "watch needs the Python packages starlette and uvicorn, which are not installed",
            hint=extra_hint("watch"),
        )
    from vdisklab.watch.app import make_app, make_server, serve, without_root  # noqa: PLC0415 - an extra
    from vdisklab.watch.door import make_door, opened, require_certificate  # noqa: PLC0415

    door = make_door(request.listen, request.cert, request.key)
    require_certificate(door)
    way_to_kvm_here()  # this user's, before it becomes another, as is the database:
    db = database_url(request.db)
    with open_results(db, read_only=True):
        pass  # a database that cannot be read is said here, not in a browser
    console, file = Console(stderr=True), parse_address(db).file
    with opened(door) as listening:
        door = replace(door, port=listening.getsockname()[1])
        server = make_server(make_app(db, door, naming(request.db)), door)
        # The key has been read. PostgreSQL knows its user by name.
        if os.geteuid() == 0 and (file is None or not without_root([file])):
            why = f"{file or 'the password of PostgreSQL'} cannot be read by the user nobody"
            console.print(Text(f"note: this process stays root's: {why}"), soft_wrap=True)
        console.print(Text(f"open {door.address} in a browser; Ctrl-C ends it"), soft_wrap=True)
        serve(server, listening)


def naming(db: str | None) -> Callable[[Sequence[str], Sequence[Any]], Named]:
    """What commands on pages name. Who reads them has another shell: its directory and VDISKLAB_DB
    may be others.
    """
    file = None if db is None else parse_address(db).file
    place = db if file is None else str(file.absolute())
    caller = Caller.of_process().anywhere()

    def named(campaigns: Sequence[str], measured: Sequence[Any]) -> Named:
        return Named(place, tuple(campaigns), caller=caller).on_targets_of(measured)

    return named
