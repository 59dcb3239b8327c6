"""A process's reads and writes are limited by the kernel, and nothing of that is left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from vdisklab.errors import DirtyHostError
from vdisklab.host.command import LocalHost
from vdisklab.host.counters import device_below
from vdisklab.host.ledger import Entry, open_ledger
from vdisklab.storage.io_limits import CGROUP, ROOT, limited
from vdisklab.storage.site import open_site
from vdisklab.units import MIB

pytestmark = pytest.mark.host


def require_limits(directory: Path) -> None:
    """Skips the test where the kernel cannot limit the disk."""
    if device_below(directory) is None:
        pytest.skip("no disk below the directory")
    if not (ROOT / "blkio/blkio.throttle.read_iops_device").exists():
        pytest.skip("no control groups of version 1")


def fio(file: Path, pid_file: Path) -> subprocess.Popen[str]:
    """Random direct reads for a second, once `pid_file` is there."""
    job = (
        f"while ! test -e {pid_file}; do sleep 0.02; done; "
        f"exec fio --name=a --filename={file} --rw=randread --bs=4k --direct=1 --size=4M "
        "--runtime=1 --time_based --output-format=json"
    )
    return subprocess.Popen(["sh", "-c", job], stdout=subprocess.PIPE, text=True)


def test_a_process_gets_no_more_than_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(bytes(4 * MIB))
    subprocess.run(("sync", file), check=True)
    require_limits(tmp_path)
    process = fio(file, tmp_path / "go")
    group = Path(f"/proc/{process.pid}/cgroup").read_text()
    with open_ledger() as ledger, open_site(LocalHost(), ledger, tmp_path) as site:
        with limited(site, process.pid, file, {"iops": 50, "bps": 10 * MIB}) as checks:
            assert [(check.name, check.requested, check.observed) for check in checks] == [
                ("host.cgroup_iops", "50", "50"),
                ("host.cgroup_bps", str(10 * MIB), str(10 * MIB)),
            ]
            assert Path(f"/proc/{process.pid}/cgroup").read_text() != group
            (tmp_path / "go").touch()
            (job,) = json.loads(process.communicate(timeout=60)[0])["jobs"]
            assert 20 < job["read"]["iops"] < 80
        assert not list((ROOT / "blkio").glob(f"vdisklab-{ledger.run_id}*"))


def test_a_process_that_lives_on_gets_back_to_its_group(tmp_path: Path) -> None:
    require_limits(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as process:
        place = Path(f"/proc/{process.pid}/cgroup")
        group = place.read_text()
        with (
            open_ledger() as ledger,
            open_site(LocalHost(), ledger, tmp_path) as site,
            limited(site, process.pid, tmp_path, {"iops": 50}),
        ):
            assert place.read_text() != group
        assert place.read_text() == group
        process.kill()


def test_a_group_in_use_is_kept_for_clean(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    with pytest.raises(DirtyHostError, match="cannot be removed"):
        CGROUP.undo(LocalHost(), Entry(0, CGROUP.kind, str(tmp_path / "group")))
    CGROUP.undo(LocalHost(), Entry(0, CGROUP.kind, str(tmp_path / "gone")))
