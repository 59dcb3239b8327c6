"""`vdisklab export` at the edge: text and notes apart, needs, and sentences for bad input."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.results.test_power_cut import LOST
from tests.unit.stored import Database
from vdisklab.answers.export_command import export_command, measured_place
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.path.platforms import Platform
from vdisklab.platforms.registry import forms
from vdisklab.results.store import open_store
from vdisklab.value import replace


def test_the_verb_prints_text_and_tells_gaps_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "raw/none", "--to", "incus", "--source", "/srv/x.img"]) == 0
    out, err = capsys.readouterr()
    assert "io.cache" in out
    assert "note: aio=threads cannot be expressed here" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "raw/none", "--source", "/srv/a\nb"],
        ["export", "raw/none", "--name", ""],
        ["export", "raw/none", "--type", "xen"],
        ["export", "raw/none", "--to", "vmware"],
    ],
)
def test_bad_input_ends_in_a_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == PlanError.exit_code
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "need", "reason", "instead"),
    [
        ("raw/unsafe", "durable", "cache mode unsafe drops flushes", "raw/none"),
        ("raw/none/nvme", "durable", "acknowledges FUA writes", "raw/none"),
        ("ext4/raw/none", "snapshots", "neither its format", "ext4/qcow2/none"),
        ("raw/none", "discard", "discard=ignore", "raw/none/virtio:discard=unmap"),
        ("raw", "cache=none", "its cache mode is default", "raw/none"),
    ],
)
def test_a_path_that_does_not_meet_a_need_is_refused_with_one_that_does(
    path: str, need: str, reason: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", path, "--need", need]) == PlanError.exit_code
    out, err = capsys.readouterr()
    assert not out
    assert f"does not meet --need {need}" in err
    assert reason in err
    assert f"hint: the nearest path that meets all needs: {instead}\n" in err


def test_a_path_that_meets_its_needs_is_exported(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--need", "durable", "--need", "layer=ext4", "--need", "bus=virtio"]
    assert main(["export", "ext4/raw/none", "--to", "incus", *arguments]) == 0
    assert "io.cache" in capsys.readouterr().out


def test_power_cuts_of_this_machine_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(tmp_path / "results.sqlite")
    lost = replace(LOST, path="ext4/raw/none", host=collect_facts(LocalHost()))
    with open_store(database) as store:
        store.add_power_cut(lost)
    arguments = ["export", "ext4/raw/none", "--to", "qemu", "--db", database]
    assert main([*arguments, "--need", "durable"]) == PlanError.exit_code
    err = capsys.readouterr().err
    assert "it lost acknowledged writes in 9 of 681 power cuts" in err
    assert "hint: the nearest path that meets all needs: ext4/raw/directsync\n" in err
    assert main(arguments) == 0
    assert "lost acknowledged writes in 9 of 681 power cuts" in capsys.readouterr().err, "unasked"


@pytest.mark.parametrize(
    ("arguments", "is_said"),
    [
        (["raw/none"], True),
        (["raw/none", "--to", "proxmox"], True),
        (["raw/none", "--type", "qemu"], False),
        (["raw/none/scsi"], False),
    ],
)
def test_a_guest_under_kvm_is_told_that_emulation_was_measured(
    database: Database, capsys: pytest.CaptureFixture[str], arguments: list[str], is_said: bool
) -> None:
    """type='kvm' is right in production, whatever ran the campaign's guests."""
    campaigns = [replace(CAMPAIGN, plan={**CAMPAIGN.plan, "cells": ["host", "raw/none"]})]
    database.write(campaigns=campaigns)
    assert main(["export", *arguments, "--db", database.url]) == 0
    said = f"campaign {CAMPAIGN.id} measured the path under emulation (TCG)"
    assert (said in capsys.readouterr().err) is is_said
    under_kvm = (replace(run, accelerator=run.accelerator and "kvm") for run in campaign_runs())
    database.write(under_kvm, campaigns=campaigns)
    assert main(["export", *arguments, "--db", database.url]) == 0
    assert "under emulation" not in capsys.readouterr().err


