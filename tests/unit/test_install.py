"""What the scripts and lock files promise."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vdisklab.errors import extra_hint
from vdisklab.path.architecture import ARCHITECTURES

ROOT = Path(__file__).parents[2]
SCRIPTS = (
    "script/build",
    "script/build-deb",
    "script/install",
    "script/nightly",
    "script/pictures",
    "script/quickstart",
    "script/test",
    ".ci/run",
)
LOCKS = ("requirements.lock", "requirements-extras.lock", "requirements-dev.lock")


def pins(lock: str) -> dict[str, str]:
    """Name and version of every pinned package."""
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_bash(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
    assert "set -euo pipefail" in (ROOT / script).read_text()


def quickstart(directory: Path, *arguments: str, programs: tuple[str, ...] = ()) -> list[list[str]]:
    """The words that each program which script/quickstart starts is given, or what it prints."""
    script = directory / "script" / "quickstart"
    made = ["script/install", ".venv/bin/vdisklab", *(f"bin/{name}" for name in programs)]
    for name in made:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text('#!/bin/sh\necho "$(basename "$0") $@"\n')
        (directory / name).chmod(0o755)
    shutil.copy(ROOT / "script" / "quickstart", script)
    (directory / "bin").mkdir(exist_ok=True)
    for name in ("basename", "dirname", "env", "readlink", "sed"):
        (directory / "bin" / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        [shutil.which("bash") or "bash", script, *arguments],
        env={"PATH": str(directory / "bin")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("programs", "platforms"),
    [
        ((), "--platform proxmox --platform libvirt"),
        (("incus",), "--platform incus"),
        (("qm",), "--platform proxmox"),
        (("virsh", "incus"), "--platform incus --platform libvirt"),
    ],
)
def test_the_quickstart_measures_what_this_host_gives_new_guests(
    tmp_path: Path, programs: tuple[str, ...], platforms: str
) -> None:
    *_, command = quickstart(tmp_path, "--rounds", "1", programs=programs)
    text = " ".join(command)
    assert text.startswith("vdisklab run host {raw,qcow2}/{none,writeback} ")
    assert f" {platforms} --profile short " in text
    assert text.endswith(" --rounds 1")
    assert "--rounds" not in command[:-2], "it races"


def test_the_quickstart_measures_all_cache_modes_if_asked(tmp_path: Path) -> None:
    *_, command = quickstart(tmp_path, "--all")
    assert "{raw,qcow2}/{none,writeback,writethrough,directsync,unsafe}" in command


@pytest.mark.parametrize("arguments", [("--short", "--rounds", "1"), ("--rounds", "1", "--short")])
def test_the_quickstart_may_be_short_anywhere_on_the_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    *_, command = quickstart(tmp_path, *arguments)
    assert "--short" not in command
    assert "--platform" not in command
    assert command[-2:] == ["--rounds", "1"]


@pytest.mark.parametrize("arguments", [("--help",), ("--short", "-h")])
def test_the_quickstart_says_what_it_does_without_installing(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    lines = quickstart(tmp_path, *arguments)
    assert ["script/quickstart", "[--short", "|", "--all]", "[OPTION...]"] in lines
    assert not [line for line in lines if line[:1] in (["install"], ["vdisklab"])]
    assert not [line for line in lines if line[:1] == ["set"]]


@pytest.mark.parametrize(("tests", "lab", "status"), [(0, 0, 0), (1, 0, 1), (0, 2, 2)])
def test_the_nightly_run_does_all_parts_and_fails_if_one_does(
    tmp_path: Path, tests: int, lab: int, status: int
) -> None:
    ends = {"script/install": 0, ".venv/bin/python": tests, "script/test-lab": lab}
    for name, end in ends.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$(basename "$0") $@"\nexit {end}\n')
        (tmp_path / name).chmod(0o755)
    shutil.copy(ROOT / "script/nightly", tmp_path / "script")
    done = subprocess.run(
        [tmp_path / "script/nightly"],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "replay-log (xfstests, src/log-writes) is not on PATH" in done.stderr
    assert done.stdout.splitlines() == [
        "install --dev",
        "python bench/nightly.py",
        "test-lab small targets",
    ]
    assert done.returncode == status


def test_an_image_takes_nothing_that_git_ignores() -> None:
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored | {".git"} <= {line.removeprefix("**/") for line in left_out}


def test_an_image_gets_its_guests_kernel_before_it_loses_the_lists_of_packages() -> None:
    _, _, command = (ROOT / "Containerfile").read_text().partition("script/guest-kernel /")
    assert "rm -rf /var/lib/apt/lists" in command


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_hashes_and_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert len(re.findall(r"^\S+==", text, re.MULTILINE)) == len(
        re.findall(r"^\S+==.* \\\n +--hash=sha256:", text, re.MULTILINE)
    )


def test_the_development_lock_holds_all_of_the_others() -> None:
    for lock in LOCKS:
        assert pins(lock).items() <= pins("requirements-dev.lock").items()


def test_a_package_is_in_the_lock_or_in_that_of_the_extras() -> None:
    assert not pins("requirements.lock").keys() & pins("requirements-extras.lock").keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {re.split(r"[\[>]", line)[0] for line in extras["parquet"] + extras["fleet"]}
    assert wanted <= pins("requirements-extras.lock").keys()


def test_the_live_page_comes_with_the_installation() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {re.split(r">", line)[0] for line in extras["watch"]}
    assert wanted <= pins("requirements.lock").keys()


def script_test(
    directory: Path,
    failing: dict[str, int],
    flaky: bool,
    types: int = 0,
    misspelled: int = 0,
    **environment: str,
) -> tuple[int, list[str]]:
    """The status and last lines of script/test, in whose parts so many tests fail at first."""
    (directory / "script").mkdir()
    shutil.copy(ROOT / "script/test", directory / "script/test")
    for part, count in failing.items():
        names = "".join(f'  "tests/{part}.py::test_{n}[a]": true,\n' for n in range(count))
        (directory / f"failing-{part}").write_text(f"{{\n{names[:-2]}\n}}\n")
    pytest_here = f"""#!/bin/bash
