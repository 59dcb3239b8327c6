"""LUKS: a block device whose data the kernel encrypts (dm-crypt)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host import command, ledger, pagecache
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device

MAPPER = Path("/dev/mapper")
_NODE_SECONDS = 15.0
_STANDARD_INPUT = ("--key-file", "-")


@contextmanager
def encrypted_device(
    site: Site, below: Device, layer: Layer, name: str, _capacity: int
) -> Iterator[Device]:
    """The device below, encrypted with a new random key that no file and no command line holds.

    Raises HostError if cryptsetup or the kernel's dm-crypt is missing, or the device differs from
    the requested options.
    """
    mapped, key = site.unique(name), secrets.token_hex(32)
    node = MAPPER / mapped
    site.check(lambda: _require_dm_crypt(site.host, node))
    with site.tracked(ledger.Kind.MAPPED, mapped):
        site.run_marked(*format_command(layer, below.path, site.label), timeout=300, stdin=key)
        site.run_marked(*open_command(layer, below.path, mapped), timeout=120, stdin=key)
        device = site.node(node, _NODE_SECONDS)
        properties = site.read_back(lambda: _read_back(site.host, layer, mapped))
        yield below.device(device, properties)


def format_command(layer: Layer, device: Path, label: str) -> tuple[str, ...]:
    """Writes a header of LUKS2, with the cipher that cryptsetup chooses.

    The key is random, so its derivation need not be slow.
    """
    sector = layer.option("sector")
    sector_size = () if sector is None else ("--sector-size", str(sector))
    return (
        "cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", "--label", label,
        "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", *sector_size,
        *_STANDARD_INPUT, str(device),
    )  # fmt: skip


def open_command(layer: Layer, device: Path, mapped: str) -> tuple[str, ...]:
    """The command that makes the decrypted device. Discards reach the disk only with
    --allow-discards.
    """
    discards = ("--allow-discards",) if layer.option("discard") else ()
    queues = ("--perf-no_read_workqueue", "--perf-no_write_workqueue")
    options = (*discards, *(() if layer.option("workqueues") else queues))
    where = (*_STANDARD_INPUT, str(device), mapped)
    return ("cryptsetup", "open", "--type", "luks2", *options, *where)


def parse_status(text: str) -> dict[str, str]:
    """Parses the output of `cryptsetup status`: lines of a name, a colon and a value."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _require_dm_crypt(host: command.Host, node: Path) -> None:
    command.require_programs(host, "cryptsetup", "dmsetup")
    if pagecache.mapper_target(host, "crypt") is None:
        raise HostError(
            "this kernel has no dm-crypt, which LUKS needs",
            hint="modprobe dm_crypt; or try it in the lab: vdisklab lab run",
        )
    if node.exists():
        raise HostError(f"the device {node} already exists", hint="try again")


def _read_back(host: command.Host, layer: Layer, mapped: str) -> dict[str, str]:
    """The device's properties, from `cryptsetup status`. Raises HostError if they differ from the
    layer's options.
    """
    status = parse_status(host.run("cryptsetup", "status", mapped).stdout)
    flags = status.get("flags", "").split()
    direct = {"no_read_workqueue", "no_write_workqueue"} <= set(flags)
    seen = {
        "type": status.get("type"),
        "cipher": status.get("cipher"),
        "key": status.get("keysize"),
        "sector": status.get("sector size"),
        "discard": "on" if "discards" in flags else "off",
        "workqueues": "off" if direct else "on",
    }
    for name, option in LayerKind.LUKS.facts.options.items():
        value = layer.option(name)
        if value is not None and seen[name] != option.format(value):
            raise HostError(
                f"cryptsetup made {mapped} with {name}={seen[name] or 'unknown'} instead of "
                f"{option.format(value)}",
                hint=f"this kernel's dm-crypt does not know it: leave out {name}",
            )
    return {f"luks.{name}": value for name, value in seen.items() if value is not None}
