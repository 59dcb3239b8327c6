"""URLs of servers as QEMU's nodes, and the commands that make images on them."""

import json
from pathlib import Path

import pytest

from vdisklab.errors import CommandError, HostError, PlanError
from vdisklab.path.disk_path import Image
from vdisklab.path.named_target import parse_target
from vdisklab.path.segments import ImageFormat
from vdisklab.storage.image_commands import create_command, fill_command, opened
from vdisklab.storage.remote import unusable
from vdisklab.storage.server_url import url_of

KEY = Path("/root/key")


@pytest.mark.parametrize(
    ("place", "node"),
    [
        (
            "nbd://10.0.0.5/vol%201",
            {"driver": "nbd", "export": "vol 1",
             "server": {"type": "inet", "host": "10.0.0.5", "port": "10809"}},
        ),
        (
            "nbd+unix:///vol?socket=/run/n.sock",
            {"driver": "nbd", "server": {"type": "unix", "path": "/run/n.sock"}, "export": "vol"},
        ),
        (
            "iscsi://joe@10.0.0.5:3261/iqn.2001-04.com.example:disk/7",
            {"driver": "iscsi", "transport": "tcp", "portal": "10.0.0.5:3261", "lun": 7,
             "target": "iqn.2001-04.com.example:disk", "user": "joe"},
        ),
        (
            "nfs://nas/export/images",
            {"driver": "nfs", "server": {"type": "inet", "host": "nas"}, "path": "/export/images"},
        ),
        (
            "ssh://joe@nas:2222/srv/my%20images",
            {"driver": "ssh", "server": {"host": "nas", "port": "2222"}, "path": "/srv/my images",
             "user": "joe", "host-key-check": {"mode": "known_hosts"}},
        ),
        ("rbd:pool/image", {"driver": "rbd", "pool": "pool", "image": "image"}),
        (
            "rbd:pool/ns/image@/etc/ceph/b.conf?id=joe",
            {"driver": "rbd", "pool": "pool", "namespace": "ns", "image": "image",
             "conf": "/etc/ceph/b.conf", "user": "joe"},
        ),
    ],
)  # fmt: skip
def test_a_url_is_a_node_of_qemu(place: str, node: dict[str, object]) -> None:
    assert url_of(parse_target(f"t={place}"), None).node == node


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nbd:///vol", "names no server"),
        ("nbd+unix:///vol", "names no socket"),
        ("iscsi://host/iqn.x", "names no LUN"),
        ("iscsi://host/iqn.x/one", "names no LUN"),
        ("rbd:pool", "names no image"),
        ("nbds://host/x", "wants TLS, and no key is named"),
    ],
)
def test_an_incomplete_url_says_what_is_missing(place: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        url_of(parse_target(f"t={place}"), None)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("place", "object_", "member"),
    [
        ("iscsi://joe@h/iqn.x/1", f"secret,id=secret,file={KEY}", "password-secret"),
        ("rbd:p/i", f"secret,id=secret,file={KEY},format=base64", "key-secret"),
        ("nbds://h/x", "tls-creds-psk,id=secret,dir=/root,endpoint=client", "tls-creds"),
    ],
)
def test_a_secret_is_read_from_a_file_by_an_object(place: str, object_: str, member: str) -> None:
    url = url_of(parse_target(f"t={place}"), KEY)
    assert url.secrets == ("--object", object_)
    assert url.node[member] == "secret"
    assert str(KEY) not in url.text


def test_a_file_in_a_directory_keeps_the_rest_of_the_url() -> None:
    url = url_of(parse_target("t=nfs://nas/export/"), None).file("a.raw")
    assert (url.text, url.node["path"]) == ("nfs://nas/export/a.raw", "/export/a.raw")


def test_images_on_a_server_are_made_by_url_and_opened_as_nodes() -> None:
    url = url_of(parse_target("t=nfs://nas/export"), None).file("a.raw")
    raw, qcow2 = Image(ImageFormat.RAW), Image(ImageFormat.QCOW2)
    assert create_command(raw, url, 1 << 20)[-5:] == ("-q", "-f", "raw", url.text, str(1 << 20))
    made = create_command(qcow2, url, 1 << 20, on_device=True)
    assert "preallocation=metadata" in made[made.index("-o") + 1]
    (name,) = opened("qcow2", url, None)
    assert json.loads(name.removeprefix("json:")) == {"driver": "qcow2", "file": dict(url.node)}
    assert fill_command("raw", Path("/source"), url)[-2:] == (
        "/source",
        opened("raw", url, None)[-1],
    )


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Unknown driver 'iscsi'", "apt install qemu-block-extra"),
        (
            "qemu: module block-block-iscsi not found, do you want to install qemu-block-extra "
            "package?",  # QEMU 7.2 of Debian 12
            "apt install qemu-block-extra",
        ),
        ("Failed to connect to '127.0.0.1:1': Connection refused", "start the server"),
        ("Permission denied", "grant this host's user"),
        ("Denied by server for option 5 (starttls)", "the server has no TLS"),
        ("TLS handshake failed: The TLS connection was non-properly terminated.", "give the key"),
        ("TLS negotiation required before option 7 (go)", "nbds://"),
        ("Requested export not available", "nbdinfo --list"),
        (
            "Invalid address:nas. Can not resolv into IPv4/v6 structure.",
            "correct the server's name",
        ),
        ("error reading conf file /nowhere.conf: No such file or directory", "rbd:POOL/IMAGE@CEPH"),
        ("unable to get monitor info from DNS SRV with service name: ceph-mon", "@CEPH.CONF"),
        ("error connecting: No such file or directory", "?id=USER"),
        ("error connecting: Invalid argument", "?id=USER"),
        ("Failed to connect to '/run/n.sock': No such file or directory", "start the server"),
        ("error while writing at byte 18874368: Input/output error", "space left"),
        ("CHAP username specified but no password was given", "--secret NAME=FILE"),
        ("something new", "check the URL"),
    ],
)
def test_what_qemu_says_of_a_target_comes_with_a_way_out(said: str, hint: str) -> None:
    url = url_of(parse_target("t=nbd://h/x"), None)
    text = f"qemu-img: Could not open '{url.opened}': {said}"
    error = unusable(f"target t ({url.text})", url, CommandError(("qemu-img",), 1, text))
    assert isinstance(error, HostError)
    assert str(error) == f"target t (nbd://h/x) cannot be used: {said}"
    assert hint in str(error.hint)
