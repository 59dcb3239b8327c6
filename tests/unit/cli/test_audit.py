"""`vdisklab audit` at the edge: standings, risks, needs, and sentences for what cannot be read."""

from __future__ import annotations

import io
import itertools
import json
import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.analysis.made import CAMPAIGN, HOST
from tests.unit.answers.test_one_decision import World
from tests.unit.cli.test_advice import CUT_LOST, answer, runs
from tests.unit.platforms.test_every_option import PATHS
from tests.unit.results.test_power_cut import LOST
from tests.unit.stored import Database, stored
from vdisklab.analysis.diagnostics.caveats import caveats_of
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.disks import (
    ClaimedCache,
    DisksAnswer,
    ExistingDisk,
    MeasuredPaths,
    differences,
    is_alike,
    unlikeness,
)
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CELLS_FAILED, HostError, PlanError
from vdisklab.host.blockdevice import device_of
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts, machine_facts
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import HostDisk
from vdisklab.path.segments import LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import DiskContext
from vdisklab.platforms.registry import forms
from vdisklab.platforms.request import ExportRequest
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.views import audit as view

NETWORK = """<domain><name>far</name><devices><disk type='network'>
<source protocol='rbd' name='p/i'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def domains(tmp_path: Path) -> list[str]:
    files: list[str] = []
    for text in ("ext4/qcow2/none", "raw/unsafe"):
        file = tmp_path / f"{len(files)}.xml"
        wish = ExportRequest(parse_path(text), "/nonexistent/a.img", "web")
        file.write_text(forms()["libvirt"].write(wish).text)
        files.append(str(file))
    (tmp_path / "far.xml").write_text(NETWORK)
    return [*files, str(tmp_path / "far.xml"), "--db", str(tmp_path / "results.sqlite")]


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["audit", *arguments, "--format", "json"]) == 0
    disks: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["disks"]
    return disks


SCSI = """<domain type='kvm'><name>db</name><os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices>
<disk type='file'><driver name='qemu' type='raw' cache='none' error_policy='ignore'/>
<source file='/nonexistent/a.img'/><target dev='sda' bus='scsi'/></disk>
<disk type='file'><driver name='qemu' type='raw' cache='none' error_policy='stop'/>
<source file='/nonexistent/b.img'/><target dev='sdb' bus='scsi'/></disk>
<disk type='file'><driver name='qemu' type='raw' cache='none' error_policy='ignore'/>
<source file='/nonexistent/c.img'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>"""


def test_a_database_that_only_the_environment_names_may_be_missing(
    domains: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_DB", str(Path(domains[-1]).with_name("later.sqlite")))
    assert len(audited(capsys, domains[0])) == 1
    assert main(["audit", domains[0], "--db", "typed.sqlite"]) == 7
    assert "leave out --db" in capsys.readouterr().err


def test_a_disk_is_judged_by_its_error_policy_whatever_its_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """libvirt adds a controller that no path has; the policy is QEMU's, one setting mends it."""
    (tmp_path / "db.xml").write_text(SCSI)
    needs = ("--need", "survives-errors", "--need", "survives-full", "--need", "snapshots")
    arguments = (str(tmp_path / "db.xml"), *needs, "--db", str(tmp_path / "no.sqlite"))
    ignoring, stopping, virtio = audited(capsys, *arguments[:-2])
    assert ignoring["path"] is None
    assert set(ignoring["lacks"]) == {"survives-errors", "survives-full"}
    for why in ignoring["lacks"].values():
        assert why.endswith("; set error_policy='stop' and rerror_policy='stop' in its <driver>")
    assert (stopping["lacks"], list(stopping["undecided"])) == ({}, ["snapshots"])
    assert virtio["instead"].endswith("virtio:rerror=stop:werror=stop")
    assert main(["audit", *arguments[:3], "--why"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Leave the setting out" not in said
    assert "Set error_policy='stop' and rerror_policy='stop' in its <driver>: QEMU then" in said
    nearest = "The nearest path that meets all needs: raw/none/virtio:rerror=stop:werror=stop"
    assert f"{nearest}; set error_policy='stop' and rerror_policy='stop' in its <driver>." in said


def test_each_disk_says_which_need_it_lacks(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "results.sqlite")) as store:
        store.add_campaign(CAMPAIGN)
    good, bad, far = audited(capsys, *domains, "--need", "durable", "--need", "format=qcow2")
    assert (good["lacks"], good["undecided"]) == ({}, {})
    assert good["instead"] is None
    assert bad["lacks"] == {
        "durable": "cache mode unsafe drops flushes", "format=qcow2": "its format is raw",
    }  # fmt: skip
    assert bad["instead"] == "qcow2/none"
    assert (far["path"], far["disk"]["source"]) == ("rbd/default", "rbd:p/i")
    assert far["lacks"] == {"format=qcow2": "it has no image format"}


@pytest.mark.parametrize(
    ("need", "offer"),
    [
        ("discard", "The nearest path that meets all needs: raw/none/virtio:discard=unmap."),
        ("cache=unsafe", "The nearest path that meets all needs: ext4/qcow2/unsafe, but it "
         "loses flushed data in a power cut: cache mode unsafe drops flushes."),
        ("cache=directunsafe", "No path of libvirt meets all these needs."),
    ],
)  # fmt: skip
def test_an_unsafe_path_is_offered_only_to_those_who_ask_for_it(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, need: str, offer: str
) -> None:
    with open_store(str(tmp_path / "results.sqlite")) as store:
        store.add_campaign(CAMPAIGN)
    assert main(["audit", *domains, "--need", need]) == 0
    assert offer in " ".join(capsys.readouterr().out.split())


def test_stored_power_cuts_decide(
    domains: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "results.sqlite")) as store:
        store.add_campaign(CAMPAIGN)
        here = collect_facts(LocalHost())
        store.add_power_cut(replace(LOST, path="ext4/qcow2/none", host=here))
    good, *_ = audited(capsys, *domains, "--need", "durable")
    assert "power cuts" in good["lacks"]["durable"]
    assert good["instead"] not in (None, "ext4/qcow2/none")


