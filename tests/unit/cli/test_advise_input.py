"""What `vdisklab advise` reads: files, directories, running guests, databases; bad input."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.advise_guests import advised, guest
from tests.unit.made_processes import make_process
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks, read_host

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


def test_a_database_that_the_environment_names_need_not_exist_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "later.sqlite"))
    (row,) = advised(capsys, guest(tmp_path, "raw/none", "g"))["disks"]
    assert row["action"] == "unknown"
    assert not (tmp_path / "later.sqlite").exists()


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


@pytest.mark.parametrize("verb", ["advise", "audit"])
def test_a_database_that_is_not_there_can_be_left_out(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = guest(tmp_path, "raw/default")
    missing = tmp_path / "none.sqlite"
    assert main([verb, disk, "--db", str(missing)]) == DatabaseError.exit_code
    error = capsys.readouterr().err
    assert f"there is no database {missing}\nhint: leave out --db to " in error


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


LOGINS = """\
qemu-system-x86_64 -name url -object secret,id=s,file=/etc/chap -iscsi user=bob,password-secret=s,\
initiator-name=iqn.2020-01.org.me:a \
 -drive file=iscsi://10.0.0.2/iqn.t:v/1,format=raw,if=virtio,cache=unsafe
qemu-system-x86_64 -name inline \
 -drive file=iscsi://bob%pw@10.0.0.2/iqn.t:v/2,format=raw,if=virtio,cache=unsafe
qemu-system-x86_64 -name known -iscsi initiator-name=iqn.2020-01.org.me:a \
 -drive file=iscsi://10.0.0.2/iqn.t:v/3,format=raw,if=virtio,cache=unsafe
qemu-system-x86_64 -name node -iscsi user=bob,password-secret=s \
 -blockdev driver=iscsi,node-name=p,transport=tcp,portal=10.0.0.2,target=iqn.t:v,lun=4,\
cache.no-flush=on -blockdev driver=raw,node-name=n,file=p,cache.no-flush=on \
 -device virtio-blk-pci,drive=n
qemu-system-x86_64 -name open \
 -drive file=iscsi://10.0.0.2/iqn.t:v/5,format=raw,if=virtio,cache=unsafe
"""


def test_no_line_forgets_how_an_iscsi_disk_logs_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-iscsi` counts for URLs alone (QEMU, block/iscsi.c: iscsi_parse_filename), so a -blockdev
    in place of one would be refused by the target."""
    (tmp_path / "guests.sh").write_text(LOGINS)
    document = advised(capsys, str(tmp_path / "guests.sh"))
    found = {disk["disk"]["guest"]: disk for disk in document["disks"]}
    assert {disk["action"] for disk in found.values()} == {"change"}
    lines = {name: disk["change"] is not None for name, disk in found.items()}
    assert lines == {"url": False, "inline": False, "known": True, "node": True, "open": True}
    assert found["inline"]["reason"].startswith("set cache none in its own arguments")
    assert "pw" not in str(document)


SESSIONS = """\
qemu-system-x86_64 -name first -iscsi initiator-name=iqn.2020-01.org.me:first,timeout=9 \
 -iscsi id=iqn.t,header-digest=CRC32C,initiator-name=iqn.2020-01.org.me:t \
 -drive file=iscsi://127.0.0.1:1/iqn.u:v/1,format=raw,if=virtio,cache=unsafe \
 -drive file=iscsi://127.0.0.1:1/iqn.t/2,format=raw,if=virtio,cache=unsafe
qemu-system-x86_64 -name node -blockdev driver=iscsi,node-name=p,transport=tcp,\
portal=127.0.0.1:1,target=iqn.t:v,lun=4,initiator-name=iqn.2020-01.org.me:n,cache.no-flush=on \
 -blockdev driver=raw,node-name=n,file=p,cache.no-flush=on -device virtio-blk-pci,drive=n
qemu-system-x86_64 -name keyed -drive if=virtio,format=raw,cache=unsafe,file.driver=iscsi,\
file.transport=tcp,file.portal=127.0.0.1:1,file.target=iqn.t:v,file.lun=5,\
file.initiator-name=iqn.2020-01.org.me:k
"""


def test_a_line_repeats_the_names_of_an_iscsi_session_and_qemu_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several -iscsi that with the target's id counts, else the first (block/iscsi.c,
    iscsi_parse_iscsi_option); what QEMU understands fails at the network."""
    (tmp_path / "guests.sh").write_text(SESSIONS)
    disks = advised(capsys, str(tmp_path / "guests.sh"))["disks"]
    lines = {disk["disk"]["source"].rpartition("/")[2]: disk["change"]["paste"] for disk in disks}
    named = {number: re.findall(r"initiator-name=([^,]+)", line) for number, line in lines.items()}
    me = "iqn.2020-01.org.me:"
    assert named == {"1": [f"{me}first"], "2": [f"{me}t"], "4": [f"{me}n"], "5": [f"{me}k"]}
    assert ("timeout=9" in lines["1"], "timeout" in lines["2"]) == (True, False)
    assert "header-digest=crc32c" in lines["2"]
    if shutil.which("qemu-storage-daemon") is None:
        pytest.skip("no qemu-storage-daemon")
    for line in lines.values():
        node = line.split()[1]
        argv = ["qemu-storage-daemon", "--blockdev", node]
        tried = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert "Can not reconnect" in tried.stderr


def test_the_measurement_of_a_disk_with_an_initiator_says_whom_its_target_must_admit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """vdisklab's guests have a name of their own in each run (guest/factory.py)."""
    source = "<source protocol='iscsi' name='iqn.t:v/1'><host name='h'/>{}</source>"
    initiator = "<initiator><iqn name='iqn.2020-01.org.me:a'/></initiator>"
    for name, inside in (("known", initiator), ("usual", "")):
        (tmp_path / f"{name}.xml").write_text(
            f"<domain type='kvm'><name>{name}</name><devices><disk type='network'>"
            f"<driver type='raw' cache='none'/>{source.format(inside)}"
            "<target dev='vda' bus='virtio'/></disk></devices></domain>"
        )
        assert main(["advise", str(tmp_path / f"{name}.xml"), "--why"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        admits = "knows the guest as iqn.2020-01.org.me:a, so its ACL must also admit"
        assert (admits in said) is (name == "known")
        assert " run myiscsi/raw/none " in said
