"""The settings of the queues of the host's disks."""

from __future__ import annotations

from pathlib import Path

from vdisklab.host.facts import host_queue_checks


def queue(devices: Path, name: str, **settings: str) -> None:
    directory = devices / name / "queue"
    directory.mkdir(parents=True)
    for setting, text in settings.items():
        (directory / setting).write_text(f"{text}\n")


def test_the_chosen_scheduler_and_what_the_kernel_shows(tmp_path: Path) -> None:
    queue(tmp_path, "8:0", scheduler="none [mq-deadline] kyber", nr_requests="64")
    seen = {check.name: check.observed for check in host_queue_checks([(8, 0)], tmp_path)}
    assert seen == {"host.scheduler": "mq-deadline", "host.nr_requests": "64"}
    assert all(check.confirmed for check in host_queue_checks([(8, 0)], tmp_path))


def test_several_disks_and_a_partition(tmp_path: Path) -> None:
    queue(tmp_path, "8:0", scheduler="[none] bfq", read_ahead_kb="128")
    queue(tmp_path, "8:16", scheduler="none [bfq]", read_ahead_kb="128")
    (tmp_path / "8:0" / "sda1").mkdir()
    (tmp_path / "8:1").symlink_to(tmp_path / "8:0" / "sda1")
    seen = {check.name: check.observed for check in host_queue_checks([(8, 1), (8, 16)], tmp_path)}
    assert seen == {"host.scheduler": "none/bfq", "host.read_ahead_kb": "128"}
    assert host_queue_checks([], tmp_path) == ()