def test_unknown_layers_leave_a_need_open(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "far.xml"
    wish = ExportRequest(parse_path("ext4/raw/none"), "/nonexistent/a.img", "web")
    noted = forms()["libvirt"].write(wish).text
    file.write_text(re.sub(r"<metadata>.*</metadata>", "", noted, flags=re.DOTALL))
    arguments = (str(file), "--need", "layer=lvm", "--need", "snapshots", "--need", "durable")
    with open_store(str(tmp_path / "results.sqlite")):
        pass
    db = ("--db", str(tmp_path / "results.sqlite"))
    (disk,) = audited(capsys, *arguments, "--need", "format=qcow2", *db)
    unknown = "the host layers of /nonexistent/a.img are unknown"
    assert (list(disk["undecided"]), list(disk["lacks"])) == (
        ["layer=lvm", "snapshots"], ["format=qcow2"],
    )  # fmt: skip
    assert disk["undecided"]["layer=lvm"] == f"it has no host layer, and {unknown}"
    assert main(["audit", *arguments, *db]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"It is unknown whether it meets layer=lvm: it has no host layer, and {unknown}." in out
    assert "layer=lvm (unknown)" in out
    assert "does not meet" not in out
    file.write_text(noted)  # its note says which layers it has
    (disk,) = audited(capsys, *arguments, *db)
    assert list(disk["lacks"]) == ["layer=lvm", "snapshots"]


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
    assert "No path of libvirt meets all these needs." in " ".join(capsys.readouterr().out.split())
    assert main(["audit", *domains, "--need", "fast"]) == PlanError.exit_code
    assert "unknown need 'fast'" in capsys.readouterr().err


@pytest.fixture
def store(database: Database) -> Database:
    database.write(runs())
    return database


def exported(tmp_path: Path, text: str) -> str:
    file = tmp_path / f"{text.replace('/', '_')}.xml"
    file.write_text(
        forms()["libvirt"].write(ExportRequest(parse_path(text), "/srv/none.img", "web")).text
    )
    return str(file)


def test_an_audited_disk_has_its_standing(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [exported(tmp_path, text) for text in ("raw/default", "qcow2/none/ide")]
    other = Path(files[1])  # with an image of its own
    named = re.compile("(<source file=['\"])[^'\"]+")
    other.write_text(named.sub(r"\1/srv/other.qcow2", other.read_text()))
    first, second = answer(capsys, "audit", *files)["disks"]
    assert first["path"] == "raw/default"
    assert first["standing"]["exact"] is True
    assert first["standing"]["better"] == "raw/none"
    assert first["standing"]["gain"]["ratio"] == pytest.approx(1.6, rel=0.05)
    assert second["standing"] is None
    assert [risk["kind"] for risk in second["risks"]] == ["durable-once-flushed", "slow-bus"]
    assert main(["audit", *files]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"measured on the host {HOST.hostname}, not on this machine." in out
    assert second["nearest"]["cell"] == "qcow2/none"
    nearest = "the nearest measured path is qcow2/none (rank "
    assert f"web hda: not measured in campaign {CAMPAIGN.id}; {nearest}" in out
    assert first["to_measure"] is None
    assert f"To measure it beside another setting: {second['to_measure']}" in out
    (plan,) = answer(capsys, "advise", files[1])["planned"]
    paths = plan["command"].split()[2:4]
    said = f"`vdisklab run {' '.join(paths)} --dir /srv`, on the host that has its image"
    assert second["to_measure"] == said, "one rule for both verbs"
    assert paths == ["qcow2/none/ide", "qcow2/writeback/ide"]


def test_a_command_that_this_host_cannot_run_is_not_printed(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One line says what it lacks for all such disks; `doctor` says how to mend it."""
    (tmp_path / "storage.cfg").write_text("lvm: san\n\tvgname san\n\tcontent images\n")
    (tmp_path / "1.conf").write_text(
        "name: l\nvirtio0: san:vm-1-disk-0,size=8G\nvirtio1: san:vm-1-disk-1,size=8G\n"
    )
    lacking = {LayerKind.LVM: "not in this kernel; not installed: lvcreate"}
    monkeypatch.setattr("vdisklab.answers.audit.lacks_layer", lambda _host, kind: lacking.get(kind))
    disks = answer(capsys, "audit", str(tmp_path / "1.conf"))["disks"]
    assert [row["path"] for row in disks] == ["lvm/none/virtio:aio=native:detect_zeroes=on"] * 2
    assert [row["to_measure"] for row in disks] == [None] * 2
    assert main(["audit", str(tmp_path / "1.conf"), "--why"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    said = "here: lvm: not in this kernel; not installed: lvcreate (`vdisklab doctor`)"
    assert out.count(f"{said}; advise, instead of audit, has the command for its host") == 1
    assert "vdisklab run" not in out
    lacking.clear()
    disks = answer(capsys, "audit", str(tmp_path / "1.conf"))["disks"]
    assert all("`vdisklab run lvm/none/" in row["to_measure"] for row in disks)


def test_an_older_campaign_that_measured_the_disk_is_named(
    database: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also if the newest one measured other paths; not if no measurement is of such storage."""
    here = machine_facts(LocalHost())
    new = replace(CAMPAIGN, host=here, plan={**CAMPAIGN.plan, "cells": ["raw/none", "host"]})
    old = replace(
        new, id="01d01d01", started=CAMPAIGN.started - timedelta(days=1),
        plan={**CAMPAIGN.plan, "cells": ["qcow2/none", "host"]},
    )  # fmt: skip
    database.write((), campaigns=[new, old])
    database.add(run for run in runs() if run.path in ("raw/none", "host"))
    database.add(
        replace(run, id=f"0{run.id}", campaign=old.id)
        for run in runs()
        if run.path in ("qcow2/none", "host")
    )
    file = exported(tmp_path, "qcow2/none")
    assert main(["audit", file]) == 0
    out = " ".join(capsys.readouterr().out.split())
    command = f"vdisklab audit {file} --campaign {old.id}"
    assert f"not measured in campaign {new.id}, but in {old.id}: `{command}`." in out
    assert main([*shlex.split(command)[1:], "--format", "json"]) == 0
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["standing"]["exact"] is True
    monkeypatch.setattr("sys.stdin", io.StringIO(Path(file).read_text()))
    assert main(["audit", "-"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"but in {old.id}: pipe the same into `vdisklab audit - --campaign {old.id}`." in out
    without = [DiskContext(without_flushes="nobarrier")]
    monkeypatch.setattr("vdisklab.answers.audit.read_contexts", lambda _disks: without)
    assert main(["audit", file]) == 0
    assert "--campaign" not in capsys.readouterr().out, "nor would that campaign answer"
    (disk,) = audited(capsys, file)
    assert disk["to_measure"] is None, "no path is measured without flushes"


def test_a_guest_that_does_not_start_keeps_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.conf"
    file.write_text("memory: 512\nvirtio0: /srv/a.raw,aio=native,cache=writeback\n")
    for verb in ("audit", "advise"):
        assert main([verb, str(file), "--format", "json"]) == 0
        said = json.loads(capsys.readouterr().out)
        (disk,) = said["disks"]
        assert any(risk["kind"] == "aio-conflict" for risk in disk["risks"])
        assert disk["power_cut"] is None
        assert "durable once" not in " ".join(said["sentences"])


def test_storage_that_nobody_saw_is_not_compared(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = str(Path(__file__).parents[2] / "data/guests/machine.yaml")
    disks = answer(capsys, "audit", machine)["disks"]
    unseen = [row for row in disks if row["disk"]["unseen"] and row["path"]]
    assert unseen
    for row in unseen:
        assert (row["standing"], row["nearest"], row["to_measure"]) == (None, None, None)
    assert main(["audit", machine]) == 0
    assert "not measured" not in capsys.readouterr().out


def test_a_default_that_the_disk_spells_out_is_no_other_path(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    disk = exported(tmp_path, "raw/writeback")
    (found,) = answer(capsys, "audit", disk)["disks"]
    assert found["standing"]["cell"] == "raw/default (cold)"
    assert (found["standing"]["exact"], found["standing"]["differs"]) == (True, [])
    assert main(["audit", disk, "--why"]) == 0
    assert "this very path was not measured" not in capsys.readouterr().out


def test_a_disk_that_loses_data_is_ranked_beside_the_only_one_that_does_not() -> None:
    """`rank` has no rows then: one path alone has no rank."""
    world = World(("raw/unsafe", "raw/none"), (0.5, 1.0), (0.01, 0.01), (4, 4), seed=1)
    with stored(world.runs(), campaigns=[CAMPAIGN]) as store:
        measured = MeasuredPaths(Analysis.of(store, [CAMPAIGN.id]))
        path = parse_path("raw/unsafe")
        lossy = measured.closest(path)
        assert lossy is not None
        (durable,) = (each for each in measured.cells if each != lossy)
        standing = measured.standing(path, lossy, [durable])
    assert (standing.best, standing.worst, standing.cells) == (2, 2, 2)
    assert standing.better == durable
    assert standing.gain is not None


@pytest.mark.parametrize(
    ("directory", "source", "cell_path", "place"),
    [
        ("own", "own/web.raw", "raw/none", "raw/none"),
        ("own", "own/below/web.raw", "raw/none", "raw/none"),
        ("own", "own/web.raw", "ext4/raw/none", "ext4/raw/none"),
        ("/proc", "own/web.raw", "raw/none", "ext4/raw/none"),
        ("own", "/nowhere/web.raw", "raw/none", "ext4/raw/none"),
    ],
)
def test_a_disk_that_was_measured_in_its_own_directory_has_the_layers_of_that(
    tmp_path: Path, directory: str, source: str, cell_path: str, place: str
) -> None:
    """Its file system is no difference then."""
    (tmp_path / "own/below").mkdir(parents=True)
    if source.startswith("own"):
        (tmp_path / source).touch()
    plan = {**CAMPAIGN.plan, "directory": str(tmp_path / directory)}
    world = World((cell_path,), (1.0,), (0.1,), (3,), seed=1)
    with stored(world.runs(), campaigns=[replace(CAMPAIGN, plan=plan)]) as store:
        measured = MeasuredPaths(Analysis.of(store, [CAMPAIGN.id]))
        path = parse_path("ext4/raw/none")
        disk = ConfiguredDisk("web", "vda", str(tmp_path / source), path)
        (closest,) = measured.cells
        found = measured.in_place(disk, path, closest)
    assert str(found) == place
    assert (not list(differences(found, measured.cells[closest]))) is (place == cell_path)


def test_paths_without_a_difference_in_words_are_one_path() -> None:
    for path, other in itertools.permutations(PATHS, 2):
        assert bool(list(differences(path, other))) is (path.spelled_out != other.spelled_out)


MANY = """<domain type="kvm"><name>many</name><devices>
<disk><driver cache="none"/><target dev="vda" bus="virtio"/></disk>
<disk><driver cache="writeback"/><target dev="vdb" bus="virtio"/></disk>
<disk><driver cache="writeback"/><target dev="vdc" bus="virtio"/></disk>
<disk><driver cache="unsafe"/><target dev="vdd" bus="virtio"/><readonly/></disk>
</devices></domain>"""


def test_what_holds_for_nearly_every_disk_is_said_once_at_the_end(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "many.xml"
    file.write_text(MANY)
    assert main(["audit", str(file), "--need", "durable"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("Data are durable once the guest has flushed them") == 1
    assert "the host's memory may hold them, or the only note of where they are (3 disks)" in out
    assert "read-only" in out
    assert "Flushes are dropped" not in out
    *written, read_only = answer(capsys, "audit", str(file), "--need", "durable")["disks"]
    assert [disk["disk"]["read_only"] for disk in written] == [False] * 3
    assert read_only["disk"]["read_only"] is True
    assert read_only["risks"] == []
    assert read_only["lacks"] == {}
    assert read_only["power_cut"] is None


def test_a_bus_that_forgets_flushes_is_a_loss_on_storage_that_nobody_saw(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """advise said *change*, and audit of the same disk said nothing but "storage unknown"."""
    file = tmp_path / "w.yaml"
    root = "{type: disk, path: /, pool: p, io.bus: nvme}"
    file.write_text(f"name: w\ntype: virtual-machine\nconfig: {{}}\ndevices: {{root: {root}}}\n")
    (audited,) = answer(capsys, "audit", str(file), "--need", "durable")["disks"]
    (advised,) = answer(capsys, "advise", str(file))["disks"]
    assert "NVMe" in audited["lacks"]["durable"]
    assert advised["advice"]["action"] == "change"
    for row in (audited, advised):
        assert row["power_cut"]["kind"] == "lost-by-construction"
        assert [risk["kind"] for risk in row["risks"]] == ["fua-forgotten"]


def test_an_audit_needs_no_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = exported(tmp_path, "raw/unsafe")
    found = answer(capsys, "audit", file)
    assert f"Measure first: `vdisklab advise {file}` prints the command." in found["why_no_speed"]
    unknown = tmp_path / "1.conf"
    unknown.write_text("virtio0: fast:vm-1-disk-0\n")
    assert "Measure first" not in answer(capsys, "audit", str(unknown))["why_no_speed"]


def test_an_audit_does_with_a_database_that_holds_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    database = tmp_path / "empty.sqlite"
    with open_store(str(database)):
        pass
    found = answer(capsys, "audit", exported(tmp_path, "raw/unsafe"), "--db", str(database))
    assert found["why_no_speed"].startswith("No speeds: the database holds no campaign.")


@pytest.mark.parametrize("content", ["", "<domain/>", "\x00", "<a/>"])
def test_a_damaged_domain_ends_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    file = tmp_path / "x.xml"
    file.write_text(content)
    assert main(["audit", str(file)]) == PlanError.exit_code
    assert "hint: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["/nonexistent.xml"]])
def test_nothing_to_audit_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["audit", *arguments]) == PlanError.exit_code


AUDITED = """<domain type="kvm"><name>web</name><devices><disk type="file" device="disk">
<driver name="qemu" type="raw" cache="none"/><source file="/nonexistent/web.img"/>
<target dev="vda" bus="virtio"/></disk></devices></domain>"""


def test_the_audit_reads_the_verdicts(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "web.xml"
    file.write_text(AUDITED)
    (disk,) = answer(capsys, "audit", str(file))["disks"]
    here = collect_facts(LocalHost())
    then = replace(here, kernel="6.1.0-9-amd64")
    # The newest campaign and a power cut are from before the kernel was upgraded.
    store.write(runs(), campaigns=[replace(CAMPAIGN, host=then)])
    store.add_power_cuts(
        replace(CUT_LOST, id=host.machine_id[:8] + host.kernel, path=disk["path"], host=host)
        for host in (then, CAMPAIGN.host)
    )
    (disk,) = answer(capsys, "audit", str(file))["disks"]
    assert disk["power_cut"]["tested"] is None
    (disk,) = answer(capsys, "audit", str(file), "--campaign", CAMPAIGN.id)["disks"]
    assert disk["power_cut"]["tested"] is None
    store.add_power_cuts([replace(CUT_LOST, path=disk["path"], host=here)])
    (disk,) = answer(capsys, "audit", str(file))["disks"]
    assert disk["power_cut"]["kind"] == "lost-in-test"
    assert main(["audit", str(file)]) == 0
    assert "lost acknowledged writes in 10 of 100" in " ".join(capsys.readouterr().out.split())


def test_a_libvirt_that_does_not_answer_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    virsh = tmp_path / "virsh"
    virsh.write_text("#!/bin/sh\necho 'error: failed to connect to the hypervisor' >&2\nexit 1\n")
    virsh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["audit", "--libvirt", "qemu:///system"]) == HostError.exit_code
    said = capsys.readouterr().err
    assert "libvirt at qemu:///system does not answer" in said
    assert "hint: check that `virsh -c qemu:///system list --all` works" in said


def test_no_command_is_advised_that_cannot_measure(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    conflict = Path(exported(tmp_path, "qcow2/none/virtio:aio=native"))
    conflict.write_text(re.sub("cache=.none.", "cache='writeback'", conflict.read_text()))
    bare = Path(exported(tmp_path, "raw/none"))
    volume = re.sub("type=.file.", "type='block'", bare.read_text())
    bare.write_text(re.sub("file=.[^ ]*img.", "dev='/dev/sdz'", volume))
    assert main(["audit", str(conflict), str(bare), "--why"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"not measured in campaign {CAMPAIGN.id}, and cannot be." in out
    assert re.search(r"`vdisklab run none \S+ --on DEVICE`", out)


def test_a_device_is_nearer_to_raw_than_to_another_format(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bare = Path(exported(tmp_path, "raw/none"))
    volume = re.sub("type=.file.", "type='block'", bare.read_text())
    bare.write_text(re.sub("file=.[^ ]*img.", "dev='/dev/vg/lv'", volume))
    (disk,) = answer(capsys, "audit", str(bare))["disks"]
    assert (disk["path"], disk["nearest"]["cell"]) == ("none", "raw/none")


def test_no_speeds_are_doubted_where_none_are_shown(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    domain = Path(exported(tmp_path, "raw/none"))
    for kind in ("kvm", "xen", "bhyve"):
        domain.write_text(
            re.sub("type=.(kvm|xen). ", f"type='{kind}' ", domain.read_text(), count=1)
        )
        assert main(["audit", str(domain)]) == 0
        assert ("Speeds were measured" in capsys.readouterr().out) is (kind == "kvm")
    near = Path(exported(tmp_path, "raw/none/virtio:iothread=on"))
    assert main(["audit", str(near)]) == 0
    out = capsys.readouterr().out
    assert "the nearest measured path is " in out, "whose rank is not the speed of this disk"
    assert "Speeds were measured" not in out


def test_it_is_said_where_the_speeds_were_measured(
    database: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`audit` ranked a disk by another directory's speeds without a word."""
    (tmp_path / "web.img").touch()
    domain = Path(exported(tmp_path, "raw/none"))
    domain.write_text(domain.read_text().replace("/srv/none.img", str(tmp_path / "web.img")))
    here = replace(CAMPAIGN, host=machine_facts(LocalHost()))
    for directory, other in (
        (str(tmp_path), ""),
        ("/proc", ", on another file system than web vda"),
    ):
        plan = {**here.plan, "directory": directory}
        database.write(runs(), campaigns=[replace(here, plan=plan)])
        assert main(["audit", str(domain)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"Speeds were measured in {directory}{other}. " in said
    database.write(runs())
    assert main(["audit", str(domain)]) == 0
    assert "measured in /" not in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["audit", "advise"])
def test_an_argument_that_cannot_be_read_is_said(
    verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")  # in the table of `advise`
    file = tmp_path / "deep.cmdline"
    nested = '{"a":' * 30_000 + "1" + "}" * 30_000
    file.write_text(f"qemu-system-x86_64 -name web -device '{nested}'")
    assert main([verb, str(file)]) in (0, EXIT_CELLS_FAILED)
    out = " ".join(capsys.readouterr().out.split())
    assert "the JSON after -device cannot be read, and may describe a disk" in out


@pytest.mark.parametrize(
    ("cache", "assumed", "sentence"),
    [
        (
            "write back",
            HostDisk.VOLATILE,
            "so the strictest power cuts count; if it has power-loss",
        ),
        ("write back", HostDisk.PLP, "so --disk plp holds only if it has power-loss protection"),
        ("write through", HostDisk.VOLATILE, "so the power cuts of --disk plp count, unless"),
        ("write through", HostDisk.PLP, "as --disk plp assumes, unless queue/write_cache was set"),
        (None, HostDisk.VOLATILE, None),
    ],
)
def test_what_the_hosts_disk_claims_decides_which_power_cuts_count(
    cache: str | None, assumed: HostDisk, sentence: str | None
) -> None:
    disk = ConfiguredDisk("d", "vda", "/a", parse_path("ext4/raw/none"))
    claims = (ClaimedCache("nvme0n1", cache, True),)
    audited = ExistingDisk(disk, disk.path, (), caches=claims)
    answer = DisksAnswer((audited, audited), caveats_of(()), "none", host_disk=assumed)
    notes = [note for note in next(view.tables(answer)).notes if note.startswith("nvme0n1 claims")]
    assert len(notes) == (sentence is not None)
    assert (sentence or "") in "".join(notes)


def test_the_claim_is_read_from_the_disk_below_the_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "a.img"
    image.write_bytes(bytes(4096))
    (tmp_path / "a.xml").write_text(
        forms()["libvirt"].write(ExportRequest(parse_path("raw/none"), str(image), "web")).text
    )
    (disk,) = audited(capsys, str(tmp_path / "a.xml"))
    device = device_of(tmp_path)
    leaves = () if device is None else device.leaves()
    found = {cache["name"]: cache["write_cache"] for cache in disk["caches"]}
    assert found == {leaf.name: leaf.write_cache for leaf in leaves}


@pytest.mark.parametrize(
    ("path", "measured", "differs"),
    [
        ("qcow2:backing=1/none", "qcow2/none", ["backing=1, not 0"]),
        ("qcow2:encrypt=luks/none", "qcow2/none", ["encrypt=luks, not off"]),
        ("qcow2:compression=zstd/none", "qcow2/none", ["compression=zstd, not off"]),
        ("qcow2:data_file=raw/none", "qcow2/none", ["data_file=raw, not off"]),
        ("qcow2:cluster_size=4k/none", "qcow2/none", ["cluster_size=4k, not 64k"]),
        ("qcow2:l2_cache=1M/none", "qcow2/none", ["l2_cache=1M, not unset"]),
        ("raw:encrypt=luks/none", "raw/none", ["encrypt=luks, not off"]),
        ("raw/none/virtio:discard=unmap", "raw/none", ["discard=unmap, not ignore"]),
        ("raw/none/virtio:detect_zeroes=on", "raw/none", ["detect_zeroes=on, not off"]),
        ("raw/none/virtio:throttle_iops=50", "raw/none", ["throttle_iops=50, not unset"]),
        ("ext4:barrier=off/raw/none", "raw/none",
         ["host layers ext4:barrier=off, not those of the work directory"]),
        ("zfs:sync=disabled/raw/none", "zfs/raw/none", ["host layers zfs:sync=disabled, not zfs"]),
        ("none", "lvm/none", ["unknown host layers, not lvm"]),
    ],
)  # fmt: skip
def test_what_costs_speed_or_safety_makes_another_path(
    path: str, measured: str, differs: list[str]
) -> None:
    path_here, other = parse_path(path), parse_path(measured)
    assert not is_alike(path_here, other)
    assert list(differences(path_here, other)) == differs
    assert is_alike(path_here, path_here)
    assert list(differences(path_here, path_here)) == []


@pytest.mark.parametrize(
    ("path", "measured"),
    [
        ("ext4/raw:preallocation=off/none", "raw/none"),
        ("raw/none", "xfs/raw/none"),
        ("zfs/qcow2/none", "qcow2/none"),
    ],
)
def test_a_plain_file_system_below_and_allocation_are_alike(path: str, measured: str) -> None:
    assert is_alike(parse_path(path), parse_path(measured))


def test_a_chain_gets_no_numbers_of_a_plain_image(
    store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """libvirt's XML states it; the image is elsewhere."""
    file = Path(exported(tmp_path, "qcow2/none"))
    chain = "<backingStore type='file'><source file='/base.raw'/><backingStore/></backingStore>"
    file.write_text(re.sub("(<target )", rf"{chain}\1", file.read_text()))
    (disk,) = answer(capsys, "audit", str(file))["disks"]
    assert (disk["path"], disk["standing"]) == ("qcow2:backing=1/none", None)
    assert (disk["nearest"]["cell"], disk["nearest"]["gain"]) == ("qcow2/none", None)
    assert main(["audit", str(file)]) == 0
    assert "but the disk has backing=1, not 0." in " ".join(capsys.readouterr().out.split())


def test_a_data_store_that_the_configuration_states_is_in_the_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = Path(exported(tmp_path, "qcow2/none"))
    file.write_text(
        re.sub(
            r"(<source file=\S+) />",
            r"\1><dataStore type='file'><source file='/d.raw'/></dataStore></source>",
            file.read_text(),
        )
    )
    assert audited(capsys, str(file))[0]["path"] == "qcow2:data_file=on/none"


@pytest.mark.parametrize(
    ("present", "need", "instead"),
    [
        ("lvm/unsafe", "durable", "lvm/none"),
        ("unsafe", "durable", "none"),
        ("none", "snapshots", "qcow2/none"),
    ],
)
def test_the_nearest_path_of_a_block_device_is_one(
    present: str, need: str, instead: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "g.xml"
    request = ExportRequest(parse_path(present), "/dev/vgx/lv", "web")
    file.write_text(forms()["libvirt"].write(request).text)
    (disk,) = audited(capsys, str(file), "--need", need)
    assert disk["instead"] == instead


def test_no_path_is_offered_for_what_no_path_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = Path(exported(tmp_path, "raw/none"))
    file.write_text(file.read_text().replace("cache=", "error_policy='ignore' cache="))
    assert main(["audit", str(file), "--need", "durable", "--why"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Errors are ignored" in out
    assert "It does not meet durable" in out
    assert "meets all" not in out


def test_a_platform_is_offered_what_it_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Proxmox VE cannot turn a disk's write cache off, so its nearest path has another mode."""
    file = tmp_path / "100.conf"
    file.write_text("name: mail\nvirtio0: local:100/a.raw,cache=none\n")
    (tmp_path / "storage.cfg").write_text("dir: local\n\tpath /nonexistent\n")
    (disk,) = audited(capsys, str(tmp_path), "--need", "no-flush-safe")
    assert disk["instead"] == "raw/directsync/virtio:aio=io_uring:detect_zeroes=on"


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("none", "raw/directsync"),
        ("directsync", "raw/directsync"),
        ("qcow2/unsafe", "qcow2/none"),
        ("raw/writethrough", "raw/directsync"),
    ],
)
def test_the_nearest_measured_path_of_a_device_is_raw(path: str, nearest: str) -> None:
    measured = [parse_path(text) for text in ("qcow2/none", "qcow2/directsync", "raw/directsync")]
    closest = min(measured, key=lambda row: unlikeness(parse_path(path), row))
    assert closest == parse_path(nearest)


def test_no_setting_helps_a_disk_whose_data_are_lost_below_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "start.sh"
    script.write_text(
        "eatmydata qemu-system-x86_64 -name web -drive file=/a,format=raw,if=virtio,cache=none\n"
    )
    arguments = [str(script), "--need", "durable", "--db", str(tmp_path / "none.sqlite")]
    with open_store(arguments[-1]):
        pass
    (disk,) = audited(capsys, *arguments)
    assert (disk["instead"], disk["lost_below"]) == (
        None,
        "eatmydata makes QEMU's fsync do nothing",
    )
    assert main(["audit", *arguments]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No setting of the guest helps: eatmydata makes QEMU's fsync do nothing." in said
    assert "No path of" not in said


def test_what_a_disk_that_cannot_start_would_keep_is_no_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "web.xml"
    file.write_text(
        "<domain type='kvm'><name>web</name><devices><disk type='block'>"
        "<driver name='qemu' type='raw' cache='writeback' io='native'/><source dev='/dev/vg/web'/>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    assert main(["audit", str(file), "--need", "durable", "--why"]) == 0
    out = capsys.readouterr().out
    assert "does not start" in out
    assert "nothing" not in out


def test_nobody_on_this_host_knows_if_a_disk_on_nfs_is_durable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `async` in exports(5) the server says that data are stable which are not."""
    (tmp_path / "storage.cfg").write_text(
        "nfs: nas\n\texport /e\n\tpath /mnt/pve/nas\n\tserver 10.0.0.5\n"
    )
    guest = tmp_path / "101.conf"
    guest.write_text(
        "name: web\nmemory: 512\nscsihw: virtio-scsi-single\n"
        "scsi0: nas:101/vm-101-disk-0.raw\nscsi1: nas:101/vm-101-disk-1.raw,cache=unsafe\n"
    )
    files = (str(guest), str(tmp_path / "storage.cfg"))
    kept, lost = audited(capsys, *files, "--need", "durable")
    assert (kept["lacks"], list(kept["undecided"])) == ({}, ["durable"])
    assert "`async`" in kept["undecided"]["durable"]
    assert (list(lost["lacks"]), lost["undecided"]) == (["durable"], {})


ONE_GUEST = """<domain type='kvm'><name>n</name><devices>{disks}</devices></domain>"""
SERVED = {
    "rbd": "<source protocol='rbd' name='vms/web'><host name='10.0.0.2'/></source>",
    "iscsi": "<source protocol='iscsi' name='iqn.t:v/1'><host name='10.0.0.2'/></source>",
    "nbd": "<source protocol='nbd' name='e'><host name='10.0.0.3' port='10809'/></source>",
    "nfs": "<source protocol='nfs' name='/vm/a.img'><host name='10.0.0.4'/></source>",
    "ssh": "<source protocol='ssh' name='/vm/a.img'><host name='10.0.0.4'/></source>",
    "krbd": "<source dev='/dev/rbd/vms/web'/>",
    "by-path": "<source dev='/dev/disk/by-path/ip-10.0.0.2:3260-iscsi-iqn.t:v-lun-1'/>",
}
LOOKS = {
    "rbd": "`ceph osd pool ls detail`",
    "iscsi": "`targetcli ls /backstores`",
    "nbd": "`pgrep -af nbd`",
    "nfs": "`exportfs -v`",
    "ssh": "`does not support fsync`",
    "krbd": "`ceph osd pool ls detail`",
    "by-path": "whoever runs it",
}


@pytest.mark.parametrize("cache", ["none", "unsafe"])
@pytest.mark.parametrize("kind", SERVED)
def test_what_a_server_keeps_is_unknown_and_where_to_look_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, cache: str
) -> None:
    how = "block" if "dev=" in SERVED[kind] else "network"
    disk = (
        f"<disk type='{how}' device='disk'><driver name='qemu' type='raw' cache='{cache}'/>"
        f"{SERVED[kind]}<target dev='vda' bus='virtio'/></disk>"
    )
    file = tmp_path / "n.xml"
    file.write_text(ONE_GUEST.format(disks=disk))
    assert main(["audit", str(file), "--need", "durable", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["disks"]
    if cache == "unsafe":
        assert (list(row["lacks"]), row["undecided"]) == (["durable"], {})
        return
    assert row["lacks"] == {}
    assert row["power_cut"]["kind"] == "by-server"
    assert LOOKS[kind] in row["undecided"]["durable"]
    assert main(["audit", str(file), "--need", "durable"]) == 0
    assert "durable (unknown)" in capsys.readouterr().out
    assert main(["advise", str(file), "--why"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"only if the server does: cache={cache} passes flushes on" in said
    assert LOOKS[kind] in said
    assert "safe;" not in said


@pytest.mark.parametrize("is_here", [True, False])
def test_a_score_of_another_place_says_which(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_here: bool
) -> None:
    """The campaign's directory has gone, so nobody knows if it was the disk's file system."""
    host = machine_facts(LocalHost()) if is_here else HOST
    campaign = replace(CAMPAIGN, host=host, plan={**CAMPAIGN.plan, "directory": "/gone"})
    database.write(runs(), campaigns=[campaign])
    image = tmp_path / "a.img"
    image.write_bytes(bytes(8192))
    disk = (
        "<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/>"
        f"<source file='{image}'/><target dev='vda' bus='virtio'/></disk>"
    )
    file = tmp_path / "a.xml"
    file.write_text(ONE_GUEST.format(disks=disk))
    assert main(["audit", str(file), "--wide"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (" in /gone " if is_here else f" on {HOST.hostname} ") in out
    assert ("perhaps on another file system than n vda" in out) is is_here
