"""Parsers of what vdisklab recorded on disk: images, logs of writes, recordings, ledgers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fuzz_inputs import Parser, write_file
from vdisklab.errors import VdisklabError
from vdisklab.host.ledger import pending
from vdisklab.powercut.client import trace_from_json
from vdisklab.powercut.image_reader import read_metadata
from vdisklab.storage.qcow2_header import BadImageError
from vdisklab.storage.write_log import LogWriter, read_log


def recording_parsers(scratch: Path) -> Iterable[Parser]:
    image, log = scratch / "disk.qcow2", scratch / "writes.log"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=512", str(image), "64k"],
        check=True,
        timeout=60,
    )
    with log.open("w+b") as opened:
        writer = LogWriter(opened.fileno())
        for number in range(6):
            writer.write(number * 4096, bytes([number]) * 512)
        writer.flush()
        writer.discard(8192, 4096)
        writer.zero(0, 1024)
    trace = json.dumps(
        {
            "path": "ext4/raw/none",
            "client": "flushes",
            "access": "nbd",
            "filesystem": "ext4",
            "mount_options": ["data=ordered"],
            "image": "disk.raw",
            "image_format": "raw",
            "image_size": 8388608,
            "disk_size": 20971520,
            "filled": True,
            "begin": 3,
            "end": 99,
            "writes": [
                {"version": 1, "first": 0, "count": 8, "submitted": 4, "acked": 5, "durable_at": 7}
            ],
            "observed": {"cluster_size": "65536"},
            "flushes": [[6, 7]],
        }
    )
    yield Parser(
        "qcow2 image",
        5,
        (image.read_bytes().decode("latin-1"),),
        lambda text: _qcow2(write_file(scratch / "image", text)),
    )
    yield Parser(
        "log of writes",
        5,
        (log.read_bytes().decode("latin-1"),),
        lambda text: read_log(write_file(scratch / "log", text)),
    )
    yield Parser("recording", 30, (trace,), trace_from_json)
    ledger = "".join(
        json.dumps(line) + "\n"
        for line in (
            {"add": 1, "kind": "loop", "name": "/dev/loop0", "detail": {"file": "/x"}},
            {"add": 2, "kind": "mount", "name": "/mnt", "detail": {}},
            {"strike": 2},
        )
    )
    yield Parser("ledger", 5, (ledger,), lambda text: pending(write_file(scratch / "ledger", text)))


def _qcow2(file: Path) -> object:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return read_metadata(descriptor).offsets_of(np.arange(16))
    except BadImageError as error:
        raise VdisklabError(str(error)) from error
    finally:
        os.close(descriptor)
