"""`vdisklab audit --need` at the edge: which need each disk lacks, why, and what to use instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.results.test_power_cuts import LOST
from vdisklab.cli.main import main
from vdisklab.errors import PlanError
from vdisklab.export.configuration import ExportRequest
from vdisklab.export.platforms import EXPORTERS, Platform
from vdisklab.path.disk_path import parse_path
from vdisklab.results.store import open_store

NETWORK = """<domain><name>far</name><devices><disk type='network'>
<source protocol='rbd' name='p/i'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def domains(tmp_path: Path) -> list[str]:
    files: list[str] = []
    for text in ("ext4/qcow2/none", "raw/unsafe"):
        file = tmp_path / f"{len(files)}.xml"
        wish = ExportRequest(parse_path(text), "/nonexistent/a.img", "web")
        file.write_text(EXPORTERS[Platform.LIBVIRT](wish).text)
        files.append(str(file))
    (tmp_path / "far.xml").write_text(NETWORK)
    return [*files, str(tmp_path / "far.xml"), "--db", str(tmp_path / "results.sqlite")]


def audited(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["audit", *words, "--format", "json"]) == 0
    disks: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["disks"]
    return disks


def test_each_disk_says_which_need_it_lacks(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "results.sqlite")) as store:
        store.add_campaign(CAMPAIGN)
    good, bad, far = audited(capsys, *domains, "--need", "durable", "--need", "format=qcow2")
    assert [need["met"] for need in good["needs"]] == [True, True]
    assert good["instead"] is None
    assert bad["needs"] == [
        {"need": "durable", "met": False, "reason": "cache mode unsafe throws flushes away"},
        {"need": "format=qcow2", "met": False, "reason": "its format is raw"},
    ]
    assert bad["instead"] == "qcow2/none"
    assert [need["met"] for need in far["needs"]] == [None, None]


def test_stored_power_cuts_decide(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "results.sqlite")) as store:
        store.add_campaign(CAMPAIGN)
        store.add_power_cut(replace(LOST, path="ext4/qcow2/none", host=CAMPAIGN.host))
    good, *_ = audited(capsys, *domains, "--need", "durable")
    (need,) = good["needs"]
    assert need["met"] is False
    assert "power cuts" in need["reason"]
    assert good["instead"] not in (None, "ext4/qcow2/none")


def test_the_table_has_the_column_only_when_asked(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "results.sqlite")):
        pass
    assert main(["audit", *domains, "--need", "live-migration"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "lacks" in out
    assert "does not meet live-migration: cache mode unsafe leaves data in the host's" in out
    assert "The nearest path that meets all needs: raw/none." in out
    assert main(["audit", *domains]) == 0
    assert "lacks" not in capsys.readouterr().out


def test_needs_that_exclude_one_another_are_named(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "results.sqlite")):
        pass
    assert main(["audit", *domains, "--need", "cache=unsafe", "--need", "durable"]) == 0
    assert "No path meets all these needs." in " ".join(capsys.readouterr().out.split())
    assert main(["audit", *domains, "--need", "fast"]) == PlanError.exit_code
    assert "unknown need 'fast'" in capsys.readouterr().err
