"""What a control group leaves counts, where it is less than what the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.host.facts import available_memory
from vdisklab.units import GIB, MIB


def machine(root: Path, groups: str, **files: str) -> Path:
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
    assert available_memory(machine(tmp_path, groups, **files)) == left
