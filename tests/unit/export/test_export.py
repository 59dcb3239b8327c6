"""Each form says what was asked, exactly, or says that it cannot."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.export.made import configurable_paths
from vdisklab.cli.main import main
from vdisklab.errors import PlanError
from vdisklab.export.form import Exported, NotExpressibleError, Wish
from vdisklab.export.registry import EXPORTERS, Form
from vdisklab.path.disk_path import DiskPath, parse_path

ODD = """/srv/a b/<&>"'--$(id)/%s.img"""


def exported(text: str, form: Form, source: str | None = None) -> Exported:
    return EXPORTERS[form](Wish(parse_path(text), source))


def test_proxmox_is_told_what_it_would_choose_otherwise() -> None:
    text = exported("qcow2/default", Form.PROXMOX).text
    assert "virtio0: STORAGE:vm-100-disk-0,cache=writeback,aio=threads,format=qcow2" in text


def test_proxmox_needs_its_own_controller_for_threads() -> None:
    text = exported("raw/none/scsi:aio=native:discard=unmap:iothread=on:queues=4", Form.PROXMOX)
    assert text.text.endswith(
        "scsihw: virtio-scsi-single\nscsi0: STORAGE:vm-100-disk-0,cache=none,aio=native,"
        "format=raw,discard=on,iothread=1,queues=4\n"
    )
    assert not text.gaps


def test_incus_names_the_bus_in_its_own_words() -> None:
    text = exported("lvm/none/nvme:discard=unmap", Form.INCUS, "/dev/vg/web").text
    assert text.endswith(
        'devices:\n  disk0:\n    type: "disk"\n    source: "/dev/vg/web"\n'
        '    io.cache: "none"\n    io.bus: "nvme"\n'
    )


def test_kubevirt_says_each_option_or_a_gap() -> None:
    text = exported("raw/none/virtio:aio=native:iothread=on:queues=4", Form.KUBEVIRT)
    for line in ('cache: "none"', 'io: "native"', "dedicatedIOThread: true",
                 "blockMultiQueue: true", "cores: 4"):  # fmt: skip
        assert line in text.text
    assert [gap.option for gap in text.gaps] == ["discard=ignore", "a number of queues"]


@pytest.mark.parametrize("source", ["/srv/a.img", "Web", "-web", "web.", "a" * 254])
def test_kubernetes_takes_not_every_name(source: str) -> None:
    with pytest.raises(PlanError, match="cannot be the name of a claim"):
        exported("raw/none", Form.KUBEVIRT, source)
    assert 'claimName: "web-1.data"' in exported("raw/none", Form.KUBEVIRT, "web-1.data").text
    with pytest.raises(PlanError, match="cannot be the name of a virtual machine"):
        EXPORTERS[Form.KUBEVIRT](Wish(parse_path("raw/none"), "web", name="Web 1"))


def test_a_comma_would_end_proxmoxs_volume() -> None:
    with pytest.raises(PlanError, match="parted by commas"):
        exported("raw/none", Form.PROXMOX, "/srv/a,cache=unsafe.img")


@pytest.mark.parametrize(
    ("form", "path", "what"),
    [
        (Form.PROXMOX, "raw/none/nvme", "bus nvme"),
        (Form.PROXMOX, "vdi/none", "format vdi"),
        (Form.KUBEVIRT, "raw/unsafe", "cache mode unsafe"),
        (Form.KUBEVIRT, "qcow2/none", "format qcow2"),
        (Form.KUBEVIRT, "raw/none/ide", "bus ide"),
        (Form.INCUS, "raw/directsync", "cache mode directsync"),
        (Form.INCUS, "raw/none/sata", "bus sata"),
        (Form.INCUS, "qcow2/none", "format qcow2"),
    ],
)
def test_what_a_form_lacks_is_refused(form: Form, path: str, what: str) -> None:
    with pytest.raises(NotExpressibleError, match=what) as caught:
        exported(path, form)
    assert caught.value.hint


@pytest.mark.parametrize("path", ["host", "ext4/host", "null", "ext4/none"])
@pytest.mark.parametrize("form", Form)
def test_what_is_no_guests_disk_is_refused(form: Form, path: str) -> None:
    with pytest.raises(PlanError):
        exported(path, form)


@given(configurable_paths)
def test_every_path_can_be_said_in_libvirt_and_qemu(path: DiskPath) -> None:
    for form in (Form.LIBVIRT, Form.QEMU):
        assert EXPORTERS[form](Wish(path, ODD)).text


@given(configurable_paths)
def test_a_shell_reads_the_sources_name_back(path: DiskPath) -> None:
    text = EXPORTERS[Form.QEMU](Wish(path, ODD)).text
    command = [line for line in text.splitlines() if not line.startswith("#")]
    words = shlex.split("\n".join(command))
    assert any(json_name(ODD) in word for word in words)
    assert "$(id)" not in "".join(words).replace(json_name(ODD), "")


def json_name(name: str) -> str:
    return name.replace('"', '\\"')


@pytest.mark.skipif(shutil.which("xmllint") is None, reason="xmllint is not installed")
@pytest.mark.skipif(
    not Path("/usr/share/libvirt/schemas/domain.rng").exists(), reason="no libvirt schema"
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configurable_paths)
def test_libvirts_schema_accepts_it(path: DiskPath) -> None:
    text = EXPORTERS[Form.LIBVIRT](Wish(path, ODD)).text
    checked = subprocess.run(
        ("xmllint", "--noout", "--relaxng", "/usr/share/libvirt/schemas/domain.rng", "-"),
        input=text, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_the_verb_prints_text_and_tells_gaps_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "raw/none", "--to", "incus", "--source", "/srv/x.img"]) == 0
    out, err = capsys.readouterr()
    assert "io.cache" in out
    assert "note: aio=threads cannot be said here" in err


@pytest.mark.parametrize(
    "words",
    [
        ["export", "raw/none", "--source", "/srv/a\nb"],
        ["export", "raw/none", "--name", ""],
        ["export", "raw/none", "--type", "xen"],
        ["export", "raw/none", "--to", "vmware"],
    ],
)
def test_bad_input_ends_in_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == PlanError.exit_code
    assert "error: " in capsys.readouterr().err
