"""`vdisklab advise` at the edge: keep, change, measure, cannot; lines to paste; bad input."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.answers.test_one_decision import World
from tests.unit.cli.test_advice import CUT_KEPT, runs
from tests.unit.loads.loads import load
from tests.unit.made_processes import make_process
from tests.unit.stored import Database
from vdisklab.actions.measure import Measured
from vdisklab.cli import advise
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, DatabaseError, HostError, PlanError
from vdisklab.host import mounts
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts, machine_facts
from vdisklab.host.mounts import Mount
from vdisklab.inspection.existing_guests import read_disks, read_host
from vdisklab.loads.load import IoKind
from vdisklab.loads.load_file import encode
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import LayerKind
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.platforms.registry import forms
from vdisklab.platforms.request import ExportRequest
from vdisklab.units import format_duration

QUICKSTART = Path(__file__).parents[3] / "docs/images/quickstart.json.gz"

SPEEDS = {
    "host": 1.0,
    "raw/default": 0.5,
    "raw/writeback": 0.5,
    "raw/none": 0.8,
    "raw/unsafe": 1.4,
    "raw/none/virtio:aio=io_uring": 0.8,
    "raw/none/virtio:iothread=on": 0.7,
    "qcow2/none": 0.4,
    "raw/none/scsi": 0.75,
    "qcow2/directsync": 0.3,
    "qcow2/writethrough": 0.2,
}


@pytest.fixture
def store(database: Database) -> Database:
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "profile": "quick", "cells": [
            f"{path} (cold)" if "default" in path else path for path in SPEEDS
        ]},
    )  # fmt: skip
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    return database


def guest(tmp_path: Path, path: str, name: str = "web", image: str | None = None) -> str:
    source = image or str(tmp_path / f"{name}.img")
    request = ExportRequest(parse_path(path), source, name)
    file = tmp_path / f"{name}.xml"
    # Without its note: the configuration alone counts.
    text = forms()["libvirt"].write(request).text.replace("urn:vdisklab:disk-path:1", "urn:x")
    file.write_text(text)
    made = request.path.image
    if image is None and made is not None and not Path(source).exists():
        with_image(Path(source), str(made.format))
    return str(file)


def with_image(file: Path, form: str = "raw") -> None:
    """An image that is allocated as far as it is long; without it the disk is another host's."""
    if form == "raw":
        file.write_bytes(bytes(8192))
    else:
        argv = ["qemu-img", "create", "-q", "-f", form, str(file), "1M"]
        subprocess.run(argv, check=True)