def test_only_needs_of_durability_read_the_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.sqlite")
    arguments = ["export", "raw/none", "--db", missing]
    assert main([*arguments, "--need", "durable"]) == DatabaseError.exit_code
    assert "error: " in capsys.readouterr().err
    assert main(arguments) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "relative.img"], "'relative.img' is not a source of a disk"),
        (["--source", ""], "'' is not a source of a disk"),
        (["--size", "0"], "--size is 0"),
        (["--name", "a/b"], "'a/b' cannot be the name of a guest"),
    ],
)
def test_what_the_target_would_refuse_is_refused_here(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "qcow2/none", "--to", "libvirt", *arguments]) != 0
    assert message in capsys.readouterr().err


def test_a_relative_source_is_fine_for_qemu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "qcow2/none", "--to", "qemu", "--source", "relative.img"]) == 0


QCOW2 = b"QFI\xfb\0\0\0\3".ljust(512, b"\0")


@pytest.mark.parametrize(
    ("path", "name", "content", "found", "wanted", "new"),
    [
        ("ext4/raw/none", "web.qcow2", QCOW2, "qcow2", "raw", "web.raw"),
        ("raw/none", "web.raw", QCOW2, "qcow2", "raw", "web-2.raw"),
        ("qcow2/none", "web.img", b"\0" * 512, "raw", "qcow2", "web.qcow2"),
        ("qcow2/none", "my web.vmdk", b"KDMV".ljust(512, b"\0"), "vmdk", "qcow2", "my web.qcow2"),
    ],
)
def test_an_image_of_another_format_is_refused_with_its_conversion(
    path: str,
    name: str,
    content: bytes,
    found: str,
    wanted: str,
    new: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A guest would be given the header of a qcow2 file as the beginning of its raw disk."""
    file = tmp_path / name
    file.write_bytes(content)
    assert main(["export", path, "--source", str(file)]) == PlanError.exit_code
    out, err = capsys.readouterr()
    assert not out
    assert f"{file} is a {found} image, and {path} needs a {wanted} one" in err
    source_format = "" if found == "raw" else f"-f {found} "
    assert f"qemu-img convert -p {source_format}-O {wanted} " in err
    assert f"write --source {shlex.quote(str(tmp_path / new))}\n" in err


def test_a_conversion_takes_the_options_of_the_path_and_a_name_that_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.img"
    file.write_bytes(b"\0" * 512)
    for taken in ("web.qcow2", "web-2.qcow2"):
        (tmp_path / taken).symlink_to("missing")
    path = "qcow2:cluster_size=1M/none"
    assert main(["export", path, "--source", str(file)]) == PlanError.exit_code
    convert = f"qemu-img convert -p -O qcow2 -o cluster_size=1M {file} {tmp_path}/web-3.qcow2`"
    assert convert in capsys.readouterr().err
    arguments = ["export", "qcow2:encrypt=luks/none", "--to", "qemu", "--source", "web.img"]
    with contextlib.chdir(tmp_path):
        assert main(arguments) == PlanError.exit_code
    assert "hint: name a path with raw, or another --source\n" in capsys.readouterr().err


def test_a_volume_or_claim_is_no_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web-disk").write_bytes(QCOW2)
    monkeypatch.chdir(tmp_path)
    assert main(["export", "raw/none", "--to", "kubevirt", "--source", "web-disk"]) == 0


@pytest.mark.parametrize(
    ("path", "content"),
    [("raw/none", b"\0" * 512), ("qcow2/none", QCOW2), ("qcow2/none", b""), ("raw/none", None)],
)
def test_an_image_of_the_same_format_or_none_yet_is_fine(
    path: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.img"
    if content is not None:
        file.write_bytes(content)
    assert main(["export", path, "--source", str(file)]) == 0
    said = capsys.readouterr().out
    assert ("qemu-img create" in said) is not bool(content), "an image that is there is not made"


def test_the_installed_libvirt_decides_on_the_form_unless_a_version_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    virsh = tmp_path / "virsh"
    virsh.write_text("#!/bin/sh\necho 12.1.0\n")
    virsh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert main(["export", "raw/none/nvme"]) == 0
    assert 'bus="nvme"' in capsys.readouterr().out
    assert main(["export", "raw/none/nvme", "--libvirt", "10.0"]) == 0
    out, err = capsys.readouterr()
    assert "libvirt 10.0 has no NVMe disks" in out
    assert "note: QEMU must be allowed to open" in err
    virsh.write_text("#!/bin/sh\nexit 1\n")
    assert main(["export", "raw/none/nvme"]) == 0
    assert "libvirt 9.0 has no NVMe disks" in capsys.readouterr().out
    for wrong in ("", "new", "11", "9.", "1.2.3.4.5", "11.5; rm"):
        assert main(["export", "raw/none/nvme", "--libvirt", wrong]) == PlanError.exit_code
        assert "is not a version of libvirt" in capsys.readouterr().err


@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize("path", ["none", "writeback/scsi", "qcow2/none"])
def test_a_whole_device_is_one_in_every_form(
    path: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `run --on /dev/sdb` measured is printed as a block device."""
    source = "claim" if form == "kubevirt" else "/dev/sdb"
    status = main(["export", path, "--to", form, "--source", source])
    out, err = capsys.readouterr()
    raw_only = form in ("kubevirt", "incus", "openstack") and path.startswith("qcow2")
    assert (status, "no format qcow2" in err) == ((2, True) if raw_only else (0, False))
    if form.startswith("libvirt"):
        assert 'type="block"' in out
        assert '<source dev="/dev/sdb" />' in out
    elif form == "qemu":
        assert '"driver": "host_device"' in out
    assert "/dev/sdX" not in out + err


def test_a_device_that_nobody_named_is_said_to_stand_for_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", "none"]) == 0
    out, err = capsys.readouterr()
    assert '<source dev="/dev/sdX" />' in out
    assert "note: /dev/sdX stands for the whole device: name it with --source" in err


@pytest.mark.parametrize(
    ("path", "devices", "device"),
    [
        ("none", ["/dev/sdb"], "/dev/sdb"),
        ("qcow2/none/scsi", ["/dev/sdb"], "/dev/sdb"),
        ("ext4/raw/none", ["/dev/sdb"], None),
        ("none", ["/dev/sdb", "/dev/sdc"], None),
        ("raw/none", None, None),
    ],
)
def test_the_device_that_was_measured_is_the_source(
    path: str, devices: list[str] | None, device: str | None
) -> None:
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, "devices": devices})
    assert measured_place(path, campaign).source == device


