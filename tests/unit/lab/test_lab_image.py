"""What the lab is made of, and what its machine is told. Nothing is built here."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.lab.action import job_script
from vdisklab.lab.lab_image import (
    PACKAGES,
    LabImage,
    Source,
    _read,
    bootstrap_command,
    key_of,
    parse_sources,
    require_same_python,
    source_lines,
    suite_of,
)
from vdisklab.lab.lab_machine import (
    LabConfig,
    LabFiles,
    carried_files,
    lab_argv,
    needed_distributions,
    required_names,
    usable_cpus,
)
from vdisklab.plan.accelerator import Accelerator

LISTING = """\
Debian|http://deb.example/debian/|bookworm|main
Debian|http://deb.example/debian/|bookworm-updates|main
Debian|http://deb.example/security/|bookworm-security|main
Other|http://other.example/apt/|stable|main
"""
SOURCES = parse_sources(LISTING)


def test_sources_are_the_distributions_own_with_contrib() -> None:
    assert suite_of(SOURCES) == "bookworm"
    assert source_lines(SOURCES)[0] == "deb http://deb.example/debian bookworm main contrib"
    assert len(SOURCES) == 3
    with pytest.raises(HostError, match="no sources of Debian"):
        parse_sources("Ubuntu|http://u.example/|noble|main")


def test_the_system_is_made_with_mounts_of_its_own() -> None:
    command = bootstrap_command(SOURCES, "/r", "/f", "/i")
    assert command[:4] == ("unshare", "--mount", "--propagation=private", "mmdebstrap")
    assert {"zfs-dkms", "lvm2", "mdadm", "mount", "fio"} <= set(PACKAGES)
    assert command[-5:-3] == ("bookworm", "/r")


def test_the_key_hangs_on_what_decides_the_content() -> None:
    key = key_of(SOURCES, ["Version: 1"], "init")
    assert key == key_of(SOURCES, ["Version: 1"], "init")
    assert key != key_of(SOURCES, ["Version: 2"], "init")
    assert key != key_of(SOURCES, ["Version: 1"], "another")
    assert key != key_of((Source("Debian", "u", "trixie"),), ["Version: 1"], "init")


@pytest.fixture
def files(tmp_path: Path) -> LabFiles:
    return LabFiles(LabImage(tmp_path / "image", "6.1", "3.11"), tmp_path, tmp_path / "code.ext4")


def test_the_machine_has_no_network_and_only_its_own_disks(files: LabFiles) -> None:
    argv = lab_argv(LabConfig(Accelerator.TCG), files, "vdisklab-lab-1", 9)
    arguments = " ".join(argv)
    assert "-nic none" in arguments
    assert "-nodefaults" in arguments
    assert "accel=tcg" in arguments
    drives = [word for word in argv if word.startswith("file=") and "format=" in word]
    assert len(drives) == 3 + 4
    assert all(str(files.directory) in drive for drive in drives)
    assert "readonly=on" in next(drive for drive in drives if "code.ext4" in drive)
    assert "/dev/" not in arguments.replace("root=/dev/vda", "")
    shell = lab_argv(LabConfig(Accelerator.KVM), files, "n", None)
    assert "mon:stdio" in shell
    assert "-cpu host" in " ".join(shell)
    assert "-no-reboot" in argv
    assert "-no-shutdown" in argv, "a lab that resets itself is looked at"
    assert "-no-shutdown" not in shell, "QEMU ends with the shell"
    assert "mitigations=off norandmaps" in arguments, "an emulated lab is slow enough"
    assert "-cpu max,-la57,-erms,-fsrm" in arguments
    assert "mitigations=off" not in " ".join(shell), "under KVM it is an ordinary host"


def test_qemu_emulates_only_one_cpu_of_the_lab() -> None:
    assert usable_cpus(Accelerator.TCG, 4) == 1
    assert usable_cpus(Accelerator.KVM, 4) == 4


def test_the_lab_can_be_paused_where_its_directory_is_short_enough(tmp_path: Path) -> None:
    image = LabImage(tmp_path / "image", "6.1", "3.11")
    for directory, has in ((Path("/var/cache"), True), (Path("/" + "x" * 120), False)):
        files = LabFiles(image, directory, directory / "code.ext4")
        argv = lab_argv(LabConfig(Accelerator.TCG), files, "n", 9)
        assert (f"unix:{directory}/qmp,server=on,wait=off" in argv) is has


def test_the_job_quotes_what_it_is_given() -> None:
    job = job_script(["{zvol/ext4,zfs}/qcow2", "--label", "it's"], "feed")
    assert "'{zvol/ext4,zfs}/qcow2'" in job
    assert """'it'"'"'s'""" in job
    assert "--db /work/lab.sqlite --stream /dev/virtio-ports/runs" in job


def test_files_on_the_command_line_are_carried_into_the_lab(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.touch()
    arguments = ["raw", "--profile", str(profile), f"--plan={profile}", "--label", str(profile)]
    assert carried_files(arguments) == (
        ["raw", "--profile", "/vdisklab/files/0-own.toml", "--plan=/vdisklab/files/1-own.toml",
         "--label", str(profile)],
        {"0-own.toml": profile, "1-own.toml": profile},
    )  # fmt: skip
    read = ["--guest", str(profile), "--diskspd", str(profile)]
    assert len(carried_files(read)[1]) == 2
    written = ["--stream", str(profile)]
    assert carried_files(written) == (written, {})
    names = ["raw", "--profile", "quick", "--profile"]
    assert carried_files(names) == (names, {})


@pytest.mark.parametrize("script", ["init.sh", "start.sh"])
def test_the_scripts_are_scripts(script: str, tmp_path: Path) -> None:
    text = resources.files("vdisklab.lab").joinpath(script).read_text()
    file = tmp_path / script
    file.write_text(text)
    LocalHost().run("sh", "-n", file)


def test_names_of_requirements() -> None:
    lines = ["Mako", "typing_extensions>=4.12", 'tzdata; extra == "tz"', "greenlet >= 1 ; x"]
    assert required_names(lines) == ["mako", "typing-extensions", "greenlet"]


def test_a_damaged_image_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is damaged") as refused:
        _read(tmp_path)
    assert "lab build --again" in str(refused.value.hint)
    for name in ("root.ext4", "vmlinuz", "initrd"):
        (tmp_path / name).write_bytes(b"x")
    # of another file, of no file, of another shape
    for files in ('{"root.ext4": "00"}', "{}", "[]", "null"):
        (tmp_path / "manifest.json").write_text(
            f'{{"kernel": "6.1", "python": "3.11", "files": {files}}}'
        )
        with pytest.raises(HostError, match="is damaged"):
            _read(tmp_path)


def test_another_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"the lab has 2\.7"):
        require_same_python(LabImage(tmp_path, "6.1", "2.7"))


def test_packages_that_are_imported_late_are_carried_too() -> None:
    carried = {distribution.name for distribution in needed_distributions()}
    assert {"alembic", "PyYAML"} <= carried
