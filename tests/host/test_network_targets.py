"""Targets on real servers: images are made and removed, promises read, data refused, secrets kept.

What the server serves is looked at from its own side, not through QEMU.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.ceph import POOL, ceph
from tests.servers.daemon import Server, run
from tests.servers.iscsi import tgt
from tests.servers.nbd import NO_FLUSH, nbdkit, qemu_nbd
from tests.servers.nfs import ganesha
from tests.servers.ssh import sshd
from vdisklab.actions.clean import forget_leftovers, list_leftovers, remove_leftovers
from vdisklab.campaign.attachment import disk_for
from vdisklab.errors import DirtyHostError, HostError
from vdisklab.guest.qemu.block_nodes import block_nodes
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import leftovers_sentence, open_ledger
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import Image, parse_path
from vdisklab.path.named_target import parse_target
from vdisklab.path.segments import ImageFormat, LayerKind
from vdisklab.platforms.registry import configure
from vdisklab.platforms.request import ExportRequest
from vdisklab.storage import remote
from vdisklab.storage.given import given_target, require_fit, unwritable, with_kinds
from vdisklab.storage.image import ImageFile, image_file
from vdisklab.storage.remote import require_answer, unanswered
from vdisklab.storage.server_url import Url, url_of
from vdisklab.storage.site import open_site
from vdisklab.storage.targets import Directory, Remote
from vdisklab.units import MIB
from vdisklab.value import replace

pytestmark = pytest.mark.host

SIZE = 16 * MIB


@dataclass(frozen=True)
class Place:
    """A server, the URL of the target on it, and what it has stored on its own disk."""

    server: Server
    url: str
    stored: Callable[[], bytes]
    secret: Path | None = None


def _in(files: Path) -> Callable[[], bytes]:
    return lambda: b"".join(file.read_bytes() for file in sorted(files.iterdir()))


@contextmanager
def _nbd(tmp_path: Path, disk: Path, _files: Path) -> Iterator[Place]:
    with qemu_nbd(tmp_path, disk, cache="writeback") as server:
        yield Place(server, server.url, disk.read_bytes)


@contextmanager
def _nbds(tmp_path: Path, disk: Path, _files: Path) -> Iterator[Place]:
    with nbdkit(tmp_path, "file", str(disk), psk=True) as server:
        url = server.url.replace("nbd:", "nbds:")
        yield Place(server, url, disk.read_bytes, tmp_path / "keys.psk")


@contextmanager
def _iscsi(tmp_path: Path, disk: Path, _files: Path) -> Iterator[Place]:
    with tgt(tmp_path, disk, chap=True) as server:
        url = server.url.replace("//", "//alice@")
        password = tmp_path / "password"
        password.chmod(0o600)
        yield Place(server, url, disk.read_bytes, password)


@contextmanager
def _nfs(tmp_path: Path, _disk: Path, files: Path) -> Iterator[Place]:
    with ganesha(tmp_path, files) as server:
        yield Place(server, server.url, _in(files))


@contextmanager
def _ssh(tmp_path: Path, _disk: Path, files: Path) -> Iterator[Place]:
    with sshd(tmp_path, files) as server:
        yield Place(server, server.url, _in(files))


SERVERS: dict[str, Callable[[Path, Path, Path], AbstractContextManager[Place]]] = {
    "nbd": _nbd, "nbds": _nbds, "iscsi": _iscsi, "nfs": _nfs, "ssh": _ssh,
}  # fmt: skip


@pytest.fixture(params=SERVERS)
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    disk: Path,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    with SERVERS[request.param](tmp_path, disk, files) as served:
        for name, value in served.server.environment.items():
            monkeypatch.setenv(name, value)
        yield served


def backing_of(place: Place, *, destroy: bool = False) -> BackingDevices:
    return BackingDevices(
        targets=(parse_target(f"t={place.url}"),),
        secrets=() if place.secret is None else (("t", place.secret),),
        spendable=frozenset(["t"] if destroy else []),
    )


@contextmanager
def image_on(
    place: Place, work: Path, form: ImageFormat, *, destroy: bool = False
) -> Iterator[ImageFile]:
    """An image of the format with random data in each block, on the target."""
    work.mkdir(exist_ok=True)
    backing = backing_of(place, destroy=destroy)
    source = work / "source"
    source.write_bytes(b"vdisklab" * (SIZE // 8))
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        site = stack.enter_context(open_site(LocalHost(), ledger, work))
        target = stack.enter_context(given_target(site, backing.targets[0], backing, 40 * MIB))
        image = Image(form)
        with image_file(site, target, image, size=SIZE, name="a", source=source) as made:
            yield made


SERVERS_OF_A_COMMIT = pytest.mark.parametrize(
    "place",
    [
        "nbd",
        "nfs",
        # 1 to 2 s each to start; a commit ends both, and uses them in a guest.
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("iscsi", "ssh")),
    ],
    indirect=True,
)


# A second for each server; raw files are written to each in a guest (tests/guest).
@pytest.mark.parametrize(
    "form", [pytest.param(ImageFormat.RAW, marks=pytest.mark.nightly), ImageFormat.QCOW2]
)
def test_an_image_is_written_and_removed(place: Place, tmp_path: Path, form: ImageFormat) -> None:
    with image_on(place, tmp_path / "work", form) as image:
        assert place.stored().count(b"vdisklab") >= SIZE // 8
        assert image.properties["target.url"] == place.url
    assert b"vdisklab" not in place.stored()
    assert list_leftovers() == []


@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="needs QEMU")
def test_qemu_opens_what_is_exported(place: Place) -> None:
    """The printed lines, as somebody would type them; no guest runs."""
    require_opens(place)


def require_opens(place: Place) -> None:
    kind = parse_target(f"t={place.url}").kind
    path = parse_path(f"{kind}/none" if kind is LayerKind.RBD else f"{kind}/raw/none")
    request = ExportRequest(
        path, storage=place.url, secret=place.secret, size=SIZE, domain_type="qemu"
    )
    text = configure(request, "qemu").text
    for line in text.splitlines():
        if line.startswith("# qemu-img"):
            run(*shlex.split(line[2:]), environment=place.server.environment)
    shown = [line for line in text.splitlines() if not line.startswith("#")]
    command = [*shlex.split("\n".join(shown).replace("\\\n", " ")), "-S", "-display", "none"]
    done = subprocess.run(
        [*command, "-qmp", "stdio"],
        input='{"execute": "qmp_capabilities"}{"execute": "query-block"}{"execute": "quit"}',
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **place.server.environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "disk0-dev" in done.stdout


@pytest.mark.nightly  # 6 s; each commit measures an RBD image in a guest (tests/guest)
def test_ceph(tmp_path: Path) -> None:
    with ceph(tmp_path, keys=True) as server:
        environment = server.environment
        run("rbd", "create", f"{POOL}/mine", "--size", "64M", environment=environment)
        url = f"rbd:{POOL}/mine@{tmp_path / 'ceph.conf'}?id=lab"
        copy = tmp_path / "copy"

        def stored() -> bytes:
            copy.unlink(missing_ok=True)
            run("rbd", "export", f"{POOL}/mine", copy, environment=environment)
            return copy.read_bytes()

        place = Place(server, url, stored)
        for form in (ImageFormat.RAW, ImageFormat.QCOW2):
            with image_on(place, tmp_path / "work", form):
                assert stored().count(b"vdisklab") >= SIZE // 8
            assert stored().count(0) == 64 * MIB
        require_opens(place)
        listed = run("rbd", "ls", POOL, environment=environment)
    assert listed == "mine\n"


def test_a_disk_with_data_is_not_touched(tmp_path: Path, disk: Path) -> None:
    with disk.open("r+b") as file:
        file.seek(20 * MIB)
        file.write(b"somebody's data")
    before = disk.read_bytes()
    with tgt(tmp_path, disk) as server:
        place = Place(server, server.url, disk.read_bytes)
        with pytest.raises(HostError, match="holds data") as refused:
            image_on(place, tmp_path / "work", ImageFormat.RAW).__enter__()
        assert "--destroy t" in str(refused.value.hint)
        assert disk.read_bytes() == before
        with image_on(place, tmp_path / "work", ImageFormat.RAW, destroy=True):
            pass
    assert b"somebody" not in disk.read_bytes()


def test_a_disk_of_another_campaign_is_refused_even_to_who_may_destroy_it(
    tmp_path: Path, disk: Path
) -> None:
    with tgt(tmp_path, disk) as server:
        place = Place(server, server.url, disk.read_bytes)
        with image_on(place, tmp_path / "work", ImageFormat.RAW):
            with pytest.raises(HostError, match="another campaign uses iscsi://") as refused:
                image_on(place, tmp_path / "more", ImageFormat.RAW, destroy=True).__enter__()
            assert "vdisklab clean" in str(refused.value.hint)
            assert place.stored().count(b"vdisklab") >= SIZE // 8
        with image_on(place, tmp_path / "more", ImageFormat.RAW):
            pass


def test_a_server_that_keeps_nothing_is_named(tmp_path: Path) -> None:
    """T8: raw blocks that were written are not there, and a qcow2 image is none."""
    with nbdkit(tmp_path, "null", "64M") as server:
        place = Place(server, server.url, bytes)
        for form, said in (
            (ImageFormat.RAW, "server skips or merges"),
            (ImageFormat.QCOW2, "server keeps what is written"),
        ):
            with pytest.raises(HostError) as refused:
                image_on(place, tmp_path / "work", form).__enter__()
            assert said in str(refused.value.hint)
            assert "json:" not in refused.value.message


def test_the_rest_of_a_disk_is_never_seen(tmp_path: Path, disk: Path) -> None:
    """A file system on the guest's disk would write to all of it, and only a part is zeroed."""
    with disk.open("r+b") as file:
        file.seek(48 * MIB)
        file.write(b"mine")
    with tgt(tmp_path, disk) as server:
        place = Place(server, server.url, disk.read_bytes)
        with image_on(place, tmp_path / "work", ImageFormat.RAW) as image:
            guest = disk_for(parse_path("iscsi:at=t/raw/none"), image, SIZE, "s")
            (_, top), url = block_nodes(guest), image.path
            assert isinstance(url, Url)
            node = {"driver": top["driver"], "size": top["size"], "file": url.node}
            seen = json.loads(run("qemu-img", "info", "--output=json", "json:" + json.dumps(node)))
            assert seen["virtual-size"] == guest.size == image.size == SIZE
    assert disk.read_bytes()[48 * MIB :][:4] == b"mine"


