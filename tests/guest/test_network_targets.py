"""Guests with disks on real servers: all in one campaign, and a server that goes away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.servers.ceph import POOL, ceph
from tests.servers.daemon import Server, run
from tests.servers.iscsi import tgt
from tests.servers.nbd import NO_FLUSH, nbdkit, qemu_nbd, requests
from tests.servers.nfs import ganesha
from tests.servers.ssh import sshd
from vdisklab.cli.shell.main import main
from vdisklab.results.model import Run
from vdisklab.value import replace

pytestmark = pytest.mark.guest

SIZE = 64 << 20

EXPORTS = ("n", "d", "e", "i", "s")
"""Targets on one file system: by NFS, its mount, files on it by NBD and iSCSI, and by ssh."""


def directory_of(lab: Lab, name: str) -> Path:
    """A directory of a server, with a file for a disk and a directory for files."""
    directory = lab.directory / name
    (directory / "files").mkdir(parents=True)
    with (directory / "disk").open("wb") as disk:
        disk.truncate(SIZE)
    return directory


@contextmanager
def nbd_server(directory: Path) -> Iterator[Server]:
    log = f"logfile={directory / 'requests'}"
    with nbdkit(directory, "memory", str(SIZE), log, filters=["log"], tcp=True) as server:
        yield server


@contextmanager
def qemu_nbd_server(directory: Path) -> Iterator[Server]:
    with qemu_nbd(directory, directory / "disk", cache="writeback", tcp=True) as server:
        yield server


@contextmanager
def nfs_server(directory: Path) -> Iterator[Server]:
    with ganesha(directory, directory / "files") as server:
        yield server


@contextmanager
def iscsi_server(directory: Path) -> Iterator[Server]:
    with tgt(directory, directory / "disk") as server:
        yield server


@contextmanager
def ssh_server(directory: Path) -> Iterator[Server]:
    with sshd(directory, directory / "files") as server:
        yield server


@contextmanager
def rbd_server(directory: Path) -> Iterator[Server]:
    with ceph(directory) as cluster:
        run("rbd", "create", f"{POOL}/mine", "--size", "64M", environment=cluster.environment)
        yield replace(cluster, url=f"rbd:{POOL}/mine@{directory}/ceph.conf?id=lab")


def measure(lab: Lab, paths: str, *options: str) -> tuple[int, str, dict[str, Run]]:
    """Exit status, what was printed, and the runs by the name of their target."""
    with lab.start("--debug", *lab.arguments(paths), *options) as process:
        printed, _ = process.communicate(timeout=300)
    return process.returncode, printed, by_target(lab)


def by_target(lab: Lab) -> dict[str, Run]:
    """The runs by the name of their target, the newest of each."""
    return {run.path.partition("at=")[2].partition("/")[0]: run for run in lab.runs()}


# A cell takes 3 s of CPU. The liar promises what the server of `a` does, which is measured here.
@pytest.mark.parametrize("names", ["abcdefg", pytest.param("abcdefgh", marks=pytest.mark.nightly)])
def test_every_driver_in_one_campaign(
    names: str, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is measured as what it promises, and no secret of any is seen anywhere."""
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    with ExitStack() as stack:
        nbd = stack.enter_context(nbd_server(directory_of(lab, "nbd")))
        unix, lying = directory_of(lab, "unix"), directory_of(lab, "lying")
        no_flush = stack.enter_context(
            nbdkit(unix, *NO_FLUSH, f"logfile={unix / 'requests'}", filters=["log"])
        )
        forgets = ("memory", str(SIZE), f"logfile={lying / 'requests'}", "fuamode=discard")
        liar = stack.enter_context(nbdkit(lying, *forgets, filters=["fua", "log"]))
        tls = stack.enter_context(nbdkit(directory_of(lab, "tls"), "memory", str(SIZE), psk=True))
        iscsi = stack.enter_context(
            tgt(directory_of(lab, "iscsi"), lab.directory / "iscsi/disk", chap=True)
        )
        nfs = stack.enter_context(nfs_server(directory_of(lab, "nfs")))
        ssh = stack.enter_context(ssh_server(directory_of(lab, "ssh")))
        rados = stack.enter_context(ceph(directory_of(lab, "ceph"), keys=True))
        run("rbd", "create", f"{POOL}/mine", "--size", "64M", environment=rados.environment)
        for name, value in ssh.environment.items():
            monkeypatch.setenv(name, value)
        password = iscsi.directory / "password"
        password.chmod(0o600)
        targets = {
            "a": nbd.url, "b": no_flush.url, "c": iscsi.url.replace("//", "//alice@"),
            "d": nfs.url, "e": ssh.url, "f": f"rbd:{POOL}/mine@{rados.directory}/ceph.conf?id=lab",
            "g": tls.url.replace("nbd:", "nbds:"), "h": liar.url,
        }  # fmt: skip
        targets = {name: targets[name] for name in names}
        secrets = [password.read_bytes(), *_keys(tls.directory / "keys.psk", b":")]
        secrets += _keys(ssh.directory / "key", b"\n")[1:-1]
        for file in rados.directory.glob("*.keyring"):
            secrets += [word for word in _keys(file, b" = ") if word.endswith(b"==")]
        assert len(secrets) >= 8
        options = [word for name, url in targets.items() for word in ("--target", f"{name}={url}")]
        options += ["--secret", f"c={password}", "--secret", f"g={tls.directory / 'keys.psk'}"]
        with _command_lines() as lines:
            status, printed, runs = measure(lab, f"{{{','.join(names)}}}/raw/none", *options)
        assert status == 0, printed
        assert [run.failure.message for run in runs.values() if run.failure] == [], printed
        assert sorted(runs) == list(targets)
        for each in runs.values():
            assert [check for check in each.checks if not check.confirmed] == []
        assert {
            name: check.observed.partition(".so.")[0]
            for name, each in runs.items()
            for check in each.checks
            if check.name == "qemu.library"
        } == {"c": "libiscsi", "d": "libnfs", "e": "libssh", "f": "librbd"}
        assert requests(nbd.directory)["Flush"] > 0
        for silent in (no_flush, *((liar,) if "h" in names else ())):
            assert not {"Flush", "FUA"} & set(requests(silent.directory))
        assert list((nfs.directory / "files").iterdir()) == []
        assert list((ssh.directory / "files").iterdir()) == []
        assert not any((iscsi.directory / "disk").read_bytes())
    # T2: the liar's word is all that anybody here has, as the honest ones' is.
    assert durability(lab) == {**dict.fromkeys(names, "by-server"), "b": "lost-by-construction"}
    told = [printed, *_answers(lab, runs, options, capsys)]
    assert any(b"tls-creds-psk" in line for line in lines)
    assert any(b"qemu-system" in line for line in lines)
    written = [file.read_bytes() for file in _written_by_us(lab)]
    places = [*map(str.encode, told), *written, *lines]
    assert [secret for secret in secrets if any(secret in text for text in places)] == []


