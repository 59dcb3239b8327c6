"""Asks the questions of a record again: what `powercut_matrix.py --again` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vdisklab.documents import document
from vdisklab.host.state_directory import cache_directory
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.action import JudgingSetup, judge_power_cuts
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.mid_run import parse_judged
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.progress import Event, Note, Step
from vdisklab.results.power_cut import DURING, MODEL
from vdisklab.units import MIB

_GUEST_MEMORY = 512 * MIB


def questions_of(record: Mapping[str, Any]) -> Iterator[Question]:
    """The questions that a record answers, in its order."""
    for verdict in record["verdicts"]:
        settings = record["settings"] | verdict["settings"]
        yield Question(
            parse_path(verdict["path"]),
            ClientKind(verdict["client"]),
            _settings(settings),
            AccessKind(verdict["access"]),
            FailureModel(settings.get(MODEL, FailureModel.POWER)),
        )


def _settings(settings: Mapping[str, Any]) -> QuestionSettings:
    during = settings.get(DURING)
    return QuestionSettings(
        size=settings["size"],
        writes=settings["writes"],
        flush_every=settings["flush_every"],
        depth=settings["depth"],
        seed=settings["seed"],
        direct_io=settings["direct_io"],
        post_recovery_states=settings["post_recovery_states"],
        sampling=Sampling(
            settings["sampling.states"],
            settings["sampling.exhaustive_up_to"],
            settings["sampling.tear"],
            settings["sampling.seed"],
        ),
        driver=DriverSetting(settings.get("driver", DriverSetting.AS_FOUND)),
        during=None if during is None else parse_judged(during),
    )


def ask_again(record: Mapping[str, Any], work: Path, database: str) -> Mapping[str, Any]:
    """The document of new answers. Those in the database are kept, so the same call continues."""
    accelerator = record["accelerator"]
    guest = GuestPlan(
        memory_bytes=_GUEST_MEMORY,
        accelerator=None if accelerator is None else Accelerator(accelerator),
    )
    setup = JudgingSetup(work=work, database=database, guest=guest, guest_cache=cache_directory())
    answer = judge_power_cuts(tuple(questions_of(record)), setup, _progress, new=False)
    if answer.interrupted:
        raise SystemExit("interrupted; the same command continues")
    return document(answer)


def _progress(event: Event) -> None:
    match event:
        case Step(text) | Note(text):
            print(text, file=sys.stderr)
