"""Real servers of disks and QEMU's own drivers: what is written comes back, and what a flush does.

What QEMU 7.2 does with a server that is honest, that lies, and that goes away is what vdisklab's
targets rely on.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.servers.ceph import POOL, ceph
from tests.servers.daemon import Server, program, run
from tests.servers.iscsi import TARGET, USER, tgt
from tests.servers.nbd import NO_FLUSH, nbdkit, qemu_nbd, requests
from tests.servers.nfs import ganesha
from tests.servers.ssh import sshd
from vdisklab.value import replace

pytestmark = pytest.mark.host

MIB = 1 << 20
# libnfs 4 and iSCSI without a timeout wait for a dead server for ever.
_DEADLINE = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ceph(tmp_path_factory.mktemp("ceph"), keys=True) as server:
        yield server


def below(url: str, name: str) -> str:
    """The URL of a file in the directory that a URL names."""
    path, mark, rest = url.partition("?")
    return f"{path}/{name}{mark}{rest}"


def image_of(pool: str, name: str) -> str:
    """The URL of an image in the pool that a URL names."""
    return pool.replace(f"rbd:{POOL}:", f"rbd:{POOL}/{name}:")


def qemu_io(
    server: Server, disk: str | Sequence[str], *commands: str, cache: str = "none"
) -> subprocess.CompletedProcess[str]:
    """qemu-io on a URL, or on QEMU's options of an image."""
    image = ["-f", "raw", disk] if isinstance(disk, str) else ["--image-opts", ",".join(disk)]
    return subprocess.run(
        [
            program("qemu-io"), "-t", cache,
            *(word for text in server.objects for word in ("--object", text)),
            *(word for command in commands for word in ("-c", command)),
            *image,
        ],
        env={**os.environ, **server.environment},
        capture_output=True, text=True, timeout=_DEADLINE, check=False,
    )  # fmt: skip


def require_that_it_keeps(server: Server, disk: str | Sequence[str]) -> None:
    """What is written and flushed comes back in another process."""
    written = qemu_io(server, disk, "write -P 0x5a 1M 64k", "flush", "write -f -P 0x5b 2M 4k")
    assert written.returncode == 0, written.stdout + written.stderr
    read = qemu_io(server, disk, "read -P 0x5a 1M 64k", "read -P 0x5b 2M 4k", "read -P 0 3M 4k")
    assert read.returncode == 0, read.stdout + read.stderr
    assert "verification failed" not in read.stdout


def create(server: Server, url: str, size: str = "64M") -> None:
    run("qemu-img", "create", "-q", "-f", "raw", url, size, environment=server.environment)


def info(server: Server, url: str) -> Mapping[str, object]:
    environment = server.environment
    text = run("qemu-img", "info", "-f", "raw", "--output=json", url, environment=environment)
    found: Mapping[str, object] = json.loads(text)
    return found


def iscsi_options(server: Server) -> list[str]:
    portal = server.url.split("/")[2]
    return ["driver=iscsi", "transport=tcp", f"portal={portal}", f"target={TARGET}", "lun=1"]


@pytest.mark.parametrize("tcp", [False, True])
def test_nbdkit(tmp_path: Path, tcp: bool) -> None:
    with nbdkit(tmp_path, tcp=tcp) as server:
        require_that_it_keeps(server, server.url)
        assert info(server, server.url)["virtual-size"] == 64 * MIB


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("cache", ["none", "writeback"])
def test_qemu_nbd(tmp_path: Path, disk: Path, cache: str, tcp: bool) -> None:
    with qemu_nbd(tmp_path, disk, cache=cache, tcp=tcp) as server:
        require_that_it_keeps(server, server.url)
    assert disk.read_bytes()[MIB : MIB + 4096] == b"\x5a" * 4096


def test_nbdkit_with_a_key(tmp_path: Path) -> None:
    with nbdkit(tmp_path, psk=True) as server:
        port = server.url.rpartition(":")[2]
        disk = ["driver=nbd", "host=127.0.0.1", f"port={port}", "tls-creds=tls"]
        require_that_it_keeps(server, disk)
        refused = qemu_io(server, disk[:-1], "read 0 4k")
        assert "Did you forget a valid tls-creds?" in refused.stderr
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "keys.psk").write_text("alice:00112233\n")
        other_key = server.objects[0].replace(f"dir={tmp_path}", f"dir={tmp_path / 'other'}")
        wrong = replace(server, objects=(other_key,))
        assert "TLS handshake failed" in qemu_io(wrong, disk, "read 0 4k").stderr


def test_an_honest_server_gets_each_flush(tmp_path: Path) -> None:
    log = f"logfile={tmp_path / 'requests'}"
    with nbdkit(tmp_path, "memory", "64M", log, filters=["log"]) as server:
        qemu_io(server, server.url, "write 0 4k", "flush", "write -f 4k 4k", "write 8k 4k", "flush")
        seen = requests(tmp_path)
    # One more flush when QEMU closes the disk, if something was written since the last.
    assert seen["Write"] == 3
    assert seen["FUA"] == 1
    assert seen["Flush"] in (2, 3)


