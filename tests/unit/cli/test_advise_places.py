"""Where `vdisklab advise` has a disk measured: here, on its node, on its server, on a stand-in."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.advise_guests import INCUS, SERVERS, SPEEDS, advised, guest, with_image
from tests.unit.cli.test_advice import runs
from tests.unit.stored import Database
from vdisklab.actions.measure import Measured
from vdisklab.cli import advise
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CELLS_FAILED, HostError
from vdisklab.host import mounts
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.host.mounts import Mount
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import LayerKind
from vdisklab.plan.settings import Request
from vdisklab.units import format_duration
from vdisklab.value import replace


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
    monkeypatch.setattr("vdisklab.answers.advice_by_campaigns.cannot_build", lambda *_: None)
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
    monkeypatch.setattr(
        "vdisklab.answers.advice_by_campaigns.cannot_build", lambda *_: "not in this kernel"
    )
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
    rows = advised(capsys, str(file), "--dir", str(tmp_path))["disks"]
    (row,) = [row for row in rows if row["disk"]["source"] == "nas:/vm/disk.img"]
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
        "vdisklab.answers.advice_by_campaigns.cannot_build",
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
    assert {text.partition(":")[0] for text in kept} == {"Power cut"}, "settings alone say it"
    assert all("only if the server does" in text for text in kept)
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
        reason = f"its server was not measured: run command {place}"
        assert re.search(f"{disk}  *unknown  *by server  *{reason}", out)
        above = lines[lines.index(plan["command"]) - 1]
        assert above.startswith(f"# command {place}: to find the best of {len(paths)} paths for ")
        assert f" for {disk} on its server (usually under " in above
        disks = {"rbd": "an RBD image", "iscsi": "the number of a LUN", "nbd": "an export"}
        spare = f"SPARE is {disks.get(kind)} there that nothing uses, never the guest's: it is "
        assert (f"{spare}overwritten" in above) is (kind != "libnfs")


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
        "vdisklab.answers.advice_by_campaigns.cannot_build",
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
    for module in ("advice_by_campaigns", "disks"):
        monkeypatch.setattr(f"vdisklab.answers.{module}.is_out_of_sight", lambda _: True)
    found = said(seen)
    assert "measured in /proc, which cannot be seen as this user, so perhaps on another" in found
    assert "/proc, on another file system" not in found
    found = said(hidden)
    assert "the disk's own storage cannot be seen as this user, and was not measured" in found
    assert "is not on this host," not in found