@pytest.mark.parametrize(
    ("path", "platforms", "command"),
    [
        ("ext4/raw/none", (), "vdisklab export ext4/raw/none --to libvirt"),
        ("raw/none", (Platform.PROXMOX,), "vdisklab export raw/none --to proxmox"),
        ("raw/none", (Platform.VIRT_MANAGER,), "vdisklab export raw/none --to libvirt"),
        (
            "raw/directsync",
            (Platform.INCUS, Platform.LIBVIRT),
            "vdisklab export raw/directsync --to libvirt",
        ),
        ("raw/directsync", (Platform.INCUS,), "vdisklab export raw/directsync --to qemu"),
        ("zvol/none", (), "vdisklab export zvol/none --to libvirt"),
        ("host", (), None),
        ("my VM at home", (), None),
    ],
)
def test_the_command_of_a_path_is_for_a_platform_that_can_have_it(
    path: str,
    platforms: tuple[Platform, ...],
    command: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = export_command(path, CAMPAIGN, platforms)
    assert (None if found is None else found.text) == command
    if found is not None:
        assert found.cannot == (platforms if "--to qemu" in found.text else ())
        assert main(shlex.split(found.text)[1:]) == 0
        assert capsys.readouterr().out


@pytest.mark.parametrize("needs", [(), ("--need", "durable")])
def test_what_a_server_keeps_is_a_note(
    needs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "rbd/none", "--to", "proxmox", *needs]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "What the server keeps is unknown here: `ceph osd pool ls detail` there shows" in said
