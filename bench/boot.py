"""Seconds until a guest answers: the micro guest and virtme-ng, with the same kernel, in turns.

    python bench/boot.py [--repeats N] [--cache DIR] > bench/results/boot.json

Both run under TCG with 2 CPUs and 1 GiB. The clock starts when QEMU is executed. For virtme-ng a
script in QEMU's place records that time, so that the start of Python does not count (`command`
counts from the start of `vng`). The micro guest's first answer is the guest agent's; that of
virtme-ng is the first line of a command in the guest. After it, fio's first answer is timed.

virtme-ng is installed into a separate environment in the cache. The guest reads the host's files
through 9p, which Debian's cloud kernel does not have, or through virtiofsd's Rust version, which
Debian 12 does not have. So both boot Debian's full kernel. The micro guest is also measured with
the cloud kernel, which it uses unless USB or SATA are requested. The record has the reason why
virtme-ng does not boot that kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from machine import machine_facts, print_result
from vdisklab.errors import VdisklabError
from vdisklab.guest.image.cache import building, keep, locked
from vdisklab.guest.image.debian_packages import unpack_package
from vdisklab.guest.image.guest_image import GuestImage, build_guest_image
from vdisklab.guest.image.kernel import find_kernel
from vdisklab.guest.machine import start_machine
from vdisklab.guest.qemu.command_line import BootFiles, GuestConfig
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import QEMU
from vdisklab.host.ledger import open_ledger
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan

VIRTME_SECONDS = 180.0


@dataclass(frozen=True)
class Sample:
    """Seconds from the execution of QEMU."""

    answer: float
    fio: float
    command: float | None = None


def boot_micro_guest(image: GuestImage) -> Sample:
    """One boot of the micro guest."""
    config = GuestConfig(
        binary=QEMU,
        marker=f"vdisklab-bench-{os.getpid()}",
        machine=Bus.VIRTIO.machine,
        accelerator=Accelerator.TCG,
        plan=GuestPlan(),
        boot=BootFiles(image.kernel, image.initrd, image.root, image.append),
    )
    with tempfile.TemporaryDirectory() as name, open_ledger() as ledger:
        begin = time.monotonic()
        with start_machine(config, ledger, Path(name)) as machine:
            answer = time.monotonic() - begin
            machine.agent.run(["/usr/bin/fio", "--version"], timeout=60)
            return Sample(answer, time.monotonic() - begin)


@dataclass(frozen=True)
class Virtme:
    """virtme-ng, installed, and a whole kernel package for it."""

    program: Path
    kernel: Path

    def boot(self) -> Sample:
        """One boot up to fio's answer; the guest is killed then. Raises RuntimeError."""
        with tempfile.TemporaryDirectory() as name:
            stamp, qemu = _stamping_qemu(Path(name))
            argv = [
                str(self.program), "--run", str(self.kernel), "--disable-kvm", "--cpus", "2",
                "--memory", "1G", "--qemu", str(qemu), "--exec", "echo ANSWER; fio --version",
            ]  # fmt: skip
            begin = time.monotonic()
            with (Path(name) / "errors").open("w+b") as errors:
                # `vng` starts `virtme-run`, which lies beside it, by its name.
                path = f"{self.program.parent}:{os.environ['PATH']}"
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, "PATH": path},
                    start_new_session=True,
                )
                assert process.stdout is not None
                try:
                    times = _await_words(process.stdout, (b"ANSWER", b"fio-"), VIRTME_SECONDS)
                finally:
                    _end(process)
                if len(times) < 2:
                    errors.seek(0)
                    raise RuntimeError(_last_words(errors.read()) or "the guest ended in silence")
            started = float(stamp.read_text())
            return Sample(times[0] - started, times[1] - started, command=times[0] - begin)


def _stamping_qemu(directory: Path) -> tuple[Path, Path]:
    """A script in place of QEMU that records the time (CLOCK_MONOTONIC) and then executes QEMU."""
    stamp = directory / "stamp"
    script = directory / QEMU
    # virtme-ng first asks for the version; only the run that has a kernel counts.
    script.write_text(
        f"#!{sys.executable} -S\n"
        "import os, sys, time\n"
        "if '-kernel' in sys.argv:\n"
        f"    open({str(stamp)!r}, 'w').write(str(time.monotonic()))\n"
        f"os.execvp({QEMU!r}, [{QEMU!r}, *sys.argv[1:]])\n"
    )
    script.chmod(0o755)
    return stamp, script


def _await_words(stream: IO[bytes], arguments: Sequence[bytes], timeout: float) -> list[float]:
    """The time at which each word was read, in this order; fewer after the end or the timeout."""
    times: list[float] = []
    output = b""
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(times) < len(arguments):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                break
            output += part
            while len(times) < len(arguments) and arguments[len(times)] in output:
                times.append(time.monotonic())
    return times


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends virtme-ng with its QEMU, which are one session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _last_words(text: bytes) -> str:
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:])


