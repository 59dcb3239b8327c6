"""A database in which this host's speeds of SPEEDS are stored."""

from __future__ import annotations

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.advise_guests import SPEEDS
from tests.unit.cli.test_advice import runs
from tests.unit.stored import Database
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.value import replace


@pytest.fixture
def store(database: Database) -> Database:
    here = replace(
        CAMPAIGN,
        host=machine_facts(LocalHost()),
        plan={**CAMPAIGN.plan, "profile": "quick", "cells": [
            f"{path} (cold)" if "default" in path else path for path in SPEEDS
        ]},
    )  # fmt: skip
    database.write(runs(speeds=SPEEDS), campaigns=[here])
    return database
