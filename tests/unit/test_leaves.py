"""What comes off: without it the rest starts, lists its verbs, ranks, plans and keeps its tests.

Each commit takes all leaves off at once, and looks whether anything imports one; script/nightly
takes each off alone, and runs the tests of the core without it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from vdisklab.cli.shell.verbs import verb_files
from vdisklab.results.exchange import read_export, store_export
from vdisklab.results.store import open_store

from .test_architecture import MODULES, SOURCE, imports_of, name_of

ROOT = SOURCE.parents[1]
LEAVES: dict[str, tuple[str, ...]] = {
    "powercut": ("powercut",),
    "lab": ("lab",),
    "watch": ("watch",),
    "fleet": ("fleet",),
    # Their writers share QEMU's own arguments, so `qemu` itself stays.
    "proxmox": ("platforms/proxmox.py",),
    "libvirt": ("platforms/libvirt.py", "platforms/libvirt_domain.py", "platforms/virt_install.py"),
    "kubevirt": ("platforms/kubevirt.py", "platforms/kubernetes_claims.py"),
    "incus": ("platforms/incus.py",),
    "openstack": ("platforms/openstack.py",),
    # Their rows stay in `path`, so that what is stored of them can be read.
    "nbd": ("storage/servers/nbd.py",),
    "iscsi": ("storage/servers/iscsi.py",),
    "libnfs": ("storage/servers/libnfs.py",),
    "rbd": ("storage/servers/rbd.py",),
    "ssh": ("storage/servers/ssh.py",),
}
VERBS = ("powercut", "lab", "watch", "fleet")
"""Leaves that are rooms, each with a verb of its name."""
SERVERS = ("nbd", "iscsi", "libnfs", "rbd", "ssh")
"""Leaves that are kinds of servers, in the order of their rows."""

CORE_TESTS = ("path", "plan", "analysis", "workload", "storage")
ALL_ROOMS = "tests/unit/storage/test_new_layer.py"
"""What a new layer takes, from its path to its power cut: a test of more than the core."""

SERVERS_TESTS = (
    "tests/unit/storage/test_remote.py",
    "tests/unit/storage/servers/test_members.py",
)
"""Tests of all kinds of servers: they belong to these leaves, and not to the core."""

USES = """
import contextlib, io, json, sys
from pathlib import Path
import vdisklab
from vdisklab.cli.shell.main import main
from vdisklab.cli.shell.verbs import verb_files
from vdisklab.answers import documents
from vdisklab.errors import PlanError
from vdisklab.path.named_target import parse_target
from vdisklab.path.segments import LayerKind
from vdisklab.storage.server_url import url_of

def printed(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(list(words))
    return status, out.getvalue()

(database,) = sys.argv[1:]
said = {"place": str(Path(vdisklab.__file__).parent), "verbs": sorted(verb_files())}
said["help"] = printed("--help")
said["rank"] = printed("rank", "--db", database, "--format", "json")
said["report"] = printed("report", "--db", database, "-o", database + ".html")
said["plan"] = printed("plan", "raw/none", "qcow2/none", "--db", database)
said["unopened"] = []
for kind in (kind for kind in LayerKind if kind.facts.target and kind.facts.target.by_qemu):
    try:
        url_of(parse_target("t=" + kind.facts.target.example), None)
    except PlanError as error:
        said["unopened"].append([kind, error.message])
said["documents"] = len(list(documents()))
print(json.dumps(said))
"""


def parts(leaf: str) -> set[str]:
    """The modules of a leaf."""
    return {
        name_of(module)
        for module in MODULES
        for part in LEAVES[leaf]
        if module.is_relative_to(SOURCE / part)
    }


@pytest.mark.parametrize("leaf", LEAVES)
def test_nothing_else_imports_a_leaf(leaf: str) -> None:
    names = parts(leaf)
    assert names
    found = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        if name_of(path) not in names
        for name in imports_of(path)
        if name in names or name.rpartition(".")[0] in names
    ]
    assert found == []


def test_no_test_of_the_core_imports_a_leaf_that_has_a_room() -> None:
    """The nightly test takes long to say so."""
    rooms = "|".join(leaf for leaf, names in LEAVES.items() if leaf in names)
    imports = re.compile(rf"^ *(?:from|import) vdisklab\.(?:{rooms})\b", re.MULTILINE)
    tests = [test for room in CORE_TESTS for test in (ROOT / "tests/unit" / room).rglob("*.py")]
    assert tests
    found = [test for test in tests if imports.search(test.read_text())]
    assert found == [ROOT / ALL_ROOMS]


def without(leaves: Iterable[str], directory: Path) -> Path:
    """A copy of the sources without the leaves."""
    source = directory / "src"
    shutil.copytree(SOURCE, source / "vdisklab", ignore=shutil.ignore_patterns("__pycache__"))
    for part in (part for leaf in leaves for part in LEAVES[leaf]):
        gone = source / "vdisklab" / part
        if gone.is_dir():
            shutil.rmtree(gone)
        else:
            gone.unlink()
    return source


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the recorded campaign."""
    file = tmp_path_factory.mktemp("recorded") / "db.sqlite"
    export = ROOT / "docs" / "images" / "campaign.json.gz"
    with open_store(str(file)) as store:
        store_export(store, read_export(export.read_bytes(), name=export.name), name=export.name)
    return file


@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param(tuple(LEAVES), id="all"),
        *(pytest.param((leaf,), id=leaf, marks=pytest.mark.nightly) for leaf in LEAVES),
    ],
)
def test_the_rest_works_without_leaves(
    leaves: tuple[str, ...], recorded: Path, tmp_path: Path
) -> None:
    source = without(leaves, tmp_path)
    database = shutil.copy(recorded, tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", USES, str(database)],
        env={"PYTHONPATH": f"{source}:{':'.join(sys.path)}", "PATH": "/usr/sbin:/usr/bin:/bin",
             "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["place"] == str(source / "vdisklab")
    assert set(said["verbs"]) == verb_files().keys() - {*leaves}
    assert said["unopened"] == [
        [kind, f"target t: this vdisklab opens no {kind} targets"]
        for kind in SERVERS
        if kind in leaves
    ]
    for step in ("help", "rank", "report"):
        assert said[step][0] == 0, (step, ended.stderr)
    for verb in said["verbs"]:
        assert verb in said["help"][1]
    assert json.loads(said["rank"][1])["cells"]
    # A host without QEMU or root says so; what is missing of vdisklab would be a traceback.
    assert "Traceback" not in ended.stderr
    assert said["plan"][0] in {0, 3}, ended.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("leaf", LEAVES)
def test_the_core_keeps_its_unit_tests_without_a_leaf(leaf: str, tmp_path: Path) -> None:
    source = without((leaf,), tmp_path)
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    for name in ("docs", "bench", "script", "changes"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    chosen = [f"tests/unit/{room}" for room in CORE_TESTS]
    left_out = (ALL_ROOMS, *(SERVERS_TESTS if leaf in SERVERS else ()))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not nightly",
         *(f"--ignore={name}" for name in left_out), *chosen],
        env={"PYTHONPATH": f"{source}:{tmp_path}:{':'.join(sys.path)}",
             "PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-4000:]