def install_virtme(cache: Path) -> Path:
    """The program `vng` from PyPI, in a separate environment."""
    program = cache / "virtme-ng/bin/vng"
    if not program.exists():
        environment = cache / "virtme-ng"
        run = LocalHost().run
        run(sys.executable, "-m", "venv", environment, timeout=120)
        run(environment / "bin/pip", "install", "--quiet", "virtme-ng", timeout=600)
    return program


def whole_package(cache: Path, release: str) -> Path:
    """The kernel of `release` with all its modules, of which virtme-ng needs 9p and others."""
    root = cache / "whole" / release
    with locked(root.parent) as directory:
        if not root.exists():
            with building(directory) as fresh:
                unpack_package(LocalHost(), f"linux-image-{release}", fresh)
                keep(fresh, root)
    return root / f"boot/vmlinuz-{release}"


def interleave(
    contestants: Mapping[str, Callable[[], Sample]], repeats: int
) -> dict[str, list[Sample]]:
    """Each contestant once in every turn, so that a slow minute of the machine affects them all."""
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for turn in range(repeats):
        for name, boot in contestants.items():
            sample = boot()
            samples[name].append(sample)
            print(f"{turn + 1}/{repeats} {name}: {sample}", file=sys.stderr)
    return samples


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """All values in seconds, their median and minimum."""

    def column(values: Iterable[float | None]) -> dict[str, Any]:
        present = [round(value, 3) for value in values if value is not None]
        return {"median": statistics.median(present), "least": min(present), "all": present}

    result = {
        "answer": column(s.answer for s in samples),
        "fio": column(s.fio for s in samples),
    }
    if samples[0].command is not None:
        result["command"] = column(s.command for s in samples)
    return result


def ratio(first: Sequence[Sample], other: Sequence[Sample]) -> dict[str, float]:
    """How many times longer `other` takes than `one`: medians of the ratios within each turn."""
    pairs = list(zip(first, other, strict=True))
    return {
        "answer": round(statistics.median(b.answer / a.answer for a, b in pairs), 2),
        "fio": round(statistics.median(b.fio / a.fio for a, b in pairs), 2),
    }


def why_not_cloud(virtme: Virtme) -> str:
    """What happens when virtme-ng boots the cloud kernel."""
    config = virtme.kernel.with_name(virtme.kernel.name.replace("vmlinuz", "config")).read_text()
    lacks = [name for name in ("NET_9P", "9P_FS") if f"CONFIG_{name}=" not in config]
    try:
        sample = virtme.boot()
    except RuntimeError as error:
        missing = f"; this kernel has no {', '.join(lacks)}" if lacks else ""
        return f"no answer: {error}{missing}"
    return f"it did boot, once: {sample}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=Path("/var/cache/vdisklab-bench"))
    options = parser.parse_args()
    host = LocalHost()
    cache = options.cache
    facts = machine_facts(Path.cwd())
    full = find_kernel(host, cache, frozenset(Bus))
    cloud = find_kernel(host, cache, frozenset({Bus.VIRTIO}))
    images = {kernel.release: build_guest_image(host, cache, kernel) for kernel in (full, cloud)}
    program = install_virtme(cache)
    virtme = Virtme(program, whole_package(cache, full.release))
    ours, beside, theirs = "vdisklab", "vdisklab_cloud_kernel", "virtme-ng"
    samples = interleave(
        {
            ours: lambda: boot_micro_guest(images[full.release]),
            beside: lambda: boot_micro_guest(images[cloud.release]),
            theirs: virtme.boot,
        },
        options.repeats,
    )
    version = host.run(program, "--version").stdout.split()[-1]
    kernels = {ours: full.release, beside: cloud.release, theirs: full.release}
    print_result(
        {
            "bench": "boot",
            **facts,
            "load_after": Path("/proc/loadavg").read_text().split()[0],
            "accelerator": Accelerator.TCG.value,
            "cpus": GuestPlan().cpus,
            "memory_bytes": GuestPlan().memory_bytes,
            "virtme-ng_version": version,
            "seconds_from_exec_of_qemu": {
                name: {"kernel": kernels[name], **summary(found)} for name, found in samples.items()
            },
            "times_longer_than_vdisklab": {theirs: ratio(samples[ours], samples[theirs])},
            "virtme-ng_with_the_cloud_kernel": why_not_cloud(
                Virtme(program, whole_package(cache, cloud.release))
            ),
        }
    )


if __name__ == "__main__":
    try:
        main()
    except VdisklabError as error:
        raise SystemExit(f"{error}\n{error.hint or ''}") from error
