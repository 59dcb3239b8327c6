"""A database server in a guest, through the real command line: a small and short one."""

from __future__ import annotations

import shutil

import pytest

from tests.lab import Lab

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(shutil.which("postgres") is None, reason="PostgreSQL is not installed"),
]

_PROFILE = """
name = "brief"
title = "PostgreSQL for two seconds"

[[measurement]]
name = "tpcb-like-c1"
program = "postgresql"
filesystem = "ext4"
script = "tpcb-like"
scale = 1
"""


# A commit measures PostgreSQL on the host and judges it in a guest; this takes 25 s of CPU.
@pytest.mark.nightly
def test_commits_are_counted_with_their_flushes_and_gates(lab: Lab) -> None:
    (lab.directory / "brief.toml").write_text(_PROFILE)
    arguments = list(lab.arguments("raw/none", profile="brief", runtime="2s"))
    arguments += ["--guest-memory", "256M"]
    arguments[arguments.index("--size") + 1] = "384M"
    with lab.start(*arguments) as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    (run,) = lab.runs()
    (measured,) = run.measurements
    values = {sample.metric: sample.value for sample in measured.samples}
    checks = {check.name: check.observed for check in run.checks}
    commits = int(checks["tpcb-like-c1.commits"])
    assert values["transactions"] > 0
    assert values["latency_p50"] <= values["latency_max"]
    assert checks["tpcb-like-c1.fsync"] == checks["tpcb-like-c1.synchronous_commit"] == "on"
    assert measured.evidence.qemu is not None
    assert (measured.evidence.qemu.flush_operations or 0) >= commits * 0.9
    assert any(name.endswith("flushes ÷ commits") for name in checks)
