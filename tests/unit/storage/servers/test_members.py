"""Each kind of server that QEMU opens has a file with the members of its node."""

from __future__ import annotations

from pathlib import Path

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
