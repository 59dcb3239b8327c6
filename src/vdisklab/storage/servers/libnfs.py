"""A directory that an NFS server exports, by libnfs.

    python -m vdisklab.storage.servers.libnfs SERVER EXPORT FILE

removes a file: no program does that without a mount.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import sys
from pathlib import PurePosixPath
from typing import Any

from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_answers import undone
from vdisklab.storage.server_url import Node, Url, server_of


def members(target: NamedTarget, _secret: str | None) -> dict[str, Any]:
    """The members of the node for a URL. Raises PlanError for a wrong one."""
    parts = urlsplit_of(target.name, target.place)
    return {"server": {"type": "inet", "host": server_of(parts, 2049)["host"]}, "path": parts.path}


def promises(_host: Host, _target: NamedTarget, _url: Url) -> dict[str, str]:
    """Nothing: the protocol has no words for flushes and limits."""
    return {}


def remove(host: Host, entry: Entry, node: Node) -> None:
    """Removes a file. Raises DirtyHostError if the server does not let it go."""
    path = PurePosixPath(node["path"])
    program = (sys.executable, "-m", __name__)
    undone(host, entry, *program, node["server"]["host"], str(path.parent), path.name)


def remove_by_libnfs(server: str, export: str, file: str) -> None:
    """Removes a file; one that is not there is no error. Raises OSError.

    The functions of libnfs.h return 0 or a negative errno. A read-only export refuses to remove
    even what is not there, so that is looked at first; `struct nfs_stat_64` has 136 bytes.
    """
    library = ctypes.CDLL(ctypes.util.find_library("nfs") or "libnfs.so.13")
    library.nfs_init_context.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.nfs_init_context())
    name = f"/{file}".encode()
    for call, *arguments in (
        (library.nfs_mount, server.encode(), export.encode()),
        (library.nfs_stat64, name, ctypes.create_string_buffer(256)),
        (library.nfs_unlink, name),
    ):
        status = call(context, *arguments)
        if status == -errno.ENOENT and call is not library.nfs_mount:
            return
        if status < 0:
            raise OSError(-status, os.strerror(-status))


if __name__ == "__main__":
    try:
        remove_by_libnfs(*sys.argv[1:])
    except OSError as failure:
        sys.exit(failure.strerror or str(failure))
