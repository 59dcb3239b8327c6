"""A guest's disk on a device of this host that is memory below is never called durable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.host.command import LocalHost

pytestmark = pytest.mark.host


@pytest.fixture
def loop_in_memory() -> Iterator[str]:
    file = Path("/dev/shm/vdisklab-test-loop.raw")  # noqa: S108 - memory is what is tested
    with file.open("wb") as stream:
        stream.truncate(8 << 20)
    device = LocalHost().run("losetup", "--show", "--find", file).stdout.strip()
    try:
        yield device
    finally:
        LocalHost().run("losetup", "--detach", device)
        file.unlink()


def test_a_loop_device_on_tmpfs_is_memory(
    loop_in_memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "guest.sh"
    script.write_text(
        f"qemu-system-x86_64 -name a -drive file={loop_in_memory},format=raw,if=virtio,cache=none\n"
    )
    main(["audit", str(script), "--need", "durable", "--format", "json"])
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert "is a file on tmpfs, which is memory" in disk["lacks"]["durable"]
    assert disk["power_cut"]["kind"] == "lost-by-construction"
