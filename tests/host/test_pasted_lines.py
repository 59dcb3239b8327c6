"""The lines that make an operation bearable, as virsh and libvirt's schemas know them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.relief_lines import every_line

pytestmark = pytest.mark.host

LINES = every_line()
VIRSH = [line[line.index("virsh ") :] for line in LINES if "virsh " in line]


def test_there_are_some() -> None:
    assert len(VIRSH) >= 8
    assert len([line for line in LINES if "<domainbackup" in line]) >= 3


@pytest.mark.parametrize("line", VIRSH)
def test_virsh_has_the_command_and_its_options(line: str) -> None:
    _, command, *arguments = shlex.split(line)
    asked = ("virsh", "help", command)
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    for option in (word for word in arguments if word.startswith("--")):
        assert re.search(rf"{option}[] \n]", said), option


@pytest.mark.parametrize("line", [line for line in LINES if "<domainbackup" in line])
def test_libvirts_schema_takes_the_backup(line: str, tmp_path: Path) -> None:
    written, _, _ = line.partition(" && ")
    subprocess.run(("sh", "-c", written), cwd=tmp_path, check=True)
    file = tmp_path / "pull.xml"
    asked = ("virt-xml-validate", str(file), "domainbackup")
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
