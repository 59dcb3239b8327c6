"""luks with scripted programs: the exact commands, what is read back, and that the key is nowhere.

The answers are shaped like those of cryptsetup 2.6.1; the lab proves the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from vdisklab.errors import CommandError, DirtyHostError, HostError
from vdisklab.host.command import Completed, PathArg
from vdisklab.host.ledger import Kind, open_ledger, pending
from vdisklab.path.disk_path import Layer, parse_path
from vdisklab.storage import luks
from vdisklab.storage.luks import encrypted_device, format_command, open_command, parse_status
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.targets import Device
from vdisklab.units import MIB

from .scripted_host import ScriptedHost

BELOW = Device(Path("/dev/x"), properties={"loop.direct_io": "on"})
STATUS = """\
/dev/mapper/vdl_1_s_0 is active.
  type:    LUKS2
  cipher:  aes-xts-plain64
  keysize: 512 bits
  key location: keyring
  device:  /dev/loop0
  loop:    /work/vdisklab-1/s.slice
  sector size:  512
  offset:  32768 sectors
  size:    65536 sectors
  mode:    read/write
"""


def layer(text: str) -> Layer:
    (found,) = parse_path(f"{text}/host").layers
    return found


class Programs(ScriptedHost):
    """dmsetup and cryptsetup; `keys` is what cryptsetup read from its standard input."""

    def __init__(self, fail_on: str = "", flags: str = "", targets: str = "crypt v1.24.0") -> None:
        super().__init__(fail_on)
        self.flags, self.targets = flags, targets
        self.keys: list[str | None] = []
        self.mapped: list[str] = []

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        arguments = list(map(str, argv))
        if "luksFormat" in arguments or "open" in arguments:
            self.keys.append(stdin)
        done = super().run(*argv, timeout=timeout, allowed=allowed, stdin=stdin, watch=watch)
        if "open" in arguments:
            self.mapped.append(arguments[-1])
        if arguments[:2] == ["dmsetup", "remove"]:
            self.mapped.remove(arguments[-1])
        return done

    def _answer(self, command: tuple[str, ...]) -> str:
        match command[:2]:
            case ("dmsetup", "targets"):
                return f"striped          v1.6.0\n{self.targets}\n"
            case ("dmsetup", "ls"):
                return "".join(f"{name}\t(253:0)\n" for name in self.mapped)
            case ("cryptsetup", "status"):
                return f"{STATUS}  flags:   {self.flags}\n" if self.flags else STATUS
        return super()._answer(command)


def build(host: Programs, work: Path, text: str = "luks") -> tuple[Device, Site]:
    with (
        open_ledger(work / "state") as ledger,
        open_site(host, ledger, work) as site,
        encrypted_device(site, BELOW, layer(text), "s-0", MIB) as top,
    ):
        assert [entry.kind for entry in pending(ledger.path)][1] == Kind.MAPPED
        host.lines.append("measure")
        return top, site


@pytest.fixture
def _udev(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdisklab.storage.site.wait_until", lambda *args, **kwargs: None)


@pytest.mark.parametrize(
    ("text", "made", "opened"),
    [
        ("luks", "", ""),
        ("luks:sector=4096", "--sector-size 4096 ", ""),
        ("luks:discard=on", "", "--allow-discards "),
        ("luks:workqueues=off", "", "--perf-no_read_workqueue --perf-no_write_workqueue "),
    ],
)
def test_every_option_reaches_cryptsetup(text: str, made: str, opened: str) -> None:
    assert " ".join(format_command(layer(text), Path("/dev/x"), "vdl-1")) == (
        "cryptsetup luksFormat --batch-mode --type luks2 --label vdl-1 --pbkdf pbkdf2 "
        f"--pbkdf-force-iterations 1000 {made}--key-file - /dev/x"
    )
    assert " ".join(open_command(layer(text), Path("/dev/x"), "m")) == (
        f"cryptsetup open --type luks2 {opened}--key-file - /dev/x m"
    )


@pytest.mark.usefixtures("_udev")
def test_it_is_made_read_back_and_removed(tmp_path: Path) -> None:
    host = Programs()
    top, site = build(host, tmp_path)
    assert top.path == Path("/dev/mapper") / site.unique("s-0")
    assert isinstance(top, Device)
    assert top.properties == {
        "loop.direct_io": "on", "luks.type": "LUKS2", "luks.cipher": "aes-xts-plain64",
        "luks.key": "512 bits", "luks.sector": "512", "luks.discard": "off",
        "luks.workqueues": "on",
    }  # fmt: skip
    verbs = [" ".join(line.split()[:2]) for line in host.lines]
    assert verbs[-6:] == [
        "cryptsetup luksFormat", "cryptsetup open", "cryptsetup status", "measure", "dmsetup ls",
        "dmsetup remove",
    ]  # fmt: skip
    assert host.mapped == []


@pytest.mark.usefixtures("_udev")
def test_the_key_is_random_and_in_no_file_or_command(tmp_path: Path) -> None:
    keys = []
    for _ in range(2):
        host = Programs()
        build(host, tmp_path)
        first, second = host.keys
        assert first == second
        assert first is not None
        assert len(first) == 64
        assert not any(first in line for line in host.lines)
        assert not any(first in file.read_text() for file in tmp_path.rglob("*") if file.is_file())
        keys.append(first)
    assert keys[0] != keys[1]


@pytest.mark.usefixtures("_udev")
@pytest.mark.parametrize("flags", ["discards", "discards no_read_workqueue no_write_workqueue "])
def test_flags_are_read_back(tmp_path: Path, flags: str) -> None:
    queues = "off" if "queue" in flags else "on"
    top, _ = build(Programs(flags=flags), tmp_path, f"luks:discard=on:workqueues={queues}")
    assert top.properties["luks.discard"] == "on"
    assert top.properties["luks.workqueues"] == queues


@pytest.mark.usefixtures("_udev")
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("luks:discard=on", "with discard=off instead of on"),
        ("luks:workqueues=off", "with workqueues=on instead of off"),
        ("luks:sector=4096", "with sector=512 instead of 4096"),
    ],
)
def test_an_option_that_did_not_take_effect_is_an_error(
    tmp_path: Path, text: str, arguments: str
) -> None:
    host = Programs()
    with pytest.raises(HostError, match=arguments) as refused:
        build(host, tmp_path, text)
    assert f"leave out {text[5:].partition('=')[0]}" in str(refused.value.hint)
    assert host.mapped == []


@pytest.mark.parametrize("fails", ["luksFormat", "open"])
def test_half_a_device_is_taken_down(tmp_path: Path, fails: str) -> None:
    host = Programs(fail_on=fails)
    with pytest.raises(CommandError, match="no space left"):
        build(host, tmp_path)
    assert host.lines[-1] == "dmsetup ls"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.usefixtures("_udev")
def test_what_cannot_be_removed_stays_in_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(DirtyHostError, match=r"device-mapper device vdl_\w+ cannot be removed"):
        build(Programs(fail_on="dmsetup remove"), tmp_path)
    (ledger,) = (tmp_path / "state/ledger").glob("*.jsonl")
    assert Kind.MAPPED in [entry.kind for entry in pending(ledger)]


def test_without_dm_crypt_one_sentence(tmp_path: Path) -> None:
    host = Programs(targets="linear v1.4.0")
    with pytest.raises(HostError, match="this kernel has no dm-crypt, which LUKS needs") as refused:
        build(host, tmp_path)
    assert "modprobe dm_crypt" in str(refused.value.hint)
    assert "vdisklab lab run" in str(refused.value.hint)
    assert host.keys == []


def test_without_cryptsetup_its_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Programs()
    monkeypatch.setattr(host, "which", lambda name: None if name == "cryptsetup" else Path(name))
    with pytest.raises(HostError, match="cryptsetup is not installed") as refused:
        build(host, tmp_path)
    assert "cryptsetup" in str(refused.value.hint)
    assert host.lines == []


def test_a_name_that_is_taken_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(luks, "MAPPER", tmp_path)
    host = Programs()
    with open_ledger(tmp_path / "state") as ledger, open_site(host, ledger, tmp_path) as site:
        theirs = tmp_path / site.unique("s-0")
        theirs.touch()
        with (
            pytest.raises(HostError, match=f"{theirs} already exists"),
            encrypted_device(site, BELOW, layer("luks"), "s-0", MIB),
        ):
            pytest.fail("not reached")
    assert host.keys == []
    assert not any("remove" in line for line in host.lines)


def test_the_status_of_cryptsetup_is_parsed() -> None:
    status = parse_status(STATUS)
    assert status["sector size"] == "512"
    assert status["loop"] == "/work/vdisklab-1/s.slice"
    assert parse_status("") == {}
