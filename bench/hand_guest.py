"""A guest that a person would script, made and run without any of vdisklab's code.

Its initial RAM file system has busybox, fio and six kernel modules; its first process runs the
command lines that arrive on a virtio port. The disk is there at boot, on the root bus.
"""

from __future__ import annotations

import base64
import json
import lzma
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND_LINE = "console=ttyS0 quiet panic=-1"
"""What a person writes: nothing that changes how the guest works."""

DISK = "/dev/vda"
DRIVE = ("-drive", "file=IMAGE,format=raw,if=none,id=disk,cache=writeback")
DISK_ARGUMENTS = (*DRIVE, "-device", "virtio-blk-pci,drive=disk")

_MODULES = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
    "virtio_blk", "virtio_console",
)  # fmt: skip
_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in {modules}; do insmod /modules/$module.ko; done
while [ ! -e /dev/vport*p1 ] || [ ! -e /dev/vda ]; do sleep 0.1; done
exec 3<>$(echo /dev/vport*p1)
echo ready >&3
while read -r line <&3; do
    sh -c "$line" >/tmp/out 2>/tmp/errors
    echo "$? $(base64 -w 0 /tmp/out) $(base64 -w 0 /tmp/errors)" >&3
done
"""


@dataclass(frozen=True)
class HandGuest:
    """A running guest; it is stopped while another one is measured."""

    monitor: Any
    port: Any

    def run(self, command: str) -> str:
        """What a command line printed."""
        self.port.write(command.encode() + b"\n")
        status, *texts = self.port.readline().decode().split(" ")
        out, errors = (base64.b64decode(text).decode() for text in texts)
        assert status == "0", (command, status, out, errors)
        return out

    def stop(self) -> None:
        """No processor of the guest runs."""
        self.ask("stop")

    def cont(self) -> None:
        """They run again."""
        self.ask("cont")

    def ask(self, command: str) -> None:
        """One command of QEMU's monitor."""
        self.monitor.write(json.dumps({"execute": command}).encode() + b"\n")
        while "return" not in (answer := json.loads(self.monitor.readline())):
            assert "error" not in answer, answer


def make_initrd(modules: Path, work: Path) -> Path:
    """The archive, below `work`; `modules` is the kernel's lib/modules/RELEASE."""
    root = work / "hand-root"
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    _copy_program("fio", root)
    (root / "modules").mkdir()
    names = [name for name in _MODULES if _copy_module(modules, name, root / "modules")]
    init = root / "init"
    init.write_text(_INIT.format(modules=" ".join(names)))
    init.chmod(0o755)
    archive = work / "hand.cpio"
    with archive.open("wb") as sink:
        files = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
        subprocess.run(
            ("busybox", "cpio", "-o", "-H", "newc"), cwd=root, input=files.encode(),
            stdout=sink, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    shutil.rmtree(root)
    return archive


def _copy_program(name: str, root: Path) -> None:
    program = shutil.which(name)
    assert program is not None
    listed = subprocess.run(("ldd", program), capture_output=True, text=True, check=True).stdout
    libraries = [word for word in listed.split() if word.startswith("/")]
    for file in (program, *libraries):
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    shutil.copy(program, root / "bin" / name)


def _copy_module(modules: Path, name: str, into: Path) -> bool:
    """False for a driver that is built into the kernel."""
    for file in modules.glob(f"kernel/**/{name}.ko*"):
        content = file.read_bytes()
        (into / f"{name}.ko").write_bytes(
            lzma.decompress(content) if file.suffix == ".xz" else content
        )
        return True
    return False


@contextmanager
def hand_guest(
    kernel: Path, initrd: Path, image: Path, accelerator: str, command_line: str = COMMAND_LINE,
    *, cpus: int = 2, disk: Sequence[str] = DISK_ARGUMENTS, memory_mib: int = 1024,
) -> Iterator[HandGuest]:  # fmt: skip
    """QEMU with the raw image as the guest's only disk; `disk` has its arguments."""
    near_m, far_m = socket.socketpair()
    near_p, far_p = socket.socketpair()
    near_m.settimeout(600)
    near_p.settimeout(600)
    argv = [
        "qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot",
        "-M", "q35", "-accel", accelerator,
        "-cpu", "max,-la57,-erms" if accelerator == "tcg" else "host",
        "-smp", str(cpus), "-m", str(memory_mib),
        "-kernel", str(kernel), "-initrd", str(initrd), "-append", command_line,
        "-serial", "null",
        *(word.replace("IMAGE", str(image)) for word in disk),
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=port,fd={far_p.fileno()}",
        "-device", "virtserialport,chardev=port,name=hand",
        "-chardev", f"socket,id=mon,fd={far_m.fileno()}", "-mon", "chardev=mon,mode=control",
    ]  # fmt: skip
    process = subprocess.Popen(
        argv, pass_fds=(far_m.fileno(), far_p.fileno()), stdin=subprocess.DEVNULL
    )
    try:
        far_m.close()
        far_p.close()
        monitor = near_m.makefile("rwb", buffering=0)
        guest = HandGuest(monitor, near_p.makefile("rwb", buffering=0))
        monitor.readline()
        guest.ask("qmp_capabilities")
        assert guest.port.readline() == b"ready\n"
        yield guest
    finally:
        process.kill()
        process.wait(30)
        near_m.close()
        near_p.close()
