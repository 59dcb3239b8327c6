"""Lines for a disk that its platform refuses: with the line, the platform takes the disk."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.platforms.test_refused_words import CLAIM, REFUSED
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import Change, NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import CannotWork

MACHINE = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: erp, namespace: prod}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        cpu: {cores: 2}
        memory: {guest: 4Gi}
        devices:
          disks:
          - name: rootdisk
            disk: {}
          - name: data
            disk: {bus: virtio}
      volumes:
      - name: rootdisk
        VOLUME
      - name: data
        persistentVolumeClaim: {claimName: erp-data}
---
apiVersion: CLAIM
metadata: {name: erp-root, namespace: prod}
spec: SPEC
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: erp-data, namespace: prod}
spec: {volumeMode: Block, resources: {requests: {storage: 100Gi}}}
"""
OF_DATA_VOLUME = {
    "VOLUME": "dataVolume: {name: erp-root}",
    "CLAIM": "cdi.kubevirt.io/v1beta1\nkind: DataVolume",
    "SPEC": "{source: {blank: {}}, pvc: {volumeMode: Filesystem}}",
}
OF_CLAIM = {
    "VOLUME": "persistentVolumeClaim: {claimName: erp-root}",
    "CLAIM": "v1\nkind: PersistentVolumeClaim",
    "SPEC": "{volumeMode: Block, resources: {requests: {storage: 20Gi}}}",
}
Objects = list[dict[str, Any]]


def machines() -> Iterator[Objects]:
    """Machines with a root disk of every bus and cache mode, with and without I/O threads."""
    for filled, bus, cache, asks, policy in itertools.product(
        (OF_DATA_VOLUME, OF_CLAIM),
        (None, "sata", "usb", "scsi", "virtio"),
        (None, "none", "writethrough", "writeback"),
        (True, None),
        (None, "auto"),
    ):
        text = MACHINE
        for word, written in filled.items():
            text = text.replace(word, written)
        documents = list(yaml.safe_load_all(text))
        domain = documents[0]["spec"]["template"]["spec"]["domain"]
        root = domain["devices"]["disks"][0]
        root["disk"] |= {"bus": bus} if bus else {}
        root |= {"cache": cache} if cache else {}
        root |= {} if asks is None else {"dedicatedIOThread": asks}
        domain |= {"ioThreadsPolicy": policy} if policy else {}
        yield documents


def root_disk(documents: Objects) -> ConfiguredDisk:
    disks = read_guests([GuestText(json.dumps({"items": documents}), "erp.json")])
    return next(disk for disk in disks if disk.target == "rootdisk")


def patched(documents: Objects, line: str) -> Objects:
    """The objects after `kubectl patch … --type=json`, as RFC 6902 has it."""
    argv = shlex.split(line)
    assert argv[:6] == ["kubectl", "patch", "vm", "erp", "-n", "prod"]
    copy: Objects = json.loads(json.dumps(documents))
    for step in json.loads(argv[argv.index("-p") + 1]):
        *above, last = step["path"].strip("/").split("/")
        place: Any = copy[0]
        for key in above:
            place = place[int(key) if isinstance(place, list) else key]
        if step["op"] in ("remove", "replace", "test"):
            assert last in place, step
        if step["op"] == "remove":
            del place[last]
        elif step["op"] == "test":
            assert place[last] == step["value"], step
        else:
            place[last] = step["value"]
    return copy


