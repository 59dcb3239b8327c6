"""md: Linux software RAID."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host import blockdevice, command, ledger, waiting
from vdisklab.host.machine import read_text
from vdisklab.path.disk_path import Layer
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.storage.undo import Removable, retried

MDSTAT = Path("/proc/mdstat")
_NODE_SECONDS = 15.0
_MODULES = {"0": "raid0", "1": "raid1", "5": "raid456", "10": "raid10"}


@contextmanager
def array(site: Site, below: Device, layer: Layer, name: str, _capacity: int) -> Iterator[Device]:
    """An array of the layer's level over all members below.

    --assume-clean skips the resync of a new array, which would disturb the measurement. The array
    holds no data yet, so the resync would protect nothing.
    """
    label, level = site.unique(name), str(layer.option("level"))
    count = len(below.members)
    site.check(lambda: _require_level(site.host, level))
    site.check(lambda: _require_free(site.host, label))
    with site.tracked_on(below.members, ARRAY, label):
        site.run_uninterrupted(*create_command(label, level, below.members), timeout=120)
        node = site.observe(lambda: _device_of(site.host, label), planned=Path("/dev/md") / label)
        properties = site.read_back(lambda: _read_back(site.host, node, level, count))
        yield below.device(node, properties)


def create_command(label: str, level: str, members: Sequence[Path]) -> tuple[str, ...]:
    """The mdadm command that makes and starts the array, without a write-intent bitmap.

    Level 0 has no redundancy, so mdadm refuses the bitmap options.
    """
    redundant = () if level == "0" else ("--assume-clean", "--bitmap=none")
    return (
        "mdadm", "--quiet", "--create", f"/dev/md/{label}", f"--name={label}", "--metadata=1.2",
        f"--level={level}", f"--raid-devices={len(members)}", *redundant,
        "--run", *map(str, members),
    )  # fmt: skip


def parse_export(text: str) -> dict[str, str]:
    """Parses the output of `mdadm --detail --export`: KEY=VALUE lines."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _require_level(host: command.Host, level: str) -> None:
    command.require_programs(host, "mdadm")
    module = _MODULES[level]
    if host.which("modprobe") is not None:
        host.run("modprobe", "--quiet", module, allowed=range(256))
    personalities = (
        (read_text(MDSTAT) or "").partition("\n")[0].replace("[", " ").replace("]", " ").split()
    )
    if f"raid{level}" not in personalities:
        raise HostError(
            f"this kernel has no software RAID of level {level}",
            hint=f"modprobe {module}; or try it in the lab: vdisklab lab run",
        )


def _require_free(host: command.Host, label: str) -> None:
    if label in (name for _, name in arrays(host)):
        raise HostError(f"the array {label} already exists", hint="try again")


def _device_of(host: command.Host, label: str) -> Path:
    """The array's node, such as /dev/md127, from the kernel: the links in /dev/md need udev."""
    devices: list[Path] = []

    def there() -> bool:
        devices[:] = [device for device, name in arrays(host) if name == label]
        return bool(devices) and devices[0].is_block_device()

    waiting.wait_until(there, timeout=_NODE_SECONDS, what=f"device of the array {label}")
    return devices[0]


def _read_back(host: command.Host, device: Path, level: str, members: int) -> dict[str, str]:
    exported = parse_export(host.run("mdadm", "--detail", "--export", device).stdout)
    if (exported.get("MD_LEVEL"), exported.get("MD_DEVICES")) != (f"raid{level}", str(members)):
        raise HostError(
            f"{device} is {exported.get('MD_LEVEL')} of {exported.get('MD_DEVICES')} devices "
            f"instead of raid{level} of {members}"
        )
    place = Path("/sys/block") / device.name / "md"
    properties = {
        "md.level": level,
        "md.devices": str(members),
        "md.metadata": exported.get("MD_METADATA"),
        "md.chunk_bytes": read_text(place / "chunk_size"),
        "md.sync_action": read_text(place / "sync_action"),
    }
    return {key: value for key, value in properties.items() if value is not None}


def arrays(host: command.Host) -> Iterator[tuple[Path, str]]:
    """Running md arrays and their names, without mdadm's prefix with the host's name."""
    for place in sorted(Path("/sys/block").glob("md*/md")):
        device = Path("/dev") / place.parent.name
        text = host.run("mdadm", "--detail", "--export", device, allowed=(0, 1)).stdout
        yield device, array_name(text)


def array_name(export: str) -> str:
    """The array's name in the output of `mdadm --export`; empty if there is none."""
    return parse_export(export).get("MD_NAME", "").rpartition(":")[2]


def stop_array(host: command.Host, entry: ledger.Entry) -> None:
    """Stops an md array and removes its superblocks from its members."""
    for device, name in arrays(host):
        if name == entry.name:
            retried(host, ("mdadm", "--quiet", "--stop", str(device)))
    for member in blockdevice.recorded_devices(entry.detail["devices"]):
        text = host.run("mdadm", "--examine", "--export", member, allowed=(0, 1)).stdout
        if array_name(text) == entry.name:
            retried(host, ("mdadm", "--quiet", "--zero-superblock", str(member)))


ARRAY = Removable("md array", stop_array)
