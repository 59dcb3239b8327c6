"""The smallest Ceph: one monitor and one OSD on a file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.daemon import ADDRESS, Daemon, Server, accepts, free_port, run, running

POOL = "disks"
CLIENT = "lab"

_CONFIG = """\
[global]
fsid = {fsid}
mon host = v2:{address}:{port}
public network = 127.0.0.0/8
ms bind ipv6 = false
ms bind msgr1 = false
auth cluster required = {auth}
auth service required = {auth}
auth client required = {auth}
run dir = {directory}
admin socket = {directory}/$name.asok
log file = {directory}/$name.log
pid file = {directory}/$name.pid
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
paxos propose interval = 0.05
paxos min wait = 0.01
mon tick interval = 1
[mon]
mon data = {directory}/mon
mon data avail crit = 0
mon data avail warn = 0
mon allow pool size one = true
mon cluster log file = {directory}/cluster.log
keyring = {directory}/mon.keyring
[mon.a]
public addr = v2:{address}:{port}
[osd]
osd data = {directory}/osd
osd objectstore = bluestore
bluestore block size = {size}
bluestore block wal create = false
bluestore block db create = false
osd memory target = 939524096
osd class load list = *
osd class default list = *
osd tick interval = 0.5
[client]
keyring = {directory}/$name.keyring
log file = /dev/null
admin socket =
"""


@contextmanager
def ceph(directory: Path, *, keys: bool = False, size: int = 1 << 30) -> Iterator[Server]:
    """A cluster with one pool, and the client `lab` that may use its images.

    With `keys` everybody must show one; those of the client are in `client.lab.keyring`. The OSD
    holds `size` bytes in a sparse file.
    """
    config, environment = directory / "ceph.conf", {"CEPH_CONF": str(directory / "ceph.conf")}
    text = _CONFIG.format(
        fsid=uuid.uuid4(), address=ADDRESS, port=free_port(), directory=directory, size=size,
        auth="cephx" if keys else "none",
    )  # fmt: skip
    config.write_text(text)
    for name in ("mon", "osd"):
        (directory / name).mkdir()

    def cluster(*arguments: str | Path) -> str:
        return run("ceph", "--connect-timeout", "20", *arguments, environment=environment)

    def daemon(name: str, id_: str) -> Daemon:
        socket = directory / f"{name.removeprefix('ceph-')}.{id_}.asok"
        argv = (name, "--id", id_, "-f", "-c", str(config))
        return Daemon(argv, directory / f"{name}.log", lambda: accepts(socket), sockets=[socket])

    admin, mon_keys = directory / "client.admin.keyring", directory / "mon.keyring"
    allow = [word for part in ("mon", "osd", "mgr", "mds") for word in ("--cap", part, "allow *")]
    run("ceph-authtool", "-C", mon_keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    run("ceph-authtool", "-C", admin, "--gen-key", "-n", "client.admin", *allow)
    run("ceph-authtool", mon_keys, "--import-keyring", admin)
    osd_id = str(uuid.uuid4())
    mon, osd = daemon("ceph-mon", "a"), daemon("ceph-osd", "0")
    run("ceph-mon", "--id", "a", "--mkfs", "--keyring", mon_keys, environment=environment)
    with running(mon):
        cluster("osd", "new", osd_id)
        cluster("osd", "crush", "add", "osd.0", "1", "root=default")
        cluster("osd", "pool", "create", POOL, "1", "1")
        capabilities = ("mon", "profile rbd", "osd", "profile rbd")
        osd_capabilities = ("mon", "allow *", "osd", "allow *")
        cluster("auth", "add", "osd.0", *osd_capabilities)
        cluster("auth", "get", "osd.0", "-o", directory / "osd" / "keyring")
        cluster("auth", "add", f"client.{CLIENT}", *capabilities)
        cluster("auth", "get", f"client.{CLIENT}", "-o", directory / f"client.{CLIENT}.keyring")
        run("ceph-osd", "--id", "0", "--mkfs", "--osd-uuid", osd_id, environment=environment)
        with running(osd):
            run("rbd", "ls", POOL, environment=environment)  # waits until the pool is served
            url = f"rbd:{POOL}:conf={config}:id={CLIENT}"
            yield Server(url, directory, (mon, osd), environment=environment)