def admitted(documents: Objects) -> str | None:
    """What the webhook says against the root disk: ValidateDisks of KubeVirt 1.3 to 1.9."""
    disk = documents[0]["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]
    bus = disk["disk"].get("bus", "sata")
    if disk.get("dedicatedIOThread") is True and bus != "virtio":
        return f"IOThreads are not supported for disks on a {bus} bus"
    if disk.get("cache", "none") not in ("none", "writethrough", "writeback"):
        return "invalid cache"
    if disk.get("io", "native") not in ("native", "threads"):
        return "Disk IO mode"
    return None if bus in ("virtio", "scsi", "sata", "usb") else "unrecognized bus"


def wanted(path: DiskPath) -> Iterator[DiskPath]:
    """The disk as it is, and with another cache mode, aio mode, thread or bus."""
    on = f"{'raw/' if path.image else ''}"
    for cache, bus, rest in itertools.product(
        ("none", "writeback", "writethrough"), ("sata", "usb", "scsi", "virtio"),
        ("", ":aio=native", ":iothread=on", ":aio=native:iothread=on"),
    ):  # fmt: skip
        if not ("iothread" in rest and bus in ("sata", "usb")):
            yield parse_path(f"{on}{cache}/{bus}:discard=unmap{rest}")


def changes(disk: ConfiguredDisk, path: DiskPath) -> Iterator[tuple[DiskPath, Change]]:
    for to in (path, *wanted(path)):
        try:
            yield to, change_of(disk, to)
        except PlanError:  # no such path, or no such line
            continue


# Every seventh of 160 machines has each bus, cache mode, policy and kind of claim; all take 10 s.
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.nightly)])
def test_kubevirts_webhook_takes_every_machine_that_a_line_makes(every: int) -> None:
    refused, lines = 0, 0
    for documents in itertools.islice(machines(), 0, None, every):
        disk = root_disk(documents)
        assert disk.path is not None
        said = [risk for risk in risks(disk) if isinstance(risk, CannotWork)]
        assert bool(said) is (admitted(documents) is not None), (documents[0], said)
        refused += bool(said)
        found = list(changes(disk, disk.path))
        assert found
        for to, change in found:
            then = patched(documents, change.paste)
            assert then != documents, change.paste
            assert admitted(then) is None, (admitted(then), change.paste)
            assert patched(then, change.undo) == documents
            read = root_disk(then)
            assert read.path is not None
            assert read.path.attachment.bus is to.attachment.bus
            assert read.path.cache.spelled_out is to.cache.spelled_out
            lines += 1
    all_refused = 2 * 4 * 4 * 2  # claims, buses but virtio, cache modes, policies
    assert refused == all_refused if every == 1 else 0 < refused < all_refused / 2
    assert lines > 1000 / every  # of 160 machines


@pytest.mark.parametrize("bus", ["sata", "usb", "scsi"])
@pytest.mark.parametrize("cache", [None, "writethrough", "writeback"])
def test_the_line_of_a_refused_thread_takes_out_the_thread_alone(
    bus: str, cache: str | None
) -> None:
    documents = next(
        each for each in machines()
        if (root := each[0]["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0])
        and root["disk"].get("bus") == bus and root.get("cache") == cache
        and root.get("dedicatedIOThread")
    )  # fmt: skip
    disk = root_disk(documents)
    assert disk.path is not None
    without = tuple(item for item in disk.path.attachment.options if item[0] != "iothread")
    to = DiskPath(
        (), disk.path.image, disk.path.cache, type(disk.path.attachment)(Bus(bus), without)
    )
    _, step = json.loads(shlex.split(change_of(disk, to).paste)[-1])
    assert (step["op"], step["path"].rpartition("/")[2]) == ("remove", "dedicatedIOThread")


def test_a_thread_that_the_machine_gives_every_disk_is_not_taken_from_one() -> None:
    documents = next(
        each for each in machines()
        if each[0]["spec"]["template"]["spec"]["domain"].get("ioThreadsPolicy")
        and root_disk(each).bus == "virtio"
    )  # fmt: skip
    disk = root_disk(documents)
    assert disk.path is not None
    assert disk.path.attachment.iothread
    with pytest.raises(NotChangeableError, match="ioThreadsPolicy"):
        change_of(disk, parse_path("raw/none/virtio:discard=unmap"))


@pytest.mark.parametrize(("text", "why"), [(text, why) for text, why, _ in REFUSED])
def test_no_line_leaves_what_is_refused(text: str, why: str) -> None:
    """Of a line that can be read again, what the platform refused is gone."""
    origin = {"<": "w.xml", "q": "w.sh"}.get(text[0], "9.conf" if ": local:" in text else "w.yaml")
    texts = [GuestText(text, origin)]
    texts += [GuestText(CLAIM, "c.yaml")] * ("kubevirt.io" in text)
    (disk,) = read_guests(texts)
    path = disk.path or disk.assumed
    if path is None:
        return
    for cache in (path.cache, CacheMode.NONE, CacheMode.WRITEBACK):
        to = DiskPath(path.layers, path.image, cache, path.attachment)
        try:
            line = change_of(disk, to).paste
        except PlanError:
            continue
        argv = shlex.split(line)
        if argv[:2] != ["qm", "set"]:
            continue
        (read,) = read_guests([GuestText(f"{argv[3].lstrip('-')}: {argv[4]}\n", "9.conf")])
        assert not [risk for risk in risks(read) if isinstance(risk, CannotWork)], line
        assert why not in line


def test_a_read_only_disk_of_proxmox_does_not_become_writable() -> None:
    text = "sata0: local:9/vm-9-disk-0.raw,ro=1"
    (disk,) = read_guests([GuestText(text, "9.conf")])
    with pytest.raises(NotChangeableError, match="refuses ro on bus sata"):
        change_of(disk, parse_path("raw/writeback/sata"))
