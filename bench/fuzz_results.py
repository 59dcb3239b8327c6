"""Parsers of results: other programs' output, fio's logs, exported campaigns."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fuzz_inputs import ROOT, Parser, recorded, write_file
from vdisklab.actions.import_ import read_file
from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.exchange import is_export, read_export
from vdisklab.results.model import Direction
from vdisklab.workload import program
from vdisklab.workload.importing import recognise
from vdisklab.workload.program import Outputs
from vdisklab.workload.registry import WORKLOADS


def result_parsers(scratch: Path) -> Iterable[Parser]:
    fio = recorded(
        "fio-3.33-plain.json",
        "fio-3.33-fsync.json",
        "fio/randrw-fio-3.33.json",
        "fio/enospc-fio-3.33.txt",
    )
    logs = recorded("fio-3.33-3jobs_bw.log", "fio-3.33-frozen_bw.log", "fio-3.33-randrw_bw.log")
    bonnie = recorded(
        "bonnie-2.00a-short.csv",
        "bonnie-2.00a-fast.csv",
        "foreign/bonnie-1.03e.txt",
        "foreign/bonnie-2.00a-whole.txt",
        "foreign/bonnie-2.00a-x2.csv",
    )
    sysbench = recorded(
        *(f"sysbench-1.0.20-{mode}.txt" for mode in ("rndrd", "rndwr", "histogram")),
        "foreign/sysbench-0.4.12.txt",
    )
    diskmark = recorded(
        *(f"foreign/crystaldiskmark-{version}.txt" for version in ("3.0", "6.0", "8.0.0"))
    )
    dd = recorded("dd-9.1-4k.txt", "dd-9.1-progress.txt")
    diskspd = recorded("foreign/diskspd-2.0.xml")
    every = (*fio, *bonnie, *sysbench, *diskmark, *dd, *diskspd)
    yield Parser("import of fio", 5, fio, recognise)
    yield Parser("import of bonnie++", 20, bonnie, recognise)
    yield Parser("import of sysbench", 5, sysbench, recognise)
    yield Parser("import of CrystalDiskMark", 20, diskmark, recognise)
    yield Parser("import of dd", 25, dd, recognise)
    yield Parser("import of DISKSPD", 6, diskspd, recognise)
    yield Parser(
        "import of a file",
        2,
        tuple(text.encode().decode("latin-1") for text in every),
        lambda text: read_file(write_file(scratch / "result", text)),
    )
    yield Parser("log of fio", 8, tuple(text[:3000] for text in logs), _log)
    yield Parser("output of a program", 1.5, every, _output)
    campaign = exported(6)
    yield Parser("export of vdisklab", 2.5, (campaign, exported(1)), _export)


def _log(text: str) -> object:
    run = program.LoggedRun(0.1, 5.0, {Direction.READ: 1 << 20, Direction.WRITE: 1 << 20}, 0.2)
    return program.lines_of_log(text), program.read_log(text, run)


_PLANS = {
    "fio": MeasurementPlan("m", "fio", {"rw": "randread", "bs": "4k"}),
    "dd": MeasurementPlan("m", "dd", {"bs": "4k", "count": 16384}),
    "bonnie++": MeasurementPlan("m", "bonnie++", {}),
    "sysbench": MeasurementPlan("m", "sysbench", {"mode": "rndrd"}),
}


def _output(text: str) -> object:
    for name, plan in _PLANS.items():
        with suppress(WorkloadError):
            WORKLOADS[name].parse(plan, Outputs(text, text, {}))
    return None


def exported(runs: int) -> str:
    """The recorded campaign with its first runs, without the output of programs."""
    document = json.loads(gzip.decompress((ROOT / "docs/images/campaign.json.gz").read_bytes()))
    document["metrics"], document["power_cuts"] = (
        document["metrics"][:3],
        document["power_cuts"][:1],
    )
    (campaign, *_) = document["campaigns"]
    campaign["runs"] = campaign["runs"][:runs]
    for run in campaign["runs"]:
        for measurement in run["measurements"]:
            measurement["raw"], measurement["series"] = "", measurement["series"][:1]
    return json.dumps({**document, "campaigns": [campaign]})


def _export(text: str) -> object:
    content = text.encode(errors="surrogatepass")
    read_export(content, name="x.json")
    return is_export(content)