def test_an_encrypted_raw_image_does_not_reach_beyond_what_was_looked_at(
    tmp_path: Path, disk: Path
) -> None:
    with disk.open("r+b") as file:
        file.seek(48 * MIB)
        file.write(b"mine")
    source, work = tmp_path / "random", tmp_path / "work"
    source.write_bytes(b"vdisklab" * (SIZE // 8))
    work.mkdir()
    with tgt(tmp_path, disk) as server, open_ledger() as ledger:
        place = Place(server, server.url, disk.read_bytes)
        backing, image = backing_of(place), parse_path("iscsi:at=t/raw:encrypt=luks/none").image
        with (
            open_site(LocalHost(), ledger, work) as site,
            pytest.raises(HostError, match="a guest would get all 62") as refused,
            given_target(site, backing.targets[0], backing, 33 * MIB) as target,
        ):
            image_file(site, target, image, size=SIZE, name="a", source=source).__enter__()
    assert "qcow2:encrypt=luks" in str(refused.value.hint)
    left = disk.read_bytes()
    assert left[48 * MIB :][:4] == b"mine"
    assert left.count(0) == len(left) - 4


@pytest.mark.parametrize("kind", ["nfs", "ssh"])
def test_files_of_the_user_are_not_touched(
    kind: str, tmp_path: Path, disk: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.raw", "image0.raw"):
        (files / name).write_bytes(b"the user's own")
    with SERVERS[kind](tmp_path, disk, files) as place:
        for name, value in place.server.environment.items():
            monkeypatch.setenv(name, value)
        with image_on(place, tmp_path / "work", ImageFormat.RAW):
            (made,) = (file.name for file in files.iterdir() if file.stat().st_size >= SIZE)
    assert made.startswith("vdisklab-")
    assert {file.read_bytes() for file in files.iterdir()} == {b"the user's own"}


def test_what_a_server_promises_is_stored(tmp_path: Path, disk: Path) -> None:
    def promised(server: Server, prefix: str) -> dict[str, str]:
        place = Place(server, server.url, disk.read_bytes)
        with image_on(place, tmp_path / "work", ImageFormat.RAW) as image:
            return {k: v for k, v in image.properties.items() if k.startswith(prefix)}

    limits = ("blocksize-minimum=4k", "blocksize-preferred=64k", "blocksize-maximum=1M")
    with nbdkit(tmp_path, "memory", "64M", *limits, filters=["blocksize-policy"]) as server:
        said = promised(server, "nbd.")
    assert said["nbd.can_flush"] == said["nbd.can_multi_conn"] == "on"
    assert said["nbd.block_size_minimum"] == "4096"
    assert said["nbd.block_size_maximum"] == str(MIB)
    with nbdkit(tmp_path, *NO_FLUSH) as server:
        said = promised(server, "nbd.")
    assert said["nbd.can_flush"] == said["nbd.can_fua"] == "off"
    for number, cache in enumerate((True, False)):
        (directory := tmp_path / str(number)).mkdir()
        with tgt(directory, disk, write_cache=cache) as server:
            said = promised(server, "iscsi.")
        assert said["iscsi.write_cache"] == ("on" if cache else "off")
        assert said["iscsi.dpofua"] == "on"


@pytest.mark.parametrize("place", ["nbd", "iscsi", "nfs", "ssh"], indirect=True)
def test_a_server_that_ends_leaves_a_note_for_clean(place: Place, tmp_path: Path) -> None:
    with (
        pytest.raises(DirtyHostError) as dirty,
        image_on(place, tmp_path / "work", ImageFormat.RAW),
    ):
        place.server.kill()
    assert "vdisklab clean" in str(dirty.value.hint)
    assert "an earlier run left" in (leftovers_sentence() or "")
    # On this host nothing stays: neither the run's directory nor the files in it.
    assert {entry.kind for entry in list_leftovers()} <= {remote.DISK.kind, remote.FILE.kind}
    assert list((tmp_path / "work").glob("vdisklab-*")) == []
    assert any(entry.name.startswith(place.url.partition("?")[0]) for entry in list_leftovers())
    place.server.restart()
    assert list(remove_leftovers(LocalHost())) != []
    assert b"vdisklab" not in place.stored()


def test_a_server_that_is_back_is_used_again_by_the_same_command(
    tmp_path: Path, disk: Path
) -> None:
    """What the run that failed could not remove is removed by the next one, without `clean`."""
    with SERVERS["nbd"](tmp_path, disk, disk) as place:
        with pytest.raises(DirtyHostError), image_on(place, tmp_path / "work", ImageFormat.RAW):
            place.server.kill()
        assert [entry.kind for entry in list_leftovers()] == [remote.DISK.kind]
        place.server.restart()
        assert b"vdisklab" in place.stored()
        with image_on(place, tmp_path / "more", ImageFormat.RAW):
            assert list_leftovers() == []
        assert b"vdisklab" not in place.stored()


def test_a_copied_secret_stays_until_its_disk_is_empty(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SERVERS["iscsi"](tmp_path, disk, disk) as with_file:
        assert with_file.secret is not None
        monkeypatch.setenv("VDISKLAB_SECRET_T", with_file.secret.read_text())
        place = replace(with_file, secret=None)
        with pytest.raises(DirtyHostError), image_on(place, tmp_path / "work", ImageFormat.RAW):
            place.server.kill()
        with pytest.raises(DirtyHostError, match="is left as it is") as dirty:
            list(remove_leftovers(LocalHost()))
        assert f"clean --forget {place.url}" in str(dirty.value.hint)
        assert list((tmp_path / "work").rglob("*.secret/*")) != []
        place.server.restart()
        assert list(remove_leftovers(LocalHost())) != []
        assert b"vdisklab" not in place.stored()
    assert list((tmp_path / "work").glob("vdisklab-*")) == []


@SERVERS_OF_A_COMMIT
def test_a_server_that_never_comes_back_is_forgotten(place: Place, tmp_path: Path) -> None:
    with (
        pytest.raises(DirtyHostError),
        image_on(place, tmp_path / "work", ImageFormat.RAW),
    ):
        place.server.kill()
    assert [left for _, left in forget_leftovers(place.url)] != []
    list(remove_leftovers(LocalHost()))
    assert list_leftovers() == []
    assert list((tmp_path / "work").glob("vdisklab-*")) == []


@pytest.mark.parametrize("place", ["nfs", "ssh"], indirect=True)
def test_a_trial_file_is_noted_before_it_is_made(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while qemu-img runs: `clean` knows what to remove."""
    made = remote.ask

    def killed_then(*arguments: Any) -> str:  # noqa: ANN401
        made(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(remote, "ask", killed_then)
    with pytest.raises(KeyboardInterrupt):
        try_out(place, tmp_path)
    assert b"".join([place.stored()]) != b""
    (entry,) = list_leftovers()
    assert "-trial.raw" in entry.name
    list(remove_leftovers(LocalHost()))
    assert place.stored() == b""


@contextmanager
def _no_tls(directory: Path, _disk: Path, _files: Path) -> Iterator[Server]:
    """A server without TLS, and a client that wants it."""
    _key_of_another(directory)
    with nbdkit(directory) as server:
        yield replace(server, url=server.url.replace("nbd+", "nbds+"))


@contextmanager
def _other_key(directory: Path, _disk: Path, _files: Path) -> Iterator[Server]:
    """A server with a key, and a client with another one."""
    _key_of_another(directory)
    with nbdkit(directory, psk=True) as server:
        yield replace(server, url=server.url.replace("nbd:", "nbds:"))


def _key_of_another(directory: Path) -> None:
    key = directory / "another" / "keys.psk"
    key.parent.mkdir()
    key.write_text("alice:00112233\n")
    key.chmod(0o600)


REFUSED: dict[str, tuple[Callable[..., AbstractContextManager[Server]], tuple[str, str], str]] = {
    "nbd read-only": (lambda a, _d, _f: nbdkit(a, read_only=True), ("", ""), "read-write"),
    "nbd with TLS": (lambda a, _d, _f: nbdkit(a, psk=True), ("", ""), "nbds://"),
    "nbd without TLS": (_no_tls, ("", ""), "leave out --secret"),
    "nbd with another key": (_other_key, ("", ""), "give the key that the server has"),
    "nbd export": (lambda a, d, _f: qemu_nbd(a, d), ("///", "///none"), "nbdinfo --list"),
    "iscsi read-only": (lambda a, d, _f: tgt(a, d, read_only=True), ("", ""), "read-write"),
    "iscsi password": (lambda a, d, _f: tgt(a, d, chap=True), ("", ""), "--secret NAME=FILE"),
    "iscsi user": (lambda a, d, _f: tgt(a, d, chap=True), ("//", "//alice@"), "the password"),
    "iscsi target": (lambda a, d, _f: tgt(a, d), (":disk", ":none"), "iscsi-ls"),
    "iscsi LUN": (lambda a, d, _f: tgt(a, d), (":disk/1", ":disk/7"), "LUN that the target has"),
    "nfs read-only": (lambda a, _d, f: ganesha(a, f, read_only=True), ("", ""), "read-write"),
    "nfs export": (lambda a, _d, f: ganesha(a, f), ("/files", "/none"), "showmount"),
    "ssh read-only": (lambda a, _d, f: sshd(a, f, read_only=True), ("", ""), "write access"),
    "ssh directory": (lambda a, _d, f: sshd(a, f), ("/files", "/none"), "directory that exists"),
    "ssh host key": (lambda a, _d, f: sshd(a, f), ("?host_key_check", "?x"), "ssh-keyscan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_has_a_way_out(
    case: str, tmp_path: Path, disk: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, (word, other), way_out = REFUSED[case]
    with serve(tmp_path, disk, files) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url, key = server.url, tmp_path / "another/keys.psk"
        secret = key if key.exists() else None
        place = Place(server, url.replace(word, other, 1) if word else url, disk.read_bytes, secret)
        with pytest.raises(HostError) as refused:
            try_out(place, tmp_path)
    assert way_out in str(refused.value.hint), refused.value
    assert list(files.iterdir()) == []
    assert list_leftovers() == []


def try_out(place: Place, work: Path) -> None:
    """What `run` asks a server before a campaign begins."""
    backing = backing_of(place)
    with open_ledger() as ledger, open_site(LocalHost(), ledger, work) as site:
        require_answer(site, backing.targets[0], backing)


@SERVERS_OF_A_COMMIT
def test_a_server_that_is_not_there(place: Place, tmp_path: Path) -> None:
    target = parse_target(f"t={place.url}")
    holds_files = target.kind is not None and target.kind.facts.holds_files
    remote = Remote(url_of(target, place.secret), holds_files)
    try_out(place, tmp_path)
    assert unanswered(LocalHost(), "t", remote) is None
    place.server.kill()
    assert "target t" in str(unanswered(LocalHost(), "t", remote))
    with pytest.raises(HostError) as gone:
        try_out(place, tmp_path)
    assert re.search(r"start the server|that it runs", str(gone.value.hint)), gone.value
    assert list_leftovers() == []
    place.server.restart()
    try_out(place, tmp_path)


def test_a_directory_that_cannot_be_written(tmp_path: Path, files: Path) -> None:
    run("mount", "-t", "tmpfs", "-o", "size=8M,ro", "tmpfs", files)
    try:
        with pytest.raises(HostError, match="Read-only file system") as refused:
            Directory(files).usable()
        assert "export and mount it read-write" in str(refused.value.hint)
        run("mount", "-o", "remount,rw", files)
        assert Directory(files).usable()
        (files / "filler").write_bytes(bytes(8 * MIB))
        with pytest.raises(HostError, match="No space left") as full:
            Directory(files).usable()
        assert "free some space" in str(full.value.hint)
    finally:
        run("umount", files)


def test_an_export_that_cannot_be_written_any_more(tmp_path: Path, files: Path) -> None:
    """It answers, so that is not why a cell on it fails; and nothing new can be left on it."""
    run("mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", files)
    try:
        with ganesha(tmp_path, files) as server:
            there, here = Place(server, server.url, _in(files)), Place(server, str(files), bytes)
            assert [why_not(place, tmp_path) for place in (there, here)] == [None, None]
            run("mount", "-o", "remount,ro", files)
            by_libnfs, by_mount = why_not(there, tmp_path), why_not(here, tmp_path)
            assert "target t (nfs://127.0.0.1/" in str(by_libnfs)
            assert "ROFS" in str(by_libnfs)
            assert str(by_mount).startswith(
                f"target t: nothing can be written in {files}: Read-only"
            )
            for place in (there, here):
                with pytest.raises(HostError):
                    image_on(place, tmp_path / "work", ImageFormat.RAW).__enter__()
                assert list_leftovers() == []
            run("mount", "-o", "remount,rw", files)
            with pytest.raises(OSError, match="No space left"):
                (files / "filler").write_bytes(bytes(9 * MIB))
            assert "NOSPC" in str(why_not(there, tmp_path))
            assert "No space left" in str(why_not(here, tmp_path))
            (files / "filler").unlink()
            assert [why_not(place, tmp_path) for place in (there, here)] == [None, None]
            assert list(files.iterdir()) == []
    finally:
        run("umount", files)


def why_not(place: Place, work: Path) -> HostError | None:
    """Why a cell on a target may have failed."""
    backing = backing_of(place)
    targets = with_kinds(LocalHost(), backing.targets)
    with open_ledger() as ledger, open_site(LocalHost(), ledger, work) as site:
        return unwritable(site, targets[0], backing)


def test_a_disk_that_does_not_fit_is_refused_before_the_campaign(
    tmp_path: Path, disk: Path
) -> None:
    """And one whose server is gone is not: its cells fail, and others are measured."""
    with disk.open("r+b") as file:
        file.seek(20 * MIB)
        file.write(b"somebody's data")
    with tgt(tmp_path, disk) as server:
        place = Place(server, server.url, disk.read_bytes)
        fit(place, tmp_path, 16 * MIB)
        with pytest.raises(HostError, match="holds data") as refused:
            fit(place, tmp_path, 32 * MIB)
        assert "--destroy t" in str(refused.value.hint)
        with pytest.raises(HostError, match=r"target t has 64.0 MiB, but needs 80.0 MiB"):
            fit(place, tmp_path, 80 * MIB)
        server.kill()
        fit(place, tmp_path, 80 * MIB)
    assert list_leftovers() == []


def fit(place: Place, work: Path, needed: int) -> None:
    """What a campaign asks about each disk before it begins."""
    backing = backing_of(place)
    with open_ledger() as ledger, open_site(LocalHost(), ledger, work) as site:
        require_fit(site, backing.targets[0], backing, needed)


def test_a_disk_on_a_full_server_is_emptied(tmp_path: Path, files: Path) -> None:
    """Zeros need space, too, where the server stores them: what was allocated is given back."""
    run("mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", files)
    try:
        with (disk := files / "disk").open("wb") as file:
            file.truncate(64 * MIB)
        with nbdkit(tmp_path, "file", str(disk)) as server:
            place = Place(server, server.url, disk.read_bytes)
            with pytest.raises(HostError, match="No space left") as full:
                image_on(place, tmp_path / "work", ImageFormat.RAW).__enter__()
            assert "free some space" in str(full.value.hint)
            assert not any(disk.read_bytes())
            assert list_leftovers() == []
    finally:
        run("umount", files)


def test_a_full_export(tmp_path: Path, files: Path) -> None:
    run("mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", files)
    try:
        with ganesha(tmp_path, files) as server:
            place = Place(server, server.url, _in(files))
            with pytest.raises(HostError, match="NOSPC") as full:
                image_on(place, tmp_path / "work", ImageFormat.RAW).__enter__()
            assert "free some space" in str(full.value.hint)
            assert list(files.iterdir()) == []
    finally:
        run("umount", files)