def _keys(file: Path, before: bytes) -> list[bytes]:
    """What follows a separator in a file of keys: the secrets themselves."""
    text = file.read_bytes()
    if before == b"\n":
        return text.strip().split(before)
    return [line.partition(before)[2].strip() for line in text.splitlines() if before in line]


@contextmanager
def _command_lines() -> Iterator[set[bytes]]:
    """The arguments of all processes that are seen while the context is open.

    Those of a process change just after its start, when it becomes its program.
    """
    seen: set[bytes] = set()
    looks: Counter[str] = Counter()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            for process in os.listdir("/proc"):  # noqa: PTH208 - 50 times a second
                looks[process] += process.isdigit()
                if 1 <= looks[process] <= 20:
                    with suppress(OSError):
                        seen.add(Path("/proc", process, "cmdline").read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _answers(
    lab: Lab, runs: dict[str, Run], options: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> Iterator[str]:
    """What is printed and written about the runs of secret targets."""

    def said(*arguments: str) -> str:
        assert main(list(arguments)) == 0, arguments
        return "".join(capsys.readouterr())

    page, exported = lab.directory / "page.html", lab.directory / "exported.json"
    database = ("--db", str(lab.database))
    yield said("report", *database, "--output", str(page))
    yield said("export-data", *database, str(exported))
    yield from (page.read_text(), exported.read_text())
    for name in "cfg":
        yield said("show", *database, runs[name].id)
        given = zip(options[::2], options[1::2], strict=False)
        arguments = [word for pair in given if pair[1].startswith(f"{name}=") for word in pair]
        for form in ("qemu", "libvirt"):
            yield said("export", runs[name].path, "--to", form, *arguments)


def durability(lab: Lab) -> dict[str, str]:
    """What `rank` says of a power cut, by the name of the target."""
    _, printed = lab.call("rank", "--db", str(lab.database), "--format", "json")
    cells = json.loads(printed)["cells"]
    return {cell["cell"].partition("at=")[2][:1]: cell["power_cut"]["kind"] for cell in cells}


def _written_by_us(lab: Lab) -> list[Path]:
    kept = [lab.database, *lab.work.rglob("*"), *(lab.state / "ledger").rglob("*")]
    kept += (lab.state / "logs").rglob("*")
    return [file for file in kept if file.is_file()]


# For iSCSI, NFS and Ceph QEMU waits for ever, until the campaign asks the server itself.
GONE = {
    "nbdkit": nbd_server,
    "qemu-nbd": qemu_nbd_server,
    "ssh": ssh_server,
    "iscsi": iscsi_server,
    "nfs": nfs_server,
    "rbd": rbd_server,
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", GONE)
def test_a_server_that_goes_away(lab: Lab, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cell fails with a sentence, the other is measured, and the same command continues."""
    with GONE[kind](directory_of(lab, kind)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        arguments = (*lab.arguments("t/raw/none", "raw/none"), "--target", f"t={server.url}")
        with lab.start(*arguments) as process:
            wait_for(lambda: connected(lab) or process.poll() is not None)
            server.kill()
            printed, _ = process.communicate(timeout=400)
        runs = by_target(lab)
        failure = runs["t"].failure
        assert failure is not None, printed
        assert runs[""].failure is None, printed
        said = failure.message.splitlines()[0]
        assert "target t" in said
        assert "cannot be used" in said or "does not answer" in said
        server.restart()
        with lab.start("clean") as cleaning:
            said, _ = cleaning.communicate(timeout=60)
        assert cleaning.returncode == 0, said
        assert lab.leftovers() == []
        with lab.start(*arguments) as process:
            printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, printed
        assert by_target(lab)["t"].failure is None


@pytest.mark.nightly
@pytest.mark.parametrize("kind", GONE)
def test_a_server_that_pauses(lab: Lab, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For half a minute, while a guest writes: that is seen, and its cell goes on."""
    with GONE[kind](directory_of(lab, kind)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        arguments = (*lab.arguments("t/raw/none", runtime="3s"), "--target", f"t={server.url}")
        with lab.start(*arguments) as process:
            wait_for(lambda: wrote(lab, 1 << 20) or process.poll() is not None)
            server.pause()
            time.sleep(30)
            server.resume()
            printed, _ = process.communicate(timeout=400)
        assert process.returncode == 0, printed
        measured = by_target(lab)["t"].measurements
        samples = [sample for each in measured for sample in each.samples]
        stalls = [sample.value for sample in samples if sample.metric == "longest_stall"]
        assert 20 < max(stalls) < 60


@pytest.mark.nightly
@pytest.mark.parametrize("turns", ["read-only", "full"])
def test_an_export_that_cannot_be_written_any_more(
    lab: Lab, turns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells on it fail with a sentence, the other is measured, and the same command continues.

    Both a server's file system and one of a mount: ext4 after an error, or without a free block.
    Sparse images, because what has its blocks can be written on a full disk. QEMU stops a guest
    there, whose agent was once asked for two minutes.
    """
    export = lab.directory / "export"
    with small_export(lab, export) as (options, environment, mend):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        paths = ("{n,d,e,i,s}/raw:preallocation=off/none", "raw/none")
        arguments = (*lab.arguments(*paths, runtime="2s"), *options)
        with lab.start(*arguments) as process:
            wait_for(lambda: connected(lab) or opened(lab, export) or process.poll() is not None)
            if turns == "full":
                fill(export / "filler")
            else:
                # An aborted journal loses the directories that it had not committed, and of those
                # `clean` cannot see whether they were moved.
                run("sync", "--file-system", export)
                run("mount", "-o", "remount,abort", export)
            turned = time.monotonic()
            printed, _ = process.communicate(timeout=400)
        assert time.monotonic() - turned < 120
        runs = by_target(lab)
        assert runs[""].failure is None, printed
        reasons = ("NOSPC", "o space", "o space", "Input/output error", "")
        if turns == "read-only":
            reasons = ("ROFS", "Read-only", "read-only", "Input/output error", "")
        for name, reason in zip(EXPORTS, reasons, strict=True):
            failure = runs[name].failure
            assert failure is not None, printed
            said, _, hint = failure.message.partition("\nhint: ")
            # A LUN cannot be tried: each write would be one that nobody asked for. A server by ssh
            # may take a small file again, when the failed cell's image is gone.
            may_be_the_guests = name == "i" or (name == "s" and "in the guest" in said)
            assert may_be_the_guests or f"target {name}" in said or f"at={name}" in said
            assert reason in said, printed
            assert hint, printed
        if turns == "full":
            (export / "filler").unlink()
        else:
            mend()
        with lab.start("clean") as cleaning:
            said, _ = cleaning.communicate(timeout=60)
        assert cleaning.returncode == 0, said
        assert [file.name for name in EXPORTS for file in (export / name).iterdir()] == ["disk"] * 2
        with lab.start(*arguments) as process:
            printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, printed
        assert [each.failure for each in by_target(lab).values()] == [None] * 6


@contextmanager
def small_export(
    lab: Lab, export: Path
) -> Iterator[tuple[Sequence[str], Mapping[str, str], Callable[[], None]]]:
    """A small file system: options that name `EXPORTS`, and what repairs it."""
    directory = directory_of(lab, "served")
    image = directory / "disk"

    def mount() -> None:
        run("mount", "-o", "loop", image, export)

    def unmount() -> None:
        run("umount", export)
        wait_for(lambda: str(directory) not in run("losetup", "--list"))

    run("mkfs.ext4", "-q", "-m", "0", image, "160M")
    export.mkdir()
    mount()
    try:
        for name in EXPORTS:
            (export / name).mkdir()
        for name in "ei":
            (export / name / "disk").touch()
            os.truncate(export / name / "disk", SIZE)
        with (
            ganesha(directory, export / "n") as nfs,
            nbdkit(directory, "file", str(export / "e/disk"), tcp=True) as nbd,
            tgt(directory, export / "i/disk") as iscsi,
            sshd(directory, export / "s") as ssh,
        ):
            servers = (nfs, nbd, iscsi, ssh)

            def mend() -> None:
                for server in servers:
                    server.kill()
                unmount()
                subprocess.run(("e2fsck", "-f", "-y", image), check=False)
                mount()
                for server in servers:
                    server.restart()

            urls = (nfs.url, str(export / "d"), nbd.url, iscsi.url, ssh.url)
            options = [f"--target={n}={url}" for n, url in zip(EXPORTS, urls, strict=True)]
            yield options, ssh.environment, mend
    finally:
        unmount()


def fill(file: Path) -> None:
    """Writes until nothing more fits, also after ext4 has given back what it had reserved."""
    for _ in range(3):
        with suppress(OSError), file.open("ab", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        os.sync()


def opened(lab: Lab, directory: Path) -> bool:
    """True while one of the lab's guests has a file open in this directory."""
    links = [link for pid in lab.guests() for link in Path(f"/proc/{pid}/fd").glob("*")]
    with suppress(OSError):  # it was closed meanwhile
        return any(link.readlink().is_relative_to(directory) for link in links)
    return False


def connected(lab: Lab) -> bool:
    """True while a guest of ours has a connection to a server."""
    lines = run("ss", "-tnpH", "state", "established").splitlines()
    return any(f"pid={pid}," in line for pid in lab.guests() for line in lines)


def wrote(lab: Lab, size: int) -> bool:
    """True once one connection of the guest has sent that many bytes."""
    lines = run("ss", "-tnpiHO", "state", "established").splitlines()
    ours = [line for line in lines for pid in lab.guests() if f"pid={pid}," in line]
    return any(int(count) >= size for line in ours for count in re.findall(r"sent:(\d+)", line))


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)
