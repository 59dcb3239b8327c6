"""Each kind of server that QEMU opens has a file with the members of its node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import vdisklab.storage.servers
from vdisklab.path.named_target import parse_target
from vdisklab.path.segments import LayerKind
from vdisklab.storage.server_url import url_of


def test_each_kind_that_qemu_opens_has_a_file_and_no_other() -> None:
    (folder,) = vdisklab.storage.servers.__path__
    files = {file.stem for file in Path(folder).glob("*.py")} - {"__init__"}
    opened = {
        kind: kind.facts.target
        for kind in LayerKind
        if kind.facts.target is not None and kind.facts.target.by_qemu
    }
    assert files == set(opened)
    for kind, facts in opened.items():
        target = parse_target(f"t={facts.example}")
        assert target.kind is kind
        node = url_of(target, None).node
        assert node["driver"] == facts.driver
        assert len(node) > 1


@pytest.mark.skipif(shutil.which("qemu-storage-daemon") is None, reason="no qemu-storage-daemon")
@pytest.mark.parametrize(
    ("user", "has_secret", "changed", "said"),
    [
        ("", False, {}, "Can not reconnect"),
        ("bob@", True, {}, "Can not reconnect"),
        ("bob@", True, {"initiator-name": "iqn.2020-01.org.me:a"}, "Can not reconnect"),
        ("bob@", False, {}, "CHAP username specified but no password was given"),
        ("bob@", False, {"password-secret": "other"}, "No secret with id 'other'"),
        ("", False, {"initiator": "iqn.2020-01.org.me:a"}, "'initiator' is unexpected"),
    ],
)
def test_qemu_reads_the_node_of_an_iscsi_target(
    tmp_path: Path, user: str, has_secret: bool, changed: dict[str, str], said: str
) -> None:
    """QEMU's own grammar: what it understands fails at the network, where nothing listens."""
    secret = tmp_path / "password"
    secret.write_text("pw")
    target = parse_target(f"t=iscsi://{user}127.0.0.1:1/iqn.2001-04.com.example:disk/1")
    url = url_of(target, secret if has_secret else None)
    node = {**url.node, **changed, "node-name": "disk"}
    argv = ["qemu-storage-daemon", *url.secrets, "--blockdev", json.dumps(node)]
    tried = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert tried.returncode == 1
    assert said in tried.stderr
