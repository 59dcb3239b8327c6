"""Images: what qemu-img fails at by chance is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import CommandError
from vdisklab.host.command import Completed, LocalHost, PathArg
from vdisklab.host.ledger import Ledger
from vdisklab.path.disk_path import Image
from vdisklab.path.segments import ImageFormat
from vdisklab.storage.image import _create
from vdisklab.storage.site import Site

LUKS = Image(ImageFormat.QCOW2, (("encrypt", "luks"),))
PLAIN = Image(ImageFormat.QCOW2)
CHANCE = "qemu-img: a.qcow2: Unable to get accurate CPU usage"


class FailingHost(LocalHost):
    """Fails `failures` times with `stderr`, then runs nothing."""

    def __init__(self, failures: int, stderr: str) -> None:
        self.failures, self.stderr, self.runs = failures, stderr, 0

    def which(self, program: str) -> Path:
        return Path(program)

    def run(self, *argv: PathArg, **_options: object) -> Completed:
        self.runs += 1
        arguments = tuple(map(str, argv))
        if self.runs <= self.failures:
            raise CommandError(arguments, 1, self.stderr)
        return Completed(arguments, 0, "", "")


@pytest.mark.parametrize(
    ("image", "stderr", "failures", "runs"),
    [
        (LUKS, CHANCE, 19, 20),
        (LUKS, CHANCE, 30, 20),
        (LUKS, "no space", 1, 1),
        (PLAIN, CHANCE, 1, 1),
    ],
)
def test_only_a_failure_by_chance_is_repeated(
    image: Image, stderr: str, failures: int, runs: int, tmp_path: Path
) -> None:
    host = FailingHost(failures, stderr)
    site = Site(host, Ledger(Path("/dev/null"), "RUN", -1), tmp_path)
    if failures < runs:
        _create(site, image, ["qemu-img", "create"])
    else:
        with pytest.raises(CommandError, match=stderr):
            _create(site, image, ["qemu-img", "create"])
    assert host.runs == runs
