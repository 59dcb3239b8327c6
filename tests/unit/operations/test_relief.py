"""What makes an operation bearable: each platform has a line, or the reason why there is none."""

from __future__ import annotations

import json

import pytest

from tests.relief_lines import PATHS, every_line, every_way, ways
from vdisklab.operations.operation import DiskOperation, OperationKind
from vdisklab.operations.registry import OPERATIONS, parse_operation
from vdisklab.operations.relief import LIBVIRT, PROXMOX, QEMU


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_each_operation_has_a_line_for_each_platform_or_says_why_not(row: OperationKind) -> None:
    for path in PATHS.get(row.name, ("qcow2/none",)):
        found = ways(DiskOperation(row), path)
        for platform in (LIBVIRT, PROXMOX, QEMU):
            assert any(platform in way.platform for way in found), (row.name, platform)


def test_a_way_is_a_line_or_a_reason() -> None:
    for operation, way in every_way():
        assert bool(way.line) != bool(way.reason), operation
        assert "\n" not in way.line + way.reason


def test_what_the_operation_had_already_is_not_advised() -> None:
    lines = {
        text: [way.line for way in ways(parse_operation(text), "qcow2/none")]
        for text in ("backup", "backup:workers=1", "backup:speed=32M", "backup:fleecing")
    }
    assert any("max-workers" in line for line in lines["backup"])
    assert not any("max-workers" in line for line in lines["backup:workers=1"])
    assert any(line.endswith("--bwlimit 51200") for line in lines["backup"])
    assert any(line.endswith("--bwlimit 16384") for line in lines["backup:speed=32M"])
    assert any('"speed": 16777216' in line for line in lines["backup:speed=32M"])
    assert any("fleecing" in line for line in lines["backup:workers=1"])
    assert not any("fleec" in line for line in lines["backup:fleecing"])
    slow = [way.line for way in ways(parse_operation("backup"), "qcow2/none", 10.5e6)]
    assert any(line.endswith("--bwlimit 5120") for line in slow)
    assert any('"speed": 5242880' in line for line in slow)
    slower = [way.line for way in ways(parse_operation("mirror"), "qcow2/none", 1e6)]
    assert any(line.endswith("--bwlimit 488") for line in slower)
    modes = [
        any("copy-mode" in way.line for way in ways(parse_operation(text), "raw/none"))
        for text in ("mirror", "mirror:copy-mode=write-blocking")
    ]
    assert modes == [False, True]


def test_the_lines_of_qemu_are_json() -> None:
    lines = [line for line in every_line() if line.startswith("{")]
    assert len(lines) >= 12
    for line in lines:
        assert set(json.loads(line)) == {"execute", "arguments"}
