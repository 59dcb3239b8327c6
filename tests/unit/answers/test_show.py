"""`show RUN --script`: what the script is made of; tests/guest runs one."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from vdisklab.actions.export_data import import_campaigns
from vdisklab.answers.show import repeat_script
from vdisklab.errors import PlanError
from vdisklab.results.model import Campaign, Run
from vdisklab.results.store import open_store
from vdisklab.value import replace

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, list[Run]]:
    """A recorded campaign of paths with and without host layers."""
    database = str(tmp_path_factory.mktemp("repeat") / "results.sqlite")
    import_campaigns(database, [ROOT / "docs" / "images" / "campaign.json.gz"])
    with open_store(database) as store:
        (campaign,) = store.campaigns()
        return campaign, list(store.runs(campaign.id))


def test_the_script_is_one_and_names_nothing_of_the_old_run(
    recorded: tuple[Campaign, list[Run]],
) -> None:
    campaign, runs = recorded
    run = next(run for run in runs if run.path == "ext4/raw/none")
    # As if the work directory had been on that file system.
    port = "-chardev socket,id=steps,fd=13 -chardev socket,id=agent,"
    commands = tuple(
        command.replace("/stack0-0/", "/").replace("-chardev socket,id=agent,", port)
        for command in run.commands
    )
    script = repeat_script(replace(run, path="raw/none", commands=commands), campaign)
    subprocess.run(("sh", "-n"), input=script, text=True, check=True)
    program = script.partition("<<'PYTHON'\n")[2].partition("\nPYTHON\n")[0]
    ast.parse(program)
    assert "fd=" not in script
    assert 'socket,id=steps,path="$work"/steps,server=on,wait=off' in script
    assert f'preallocation=full "$work"/image0.raw {campaign.plan["size_bytes"]}\n' in script
    assert all(measured.name in script for measured in run.measurements)
    assert not [line for line in script.splitlines() if "@" in line.replace("@WORK@", "")]


def test_what_a_script_cannot_repeat_is_said(recorded: tuple[Campaign, list[Run]]) -> None:
    campaign, (*runs,) = recorded
    by_path = {run.path: run for run in runs}
    for run, reason in (
        (by_path["host"], "in a guest"),
        (by_path["ext4/raw/none"], "host layers"),
        (replace(by_path["ext4/raw/none"], path="my VM"), "no disk path"),
        (replace(by_path["ext4/raw/none"], path="raw/none", commands=()), "did not start its QEMU"),
        (replace(by_path["ext4/raw/none"], path="qcow2:encrypt=luks/none"), "encrypted"),
        (replace(by_path["ext4/raw/none"], path="qcow2:backing=1/none"), "backing file"),
    ):
        with pytest.raises(PlanError, match=reason):
            repeat_script(run, campaign)
