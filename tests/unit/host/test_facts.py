"""Facts come from the kernel's files and the programs' own words; the unknown is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.host.files import write
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import QEMU, available_memory, collect_facts, virtualised
from vdisklab.units import GIB, MIB

CPUINFO = """processor\t: 0
model name\t: Imaginary CPU @ 3.00GHz
microcode\t: 0x1
flags\t\t: fpu vmx{more}

processor\t: 1
model name\t: Imaginary CPU @ 3.00GHz
"""


def fake_program(directory: Path, name: str, script: str) -> None:
    """A scripted executable; the directory is to be on PATH."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return write(
        tmp_path / "root",
        {
            "proc/cpuinfo": CPUINFO.format(more=" hypervisor"),
            "proc/meminfo": "MemTotal:  2048 kB\nMemAvailable:  1024 kB\nSwapTotal:  0 kB\n",
            "proc/sys/kernel/hostname": "lab7\n",
            "proc/sys/kernel/osrelease": "6.1.0-9\n",
            "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
            "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n',
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/vulnerabilities/mds": "Vulnerable; SMT on\n",
            "sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI\n",
            "sys/devices/system/cpu/vulnerabilities/l1tf": "Not affected\n",
            "sys/devices/system/node/node0/cpulist": "0-1\n",
            "sys/class/dmi/id/sys_vendor": "ACME\n",
            "sys/class/dmi/id/product_name": "Cloud\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        },
    )


def test_facts_of_a_whole_machine(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    fake_program(programs, QEMU, "echo 'QEMU emulator version 7.2.22 (Debian 1:7.2)'")
    fake_program(programs, "fio", "echo fio-3.33")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    facts = collect_facts(LocalHost(), machine)
    assert (facts.hostname, facts.kernel) == ("lab7", "6.1.0-9")
    assert (facts.cpu, facts.cpus) == ("Imaginary CPU @ 3.00GHz", 2)
    assert facts.memory_bytes == 2 << 20
    assert (facts.qemu, facts.fio) == ("7.2.22 (Debian 1:7.2)", "3.33")
    assert facts.more["governor"] == "performance"
    assert facts.more["mitigations"] == "1 mitigated, 1 vulnerable (mds)"
    assert facts.more["virtualised"] == "ACME Cloud"
    assert facts.more["distribution"] == "Debian GNU/Linux 12"
    assert facts.more["transparent_hugepages"] == "madvise"
    assert facts.more["numa_nodes"] == "1"
    assert facts.more["page_size"] == str(os.sysconf("SC_PAGE_SIZE"))


def test_the_administrators_facts_stand_beside_the_machines(machine: Path) -> None:
    write(machine, {"etc/vdisklab/facts": "# where it is\nrack = A3\n\narray=san 1\n"})
    more = collect_facts(LocalHost(), machine).more
    assert (more["rack"], more["array"], more["governor"]) == ("A3", "san 1", "performance")


@pytest.mark.parametrize("line", ["rack", "rack=", "=A3", "my rack=A3", "governor=fast"])
def test_a_line_that_is_no_fact_is_named(machine: Path, line: str) -> None:
    write(machine, {"etc/vdisklab/facts": line})
    with pytest.raises(HostError, match="is not a fact about this host") as caught:
        collect_facts(LocalHost(), machine)
    assert "rack=A3" in (caught.value.hint or "")


def test_the_machine_id_is_stable_and_not_the_raw_one(machine: Path) -> None:
    first = collect_facts(LocalHost(), machine).machine_id
    assert first == collect_facts(LocalHost(), machine).machine_id
    assert first not in "0123456789abcdef0123456789abcdef"
    (machine / "etc/machine-id").write_text("")
    assert collect_facts(LocalHost(), machine).machine_id != first


def test_a_machine_that_tells_nothing_has_no_invented_facts(tmp_path: Path) -> None:
    facts = collect_facts(LocalHost(), tmp_path)
    assert facts.memory_bytes == 0
    assert facts.cpus is not None
    assert facts.cpus >= 1
    assert not {"governor", "mitigations", "virtualised", "numa_nodes"} & facts.more.keys()


def test_broken_programs_have_no_version(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(tmp_path / "bin", "fio", "echo broken >&2; exit 127")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert collect_facts(LocalHost(), machine).fio is None


def test_bare_metal_is_not_virtualised(machine: Path) -> None:
    (machine / "proc/cpuinfo").write_text(CPUINFO.format(more=""))
    assert virtualised(machine) is None


def grouped(root: Path, groups: str, **files: str) -> Path:
    """A root directory with 8 GiB available; `__` in a name stands for a slash."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemAvailable: {8 * GIB // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("", {}, 8 * GIB),
        ("0::/\n", {}, 8 * GIB),
        (
            "0::/a.slice/b.service\n",
            {
                "a.slice__memory.max": f"{2 * GIB}\n",
                "a.slice__memory.current": f"{GIB}\n",
                "a.slice__memory.stat": f"anon 1\ninactive_file {256 * MIB}\n",
                "a.slice__b.service__memory.max": "max\n",
                "a.slice__b.service__memory.current": "5\n",
            },
            GIB + 256 * MIB,
        ),
        (
            "4:cpu,memory:/x\n0::/\n",
            {
                "memory__x__memory.limit_in_bytes": f"{500 * MIB}\n",
                "memory__x__memory.usage_in_bytes": f"{600 * MIB}\n",
                "memory__memory.limit_in_bytes": "9223372036854771712\n",
                "memory__memory.usage_in_bytes": "7\n",
            },
            0,
        ),
    ],
)
def test_what_is_left_is_the_least_of_all_limits(
    groups: str, files: dict[str, str], left: int, tmp_path: Path
) -> None:
    assert available_memory(grouped(tmp_path, groups, **files)) == left


def test_zfs_is_the_kernels_or_zfs_fuse(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: set[str] = set()
    monkeypatch.setattr(LocalHost, "which", lambda _, name: name if name in installed else None)
    assert "zfs" not in collect_facts(LocalHost(), machine).more
    installed.add("zfs-fuse")
    assert collect_facts(LocalHost(), machine).has_zfs_fuse
    write(machine, {"sys/module/zfs/version": "2.1.11-1\n"})
    facts = collect_facts(LocalHost(), machine)
    assert facts.more["zfs"] == "2.1.11-1"
    assert not facts.has_zfs_fuse
