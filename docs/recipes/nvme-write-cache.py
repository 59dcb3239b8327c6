#!/usr/bin/env python3
"""Shows what QEMU's NVMe device has made durable when it answers a write.

    python3 nvme-write-cache.py [qemu-system-x86_64]

No guest runs: QEMU's test interface (-qtest) writes the device's registers. The namespace is a thin
qcow2 image, whose tables QEMU keeps in memory until a flush. After the device's answer QEMU gets
SIGKILL, and qemu-io reads the image. By the NVM Command Set Specification (Write, FUA) the data of
a write with FUA are on the medium before the answer.
"""

import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR, ADMIN, CQ0, SQ1, CQ1, DATA = 0xE0000000, 0x100000, 0x101000, 0x102000, 0x103000, 0x104000
WRITE, FLUSH = 1, 0
BLOCKS, FUA = 7, 1 << 30  # dword 12: number of blocks less one


class Controller:
    """PCI function 00:04.0, with an admin queue and one I/O queue of 16 entries."""

    def __init__(self, line):
        self.line, self.sent = line, {0: 0, 1: 0}
        for register, value in ((0x10, BAR), (0x14, 0), (0x04, 0x6)):  # BAR0, memory, bus master
            self.ask(f"outl 0xcf8 {0x80002000 | register:#x}")
            self.ask(f"outl 0xcfc {value:#x}")
        for register, value in ((0x24, 0xF000F), (0x28, ADMIN), (0x30, CQ0), (0x14, 0x460001)):
            self.ask(f"writel {BAR + register:#x} {value:#x}")
        while not int(self.ask(f"readl {BAR + 0x1C:#x}"), 16) & 1:  # CSTS.RDY
            pass
        self.command(0, 0x05, 0, CQ1, 0xF0001, 1)
        self.command(0, 0x01, 0, SQ1, 0xF0001, 0x10001)

    def ask(self, text):
        self.line.write(f"{text}\n".encode())
        self.line.flush()
        answer = self.line.readline().decode().split()
        assert answer[0] == "OK", answer
        return answer[-1]

    def command(self, queue, opcode, namespace, address, d10=0, d11=0, d12=0):
        """Sends a command, and waits for its completion."""
        number = self.sent[queue]
        self.sent[queue] += 1
        entry = struct.pack("<II16xQ8xIII12x", opcode, namespace, address, d10, d11, d12)
        submission, completion = ((ADMIN, CQ0), (SQ1, CQ1))[queue]
        self.ask(f"write {submission + 64 * number:#x} 64 0x{entry.hex()}")
        self.ask(f"writel {BAR + 0x1000 + 8 * queue:#x} {number + 1}")
        answer = f"readl {completion + 16 * number + 12:#x}"
        while not (status := int(self.ask(answer), 16)) >> 16 & 1:  # the phase bit
            time.sleep(0.001)
        assert not status >> 17, f"the device answered with status {status >> 17:#x}"


def survives(qemu, directory, drive, device, commands):
    """Whether a write is in the image after these commands and a SIGKILL."""
    image, address = directory / "t.qcow2", directory / "qtest"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "64M"], check=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen()
        server.settimeout(20)
        process = subprocess.Popen(
            [qemu, "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg", "-S",
             "-qtest", f"unix:{address}", "-qtest-log", "/dev/null",
             "-drive", f"file={image},if=none,id=d,format=qcow2,{drive}",
             "-device", f"nvme,drive=d,serial=1,addr=4,{device}"]
        )  # fmt: skip
        try:
            with server.accept()[0] as connection, connection.makefile("rwb") as line:
                controller = Controller(line)
                controller.ask(f"memset {DATA:#x} 4096 7")
                for opcode, d12 in commands:
                    controller.command(1, opcode, 1, DATA, 2048, 0, d12)
        finally:
            process.kill()
            process.wait()
    read = ["qemu-io", "-r", "-f", "qcow2", "-c", "read -P 7 1M 4k", image]
    return "Pattern" not in subprocess.run(read, capture_output=True, text=True).stdout


if __name__ == "__main__":
    qemu = sys.argv[1] if len(sys.argv) > 1 else "qemu-system-x86_64"
    for drive, device in (
        ("cache=none", "write-cache=on"),
        ("cache=none", "write-cache=off"),
        ("cache=writethrough", "write-cache=on"),
        ("cache=writethrough", "write-cache=auto"),
    ):
        for name, commands in (
            ("write", [(WRITE, BLOCKS)]),
            ("write, flush", [(WRITE, BLOCKS), (FLUSH, 0)]),
            ("write with FUA", [(WRITE, BLOCKS | FUA)]),
        ):
            with tempfile.TemporaryDirectory() as directory:
                kept = survives(qemu, Path(directory), drive, device, commands)
            print(f"{drive} {device}, {name}: {'kept' if kept else 'lost'}")
