"""`advise` and `audit` of a Proxmox VE cluster: its nodes, its templates, guests without a disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main

STORAGES = "lvmthin: thin\n\tvgname v\n\tthinpool t\n"
CLONE = 'resource "proxmox_vm_qemu" "{0}" {{\n  name = "{0}"\n  clone = "{1}"\n}}\n'


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of /etc/pve with an unsafe guest on each of two nodes, and an unsafe template."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "none.sqlite"))
    (tmp_path / "storage.cfg").write_text(STORAGES)
    for node, vmid, more in (("alpha", 1, ""), ("beta", 2, ""), ("beta", 9, "template: 1\n")):
        place = tmp_path / f"nodes/{node}/qemu-server"
        place.mkdir(parents=True, exist_ok=True)
        volume = f"thin:{'base' if more else 'vm'}-{vmid}-disk-0"
        (place / f"{vmid}.conf").write_text(
            f"name: g{vmid}\n{more}virtio0: {volume},cache=unsafe,discard=on\n"
        )
    return tmp_path


def test_each_line_to_paste_says_its_node_and_what_it_holds_for(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", str(cluster)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 disks and 1 of templates: change 3" in lines
    for above, below in (
        ("# g1 virtio0, from its next start on; run it on node alpha", "qm set 1 "),
        ("# g2 virtio0, from its next start on; run it on node beta", "qm set 2 "),
        ("# g9 virtio0 (template), for clones made from then on; run it on node beta", "qm set 9 "),
    ):
        assert lines[lines.index(above) + 1].startswith(below)
    assert main(["advise", str(cluster), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["advice"]["change"]["node"] for row in document["disks"]] == [
        "alpha", "beta", "beta"
    ]  # fmt: skip
    # Nothing is measured for a template, on which no guest runs.
    assert not any("template" in name for plan in document["planned"] for name in plan)


def test_a_file_without_its_nodes_directory_names_no_node(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sibling: the same guest, from a copy of its file alone."""
    file = cluster / "1.conf"
    file.write_text((cluster / "nodes/alpha/qemu-server/1.conf").read_text())
    assert main(["advise", str(file)]) == 0
    assert "# g1 virtio0, from its next start on\n" in capsys.readouterr().out


def test_templates_come_last_and_are_counted_apart(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(cluster), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["disks"]
    assert [(row["disk"]["domain"], row["disk"]["template"]) for row in rows] == [
        ("g1", False), ("g2", False), ("g9", True)
    ]  # fmt: skip
    assert main(["audit", str(cluster)]) == 0
    assert "Audit: 2 disks and 1 of templates" in capsys.readouterr().out
    assert main(["audit", str(cluster / "nodes/beta/qemu-server/9.conf")]) == 0
    assert "Audit: 1 disk of templates" in capsys.readouterr().out


def test_a_safe_template_is_kept_without_a_measurement(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster / "nodes/beta/qemu-server/9.conf"
    file.write_text(file.read_text().replace(",cache=unsafe", ""))
    assert main(["advise", str(file), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["disks"]
    assert (row["advice"]["action"], document["planned"]) == ("keep", [])


@pytest.mark.parametrize(
    ("name", "text", "error", "hint"),
    [
        ("main.tf", CLONE.format("web", "9000"),
         "web: no disk to judge here, as a clone gets those of its template 9000",
         "audit the template: `qm config 9000 > 9000.conf` on its node, then name 9000.conf"),
        ("main.tf", CLONE.format("web", "9000") + CLONE.format("db", "9000"),
         "web, db: no disk to judge here, as a clone gets those of its template 9000",
         "then name 9000.conf"),
        ("7.conf", "name: web\nunused0: thin:vm-7-disk-0\n",
         "web: no disk in 7.conf", "`qm set 7 --scsi0 thin:vm-7-disk-0` on its node attaches it"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["audit", "advise"])
def test_what_was_read_is_said_where_there_is_nothing_to_judge(
    cluster: Path, capsys: pytest.CaptureFixture[str],
    verb: str, name: str, text: str, error: str, hint: str,
) -> None:  # fmt: skip
    file = cluster / name
    file.write_text(text)
    assert main([verb, str(file)]) == 2
    said = capsys.readouterr().err
    assert f"error: {error}" in said
    assert hint in said
    assert "no guest with a hard disk" not in said


def test_a_clone_beside_other_guests_is_a_note(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "main.tf").write_text(CLONE.format("web", "9000"))
    assert main(["audit", str(cluster / "main.tf"), str(cluster)]) == 0
    said = capsys.readouterr().err
    assert said.count("web: no disk to judge here, as a clone gets those of its template 9000") == 1


def test_a_text_of_another_platform_without_a_disk_is_named(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster / "web.xml"
    file.write_text("<domain type='kvm'><name>web</name><devices/></domain>")
    assert main(["audit", str(file)]) == 2
    assert f"there is no guest with a hard disk in {file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compose.yml", "services:\n  vm:\n    image: vdsm/virtual-dsm\n    environment: "
         "{DISK_CACHE: unsafe}\n"),
        ("main.tf", 'resource "proxmox_vm_qemu" "web" {\n  disk {\n    slot = "virtio0"\n'
         '    storage = "thin"\n    cache = "unsafe"\n  }\n}\n'),
    ],
)  # fmt: skip
def test_a_disk_that_a_program_writes_anew_is_changed_in_its_file(
    cluster: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    """One setting makes it safe, so nothing may say that none does."""
    (cluster / name).write_text(text)
    assert main(["advise", str(cluster / name), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["disks"]
    assert row["advice"]["action"] == "change"
    reason = row["advice"]["reason"]
    assert reason.startswith("set `")
    assert f" of {cluster / name} to none, which passes flushes on" in reason