def test_a_flush_is_success_where_the_server_has_none(tmp_path: Path) -> None:
    """T1: QEMU says success for a flush that it never sends."""
    log = f"logfile={tmp_path / 'requests'}"
    with nbdkit(tmp_path, *NO_FLUSH, log, filters=["log"]) as server:
        done = qemu_io(server, server.url, "write 0 4k", "flush", "write -f 4k 4k")
        seen = requests(tmp_path)
        (export,) = json.loads(run("nbdinfo", "--json", server.url))["exports"]
    assert (done.returncode, done.stderr) == (0, "")
    assert seen["Write"] == 2
    assert "Flush" not in seen
    assert "FUA" not in seen
    assert (export["can_flush"], export["can_fua"]) == (False, False)


def test_a_server_that_forgets_a_flush_claims_to_have_it(tmp_path: Path) -> None:
    """T2: only a witness behind the filter sees that nothing arrives."""
    log = f"logfile={tmp_path / 'requests'}"
    plugin = ("memory", "64M", log, "fuamode=discard")
    with nbdkit(tmp_path, *plugin, filters=["fua", "log"]) as server:
        qemu_io(server, server.url, "write 0 4k", "flush", "write -f 4k 4k")
        seen = requests(tmp_path)
        (export,) = json.loads(run("nbdinfo", "--json", server.url))["exports"]
    assert seen["Write"] == 2
    assert "Flush" not in seen
    assert "FUA" not in seen
    assert (export["can_flush"], export["can_fua"]) == (True, True)


@pytest.mark.parametrize("write_cache", [False, True])
def test_tgt(tmp_path: Path, disk: Path, write_cache: bool) -> None:
    with tgt(tmp_path, disk, write_cache=write_cache) as server:
        require_that_it_keeps(server, server.url)
    assert disk.read_bytes()[MIB : MIB + 4096] == b"\x5a" * 4096


def test_tgt_with_a_password(tmp_path: Path, disk: Path) -> None:
    with tgt(tmp_path, disk, chap=True) as server:
        where = [*iscsi_options(server), f"user={USER}", "password-secret=password"]
        require_that_it_keeps(server, where)
        assert "Authentication failure" in qemu_io(server, server.url, "read 0 4k").stderr
        (tmp_path / "password").write_text("another password")
        assert "Authentication failure" in qemu_io(server, where, "read 0 4k").stderr


def test_ganesha(tmp_path: Path, files: Path) -> None:
    with ganesha(tmp_path, files) as server:
        disk = below(server.url, "disk.raw")
        create(server, disk)
        require_that_it_keeps(server, disk)
        assert info(server, disk)["virtual-size"] == 64 * MIB
    assert (files / "disk.raw").stat().st_size == 64 * MIB


def test_sshd(tmp_path: Path, files: Path) -> None:
    with sshd(tmp_path, files) as server:
        disk = below(server.url, "disk.raw")
        create(server, disk)
        require_that_it_keeps(server, disk)
        other_host = disk.replace("sha256:", "sha256:00")
        assert "does not match" in qemu_io(server, other_host, "read 0 4k").stderr
        no_agent = replace(server, environment={"SSH_AUTH_SOCK": ""})
        assert "failed to authenticate" in qemu_io(no_agent, disk, "read 0 4k").stderr
    assert (files / "disk.raw").stat().st_size == 64 * MIB


def test_ceph(cluster: Server) -> None:
    disk = image_of(cluster.url, "kept")
    create(cluster, disk)
    require_that_it_keeps(cluster, disk)
    again = ("qemu-img", "create", "-f", "raw", disk, "64M")
    refused = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
    assert "File exists" in refused.stderr


def test_ceph_without_a_key(cluster: Server) -> None:
    disk = image_of(cluster.url, "kept").replace(":id=lab", ":id=nobody")
    assert "error connecting" in qemu_io(cluster, disk, "read 0 4k").stderr


def test_read_only(tmp_path: Path, disk: Path, files: Path) -> None:
    """Each says so when the disk is opened, before anything is written."""
    with (
        nbdkit(tmp_path, read_only=True) as nbd,
        tgt(tmp_path, disk, read_only=True) as iscsi,
        sshd(tmp_path, files, read_only=True) as ssh,
    ):
        for server in (nbd, iscsi):
            assert qemu_io(server, server.url, "write 0 4k").returncode != 0
        (files / "disk.raw").write_bytes(bytes(MIB))
        assert qemu_io(ssh, below(ssh.url, "disk.raw"), "write 0 4k").returncode != 0
    with ganesha(tmp_path, files, read_only=True) as nfs:
        where = below(nfs.url, "disk.raw")
        assert "ACCESS denied" in qemu_io(nfs, where, "write 0 4k").stderr
