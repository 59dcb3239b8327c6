"""Sentences of `recommend` about storage that the user names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from vdisklab.analysis.candidates import Price
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.recommend import MetByAll, RecommendAnswer, none_meets
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.needs import parse_need
from vdisklab.views.recommend import (
    _among_all,
    _left_out,
    _met_by_all,
    _over_default,
    _stalls,
    price_sentence,
)


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("vdisklab run raw/none raw/writeback",
         "; to compare the two: `vdisklab run raw/none raw/writeback`."),
        ("", "."),
    ],
)  # fmt: skip
def test_the_command_that_compares_qemus_default_is_printed(command: str, rest: str) -> None:
    recommendation = SimpleNamespace(default=None, cell=MeasuredCell("raw/none"), over_default=None)
    chosen = SimpleNamespace(
        recommendation=recommendation,
        campaigns=(SimpleNamespace(id="3f2a"),),
        default_measured_in=None,
        beside_default=command,
        run_on=None,
    )
    (sentence,) = _over_default(cast(RecommendAnswer, chosen))
    assert sentence == f"QEMU's default cache mode was not measured in campaign 3f2a{rest}"
    chosen.run_on = "node2"
    (sentence,) = _over_default(cast(RecommendAnswer, chosen))
    assert ("to compare the two on node2: " in sentence) is bool(command)


def test_paths_that_are_left_out_are_named_by_reason() -> None:
    cells = [MeasuredCell(f"ext4/raw/{cache}") for cache in ("none", "writeback", "directsync")]
    reasons = {**dict.fromkeys(cells, "no snapshots"), MeasuredCell("raw/unsafe"): "it loses data"}
    answer = SimpleNamespace(left_out=reasons)
    assert list(_left_out(cast(RecommendAnswer, answer))) == [
        "Left out: ext4/raw/none, ext4/raw/writeback, ext4/raw/directsync: no snapshots.",
        "Left out: raw/unsafe: it loses data.",
    ]


def test_a_need_that_costs_nothing_says_so() -> None:
    cell = MeasuredCell("qcow2/none")
    assert price_sentence(Price(parse_need("snapshots"), cell, None), cell) == (
        "The need snapshots costs no speed here: without it the answer is the same. The need "
        "means: the disk is qcow2 without a data file, or on a host layer that makes snapshots; "
        "and no request waits for longer than --stall in a snapshot, if `run --during` measured "
        "that."
    )


@pytest.mark.parametrize(
    ("met", "said"),
    [
        (MetByAll(parse_need("durable"), 5), "All 5 measured paths meet the need durable, by rule: "
         "nothing in a stack is set to drop flushes; no power cut was simulated."),
        (MetByAll(parse_need("durable"), 5, 5), "All 5 measured paths meet the need durable, as "
         "simulated power cuts show."),
        (MetByAll(parse_need("durable"), 5, 2), "All 5 measured paths meet the need durable: 2 by "
         "simulated power cuts, 3 by rule (nothing in a stack is set to drop flushes)."),
        (MetByAll(parse_need("bus=virtio"), 1), "The one measured path meets the need bus=virtio."),
        (MetByAll(parse_need("discard"), 3), "All 3 measured paths meet the need discard: "
         f"{parse_need('discard').meaning}."),
    ],
)  # fmt: skip
def test_a_need_that_every_path_meets_is_answered(met: MetByAll, said: str) -> None:
    """The user asked, and the same answer as without the need would not say that it was heard."""
    answer = SimpleNamespace(met_by_all=(met,))
    assert list(_met_by_all(cast(RecommendAnswer, answer))) == [said]


def test_a_price_in_which_one_rate_is_zero_says_so() -> None:
    """`which was never measured in the same round`"""
    cell, other = MeasuredCell("qcow2/none"), MeasuredCell("raw/none")
    for ratio, why in (
        (None, "which was never measured in the same round."),
        (Ratio(0), "which was never measured in the same round."),
        (Ratio(3), "and one rate is zero."),
    ):
        said = price_sentence(Price(parse_need("snapshots"), other, ratio), cell)
        assert f"without it the answer is raw/none, {why}" in said


@pytest.mark.parametrize(
    ("low", "high", "behind", "said"),
    [
        (1.0, 1.55, 0.02, "at most 55 % faster, and among all paths no difference is shown"),
        (0.8, 1.0, None, "at most 20 % slower, and among all paths no difference is shown"),
        (1.0, 1.55, 0.0, "between 0 and 55 % faster"),
        (1.11, 1.55, 0.02, "between 11 and 55 % faster"),
    ],
)
def test_an_end_that_the_ranks_set_says_so(
    low: float, high: float, behind: float | None, said: str
) -> None:
    """`between 0 and 55 % faster`, beside `compare`: `between 11 and 55 % faster`"""
    choice = SimpleNamespace(behind=behind)
    answer = SimpleNamespace(choice=choice, alternatives=(), hosts=None)
    assert _among_all(cast(RecommendAnswer, answer), Ratio(7, 1.2, low, high)) == said


def test_the_measured_stall_is_said_or_the_command_that_measures_it() -> None:
    recommendation = SimpleNamespace(cell=MeasuredCell("qcow2/none"))
    stalls = {parse_need("backup"): "no write was completed for 85 ms in its backup; --stall "
              "allows 1 s", parse_need("snapshots"): None}  # fmt: skip
    answer = SimpleNamespace(
        recommendation=recommendation,
        stalls=stalls,
        there="--dir /srv/vm",
        hosts=None,
        run_on=None,
    )
    assert list(_stalls(cast("RecommendAnswer", answer))) == [
        "qcow2/none: no write was completed for 85 ms in its backup; --stall allows 1 s.",
        "What a snapshot costs the guest was not measured on qcow2/none in this place "
        "with this QEMU: `vdisklab run qcow2/none --during snapshot --dir /srv/vm`.",
    ]
    answer.run_on = "node2"
    assert list(_stalls(cast("RecommendAnswer", answer)))[1].endswith(
        "with this QEMU; on node2: `vdisklab run qcow2/none --during snapshot --dir /srv/vm`."
    )


def test_a_directory_that_is_gone_is_named_beside_its_command(tmp_path: Path) -> None:
    paths, needs = [parse_path("qcow2/none")], [parse_need("no-flush-safe")]

    def hint(there: str, on: str | None = None) -> str:
        refusal = none_meets(paths, needs, CrashVerdicts(), there, on=on)
        assert refusal is not None
        return str(refusal.hint)

    assert "is gone" not in hint(f"--dir {tmp_path}")
    assert hint("--dir /no/such").endswith(" host` (in the current directory, as /no/such is gone)")
    assert "is gone" not in hint("--dir /no/such", "node2"), "another host may have it"
