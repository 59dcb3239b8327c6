"""Which disks `vdisklab advise` keeps, and which it changes, by what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.answers.test_one_decision import World
from tests.unit.cli.advise_guests import SPEEDS, advised, guest
from tests.unit.cli.test_advice import runs
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.path.disk_path import parse_path
from vdisklab.value import replace

QUICKSTART = Path(__file__).parents[3] / "docs/images/quickstart.json.gz"


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


def test_a_throttled_disk_is_kept_and_not_compared(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/default/virtio:throttle_iops=500"))
    (row,) = document["disks"]
    assert (row["action"], row["gain"], document["planned"]) == ("keep", None, [])
    assert "safe; its own limits hold it back (throttle_iops=500)" in row["reason"]


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
    assert f" {action} untested if its storage is like {where}: {said}" in out
    assert f"* far vda: the speeds are those of {where}; the disk's own storage is not on" in out


def test_a_read_only_disk_on_unknown_storage_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "1.conf"
    file.write_text("name: one\nvirtio0: fast:vm-1-disk-0,cache=unsafe,ro=1\n")
    (row,) = advised(capsys, str(file))["disks"]
    assert (row["action"], row["change"]) == ("keep", None)


def test_an_answer_names_its_load_unless_the_user_did(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Someone with a database would take the answer for theirs."""
    said = "Measured with profile quick; for a database's commits ask `vdisklab advise "
    file = guest(tmp_path, "raw/none")
    for arguments, is_said in (([file], True), ([file, "--profile", "quick"], False)):
        assert main(["advise", *arguments]) == 0
        assert (said in " ".join(capsys.readouterr().out.split())) is is_said


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


def test_a_read_only_disk_gets_no_advice(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xml = Path(guest(tmp_path, "raw/unsafe", "reader"))
    xml.write_text(xml.read_text().replace("</disk>", "<readonly/></disk>"))
    (group,) = advised(capsys, str(xml))["disks"]
    assert (group["action"], group["reason"]) == ("keep", "it is read-only, and loses nothing")


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