def advised(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    """The document, with the advice of each disk beside what is known of the disk."""
    assert main(["advise", *arguments, "--format", "json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document | {"disks": [disk | disk["advice"] for disk in document["disks"]]}


def limited(file: str) -> str:
    """The guest with a limit that a path cannot express."""
    text = Path(file).read_text()
    tune = "<iotune><read_iops_sec>500</read_iops_sec></iotune></disk>"
    Path(file).write_text(text.replace("</disk>", tune))
    return file


def test_a_limited_disk_has_no_speed_of_an_unlimited_one(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guests = [
        limited(guest(tmp_path, "raw/default", "slow")),
        limited(guest(tmp_path, "raw/unsafe", "fast")),
        guest(tmp_path, "raw/default", "free"),
    ]
    found = {group["path"]: group for group in advised(capsys, *guests[:2])["disks"]}
    assert found["raw/default"]["action"] == "keep"
    assert found["raw/default"]["reason"].startswith("safe; its own limits hold it back")
    assert "(read_iops_sec=500)" in found["raw/default"]["reason"]
    assert (found["raw/unsafe"]["action"], found["raw/unsafe"]["gain"]) == ("change", None)
    main(["audit", *guests, "--format", "json"])
    standings = [disk["standing"] for disk in json.loads(capsys.readouterr().out)["disks"]]
    assert [standing is None for standing in standings] == [True, True, False]
    main(["audit", guests[0]])
    assert "not measured here" not in capsys.readouterr().out


@pytest.mark.parametrize("losing", ["<transient/></disk>", "error_policy='ignore'"])
def test_a_disk_that_loses_data_beside_its_path_is_not_called_safe(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], losing: str
) -> None:
    """Its speed cannot be compared, and its cache mode alone passes flushes on."""
    file = Path(guest(tmp_path, "qcow2/none"))
    text = file.read_text().replace("<driver ", "<driver copy_on_read='on' ")
    before = "</disk>" if losing.endswith("</disk>") else "copy_on_read='on'"
    after = losing if before == "</disk>" else f"{before} {losing}"
    assert before in text
    file.write_text(text.replace(before, after))
    (row,) = advised(capsys, str(file))["disks"]
    assert "safe" not in row["reason"]


def test_a_throttled_disk_is_kept_and_not_compared(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/default/virtio:throttle_iops=500"))
    (row,) = document["disks"]
    assert (row["action"], row["gain"], document["planned"]) == ("keep", None, [])
    assert "safe; its own limits hold it back (throttle_iops=500)" in row["reason"]


def test_no_page_cache_is_measured_for_a_disk_that_guests_share(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(guest(tmp_path, "raw/none/sata"))
    file.write_text(file.read_text().replace("</disk>", "<shareable/></disk>"))
    (planned,) = advised(capsys, str(file))["planned"]
    assert "raw/none/sata:aio=native" in planned["command"]
    assert "writeback" not in planned["command"]


INCUS = """- name: web
  type: virtual-machine
  config: {}
  expanded_devices: {root: {path: /, pool: default, type: disk, io.cache: unsafe}}
"""


@pytest.mark.parametrize(
    ("name", "text", "said", "paste", "undo"),
    [
        ("1.conf", "name: one\nvirtio0: fast:vm-1-disk-0,cache=unsafe,size=8G\n",
         "cache none: keeps flushed data",
         "qm set 1 --virtio0 fast:vm-1-disk-0,size=8G,cache=none",
         "qm set 1 --virtio0 fast:vm-1-disk-0,cache=unsafe,size=8G"),
        ("config.txt", "name: one\nvirtio0: fast:vm-7-disk-0,cache=unsafe,size=8G\n",
         "cache none: keeps flushed data",
         "qm set 7 --virtio0 fast:vm-7-disk-0,size=8G,cache=none",
         "qm set 7 --virtio0 fast:vm-7-disk-0,cache=unsafe,size=8G"),
        ("config.txt", "name: one\nvirtio0: fast:disk,cache=unsafe,size=8G\n",
         "cache none: keeps flushed data",
         "qm set VMID --virtio0 fast:disk,size=8G,cache=none",
         "qm set VMID --virtio0 fast:disk,cache=unsafe,size=8G"),
        ("1.conf", "name: one\nvirtio0: fast:vm-1-disk-0,cache=writeback,aio=native\n",
         "does not start, as io=native needs O_DIRECT, which writeback does not use; cache none",
         "qm set 1 --virtio0 fast:vm-1-disk-0,cache=none,aio=native",
         "qm set 1 --virtio0 fast:vm-1-disk-0,cache=writeback,aio=native"),
        ("incus.yaml", INCUS, "cache none: keeps flushed data",
         "incus config device override web root io.cache=none",
         "incus config device remove web root"),
    ],
)  # fmt: skip
def test_an_unsafe_disk_is_changed_though_its_storage_is_not_known(
    name: str, text: str, said: str, paste: str, undo: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The storage's file is missing, and the line needs none."""
    file = tmp_path / name
    file.write_text(text)
    (row,) = advised(capsys, str(file))["disks"]
    assert (row["action"], row["path"]) == ("change", None)
    assert row["change"] == {"paste": paste, "undo": undo, "node": None}
    assert main(["advise", str(file)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_disks_with_the_same_settings_have_the_places_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = "-drive file=/vm/{0},format=raw,if=virtio,cache={1}"
    lines = (drive.format(n, mode) for n, mode in enumerate(("unsafe", "unsafe", "none", "none")))
    file = tmp_path / "v.service"
    file.write_text(
        "[Service]\nExecStart=/usr/bin/qemu-system-x86_64 -name v -m 1G \\\n  "
        + " \\\n  ".join(lines)
    )
    told = [row["reason"] for row in advised(capsys, str(file))["disks"]]
    assert all(
        any(f"`cache=` in line {number} of " in each for each in told) for number in (3, 4, 5, 6)
    )


PAST = (
    "<domainsnapshot><name>s</name><domain type='kvm'><name>g</name><devices><disk type='file' "
    "device='disk'><driver name='qemu' type='raw' cache='unsafe'/><source file='/a'/><target "
    "dev='vda' bus='virtio'/></disk></devices></domain></domainsnapshot>"
)
START = (
    "2025-01-01 07:00:00.000+0000: starting up libvirt version: 10.0.0\n/usr/bin/qemu-system-x86_64"
)
LOG = "".join(
    f"{START} -drive file=/a,if=virtio,format=raw,cache={m}\n" for m in ("unsafe", "none")
)


@pytest.mark.parametrize(
    ("name", "text", "action", "said"),
    [
        ("s.xml", PAST, "change", "no line is printed, as it is the definition of a snapshot"),
        ("g.log", LOG, "unknown", "An earlier start in this log was unsafe"),
    ],
)
def test_what_was_before_is_said_of_today(
    name: str, text: str, action: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    document = advised(capsys, str(tmp_path / name))
    (row,) = document["disks"]
    assert (row["action"], row["change"]) == (action, None)
    assert said in " ".join(document["sentences"])


@pytest.mark.parametrize(
    ("path", "action", "said"),
    [("raw/default", "change", "cache none"), ("raw/none", "keep", "no other setting is shown")],
)
def test_speeds_of_this_host_decide_only_if_the_disks_own_storage_is_like_it(
    path: str, action: str, said: str, store: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Of a copied file of another host: its command is for that host."""
    far = guest(tmp_path, path, "far", "/no/such/directory/far.img")
    document = advised(capsys, far)
    (row,) = document["disks"]
    assert (row["action"], row["directory"]) == (action, None)
    assert row["elsewhere"] is not None
    (planned,) = document["planned"]
    assert planned["stands_in"] == "node"
    assert planned["command"].endswith(" --dir /no/such/directory")
    assert main(["advise", far]) == 0
    out = " ".join(capsys.readouterr().out.split())
    where = row["elsewhere"]
    assert f" {action} if its storage is like {where}: {said}" in out
    assert f"* far vda: the speeds are those of {where}; the disk's own storage is not on" in out


@pytest.mark.parametrize("named", [(), ("--dir",)])
def test_an_image_that_is_not_here_is_not_measured_by_the_name_of_its_directory(
    named: tuple[str, ...], database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All hosts have /var/lib/libvirt/images. What --dir names stands in and is asked for once."""
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": list(SPEEDS), "directory": str(tmp_path)},
    )
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    far = guest(tmp_path, "raw/none", "far", f"{tmp_path}/far.img")
    where = [*named, str(tmp_path)] if named else []
    document = advised(capsys, far, *where)
    (row,) = document["disks"]
    assert (row["action"], row["elsewhere"]) == ("keep", str(tmp_path))
    assert [plan["stands_in"] for plan in document["planned"]] == ([] if named else ["node"])
    assert main(["advise", far, *where]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"keep raw/none, if its storage is like {tmp_path}: no other setting is shown" in out
    assert "the disk's own storage is not on this host, and was not measured" in out
    with_image(tmp_path / "far.img")
    assert main(["advise", far, *where]) == 0
    assert "if its storage is like" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("device", "here", "stands_in"),
    [("/dev/vdisklab-none", False, "node"), ("/dev/vdisklab-here", True, "kind")],
)
def test_a_device_is_measured_on_a_spare_one_and_that_answers(
    device: str, here: bool, stands_in: str, database: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before, the same command was printed again after each measurement."""
    monkeypatch.setattr("vdisklab.answers.disks.is_visible_device", lambda _path: here)
    file = guest(tmp_path, "none", "db", device)
    document = advised(capsys, file)
    (row,), (plan,) = document["disks"], document["planned"]
    assert (row["action"], plan["stands_in"]) == ("unknown", stands_in)
    assert plan["command"].endswith(" --on DEVICE") or " --on DEVICE " in plan["command"]
    assert main(["advise", file]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ("run this, then" in out, "on the host that has its storage" in out) == (here, not here)
    spare = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": ["none", "writeback"], "devices": ["/dev/spare"],
              "directory": str(tmp_path), "profile": "quick"},
    )  # fmt: skip
    database.write(runs(speeds={"none": 0.5, "writeback": 0.9}), campaigns=[spare])
    document = advised(capsys, file)
    (row,) = document["disks"]
    assert (row["action"], row["to"], row["elsewhere"]) == ("change", "writeback", "/dev/spare")
    assert document["planned"] == []
    assert main(["advise", file]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "* db vda: if its storage is like /dev/spare: change to writeback: it is between " in out
    assert ("the disk's own device holds its data, and was not measured" in out) is here


def test_a_database_that_the_environment_names_need_not_exist_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "later.sqlite"))
    (row,) = advised(capsys, guest(tmp_path, "raw/none", "g"))["disks"]
    assert row["action"] == "unknown"
    assert not (tmp_path / "later.sqlite").exists()


def test_a_read_only_disk_on_unknown_storage_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "1.conf"
    file.write_text("name: one\nvirtio0: fast:vm-1-disk-0,cache=unsafe,ro=1\n")
    (row,) = advised(capsys, str(file))["disks"]
    assert (row["action"], row["change"]) == ("keep", None)


CLAIMS = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web}
spec: {template: {spec: {domain: {devices: {disks: [
  {name: root, disk: {bus: virtio}}, {name: blk, disk: {bus: virtio}}]}},
  volumes: [{name: root, persistentVolumeClaim: {claimName: file}},
            {name: blk, persistentVolumeClaim: {claimName: block}}]}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: file}
spec: {volumeMode: Filesystem}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: block}
spec: {volumeMode: Block}
"""
BOUND_TO_CSI = f"""{CLAIMS.replace("Filesystem}", "Filesystem, volumeName: pv2}")}---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: pv2}}
spec: {{csi: {{driver: ebs.csi.aws.com}}}}
"""
NFS = "nfs: nas\n\tserver 10.0.0.5\n\texport /srv/vm\n\tpath /mnt/pve/nas\n"
VOLUMES = "name: p\nscsihw: virtio-scsi-single\nscsi0: fast:vm-1-disk-0\nscsi1: gone:vm-1-disk-1\n"


@pytest.mark.parametrize(
    ("name", "text", "stand_ins"),
    [
        ("vm.yaml", BOUND_TO_CSI, ["storage"]),
        ("1.conf", VOLUMES, ["storage"]),
        ("incus.yaml", INCUS.replace(", io.cache: unsafe", ""), []),
        ("1.conf", "name: n\nvirtio0: nas:1/vm-1-disk-0.qcow2\n", ["node"]),
    ],
)
def test_each_unknown_ends_with_one_command_and_its_time(
    name: str, text: str, stand_ins: list[str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / name).write_text(text)
    (tmp_path / "storage.cfg").write_text("lvmthin: fast\n\tvgname v\n\tthinpool t\n" + NFS)
    monkeypatch.setattr("vdisklab.answers.advise.cannot_build", lambda *_: None)
    names = [str(tmp_path / name)]
    names += [str(tmp_path / "storage.cfg")] if name.endswith(".conf") else []
    document = advised(capsys, *names)
    planned = document["planned"]
    assert [plan["stands_in"] for plan in planned] == stand_ins
    assert all(plan["command_seconds"] > 0 and "DEVICE" not in plan["command"] for plan in planned)
    unknown = [row for row in document["disks"] if row["action"] == "unknown"]
    unseen = [row for row in unknown if row["disk"]["unseen"] and not row["measurable"]]
    assert len(unknown) == len(planned) + len(unseen), "the first sentence has theirs"
    for plan in planned:
        _, verb, *arguments = plan["command"].split()
        paths = [word for word in arguments[: arguments.index("--baseline")] if "/" in word]
        assert (verb, arguments.count("--dir")) == ("run", plan["stands_in"] == "node")
        assert len({parse_path(path) for path in paths}) > 1
    assert main(["advise", *names]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "DEVICE" not in out
    assert [line for line in lines if line.startswith("vdisklab run ")] == [
        plan["command"] for plan in planned
    ]
    before = [lines[lines.index(plan["command"]) - 1] for plan in planned]
    timed = ("(about ", "; about ", "(usually under ", "; usually under ")
    assert all(any(time in line for time in timed) for line in before)
    assert all(line.startswith("# to ") and " paths " in line for line in before)
    named = [
        f"{row['disk']['domain']} {row['disk']['target']}" for row in unknown if row not in unseen
    ]
    assert all(any(f" for {disk}" in line for line in before) for disk in named)
    assert out.count(": run the command below") == len(planned)


@pytest.mark.parametrize(
    ("name", "text", "disks", "command"),
    [
        ("vm.yaml", CLAIMS, "web root, web blk", "kubectl get vm,pvc,dv,pv -A -o yaml"),
        ("1.conf", VOLUMES, "p scsi0, p scsi1", "scp root@NODE:/etc/pve/storage.cfg ."),
        ("incus.yaml", INCUS, "web root", "incus storage list --format yaml > pools.yaml"),
    ],
)
def test_the_first_sentence_says_whose_storage_is_unknown_and_what_reads_it(
    name: str, text: str, disks: str, command: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Of `audit` and `advise`, on the terminal and in JSON; and it is said once."""
    (tmp_path / name).write_text(text)
    for verb in ("audit", "advise"):
        assert main([verb, str(tmp_path / name), "--why"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        first = said.partition(f"`{command}")[0]
        assert first.count(". ") == 0
        assert f"; the storage of {disks} is unknown: run " in first
        assert said.count(f"`{command}") == 1
        assert main([verb, str(tmp_path / name), "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert f"`{command}" in document["sentences"][0]
        assert all(command in row["disk"]["unseen"] for row in document["disks"])


BOUND = """---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv1}
spec:
  local: {path: /mnt/disks/ssd1}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
    {key: kubernetes.io/hostname, operator: In, values: [node1]}]}]}}
"""


def test_a_disk_on_a_nodes_local_volume_is_measured_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the directory of the workstation on which the question was asked."""
    file = tmp_path / "vm.yaml"
    file.write_text(CLAIMS.replace("Filesystem}", "Filesystem, volumeName: pv1}") + BOUND)
    (planned,) = advised(capsys, str(file))["planned"]
    assert planned["stands_in"] == "node"
    assert " --dir /mnt/disks/ssd1" in planned["command"]
    assert "qcow2" not in planned["command"], "KubeVirt opens every file as raw"
    assert main(["advise", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    above = lines[lines.index(planned["command"]) - 1]
    assert above.startswith("# to find the best of ")
    usually, most = (format_duration(planned[key]) for key in ("seconds_usually", "seconds"))
    assert f" for web root (usually under {usually}, at most {most}, until " in above
    said = "run this on node1, with vdisklab and a copy of what was read here, then "
    assert above.endswith(f"{said}`vdisklab advise {file}` there:")
    monkeypatch.setattr("sys.argv", ["/opt/x/vdisklab", "advise", str(file), "--db", "here.sqlite"])
    assert main(["advise", str(file)]) == 0
    there = capsys.readouterr().out
    assert planned["command"] in there.splitlines(), (
        "this host's program and database are not there"
    )
    assert " ".join(lines).count("not measured yet") == 1, "in the table"


@pytest.mark.parametrize(
    ("copied", "named", "node"),
    [
        ("link", "", "alpha"),
        ("link", "qemu-server", "alpha"),
        ("link", "qemu-server/1.conf", "alpha"),
        ("copy", "", "alpha"),
        ("copy", "qemu-server", ""),
    ],
)
def test_a_guest_of_a_copied_cluster_is_on_the_node_of_its_file(
    copied: str, named: str, node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """/etc/pve/qemu-server is a link to the node's own directory; `cp -L` makes it another one.

    On the node nothing has to be copied, and this host's own guests are measured here.
    """
    monkeypatch.setattr("vdisklab.answers.advise.cannot_build", lambda *_: "not in this kernel")
    of_node, twice = tmp_path / "nodes/alpha/qemu-server", tmp_path / "qemu-server"
    of_node.mkdir(parents=True)
    (of_node / "1.conf").write_text("name: n\nvirtio0: fast:vm-1-disk-0\n")
    (tmp_path / "storage.cfg").write_text("lvmthin: fast\n\tvgname v\n\tthinpool t\n")
    if copied == "link":
        twice.symlink_to(of_node.relative_to(tmp_path))
    else:
        shutil.copytree(of_node, twice)
    given = str(tmp_path / named)
    (row,) = advised(capsys, given, "--profile", "quick")["disks"]
    assert row["disk"]["source"] == "/dev/v/vm-1-disk-0"
    monkeypatch.setattr("sys.argv", ["vdisklab", "advise", given, "--profile", "quick"])
    assert main(["advise", given, "--profile", "quick"]) == 0
    out = capsys.readouterr().out
    whole = f"`vdisklab advise {given} --profile quick` there:"
    assert ("run this on alpha, with vdisklab, then `vdisklab advise --profile quick` there:" in
            out) is bool(node)  # fmt: skip
    assert (f"copy of what was read here, then {whole}" in out) is not bool(node)
    monkeypatch.setattr(
        "vdisklab.inspection.existing_guests.os.uname",
        lambda: SimpleNamespace(nodename="alpha.example.org"),
    )
    assert main(["advise", given]) == 0
    assert "run this on alpha" not in capsys.readouterr().out


def test_a_claim_on_nfs_is_measured_where_its_node_mounts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "vm.yaml"
    on_nfs = BOUND_TO_CSI.replace("csi: {driver: ebs.csi.aws.com}", "nfs: {server: nas, path: /vm}")
    file.write_text(on_nfs)
    (planned,) = advised(capsys, str(file))["planned"]
    assert planned["stands_in"] == "node"
    assert planned["command"].endswith(" --dir DIR")
    assert main(["advise", str(file)]) == 0
    out = capsys.readouterr().out
    assert "DIR is the directory of its image there" in out
    assert f"then `vdisklab advise {file} --dir DIR` there:" in out
    assert "48 times" not in out, "NFS has no volumeMode Block"
    assert main(["advise", str(file), "--profile", "postgresql"]) == 0
    quick = capsys.readouterr().out
    assert "run this on the host that has its storage, then `vdisklab advise " in quick
    assert f"advise {file} --profile postgresql-short --dir DIR` there:" in quick


@pytest.mark.parametrize("is_mounted_here", [True, False])
def test_the_directory_that_the_next_advise_names_answers(
    is_mounted_here: bool, database: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As the printed command says; of the claim itself only where its server is mounted."""
    file = tmp_path / "vm.yaml"
    on_nfs = BOUND_TO_CSI.replace("csi: {driver: ebs.csi.aws.com}", "nfs: {server: nas, path: /vm}")
    file.write_text(on_nfs)
    paths = ["raw/none/virtio:discard=unmap", "raw/writeback/virtio:discard=unmap"]
    measured = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": paths, "directory": str(tmp_path), "profile": "quick"},
    )
    database.write(runs(speeds=dict.fromkeys(paths, 0.5)), campaigns=[measured])
    source = "nas:/vm" if is_mounted_here else "other:/vm"
    mount = Mount(tmp_path, "nfs4", source, frozenset({"rw"}))
    monkeypatch.setattr(mounts, "mount_of", lambda _path: mount)
    row = advised(capsys, str(file), "--dir", str(tmp_path))["disks"][-1]
    assert row["disk"]["source"] == "nas:/vm/disk.img"
    assert row["action"] == "keep"
    assert row["elsewhere"] == (None if is_mounted_here else str(tmp_path))


@pytest.mark.parametrize(
    ("volume", "stands_in", "reason", "said"),
    [
        (
            "fast:vm-1-disk-0", "node", "it cannot be measured on this host (lvmthin: ",
            "its layers are built on a file there, or with --on DEVICE on a spare device, which is "
            "overwritten), run this on the host that has its storage, with vdisklab and a copy of "
            "what was read here",
        ),
        ("nas:1/vm-1-disk-0.raw", "node", "none of its paths has been measured on this host",
         "run this on the host that has its storage, with vdisklab and a copy of what was read"),
        ("nowhere:vm-1-disk-0", None, "its storage 'nowhere' is not in storage.cfg",
         "run `pvesm status` on the guest's node"),
    ],
)  # fmt: skip
def test_images_decide_nothing_for_a_disk_whose_storage_cannot_be_measured(
    volume: str, stands_in: str | None, reason: str, said: str, store: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A layer that this kernel lacks, storage of a server, storage of which nothing is known."""
    monkeypatch.setattr(
        "vdisklab.answers.advise.cannot_build",
        lambda _, kind: "not in this kernel" if kind is LayerKind.LVMTHIN else None,
    )
    (tmp_path / "1.conf").write_text(f"name: n\nvirtio0: {volume},aio=threads,detect_zeroes=0\n")
    (tmp_path / "storage.cfg").write_text("lvmthin: fast\n\tvgname v\n\tthinpool t\n" + NFS)
    document = advised(capsys, str(tmp_path))
    (row,) = document["disks"]
    assert row["action"] == "unknown", "a local image was measured, and its storage was not"
    assert row["reason"].startswith(reason)
    assert [plan["stands_in"] for plan in document["planned"]] == [stands_in][: bool(stands_in)]
    assert main(["advise", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    if stands_in is not None:
        (plan,) = document["planned"]
        assert ("lvmthin" in plan["command"]) is ("lvmthin" in row["path"])
        assert f"{row['reason'].partition(' (')[0]}" in out or "not measured yet" in out


SERVERS = """<domain><name>n</name><devices>
<disk type="network"><driver type="raw" cache="none"/><source protocol="rbd" name="p/v"/>
<target dev="vda" bus="virtio"/></disk>
<disk type="network"><driver type="raw" cache="none"/><source protocol="iscsi" name="iqn.x:t/1">
<host name="san"/></source><target dev="vdb" bus="virtio"/></disk>
<disk type="network"><driver type="raw" cache="none"/><source protocol="nbd" name="e">
<host name="nbd"/></source><target dev="vdc" bus="virtio"/></disk>
<disk type="network"><driver type="raw" cache="none"/><source protocol="nfs" name="/x/y.raw">
<host name="nas"/></source><target dev="vdd" bus="virtio"/></disk></devices></domain>"""


def test_no_local_image_keeps_a_disk_of_a_server(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table says what to run for each; the command has the profile that was asked for."""
    (tmp_path / "n.xml").write_text(SERVERS)
    arguments = [str(tmp_path / "n.xml"), "--profile", "quick"]
    document = advised(capsys, *arguments)
    assert [row["action"] for row in document["disks"]] == ["unknown"] * 4
    assert {row["reason"] for row in document["disks"]} == {"its server was not measured"}
    planned = document["planned"]
    assert [plan["stands_in"] for plan in planned] == ["server"] * 4
    kept = [text for text in document["sentences"] if "keep" in text]
    assert [text.partition(":")[0] for text in kept] == ["Power cut"], "settings alone say it"
    assert main(["advise", *arguments, "--why"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    for place, plan in enumerate(planned, 1):
        argv = shlex.split(plan["command"])
        kind = ("rbd", "iscsi", "nbd", "libnfs")[place - 1]
        assert argv[argv.index("--target") + 1].startswith(f"my{kind}=")
        assert argv[argv.index("--profile") + 1] == "quick"
        paths = argv[2 : argv.index("--profile")]
        assert len(paths) > 1
        assert all(path.startswith(f"my{kind}/") for path in paths)
        disk = f"n vd{'abcd'[place - 1]}"
        assert re.search(
            f"{disk}  *unknown  *its server was not measured: run command {place}", out
        )
        above = lines[lines.index(plan["command"]) - 1]
        assert above.startswith(f"# command {place}: to find the best of {len(paths)} paths for ")
        assert f" for {disk} on its server (usually under " in above
        disks = {"rbd": "an RBD image", "iscsi": "the number of a LUN", "nbd": "an export"}
        spare = f"SPARE is {disks.get(kind)} there that nothing uses, never the guest's: it is "
        assert (f"{spare}overwritten" in above) is (kind != "libnfs")


def test_the_command_that_an_unknown_disk_waits_for_is_printed_at_once(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its row said `run command 2 (--why prints it)`, below stood the command of a kept disk."""
    (tmp_path / "n.xml").write_text(SERVERS)
    plan = {**CAMPAIGN.plan, "cells": list(SPEEDS), "directory": "/proc"}
    here = replace(CAMPAIGN, host=machine_facts(LocalHost()), plan=plan)
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    kept = guest(tmp_path, "raw/none")
    assert advised(capsys, kept)["planned"], "to find out if it is kept on its own file system"
    assert main(["advise", kept, str(tmp_path / "n.xml")]) == 0
    out = capsys.readouterr().out
    assert re.search("web vda .*keep ", out)
    assert re.search("n vda .*unknown .* run the command below", out)
    (command,) = (line for line in out.splitlines() if line.startswith("vdisklab run "))
    assert "myrbd/" in command


def test_one_command_comes_first_and_the_others_with_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several: the first that runs on this host, with its time; each row says where its is."""
    (tmp_path / "n.xml").write_text(SERVERS)
    here = guest(tmp_path, "raw/none")
    arguments = ["advise", str(tmp_path / "n.xml"), here, "--profile", "postgresql"]
    monkeypatch.setattr("sys.argv", ["vdisklab", *arguments])
    assert main(arguments) == 0
    out = capsys.readouterr().out
    commands = [line for line in out.splitlines() if line.startswith("vdisklab run ")]
    assert len(commands) == 1
    assert f"--dir {tmp_path}" in commands[0]
    later = next(line for line in out.splitlines() if line.startswith("# then 9 more commands, of"))
    again = re.search("`vdisklab (.*)` prints them$", later)
    assert again is not None
    assert re.search("web vda .* run the command below", out)
    assert re.search(r"n vda .* run command 2 \(--why prints it\)", out)
    assert main(shlex.split(again[1])) == 0
    whole = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("vdisklab run ") for line in whole) == 10
    spare = "SPARE is the number of a LUN there that nothing uses, never the guest's"
    quick = next(line for line in whole if line.startswith("# command 3, a quick look first"))
    assert spare in quick, "before the first command that overwrites it, not the second"
    assert "run this on a host that reaches the server" in quick


def test_an_answer_names_its_load_unless_the_user_did(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Someone with a database would take the answer for theirs."""
    said = "Measured with profile quick; for a database's commits ask `vdisklab advise "
    file = guest(tmp_path, "raw/none")
    for arguments, is_said in (([file], True), ([file, "--profile", "quick"], False)):
        assert main(["advise", *arguments]) == 0
        assert (said in " ".join(capsys.readouterr().out.split())) is is_said


def test_a_quick_look_comes_before_a_database_of_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its time, what it does not tell, and the command that answers from it."""
    file = guest(tmp_path, "raw/none")
    monkeypatch.setattr("sys.argv", ["vdisklab", "advise", file, "--profile", "postgresql"])
    (plan,) = advised(capsys, file, "--profile", "postgresql")["planned"]
    assert main(["advise", file, "--profile", "postgresql"]) == 0
    lines = capsys.readouterr().out.splitlines()
    quick = next(line for line in lines if line.startswith("# a quick look first (about "))
    command = lines[lines.index(quick) + 1]
    assert shlex.split(command) == [
        "postgresql-short" if word == "postgresql" else word
        for word in shlex.split(plan["command"])
    ]
    assert "as profile postgresql, but with 150 MB of data, which the guest's memory" in quick
    assert quick.endswith(f"then `vdisklab advise {file} --profile postgresql-short`:")
    minutes = re.search(r"about (\d+) min", quick)
    assert minutes is not None
    assert int(minutes[1]) * 60 < plan["command_seconds"] / 10
    test = "`vdisklab powercut ext4/raw/none --access guest --client postgresql` simulates the cut"
    assert any(test in line for line in lines), "whether its commits survive"
    later = lines[lines.index(command) + 1]
    assert later.startswith("# then one more command, of about ")
    again = f"vdisklab advise {file} --profile postgresql --why"
    assert later.endswith(f" h: `{again}` prints it") or later.endswith(
        f" min: `{again}` prints it"
    )
    assert main(again.split()[1:]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index(command) + 1].startswith("# in full: to find the best of ")
    assert lines[lines.index(command) + 2] == plan["command"]
    for word in ("quick", "mariadb"):
        assert main(["advise", file, "--profile", word]) == 0
        assert "quick look" not in capsys.readouterr().out


def test_a_database_that_this_host_lacks_is_said_above_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = LocalHost.which
    monkeypatch.setattr(
        LocalHost, "which", lambda host, name: None if "mariadb" in name else found(host, name)
    )
    files = [guest(tmp_path, path, name) for path, name in (("raw/none", "a"), ("lvm/none", "b"))]
    assert main(["advise", *files, "--profile", "mariadb"]) == 0
    out = capsys.readouterr().out
    assert out.count("# the data to measure cannot be made: mariadbd is not installed: ") == 1
    assert main(["plan", "raw/none", "--profile", "mariadb", "--dir", str(tmp_path)]) == 0
    note = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("*"))
    assert note.startswith("* `run` will refuse: the data to measure cannot be made: mariadbd is")


@pytest.mark.parametrize(
    ("speeds", "action", "to"),
    [((0.5, 0.8), "change", "nbd/raw/none"), ((0.8, 0.5), "keep", None)],
)
def test_what_was_measured_on_its_server_answers_for_a_disk(
    speeds: tuple[float, float], action: str, to: str | None, database: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As the printed command promises: then advise again."""
    (tmp_path / "n.xml").write_text(
        SERVERS.replace('"raw" cache="none"/><source protocol="nbd"',
                        '"raw" cache="writeback"/><source protocol="nbd"')
    )  # fmt: skip
    cells = {
        "host": 1.0,
        "nbd:at=mynbd/raw/writeback": speeds[0],
        "nbd:at=mynbd/raw/none": speeds[1],
    }
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={
            **CAMPAIGN.plan, "profile": "quick", "cells": list(cells),
            "target": ["mynbd=nbd://nbd/spare"],
        },
    )  # fmt: skip
    database.write(runs(speeds=cells), campaigns=[here])
    document = advised(capsys, str(tmp_path / "n.xml"))
    (row,) = [row for row in document["disks"] if row["disk"]["target"] == "vdc"]
    assert (row["action"], row["to"]) == (action, to)
    assert row["campaign"] == CAMPAIGN.id
    assert len(document["planned"]) == 3, "the others were not measured"
    if to is not None:
        assert "driver.cache=none" in row["change"]["paste"]


def test_a_campaign_whose_directory_has_gone_keeps_no_disk_of_a_mounted_server(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As any campaign that was imported: nobody knows on which storage its images were."""
    gone = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "profile": "quick", "directory": "/no/such/place",
              "cells": ["raw/none", "raw/writeback"]},
    )  # fmt: skip
    database.write(runs(speeds={"raw/none": 0.8, "raw/writeback": 0.5}), campaigns=[gone])
    mounted = tmp_path / "nas"
    (mounted / "images/1").mkdir(parents=True)
    (mounted / "images/1/vm-1-disk-0.raw").touch()
    (tmp_path / "1.conf").write_text(
        "name: n\nvirtio0: nas:1/vm-1-disk-0.raw,aio=threads,detect_zeroes=0,cache=none\n"
    )
    (tmp_path / "storage.cfg").write_text(NFS.replace("/mnt/pve/nas", str(mounted)))
    mount = Mount(mounted, "nfs4", "10.0.0.5:/srv/vm", frozenset({"rw"}))
    monkeypatch.setattr(mounts, "mount_of", lambda _source: mount)
    document = advised(capsys, str(tmp_path))
    (row,), (plan,) = document["disks"], document["planned"]
    assert (row["action"], row["far"]) == ("unknown", True)
    assert f"--dir {mounted}/images/1" in plan["command"]


def test_a_disk_is_kept_or_changed_by_what_was_measured(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, good = guest(tmp_path, "raw/default", "slow"), guest(tmp_path, "raw/none", "good")
    document = advised(capsys, slow, good)
    change, keep = document["disks"]
    assert document["sentences"][0] == "2 disks: change 1, keep 1"
    assert (change["action"], change["path"], change["to"]) == (
        "change",
        "raw/default",
        "raw/none",
    )
    assert change["gain"]["ratio"] == pytest.approx(1.6, rel=0.05)
    assert change["gain"]["low"] > 1
    said = " ".join(document["sentences"])
    assert re.search(r"change to (ext4/)?raw/none: it is [^;]*[56]\d % faster", said), said
    lines = change["change"]
    assert lines["paste"].endswith("--disk driver.cache=none,driver.io=threads")
    assert lines["undo"].startswith("virsh define slow.vda.before-")
    assert keep["action"] == "keep"
    assert keep["other"] != keep["path"]
    assert f"the best other is {keep['other']}, " in " ".join(document["sentences"])
    assert keep["to"] is None
    assert keep["change"] is None


def test_a_disk_that_loses_data_is_made_safe_and_the_cost_is_said(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/unsafe"))
    (group,) = document["disks"]
    assert group["for_safety"]
    assert group["power_cut"]["kind"] == "lost-by-construction"
    assert group["then"]["kind"] == "not-tested"
    assert group["gain"]["ratio"] < 0.7
    said = " ".join(document["sentences"])
    assert re.search(r"it passes flushes on \(untested\); it is between 4\d and 4\d % slower", said)


# A fifth of a second for each of 24; each commit tries the noise of one seed.
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))]
)
@pytest.mark.parametrize("bus", ["", "/scsi"])
@pytest.mark.parametrize("form", ["raw", "qcow2"])
@pytest.mark.parametrize("rounds", [3, 7])
def test_a_tie_changes_nothing_in_how_a_disk_is_made_safe(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, bus: str,
    seed: int, rounds: int,
) -> None:  # fmt: skip
    """One answer for one disk: of `advise`, also before it was measured, and of `recommend`."""
    now, other = f"{form}/unsafe{bus}", "raw" if form == "qcow2" else "qcow2"
    file = guest(tmp_path, now)
    database.write((), campaigns=())
    (before,) = advised(capsys, file)["disks"]
    names = (now, f"{form}/none{bus}", f"{form}/writeback{bus}", f"{other}/none{bus}")
    paths = tuple(str(parse_path(name)) for name in names)
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "baseline": paths[0], "cells": list(paths)},
    )
    world = World(paths, (1.0,) * 4, (0.5,) * 4, (rounds,) * 4, seed, has_host=False)
    database.write(world.runs(), campaigns=[here])
    (after,) = advised(capsys, file)["disks"]
    assert main(["recommend", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["choice"]["verdict"] == "safer"
    assert after["campaign"] == CAMPAIGN.id
    assert before["to"] == after["to"] == found["path"] == f"{form}/none{bus}"
    assert before["change"] == after["change"]


def test_the_cost_of_safety_is_measured_with_what_the_disk_would_be_changed_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No adjacent path of an unsafe NVMe disk keeps flushed data."""
    document = advised(capsys, guest(tmp_path, "qcow2/unsafe/nvme"))
    (row,), (plan,) = document["disks"], document["planned"]
    assert row["action"] == "change"
    assert {"qcow2/unsafe/nvme", row["to"]} <= set(plan["command"].split())


def test_a_disk_that_no_line_can_change_is_not_measured_again_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is measured, a running instance of KubeVirt keeps its settings."""
    machine = tmp_path / "vmi.yaml"
    machine.write_text(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: web}\n"
        "spec:\n  domain: {devices: {disks: [{name: root, disk: {bus: virtio}},"
        " {name: lost, disk: {bus: virtio}}]}}\n"
        "  volumes: [{name: root, hostDisk: {path: /srv/web.img}}]\n"
    )
    document = advised(capsys, str(machine))
    assert document["planned"] == []
    reasons = {group["path"]: group["reason"] for group in document["disks"]}
    assert reasons["raw/none/virtio:discard=unmap"] == (
        "vdisklab prints lines for a VirtualMachine, and this is a VirtualMachineInstance: "
        "name a VirtualMachine, `kubectl get vm,pvc,dv,pv -o yaml`"
    )


def test_a_disk_that_needs_no_flush_never_gets_one_that_does(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group,) = advised(capsys, guest(tmp_path, "qcow2/writethrough"))["disks"]
    assert (group["action"], group["to"]) == ("change", "qcow2/directsync")


def test_a_conversion_is_named_beside_the_setting(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group,) = advised(capsys, guest(tmp_path, "qcow2/none"))["disks"]
    assert group["action"] != "change"
    assert group["rebuilt"] is None or group["rebuilt"].startswith("raw/none")


@pytest.mark.parametrize(
    ("present", "needed"),
    [("raw/none/sata", "the driver of virtio in the guest"), ("qcow2/none", "a converted image")],
)
def test_what_a_better_path_needs_is_said(
    database: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    present: str,
    needed: str,
) -> None:
    speeds = {"host": 1.0, present: 0.2, present.replace("none", "writeback"): 0.2, "raw/none": 0.8}
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": list(speeds)},
    )
    database.write(runs(speeds=speeds), campaigns=[here])
    assert main(["advise", guest(tmp_path, present)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"but needs {needed}: `vdisklab export raw/none` writes its configuration." in out


def test_an_empty_image_is_no_conversion(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reads of what was never written need no disk; a converted image has the guest's data."""
    speeds = {
        "host": 1.0,
        "raw/none": 0.8,
        "qcow2:preallocation=off/none": 1.6,
        "raw/writeback": 0.7,
    }
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": list(speeds)},
    )
    database.write(runs(speeds=speeds), campaigns=[here])
    (group,) = advised(capsys, guest(tmp_path, "raw/none"))["disks"]
    assert (group["action"], group["rebuilt"]) == ("keep", None)


def test_what_was_not_measured_is_planned(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/none/sata"))
    (group,), (planned,) = document["disks"], document["planned"]
    assert (group["action"], group["measurable"]) == ("unknown", True)
    assert planned["seconds"] > 60
    assert planned["command"].startswith("vdisklab run raw/none/sata raw/writeback/sata ")
    assert f"--dir {tmp_path}" in planned["command"]
    assert "--page-cache cold --baseline raw/none/sata" in planned["command"]
    assert planned["seconds_at_least"] < 600 < planned["seconds_usually"] < planned["seconds"]


def test_images_in_memory_are_measured_from_the_page_cache(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/writeback/sata"), "--dir", "/dev/shm")  # noqa: S108
    (planned,) = document["planned"]
    assert "--page-cache warm" in planned["command"]


def test_the_default_cache_mode_is_not_measured_again_under_its_other_name(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (planned,) = advised(capsys, guest(tmp_path, "qcow2/default/sata"))["planned"]
    assert "qcow2/none/sata" in planned["command"]
    assert "qcow2/writeback/sata" not in planned["command"]


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.nightly)])
def test_thousands_of_disks_are_one_group(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    disk = "<disk type='file'><source file='/nonexistent/{}.img'/><target dev='vd{}' bus='virtio'/>"
    disks = "".join(f"{disk.format(number, number)}</disk>" for number in range(count))
    (tmp_path / "all.xml").write_text(f"<domain><name>n</name><devices>{disks}</devices></domain>")
    assert main(["advise", str(tmp_path / "all.xml")]) == 0
    out = capsys.readouterr().out
    assert f"{count} disks: change {count}" in out
    assert f"… and {count - 12} more disks" in out


def test_each_reason_why_a_disk_cannot_be_measured(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lies.img").write_bytes(b"QFI\xfb" + bytes(4096))
    other = "aarch64" if platform.machine() != "aarch64" else "x86_64"
    arm = Path(guest(tmp_path, "raw/none", "arm"))
    arm.write_text(arm.read_text().replace('arch="x86_64"', f'arch="{other}"'))
    files = [
        guest(tmp_path, "raw/none", "lies"), str(arm), guest(tmp_path, "zvol/none", "device",
        "/dev/nonexistent"),
    ]  # fmt: skip
    document = advised(capsys, *files)
    found = {row["disk"]["domain"]: row for row in document["disks"]}
    assert {name: (row["action"], row["measurable"]) for name, row in found.items()} == {
        "lies": ("unknown", False), "arm": ("unknown", False), "device": ("unknown", False),
    }  # fmt: skip
    assert found["lies"]["reason"].startswith(
        "it is configured as raw, and its file begins like qcow2: "
    )
    machines = f"its guest is {other} and this host is {platform.machine()}: ask on a host"
    assert machines in found["arm"]["reason"]
    assert found["device"]["reason"] == "the layers of its device are not known on this host"
    (plan,) = document["planned"]  # no measurement says anything of what is wrong otherwise
    assert plan["stands_in"] == "node"
    assert " --on DEVICE" in plan["command"]


def test_a_disk_that_an_arm_guest_may_not_see_is_named(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volumes = "volumes:\n      - {name: root, containerDisk: {image: demo}}"
    machine = (
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: vm}\nspec:\n"
        "  template:\n    spec:\n      architecture: arm64\n      domain:\n        devices:\n"
        f"          disks: [{{name: root, disk: {{bus: sata}}}}]\n      {volumes}\n"
    )
    (tmp_path / "vm.yaml").write_text(machine)
    (tmp_path / "100.conf").write_text("arch: aarch64\nname: pve\nsata1: other:vm-1,size=8G\n")
    assert main(["advise", str(tmp_path / "vm.yaml"), str(tmp_path / "100.conf"), "--why"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "change does not start, as KubeVirt refuses" in out
    assert "set cache none" not in out
    assert "KubeVirt refuses the bus sata on arm64, so the guest does not start with it now" in out
    assert "pve sata1: A guest of aarch64 may not see it: it is on SATA" in out


def test_a_read_only_disk_gets_no_advice(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xml = Path(guest(tmp_path, "raw/unsafe", "reader"))
    xml.write_text(xml.read_text().replace("</disk>", "<readonly/></disk>"))
    (group,) = advised(capsys, str(xml))["disks"]
    assert (group["action"], group["reason"]) == ("keep", "it is read-only, and loses nothing")


def test_no_guest_file_is_opened_for_writing(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "web.img"
    image.write_bytes(bytes(1 << 20))
    os.utime(image, (1, 1))
    image.chmod(0o400)
    advised(capsys, guest(tmp_path, "raw/default"))
    assert image.stat().st_mtime == 1


def test_a_directory_without_a_guest_says_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", str(tmp_path)]) == PlanError.exit_code
    assert "holds no configuration of a guest (.xml" in capsys.readouterr().err
    (tmp_path / "net.xml").write_text("<network/>")
    assert main(["advise", str(tmp_path)]) == PlanError.exit_code
    assert "not a libvirt domain: its root is <network>" in capsys.readouterr().err


def test_a_directory_skips_what_is_no_guest(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "guests"
    directory.mkdir()
    guest(directory, "raw/none")
    (directory / "net.xml").write_text("<network/>")
    document = advised(capsys, str(directory))
    assert len(document["disks"]) == 1
    (note,) = document["notes"]
    assert "not a libvirt domain" in note


def test_a_host_without_guests_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no guest was found on this host"):
        read_host(LocalHost(), tmp_path)


def test_this_hosts_guests_are_found(tmp_path: Path) -> None:
    proxmox, libvirt = tmp_path / "etc/pve", tmp_path / "etc/libvirt/qemu"
    (proxmox / "qemu-server").mkdir(parents=True)
    (proxmox / "storage.cfg").write_text("dir: local\n\tpath /srv\n")
    (proxmox / "qemu-server/7.conf").write_text("name: mail\nvirtio0: local:7/a.qcow2\n")
    libvirt.mkdir(parents=True)
    guest(libvirt, "raw/none", "web")
    (tmp_path / "a.img").touch()
    for number, name in enumerate(("web", "hand", "vdlTest", "vdisklab-4ca7c6d3-5,debug=on")):
        arguments = ("/usr/bin/qemu-system-x86_64", "-name", f"guest={name}", "-hda", "a.img")
        make_process(tmp_path / "proc", number + 10, arguments, cwd=tmp_path)
    found = read_host(LocalHost(), tmp_path)
    assert sorted((disk.domain, disk.platform.value) for disk in found.disks) == [
        ("hand", "qemu"), ("mail", "proxmox"), ("web", "libvirt"),
    ]  # fmt: skip
    (hand,) = [disk for disk in found.disks if disk.domain == "hand"]
    assert hand.source == str(tmp_path / "a.img")


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ("-hda {}", "qcow2/default/ide"),
        ("-drive file={},if=virtio", "qcow2/default"),
        ("-drive file={},if=virtio,format=raw", "raw/default"),
        ("-drive file={},if=none,id=d -device virtio-blk-pci,drive=d", "qcow2/default"),
    ],
)
def test_without_a_format_qemu_finds_that_of_the_file(
    tmp_path: Path, arguments: str, path: str
) -> None:
    image, guests = tmp_path / "a.img", tmp_path / "web.cmdline"
    image.write_bytes(b"QFI\xfb" + bytes(600))
    guests.write_text("qemu-system-x86_64 " + arguments.format(image))
    (disk,) = read_disks(LocalHost(), [guests], None).disks
    assert str(disk.path) == path
    image.unlink()
    (disk,) = read_disks(LocalHost(), [guests], None).disks
    assert (disk.path is None) == ("format" not in arguments)
    assert disk.problem is None or "names no format" in disk.problem


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["missing.xml"], PlanError.exit_code, "cannot be read"),
        (["--db", "none.sqlite", "GUEST"], DatabaseError.exit_code, "there is no database"),
        (["GUEST", "--campaign", "nothing"], DatabaseError.exit_code, "nothing"),
    ],
)
def test_bad_input_ends_in_a_sentence(
    arguments: list[str], status: int, said: str, store: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = guest(tmp_path, "raw/none")
    assert main(["advise", *(file if word == "GUEST" else word for word in arguments)]) == status
    assert said in capsys.readouterr().err


def test_a_place_that_cannot_be_measured_is_named_with_the_reason(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.touch()
    arguments = (guest(tmp_path, "raw/none/sata"), "--measure", "--dir", str(place))
    document = advised(capsys, *arguments, status=EXIT_CELLS_FAILED)
    assert document["planned"] == []
    said = f"raw/none/sata cannot be measured in {place}: the work directory"
    assert said in " ".join(document["notes"])


def test_a_stack_that_cannot_be_built_does_not_keep_others_from_being_measured(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What a trial shows is said of its command; what the kernel lacks is for another host."""

    def trial(_store: object, request: Request, *_: object, **__: object) -> Measured:
        if str(request.baseline).startswith("lvm/"):
            raise HostError("host layer lvm is not available", hint="install it")
        return Measured(CAMPAIGN.id)

    kinds = (LayerKind.ZVOL,)
    monkeypatch.setattr(
        "vdisklab.answers.advise.cannot_build",
        lambda _host, kind: "not in this kernel" if kind in kinds else None,
    )
    monkeypatch.setattr(advise, "measure", trial)
    guests = [
        guest(tmp_path, "zvol/none/sata", "z", "/dev/zvol/tank/z"),
        guest(tmp_path, "raw/none/sata", "f"),
    ]
    (tmp_path / "1.conf").write_text("name: l\nsata0: san:vm-1-disk-0,size=8G\n")
    (tmp_path / "storage.cfg").write_text("lvm: san\n\tvgname san\n\tcontent images\n")
    arguments = (*guests, str(tmp_path / "1.conf"), "--dir", str(tmp_path))
    planned = advised(capsys, *arguments)["planned"]
    first = [(plan["command"].split()[2].partition("/")[0], plan["stands_in"]) for plan in planned]
    assert sorted(first) == [("lvm", None), ("raw", None), ("zvol", "node")]
    document = advised(capsys, *arguments, "--measure", status=EXIT_CELLS_FAILED)
    rows = {row["path"].partition("/")[0]: row for row in document["disks"]}
    reason = "it cannot be measured on this host (zvol: not in this kernel)"
    assert rows["zvol"]["reason"] == reason
    left = [plan for plan in document["planned"] if plan["stands_in"] is None]
    assert [plan["command"].split()[2] for plan in left] == ["raw/none/sata"]
    (failed,) = (note for note in document["notes"] if "cannot be measured" in note)
    assert failed.startswith("lvm/none/sata")


def test_a_named_file_finds_the_storages_and_says_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "qemu-server").mkdir()
    (tmp_path / "storage.cfg").write_text(f"dir: local\n\tpath {tmp_path}\n")
    file = tmp_path / "qemu-server/100.conf"
    file.write_text(
        "efidisk0: local:100/e.raw\nide2: local:cloudinit\nname: m\ntpmstate0: local:100/t.raw\n"
        "unused0: local:100/u.raw\nvirtio0: local:100/a.raw\n\n[before]\nname: m\n"
    )
    document = advised(capsys, str(file))
    assert [row["disk"]["source"] for row in document["disks"]] == [f"{tmp_path}/images/100/a.raw"]
    assert document["notes"] == [
        "Left out: EFI variables, TPM state, cloud-init, unused volumes, snapshots."
    ]


@pytest.mark.parametrize(
    ("plan", "rounds", "continued"),
    [
        ({"profile": "short", "baseline": "raw/none"}, 5, False),
        ({"profile": "short", "baseline": "raw/none"}, 18, True),
        ({"profile": "quick", "baseline": "raw/none"}, 18, True),
        ({"profile": "mine", "baseline": "raw/none"}, 18, False),
        ({"profile": "short", "baseline": "host"}, 18, False),
    ],
)
def test_a_campaign_of_fewer_rounds_is_continued(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    plan: dict[str, str], rounds: int, *, continued: bool,
) -> None:  # fmt: skip
    """One that was interrupted after three rounds, or --rounds as the answer advised."""
    cells = [f"{path} (cold)" if "default" in path else path for path in SPEEDS]
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, **plan, "cells": cells},
    )
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    document = advised(capsys, guest(tmp_path, "raw/none"), "--rounds", str(rounds))
    assert document["disks"][0]["action"] == "keep"
    assert bool(document["planned"]) == continued


@pytest.mark.parametrize(
    ("profiles", "asked", "measured_with", "said"),
    [
        (["postgresql-short"], (), "postgresql-short", ""),
        (["postgresql-short", "short"], (), None, ""),
        (["quick", "postgresql-short"], (), "quick", ""),
        (["postgresql-short"], ("--profile", "quick"), "quick", ""),
        (["boot"], (), None, ""),
        (["mine"], (), None, "measured with 'mine', which is a file: add --profile FILE to"),
    ],
)
def test_what_is_measured_for_a_disk_is_comparable_with_what_is_stored(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    profiles: list[str], asked: tuple[str, ...], measured_with: str | None, said: str,
) -> None:  # fmt: skip
    """The path was measured alone, the newest campaign first."""
    campaigns = [
        replace(
            CAMPAIGN,
            id=f"c{number:07d}",
            started=CAMPAIGN.started - timedelta(days=number),
            host=machine_facts(LocalHost()),
            plan={**CAMPAIGN.plan, "cells": ["raw/none", "host"], "profile": profile,
                  "directory": str(tmp_path)},
        )
        for number, profile in enumerate(profiles)
    ]  # fmt: skip
    alone = [run for run in runs(speeds=SPEEDS) if run.path in ("raw/none", "host")]
    database.write((), campaigns=campaigns)
    database.add(
        replace(run, id=f"{number}{run.id}", campaign=campaign.id)
        for number, campaign in enumerate(campaigns)
        for run in alone
    )
    disk = guest(tmp_path, "raw/none")
    (planned,) = advised(capsys, disk, *asked)["planned"]
    argv = shlex.split(planned["command"])
    assert ("--profile" in argv) == (measured_with is not None)
    assert measured_with is None or argv[argv.index("--profile") + 1] == measured_with
    assert main(["advise", disk, *asked]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert ("which is a file" in out) == bool(said)


@pytest.mark.parametrize(
    ("plan", "said"),
    [({"rounds": 5}, "measured in 2 of 5 rounds"), ({"race": RaceTerms().as_json()}, "too few")],
)
def test_a_measurement_of_two_rounds_is_said_with_the_command_that_continues(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    plan: dict[str, object], said: str,
) -> None:  # fmt: skip
    disk = guest(tmp_path, "raw/none/sata")
    (planned,) = advised(capsys, disk)["planned"]
    paths = shlex.split(planned["command"].partition(" --")[0])[2:]
    begun = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={
            **CAMPAIGN.plan, **plan, "cells": paths, "baseline": "raw/none/sata",
            "directory": str(tmp_path), "profile": DEFAULT_PROFILE,
        },
    )  # fmt: skip
    store.write(runs(2, dict.fromkeys(paths, 0.8)), campaigns=[begun])
    assert main(["advise", disk]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not measured yet" not in out
    assert out.count(said) == 2, "in the table, above the command"
    usually = format_duration(planned["seconds_usually"])
    assert f"; to continue (usually under {usually}, at most " in out
    assert out.endswith(planned["command"])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/proc", "measured in /proc, on another file system than this disk"),
        ("/nowhere", "measured in /nowhere, a directory that is gone, so perhaps on another file"),
        (None, ""),
    ],
)
def test_an_answer_from_another_file_system_is_said_and_measured_anew(
    place: str | None, said: str, database: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": list(SPEEDS), "directory": place or str(tmp_path)},
    )
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    arguments = guest(tmp_path, "raw/none"), "--dir", str(tmp_path)
    assert main(["advise", *arguments]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert ("if its storage is like" in out) is bool(place)
    assert bool(advised(capsys, *arguments)["planned"]) is bool(place)


def test_a_place_that_this_user_may_not_look_into_is_unknown_and_no_other_file_system(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A user without root was told as a fact that /root/qs is on another file system."""
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": list(SPEEDS), "directory": "/proc"},
    )
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    seen = guest(tmp_path, "raw/none")
    hidden = guest(tmp_path, "raw/none", "db", "/nowhere/db.img")

    def said(file: str) -> str:
        assert main(["advise", file]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "the disk's own storage is not on this host" in said(hidden)
    for module in ("advise", "disks"):
        monkeypatch.setattr(f"vdisklab.answers.{module}.is_out_of_sight", lambda _: True)
    found = said(seen)
    assert "measured in /proc, which cannot be seen as this user, so perhaps on another" in found
    assert "/proc, on another file system" not in found
    found = said(hidden)
    assert "the disk's own storage cannot be seen as this user, and was not measured" in found
    assert "is not on this host," not in found


@pytest.mark.parametrize(("discard", "grows"), [("", True), ("/virtio:discard=unmap", False)])
def test_a_thin_disk_to_keep_that_only_grows_is_said_as_audit_says_it(
    discard: str, grows: bool, database: Database, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """audit said `It only ever grows. Set discard=unmap`, and advise `keep` without a word."""
    plan = {**CAMPAIGN.plan, "cells": list(SPEEDS), "directory": str(tmp_path)}
    here = replace(CAMPAIGN, host=machine_facts(LocalHost()), plan=plan)
    database.write(runs(speeds=SPEEDS | {f"raw/none{discard}": 0.8}), campaigns=[here])
    image = tmp_path / "thin.img"
    with image.open("wb") as file:
        file.truncate(1 << 20)
    disk = guest(tmp_path, f"raw/none{discard}", image=str(image))

    def said(*arguments: str) -> str:
        assert main([*arguments]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert ("it only ever grows" in said("audit", disk)) is grows
    assert ("discard=unmap lets it shrink" in said("advise", disk)) is grows
    assert ("it only ever grows. Set discard" in said("advise", disk, "--why")) is grows


def test_the_best_other_setting_is_the_fastest_of_those_in_doubt(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"host": 1.0, "raw/writeback": 0.7, "raw/none": 0.8,
              "raw/none/virtio:aio=io_uring": 0.9, "raw/none/virtio:iothread=on": 1.4}  # fmt: skip
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "cells": list(speeds)},
    )
    database.write(runs(3, speeds, noise=1.0), campaigns=[here])
    (group,) = advised(capsys, guest(tmp_path, "raw/writeback"))["disks"]
    assert group["action"] == "keep"
    assert group["other"] == "raw/none/virtio:iothread=on"
    assert group["gain"]["ratio"] > 1


INSTANCE = """\
name: web
architecture: x86_64
type: virtual-machine
config: {image.os: Ubuntu}
devices:
  agent: {source: 'agent:config', type: disk}
  setup: {source: /srv/iso/debian.iso, type: disk}
  root: {path: /, pool: default, type: disk MORE}
---
name: default
driver: dir
config: {source: /var/lib/incus/storage-pools/default}
"""


def test_an_instance_of_incus_is_measured_with_its_other_cache_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its aio mode follows: no line of Incus sets one alone."""
    file = tmp_path / "instance.yaml"
    file.write_text(INSTANCE.replace(" MORE", ""))
    document = advised(capsys, str(file), "--dir", str(tmp_path))
    assert document["disks"][0]["measurable"]
    command = document["planned"][0]["command"]
    present = "raw/none/scsi:aio=io_uring:discard=unmap"
    assert f"vdisklab run {present} raw/writeback/scsi:discard=unmap " in command
    assert "qcow2" not in command, "Incus makes none"
    assert "iothread" not in command
    zfs = file.with_name("zfs.yaml")
    zfs.write_text(INSTANCE.replace(" MORE", "").replace("driver: dir", "driver: zfs"))
    (on_zfs,) = advised(capsys, str(zfs))["planned"]
    assert "aio=io_uring" not in on_zfs["command"], "no default of Incus on ZFS either"
    (elsewhere,) = advised(capsys, str(file))["planned"]
    assert elsewhere["stands_in"] == "node", "its pool is not on this host"
    pool = "/var/lib/incus/storage-pools/default"
    assert elsewhere["command"].endswith(f" --dir {pool}/virtual-machines/web")
    file.write_text(INSTANCE.replace(" MORE", ", io.cache: unsafe"))
    (group,) = advised(capsys, str(file), "--dir", str(tmp_path))["disks"]
    assert (group["action"], group["to"]) == ("change", present)
    assert group["change"]["paste"] == "incus config device set web root io.cache=none"


def test_an_interrupted_measurement_is_said(
    store: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advise, "measure", lambda *_, **__: Measured(CAMPAIGN.id, interrupted=True))
    arguments = (guest(tmp_path, "raw/none/sata"), "--measure", "--dir", str(tmp_path))
    document = advised(capsys, *arguments, status=EXIT_INTERRUPTED)
    assert document["notes"][0].startswith("Interrupted: ")


def test_what_quickstart_measured_answers_for_libvirts_default(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image that is not here is judged as libvirt makes one; a change of the cache mode makes
    no other image, so what it gains is that of an allocated one, as an image in use is."""
    speeds = {
        "host": 1.0, "raw/none": 0.8, "raw/writeback": 0.7, "qcow2/none": 0.75,
        "qcow2/writeback": 0.5, "qcow2:preallocation=off/default": 0.4,
    }  # fmt: skip
    cells = [f"{path} (cold)" if "write" in path else path for path in speeds]
    here = replace(
        CAMPAIGN, host=machine_facts(LocalHost()), plan={**CAMPAIGN.plan, "cells": cells}
    )
    database.write(runs(speeds=speeds), campaigns=[here])
    file = guest(tmp_path, "qcow2/default")
    (row,) = advised(capsys, file)["disks"]
    assert (row["action"], row["to"]) == ("change", "qcow2/none")
    assert row["standing"]["cell"] == "qcow2:preallocation=off/default (cold)"
    assert row["gain_over"].startswith("qcow2/writeback")
    assert row["gain"]["ratio"] == pytest.approx(0.75 / 0.5, rel=0.03)
    assert row["over_default"] is None, "two gains for one disk"


LIBVIRTS_DISK = (
    "<domain type='kvm'><name>web</name><os><type arch='x86_64'>hvm</type></os><devices><disk "
    "type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/gone/web.qcow2'/>"
    "<target dev='vda' bus='virtio'/></disk></devices></domain>"
)
"""What most guests of libvirt have: no cache mode is configured."""


def test_the_shipped_campaign_has_one_answer_for_libvirts_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rank` ties its paths, so `advise` keeps the disk; all give it one rank and one number."""
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "q.db"))
    assert main(["import", str(QUICKSTART)]) == 0
    file = tmp_path / "web.xml"
    file.write_text(LIBVIRTS_DISK)
    capsys.readouterr()
    (row,) = advised(capsys, str(file), "--campaign", "b7bd")["disks"]
    assert (row["action"], row["to"], row["over_default"]) == ("keep", None, None)
    assert row["gain"]["low"] < 1 < row["gain"]["high"]
    assert main(["audit", str(file), "--format", "json"]) == 0
    (audited,) = json.loads(capsys.readouterr().out)["disks"]
    assert audited["standing"] == row["standing"]
    assert main(["rank", "--format", "json"]) == 0
    cells = {cell["cell"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}
    ranked, standing = cells[row["standing"]["cell"]], row["standing"]
    assert standing["cell"] == "qcow2:preallocation=off/default (cold)"
    assert (standing["best"], standing["worst"]) == (
        ranked["place"]["best"],
        ranked["place"]["worst"],
    )
    assert standing["score"]["median"] == ranked["level"]["value"] == ranked["ratio"]["ratio"]
    assert main(["audit", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    made = "rank and score are those of qcow2:preallocation=off/default (cold), a new image as"
    assert f"{made} libvirt makes it." in said
    assert main(["advise", str(file), "--campaign", "b7bd"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    kept = f"measured as qcow2:preallocation=off/default, if its storage is like {row['elsewhere']}"
    assert f"{kept}: no other setting" in said
    assert "over qcow2/writeback (this disk once its image is allocated)" in said


def test_a_disk_whose_guest_gets_errors_is_said_before_one_that_is_paused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "thin.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "64T"], check=True)
    paths = {"a": "qcow2/none", "b": "qcow2/none/virtio:werror=report"}
    files = [guest(tmp_path, path, name, str(image)) for name, path in paths.items()]
    assert main(["advise", *files]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("* ")]
    assert notes[0].startswith("* b vda: The image may grow by ")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "raw/writeback/virtio:aio=native",
            "does not start, as io=native needs O_DIRECT, which writeback does not use; cache none",
        ),
        ("raw/unsafe/nvme", "cache directsync: keeps flushed data, its cost was not measured"),
        ("raw/unsafe", "cache none: keeps flushed data, its cost was not measured"),
    ],
)
def test_what_cannot_start_or_loses_data_is_to_change(
    path: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    file = guest(tmp_path, path)
    (row,) = advised(capsys, file)["disks"]
    assert row["action"] == "change"
    assert row["change"]["paste"]
    assert row["change"]["undo"]
    assert parse_path(row["to"]).cache.direct
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["advise", file]) == 0
    shown = capsys.readouterr().out
    table = " ".join(shown.split("\n\n")[1].split())
    assert says in table, "the reason is not cut"
    assert "…" not in table.partition(says)[0]


@pytest.mark.parametrize(
    ("document", "paste", "undo"),
    [
        (
            "- name: db\n  type: virtual-machine\n  devices:\n"
            "    data: {type: disk, pool: fast, source: d, io.cache: unsafe, io.bus: nvme}\n",
            "incus config device set db data io.cache=none io.bus=virtio-scsi",
            "incus config device set db data io.cache=unsafe io.bus=nvme",
        ),
        (
            "- name: db\n  type: virtual-machine\n  expanded_devices:\n"
            "    data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus config device override db data io.bus=virtio-scsi",
            "incus config device remove db data",
        ),
        (
            "config: {}\ntype: virtual-machine\ndevices:\n"  # as `incus config show db` prints it
            "  data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus config device set INSTANCE data io.bus=virtio-scsi",
            "incus config device set INSTANCE data io.bus=nvme",
        ),
        (
            "name: big\nconfig: {}\nused_by: [/1.0/instances/db]\ndevices:\n"
            "  data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus profile device set big data io.bus=virtio-scsi",
            "incus profile device set big data io.bus=nvme",
        ),
    ],
)
def test_incus_moves_an_nvme_disk_to_another_bus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str, paste: str, undo: str
) -> None:
    """It has no cache mode without a write cache, which NVMe would need."""
    guests, pools = tmp_path / "list.yaml", tmp_path / "pools.yaml"
    guests.write_text(document)
    pools.write_text("- name: fast\n  driver: zfs\n  config: {source: tank/incus}\n")
    (row,) = advised(capsys, str(guests), str(pools))["disks"]
    assert row["change"] == {"paste": paste, "undo": undo, "node": None}
    assert row["to"].startswith("zvol/none/scsi:aio=native")
    if "INSTANCE" not in paste:
        assert row["disk"]["guest"] == ("profile big" if "used_by" in document else "db")
    (alone,) = advised(capsys, str(guests))["disks"]
    assert alone["change"] == row["change"], "whatever its pool is"


@pytest.mark.parametrize("verb", ["advise", "audit"])
def test_a_database_that_is_not_there_can_be_left_out(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = guest(tmp_path, "raw/default")
    missing = tmp_path / "none.sqlite"
    assert main([verb, disk, "--db", str(missing)]) == DatabaseError.exit_code
    error = capsys.readouterr().err
    assert f"there is no database {missing}\nhint: leave out --db to " in error


def test_a_load_is_answered_only_by_its_own_replays(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.load"
    file.write_bytes(encode(load((0, IoKind.WRITE, 0, 4096, 90), (500, IoKind.FLUSH, 0, 0, 900))))
    of_profile = advised(capsys, guest(tmp_path, "raw/default"))
    assert of_profile["disks"][0]["campaign"] is not None
    of_load = advised(capsys, guest(tmp_path, "raw/default"), "--profile", str(file))
    (row,) = of_load["disks"]
    assert row["campaign"] is None
    (planned,) = of_load["planned"]
    assert f"--profile {file}" in planned["command"]


def test_a_profile_is_answered_only_by_campaigns_that_measured_with_it(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database's commits are another load than the stored campaign's four measurements."""
    disk = guest(tmp_path, "raw/default")
    stored = advised(capsys, disk, "--profile", "quick")
    assert stored["disks"][0]["campaign"] is not None
    of_commits = advised(capsys, disk, "--profile", "postgresql")
    (row,) = of_commits["disks"]
    assert row["campaign"] is None
    assert row["reason"].endswith("measured on this host with the profile postgresql")
    (planned,) = of_commits["planned"]
    assert "--profile postgresql" in planned["command"]


@pytest.mark.parametrize(
    ("names", "arguments", "sentence"),
    [
        (("web", "mail"), (), "--record records one guest, and 2 guests would be advised"),
        (("web",), ("--profile", "short"), "but --profile names another one"),
        (("web",), (), "no running guest is called web"),
    ],
)
def test_what_cannot_be_recorded(
    names: tuple[str, ...],
    arguments: tuple[str, ...],
    sentence: str,
    store: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guests = [guest(tmp_path, "raw/default", name) for name in names]
    assert main(["advise", *guests, "--record", "1s", *arguments]) != 0
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def virsh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A libvirt with the guests web and mail."""
    for name in ("web", "mail"):
        guest(tmp_path, "raw/default", name)
    program = tmp_path / "virsh"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *--uuid*) echo a; echo b ;;\n'
        f"*dumpxml*) cat {tmp_path}/web.xml {tmp_path}/mail.xml ;; *) exit 1 ;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def test_a_guest_is_named_without_its_file(
    store: Database, virsh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, "web", "--libvirt", "qemu:///system")
    (disk,) = document["disks"]
    assert "web.img" in str(disk)
    assert main(["advise", "wbe", "--libvirt", "qemu:///system"]) == PlanError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no file wbe, and no guest of that name with a hard disk" in said
    assert "the guests are mail, web;" in said


def test_a_name_that_neither_a_file_nor_a_guest_has(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "nobody"]) == PlanError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    # The tests beside this one may have a guest that runs meanwhile.
    assert re.search("(nobody is not a file|there is no file nobody), and no guest", said)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("path", ["raw/none", "raw/unsafe", "qcow2/none"])
def test_audit_and_advise_say_the_same_of_a_power_cut(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, there: bool
) -> None:
    """Verdicts of a file system count for the disks on it; what was tested is not to be tested."""
    host = collect_facts(LocalHost())
    kept = replace(CUT_KEPT, host=host)
    database.write(runs(speeds=SPEEDS), campaigns=[replace(CAMPAIGN, host=host)])
    image = parse_path(path).image
    assert image is not None
    kinds = ("ext4", "xfs", "btrfs")
    paths = [f"{kind}/{image}/none" for kind in kinds]
    paths += [f"{kind}/{image}:preallocation=off/none" for kind in kinds]
    database.add_power_cuts([replace(kept, id=f"c{n}", path=each) for n, each in enumerate(paths)])
    file = tmp_path / "web.img"
    if there:
        subprocess.run(["qemu-img", "create", "-q", "-f", str(image), file, "1M"], check=True)
    config = guest(tmp_path, path, image=str(file) if there else "/nowhere/web.img")
    said = []
    for verb in ("advise", "audit"):
        assert main([verb, config, "--db", database.url, "--format", "json"]) == 0
        (disk,) = json.loads(capsys.readouterr().out)["disks"]
        said.append({name: disk["power_cut"][name] for name in ("kind", "below", "elsewhere")})
    assert said[0] == said[1]
    assert main(["advise", config, "--db", database.url, "--why"]) == 0
    assert "vdisklab powercut" not in capsys.readouterr().out


def test_a_disk_in_doubt_has_the_command_that_settles_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script's settings in doubt are not measured: the running QEMU says what they are."""
    file = tmp_path / "vm.sh"
    for name in ("web.raw", "data.raw"):
        with_image(tmp_path / name)
    file.write_text(
        f"#!/bin/sh\n. {tmp_path}/gone.conf\nqemu-system-x86_64 -m 1G "
        f"-drive file={tmp_path}/web.raw,if=virtio,format=raw,cache=$CACHE "
        f"-drive file={tmp_path}/data.raw,if=virtio,format=raw,cache=none\n"
    )
    assert main(["advise", str(file)]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    assert "2 disks: unknown 2" in said
    assert said.count("run the command below while the guest runs") == 2
    assert "start the guest; while it runs, this reads on its host" in said
    assert not any(line.startswith("vdisklab run ") for line in out.splitlines())
    assert "vdisklab advise" in out.splitlines(), "alone, for all that runs here"


def test_a_guest_that_is_a_database_by_name_is_asked_for_its_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reads and writes of other programs would be taken for those of its commits."""
    for name, said in (
        ("pgdb1", "pgdb1 is a database by name: for commits ask `vdisklab advise "),
        ("web", "for a database's commits ask `vdisklab advise "),
    ):
        assert main(["advise", guest(tmp_path, "raw/none", name)]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"The command below measures with profile short; {said}" in out
        assert "--profile postgresql-short`" in out
    assert main(["advise", guest(tmp_path, "raw/none"), "--profile", "etcd"]) == 0
    assert "measures with profile" not in " ".join(capsys.readouterr().out.split())


def test_a_thin_image_is_measured_as_it_was_made_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`audit` looks for this very path after the command that `advise` prints."""
    image = tmp_path / "thin.img"
    with image.open("wb") as file:
        file.truncate(1 << 20)
    for source, is_thin in ((image, True), (None, False)):
        named = None if source is None else str(source)
        assert main(["advise", guest(tmp_path, "raw/none", image=named)]) == 0
        (command,) = [
            line
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("vdisklab run ")
        ]
        assert ("raw:preallocation=off/none" in shlex.split(command)) is is_thin


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("qemu-system-x86_64 -snapshot -drive file={0}/a.raw,format=raw,if=virtio,cache=unsafe",
         "g.sh"),
        ("qemu-system-x86_64 -drive file={0}/a.raw,format=raw,if=virtio,cache=unsafe,snapshot=on",
         "g.sh"),
        ("<domain type='kvm'><name>ci</name><devices><disk type='file' device='disk'>"
         "<driver name='qemu' type='raw' cache='unsafe'/><source file='{0}/a.raw'/>"
         "<target dev='vda' bus='virtio'/><transient/></disk></devices></domain>", "g.xml"),
        ("scsihw: virtio-scsi-single\nscsi0: {0}/a.raw,cache=unsafe,snapshot=1\nmemory: 512\n",
         "3.conf"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cache", ["unsafe", "none"])
def test_no_line_takes_away_the_overlay_of_writes_that_are_thrown_away(
    text: str, name: str, cache: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In QEMU's arguments a changed line would let the guest write into its golden image."""
    (tmp_path / "a.raw").write_bytes(bytes(4096))
    guest = tmp_path / name
    guest.write_text(
        text.format(tmp_path).replace("=unsafe", f"={cache}").replace("'unsafe'", f"'{cache}'")
    )
    assert main(["advise", str(guest), "--format", "json"]) == 0
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["advice"]["action"] == "keep"
    assert disk["advice"]["reason"] == "nothing it writes is meant to survive"
    assert disk["advice"]["change"] is None
    assert main(["advise", str(guest), "--why"]) == 0
    shown = capsys.readouterr().out
    assert "loses data" in shown
    assert "blockdev" not in shown
    assert "keeps flushed data" not in shown
    assert "# to " not in shown


def test_incus_takes_a_running_guests_disk_out_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(
        "name: web\ntype: virtual-machine\nstatus: Running\ndevices:\n"
        "  data: {source: /srv/a.img, type: disk, io.cache: unsafe}\n"
    )
    assert main(["advise", str(tmp_path / "web.yaml"), "--why"]) == 0
    shown = capsys.readouterr().out
    assert "stop each guest that has it first: a running one loses it at once" in shown
    assert "from its next start on" not in shown


def test_one_patch_has_all_changes_to_a_machine_of_kubevirt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The webhook refuses a patch that leaves another disk with a value that it refuses."""
    (tmp_path / "web.yaml").write_text(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: web, namespace: prod}\n"
        "spec:\n  template:\n    spec:\n      domain:\n        devices:\n          disks:\n"
        "          - {name: a, disk: {bus: sata}, dedicatedIOThread: true}\n"
        "          - {name: b, disk: {bus: virtio}, cache: unsafe}\n"
        "      volumes:\n"
        "      - {name: a, hostDisk: {path: /data/a.img, type: Disk}}\n"
        "      - {name: b, hostDisk: {path: /data/b.img, type: Disk}}\n"
    )
    assert main(["advise", str(tmp_path / "web.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("kubectl patch"))
    place = "/spec/template/spec/domain/devices/disks"
    operations = json.loads(shlex.split(line)[-1])
    assert {(each["op"], each["path"]) for each in operations} == {
        ("remove", f"{place}/0/dedicatedIOThread"), ("add", f"{place}/1/cache"),
    }  # fmt: skip
    (undo,) = (line for line in lines if line.startswith("#   undo: kubectl"))
    assert len(json.loads(shlex.split(undo.partition(": ")[2])[-1])) == 2
    assert "# web a, web b, from its next start on" in lines


def test_a_soft_mount_is_part_of_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "storage.cfg").write_text(
        "nfs: nas\n\texport /e\n\tpath /mnt/pve/nas\n\tserver 10.0.0.5\n\toptions soft\n"
    )
    guest = tmp_path / "101.conf"
    guest.write_text(
        "name: web\nmemory: 512\nscsihw: virtio-scsi-single\nscsi0: nas:101/vm-101-disk-0.raw\n"
    )
    assert main(["advise", str(guest), str(tmp_path / "storage.cfg")]) == 0
    assert "soft mount; " in capsys.readouterr().out


def test_no_reason_begins_with_an_empty_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "db.yaml").write_text(
        "name: db\ntype: virtual-machine\ndevices:\n"
        "  d: {source: /srv/a.img, type: disk, io.cache: unsafe, io.bus: nvme}\n"
    )
    assert main(["advise", str(tmp_path / "db.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "cache none, bus scsi" in shown
    assert " ; " not in shown