while [[ "$1" != -o ]]; do shift; done
part="${{2##*/}}"
[[ -f "failing-$part" ]] || exit 0
[[ " $* " != *" --last-failed "* ]] || exit {int(not flaky)}
mkdir -p ".pytest_cache/$part/v/cache"
cp "failing-$part" ".pytest_cache/$part/v/cache/lastfailed"
exit 1
"""
    programs = {
        "ruff": "#!/bin/sh\n",
        "codespell": f"#!/bin/sh\nexit {misspelled}\n",
        "mypy": f"#!/bin/sh\nexit {types}\n",
        "pytest": pytest_here,
        "python": '#!/bin/sh\necho "$*" >>asked\n[ "$2" != pip ] || exit 1\n',
    }
    for name, text in programs.items():
        program = directory / ".venv/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    install = directory / "script/install"
    install.write_text("#!/bin/sh\n")
    install.chmod(0o755)
    done = subprocess.run(
        [directory / "script/test"],
        env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, [line for line in done.stdout.splitlines() if "flake" in line]


@pytest.mark.parametrize(
    ("failing", "status"),
    [({}, 0), ({"hosts": 1}, 0), ({"units": 2}, 1), ({"verbs": 1}, 0), ({"guests": 3}, 1)],
)
def test_a_test_that_passes_alone_is_a_flake_and_one_is_allowed(
    tmp_path: Path, failing: dict[str, int], status: int
) -> None:
    ended, flakes = script_test(tmp_path, failing, flaky=True)
    named = [
        f"script/test: flake: tests/{part}.py::test_{number}[a]"
        for part, count in failing.items()
        for number in range(count)
    ]
    assert (ended, flakes) == (status, named if len(named) <= 2 else [])


def test_flakes_of_two_parts_fail_the_run(tmp_path: Path) -> None:
    ended, flakes = script_test(tmp_path, {"hosts": 1, "units": 1}, flaky=True)
    assert (ended, len(flakes)) == (1, 2)


def test_what_fails_alone_too_is_a_failure(tmp_path: Path) -> None:
    assert script_test(tmp_path, {"hosts": 1}, flaky=False) == (1, [])


def test_types_that_do_not_fit_fail_the_run(tmp_path: Path) -> None:
    assert script_test(tmp_path, {}, flaky=True, types=1) == (1, [])


def test_a_misspelt_word_fails_the_run(tmp_path: Path) -> None:
    assert script_test(tmp_path, {}, flaky=True, misspelled=65) == (65, [])


@pytest.mark.parametrize(
    ("parts", "status"),
    [("lint locks types", 0), ("units verbs", 0), ("types hosts units", 1), ("unit", 2)],
)
def test_parts_that_were_not_asked_for_do_not_run(tmp_path: Path, parts: str, status: int) -> None:
    failing = {"hosts": 3, "guests": 3}
    assert script_test(tmp_path, failing, flaky=False, VDISKLAB_PARTS=parts) == (status, [])


def test_a_lock_file_that_does_not_install_fails_continuous_integration(tmp_path: Path) -> None:
    assert script_test(tmp_path, {}, flaky=True, CI="true") == (1, [])
    (asked,) = [line for line in (tmp_path / "asked").read_text().splitlines() if "pip" in line]
    assert "--dry-run" in asked
    locks = "--requirement requirements.lock --requirement requirements-extras.lock"
    assert asked.endswith(locks)


def required_by(pinned: str, extras: Iterable[str]) -> dict[str, set[str]]:
    """The packages that an installed package requires here, each with the extras of it."""
    environments = [{"extra": extra} for extra in ("", *extras)]
    needed = map(Requirement, metadata.requires(pinned) or ())
    return {
        canonicalize_name(need.name): need.extras
        for need in needed
        if need.marker is None or any(map(need.marker.evaluate, environments))
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_whatever_its_packages_require(lock: str) -> None:
    """pip refuses a package without a hash; the extras go into a finished environment."""
    held = {canonicalize_name(name) for name in pins(lock)}
    beside = pins("requirements.lock") if lock == "requirements-extras.lock" else {}
    held |= {canonicalize_name(name) for name in beside}
    queue: list[tuple[str, frozenset[str]]] = [(name, frozenset()) for name in sorted(pins(lock))]
    seen, missing = set(queue), set[str]()
    while queue:
        name, extras = queue.pop()
        for needed, wanted in required_by(name, extras).items():
            if needed not in held:
                missing.add(f"{needed}, which {name} requires")
            elif (step := (needed, frozenset(wanted))) not in seen:
                seen.add(step)
                queue.append(step)
    assert not missing


def test_every_dependency_and_the_build_backend_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    # Lock files spell names in the normal form of the registry: lower case, one kind of dash.
    names = {re.sub(r"[._]", "-", re.split(r"[\[>=<]", line)[0]) for line in wanted}
    assert names <= pins("requirements.lock").keys()


def test_an_unknown_argument_is_refused() -> None:
    done = subprocess.run(
        [ROOT / "script/install", "--nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--nonsense" in done.stderr


class Machine:
    """A PATH of stand-ins: programs that do nothing, and an apt-get that notes what it is told."""

    def __init__(self, directory: Path, programs: Iterable[str]) -> None:
        self.bin = directory / "bin"
        self.log = directory / "log"
        self.bin.mkdir()
        for tool in ("cat", "dirname", "readlink", "sort", "ls", "id", "touch", "chmod", "bash"):
            (self.bin / tool).symlink_to(shutil.which(tool) or "/nonexistent")
        for program in programs:
            self.add(program, "exit 0")

    def add(self, program: str, script: str) -> None:
        file = self.bin / program
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    def call(self, function: str) -> subprocess.CompletedProcess[str]:
        """One function of script/install; /sbin counts as empty, so only stand-ins are there."""
        source = (
            (ROOT / "script/install").read_text().replace("/usr/local/sbin:/usr/sbin:/sbin", "")
        )
        copy = self.bin.parent / "script" / "install"
        copy.parent.mkdir(exist_ok=True)
        table = self.bin.parent / TABLE
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text((ROOT / TABLE).read_text())
        copy.write_text(source.replace("/usr/bin/python3", ""))
        return subprocess.run(
            ["bash", "-c", f"source {copy}; {function}"],
            env={"PATH": str(self.bin)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def rows(array: str) -> list[list[str]]:
    """The rows of a table in script/install."""
    text = (ROOT / "script/install").read_text()
    found = re.search(rf"^{array}=\((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return [line.split() for line in re.findall(r'"([^"]+)"', found[1])]


TABLE = "src/vdisklab/host/packages.txt"
PROGRAMS = [
    line.split()[1].split(",")[0]
    for line in (ROOT / TABLE).read_text().splitlines()
    if line.startswith(("needed", "optional"))
    and line.split()[0].partition("@")[2] in ("", platform.machine())
] + ["venv"]
APT = """echo "$@" >>LOG
for word; do [[ "$word" != fio ]] || { echo exit 0 >BIN/fio; chmod +x BIN/fio; }; done"""


def with_apt(directory: Path, programs: Iterable[str]) -> Machine:
    machine = Machine(directory, [*programs, "python3"])
    machine.add("apt-get", APT.replace("LOG", str(machine.log)).replace("BIN", str(machine.bin)))
    machine.add("dpkg", "exit 0")
    return machine


def test_every_row_names_a_program_and_four_packages() -> None:
    assert all(len(row) == 5 for row in rows("needs"))
    for line in (ROOT / TABLE).read_text().splitlines():
        kind, _, row = line.partition(" ")
        kind, _, host = kind.partition("@")
        assert host in ("", *(row.name for row in ARCHITECTURES))
        assert kind in ("", "#", "manager", "needed", "optional", "database", "other")
        if kind in ("needed", "optional"):
            assert "-" not in row.split(maxsplit=5)[1:5]
    assert all(len(row) == 2 for row in rows("dev_needs"))


@pytest.mark.parametrize(
    ("made_for", "says"),
    [
        ("/elsewhere/.venv", "which was made for /elsewhere/.venv: a copied or moved environment"),
        ("{here}/.venv", "which is unfinished, or older than this checkout"),
        (None, ""),
    ],
)
def test_an_environment_that_is_replaced_is_said_to_be(
    tmp_path: Path, made_for: str | None, says: str
) -> None:
    if made_for is not None:
        (tmp_path / ".venv").mkdir()
        line = f"command = /usr/bin/python3 -m venv {made_for.format(here=tmp_path)}\n"
        (tmp_path / ".venv" / "pyvenv.cfg").write_text(line)
    asked = f". {ROOT}/script/install; cd {tmp_path}; explain_new_environment"
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=20
    )
    assert bool(done.stdout) is bool(says)
    assert says in done.stdout


def test_programs_of_any_origin_are_taken_as_they_are(tmp_path: Path) -> None:
    machine = with_apt(tmp_path, PROGRAMS)
    done = machine.call("install_programs")
    assert done.returncode == 0, done.stderr
    assert "all are there" in done.stdout
    assert not machine.log.exists()


def test_a_proxmox_hosts_qemu_is_neither_asked_for_nor_removed(tmp_path: Path) -> None:
    machine = with_apt(tmp_path, [name for name in PROGRAMS if name != "fio"])
    done = machine.call("install_programs")
    assert done.returncode == 0, done.stderr
    update, install = machine.log.read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install --fix-broken --no-remove --no-install-recommends fio")


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("dnf", "dnf install btrfs-progs fio qemu-img"),
        ("pacman", "pacman -S --needed btrfs-progs fio qemu-img"),
        ("zypper", "zypper install btrfsprogs fio qemu-img"),
    ],
)
def test_elsewhere_the_packages_are_named(tmp_path: Path, manager: str, command: str) -> None:
    missing = {"fio", "mkfs.btrfs", "qemu-img"}
    machine = Machine(tmp_path, [name for name in PROGRAMS if name not in missing] + ["python3"])
    machine.add(manager, "exit 0")
    done = machine.call("install_programs")
    assert done.returncode == 1
    *verb, optional, needed, more = command.split()
    assert " ".join([*verb, optional]) in done.stdout
    assert f"hint: as root: {' '.join([*verb, needed, more])}, then script/install" in done.stderr


def test_programs_of_some_profiles_are_named_and_no_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [name for name in PROGRAMS if name != "sysbench"] + ["python3"])
    machine.add("dnf", "exit 0")
    done = machine.call("install_programs")
    assert done.returncode == 0, done.stderr
    assert "for all profiles and host layers: dnf install sysbench" in done.stdout


def test_an_old_python_is_found_before_anything_is_installed(tmp_path: Path) -> None:
    machine = with_apt(tmp_path, [])
    machine.add("python3", 'case "$1" in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac')
    done = machine.call("main")
    assert done.returncode == 1
    assert "Python 3.11 is needed, and this is Python 3.9.2" in done.stderr
    assert "hint: install a newer one beside it" in done.stderr
    assert not machine.log.exists()


@pytest.mark.parametrize("extra", ["parquet", "postgresql", "fleet"])
def test_the_hint_for_a_missing_package_names_packages_that_exist(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index has vdisklab, so `pip install 'vdisklab[parquet]'` finds nothing."""
    monkeypatch.setattr("sys.prefix", "/usr")
    *command, found = extra_hint(extra).partition(" install ")
    assert command[0] == f"{sys.executable} -m pip"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert shlex.split(found) == project["optional-dependencies"][extra]
    # In the environment that script/install made, that script adds them.
    for name in ("src/vdisklab/errors.py", "script/install"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    monkeypatch.setattr("vdisklab.errors.__file__", str(tmp_path / "src/vdisklab/errors.py"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    assert extra_hint(extra).split()[0] == str(tmp_path / "script/install")
    assert extra_hint(extra).endswith("--extras")


@pytest.mark.parametrize("arguments", [("--help",), ("--extras", "--help"), ("-h", "--dev")])
def test_help_of_the_installation_in_any_place_installs_nothing(arguments: tuple[str, ...]) -> None:
    command = [str(ROOT / "script" / "install"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.startswith("Installs what vdisklab needs")
    assert "making .venv" not in done.stdout
