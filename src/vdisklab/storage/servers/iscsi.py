"""A LUN of an iSCSI target.

    python -m vdisklab.storage.servers.iscsi PORTAL TARGET LUN [USER FILE]

asks the disk for its write cache by libiscsi: no program does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from vdisklab.errors import CommandError, CommandTimeoutError, HostError, PlanError
from vdisklab.host.command import Host
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_answers import ANSWER_SECONDS
from vdisklab.storage.server_url import INITIATOR, Url, server_of, shown
from vdisklab.units import whole_number

_NORMAL_SESSION = 2
_CACHING_PAGE = 8
_MOST = 255


def members(target: NamedTarget, secret: str | None) -> dict[str, Any]:
    """The members of the node for a URL. Raises PlanError for a wrong one."""
    parts = urlsplit_of(target.name, target.place)
    name, _, lun = parts.path.removeprefix("/").partition("/")
    number = whole_number(lun)
    if not name or number is None:
        raise PlanError(f"{shown(parts)} names no LUN", hint="write iscsi://HOST[:PORT]/TARGET/LUN")
    server = server_of(parts, 3260)
    user = {"user": unquote(parts.username)} if parts.username else {}
    password = {"password-secret": secret} if secret else {}
    portal = f"{server['host']}:{server['port']}"
    return {
        "transport": "tcp", "portal": portal, "target": unquote(name), "lun": number,
        **user, **password,
    }  # fmt: skip


def promises(host: Host, target: NamedTarget, url: Url) -> dict[str, str]:
    """What the disk says of its write cache. Raises HostError if it cannot be asked."""
    node = url.node
    user = (node["user"], url.objects[0]["file"]) if url.objects and "user" in node else ()
    asked = (str(node["portal"]), str(node["target"]), str(node["lun"]), *map(str, user))
    program = (sys.executable, "-m", __name__)
    try:
        answer = json.loads(host.run(*program, *asked, timeout=ANSWER_SECONDS).stdout)
    except (CommandError, CommandTimeoutError, ValueError) as error:
        raise HostError(
            f"target {target.name} ({url.text}) does not say whether it has a write cache",
            hint="libiscsi asks it by MODE SENSE: install qemu-block-extra, and see that the "
            "target answers (`iscsi-inq`)",
        ) from error
    return {f"iscsi.{name}": "on" if value else "off" for name, value in answer.items()}


def disk_promises(portal: str, target: str, lun: int, login: tuple[str, ...]) -> dict[str, bool]:
    """What an iSCSI disk says in MODE SENSE(6) of the caching page. Raises OSError.

    The header's byte 2 has WP and DPOFUA, the page's byte 2 WCE (SBC-3, 6.5.6).
    """
    library = ctypes.CDLL(ctypes.util.find_library("iscsi") or "libiscsi.so.7")
    for name in ("iscsi_create_context", "scsi_cdb_modesense6", "iscsi_scsi_command_sync"):
        getattr(library, name).restype = ctypes.c_void_p
    library.iscsi_get_error.restype = ctypes.c_char_p
    context = ctypes.c_void_p(library.iscsi_create_context(INITIATOR.encode()))
    library.iscsi_set_targetname(context, target.encode())
    library.iscsi_set_session_type(context, _NORMAL_SESSION)
    library.iscsi_set_timeout(context, int(ANSWER_SECONDS) // 2)
    if login:
        user, file = login
        password = Path(file).read_text().rstrip("\n")
        library.iscsi_set_initiator_username_pwd(context, user.encode(), password.encode())
    if library.iscsi_full_connect_sync(context, portal.encode(), lun):
        raise OSError(library.iscsi_get_error(context).decode())
    task = ctypes.c_void_p(library.scsi_cdb_modesense6(1, 0, _CACHING_PAGE, 0, _MOST))
    answer = ctypes.create_string_buffer(_MOST)
    library.scsi_task_add_data_in_buffer(task, _MOST, answer)
    if not library.iscsi_scsi_command_sync(context, lun, task, None) or not answer.raw[0]:
        raise OSError(library.iscsi_get_error(context).decode())
    header, page = answer.raw[:4], answer.raw[4 + answer.raw[3] :]
    library.iscsi_logout_sync(context)
    return {
        "read_only": bool(header[2] & 0x80),
        "dpofua": bool(header[2] & 0x10),
        "write_cache": bool(page[2] & 0x04),
    }


if __name__ == "__main__":
    portal, target, lun, *login = sys.argv[1:]
    try:
        sys.stdout.write(json.dumps(disk_promises(portal, target, int(lun), tuple(login))))
    except OSError as failure:
        sys.exit(failure.strerror or str(failure))
