from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import (
    CAMPAIGN,
    HOST,
    IOPS,
    P99,
    cell,
    drifting,
    labelled,
    observed,
)
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.recorded import (
    ClockTrouble,
    ColdInPart,
    FitsInMemory,
    FrequencyGovernor,
    FromPageCache,
    HostChanged,
    NoisyNeighbour,
    OpenLoad,
    SeveralGuests,
    ThinImage,
    evidence_diagnostics,
    has_sustained,
    host_diagnostics,
    with_lasting,
)
from vdisklab.analysis.diagnostics.values import (
    Bimodal,
    DeviceCeiling,
    Drift,
    GuestCeiling,
    RoundsDepend,
    SlowFirstRound,
    bimodal_diagnostics,
    ceiling_diagnostics,
    drift_diagnostics,
    first_round_diagnostics,
    lasting_diagnostics,
)
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.score import Score, Weighted
from vdisklab.results.model import CellSums, Direction, TimedMeasurement
from vdisklab.value import replace


def steady(rng: np.random.Generator, cells: int, rounds: int, noise: float = 0.03) -> Floats:
    values: Floats = np.exp(rng.normal(0, noise, (cells, rounds)))
    return values


def named(values: dict[str, Floats]) -> Observations:
    return labelled(
        {
            (cell, round, IOPS): float(value)
            for cell, row in values.items()
            for round, value in enumerate(row)
        }
    )


def test_a_trend_over_rounds_is_named_with_its_size() -> None:
    values = steady(np.random.default_rng(1), 5, 8) * np.exp(-0.05 * np.arange(8))
    (found,) = drift_diagnostics(observed({IOPS: values}), IOPS)
    assert found.rounds == 8
    assert found.change == pytest.approx(np.exp(-0.35) - 1, abs=0.05)


def test_steady_rounds_make_few_false_trends_and_first_rounds() -> None:
    rng = np.random.default_rng(2)
    trends = firsts = 0
    for _ in range(300):
        numbers = observed({IOPS: steady(rng, 4, 6, noise=0.2)})
        trends += bool(drift_diagnostics(numbers, IOPS))
        firsts += bool(first_round_diagnostics(numbers, IOPS))
    assert trends / 300 <= 0.05 + 0.025
    assert firsts / 300 <= 0.01 + 0.012


@pytest.mark.parametrize(("measure", "first"), [(IOPS, 0.5), (P99, 2.0)])
def test_a_slow_first_round(measure: type, first: float) -> None:
    values = steady(np.random.default_rng(3), 4, 5)
    values[:, 0] *= first
    (found,) = first_round_diagnostics(observed({measure: values}), measure)  # type: ignore[dict-item, arg-type]
    assert found.factor == pytest.approx(0.5, abs=0.05)
    values[:, 0] /= first**2  # a fast one is not slow
    assert first_round_diagnostics(observed({measure: values}), measure) == ()  # type: ignore[dict-item, arg-type]


def test_two_modes_are_found_through_drift_and_named_once() -> None:
    rng = np.random.default_rng(4)
    values = drifting(rng, [1.0] * 6, 12)
    values[2, [1, 4, 5, 9, 10]] *= 2
    (found,) = bimodal_diagnostics(observed({IOPS: values}), IOPS)
    assert found.cell == cell("c02")
    assert found.apart == pytest.approx(2, rel=0.1)
    assert found.share_high == pytest.approx(5 / 12)


def test_one_mode_is_hardly_ever_taken_for_two() -> None:
    rng = np.random.default_rng(5)
    wrong = sum(
        len(bimodal_diagnostics(observed({IOPS: np.exp(rng.normal(0, 0.2, (50, n)))}), IOPS))
        for n in (8, 12, 20)
        for _ in range(5)
    )
    assert wrong <= 1  # of 750 cells
    assert bimodal_diagnostics(observed({IOPS: steady(rng, 5, 5)}), IOPS) == ()


def lasting(rng: np.random.Generator, part: float, cells: int, rounds: int) -> Floats:
    """Values whose noise of 5 % lasts in this part from round to round, after a common level."""
    noise = rng.normal(0, 0.05, (cells, rounds))
    for index in range(1, rounds):
        noise[:, index] = part * noise[:, index - 1] + np.sqrt(1 - part**2) * noise[:, index]
    values: Floats = np.exp(noise + rng.normal(0, 0.2, rounds))
    return values


def test_noise_that_lasts_from_round_to_round_is_told_with_its_part() -> None:
    rng = np.random.default_rng(11)
    (found,) = lasting_diagnostics(observed({IOPS: lasting(rng, 0.6, 8, 30)}), IOPS)
    assert isinstance(found, RoundsDepend)
    assert found.part == pytest.approx(0.6, abs=2 * found.error + 0.05)
    assert f"about {100 * found.part:.0f} % of a round's noise lasts" in str(found)
    told = [
        len(lasting_diagnostics(observed({IOPS: lasting(rng, 0.6, 5, 12)}), IOPS))
        for _ in range(100)
    ]
    assert sum(told) >= 90, "of campaigns with 60 % and as few rounds as people have"


def test_noise_of_independent_rounds_is_hardly_ever_told_to_last() -> None:
    rng = np.random.default_rng(12)
    told = [
        len(lasting_diagnostics(observed({IOPS: lasting(rng, 0.0, 5, rounds)}), IOPS))
        for rounds in (6, 8, 12, 30)
        for _ in range(100)
    ]
    assert sum(told) <= 12, "of 400"
    assert lasting_diagnostics(observed({IOPS: lasting(rng, 0.9, 1, 30)}), IOPS) == (), "one cell"
    assert lasting_diagnostics(observed({IOPS: lasting(rng, 0.9, 6, 5)}), IOPS) == (), "few rounds"


def test_ceilings_of_guest_and_device() -> None:
    ones = np.ones(3)
    numbers = named(
        {
            "host": ones,
            "raw/none": 0.97 * ones,
            "qcow2/none": 0.5 * ones,
            "raw/writeback (warm)": 1.0 * ones,
            "raw/writeback (cold)": 0.99 * ones,
            "ext4/raw/none": ones,  # another stack than the host's
            "null/default": 1.1 * ones,
            "raw/none/nvme": 1.05 * ones,  # another bus than the null device's
        }
    )
    found = ceiling_diagnostics(numbers, IOPS, cached=[cell("raw/writeback (cold)")])
    guest, device = found
    assert isinstance(guest, GuestCeiling)
    assert {str(each) for each in guest.cells} == {
        "raw/none",
        "raw/writeback (warm)",
        "raw/writeback (cold)",
        "ext4/raw/none",
    }
    assert isinstance(device, DeviceCeiling)
    assert set(device.cells) == {cell("raw/none"), cell("raw/none/nvme")}


def test_evidence_tells_thin_images_clocks_and_neighbours() -> None:
    cells = {"f": cell("raw/none")}
    counts = (None,) * 6
    grown = [CellSums("f", "m", *counts, grown=64 << 20), CellSums("f", "n", *counts, grown=1)]
    times = [
        TimedMeasurement("f", "m", 10.0, 9.0, 1.0),
        TimedMeasurement("f", "m", 10.0, 11.0, None),
        TimedMeasurement("f", "m", 10.0, 10.1, 0.1),
        TimedMeasurement("f", "m", None, 5.0, 5.0),
        TimedMeasurement("f", "m", 10.0, None, None),
    ]
    found = evidence_diagnostics(grown, times, cells, (), cpus=2)
    assert found == (
        ThinImage((cell("raw/none"),), 64 << 20),
        ClockTrouble(cell("raw/none"), "m", 11.0, 10.0),
        NoisyNeighbour(1, 0.05, cell("raw/none")),
    )
    assert evidence_diagnostics((), times[2:], cells, (), cpus=2) == ()
    made = {"f": cell("xfs/raw/none/virtio:made=cp")}
    assert evidence_diagnostics(grown, (), made, (), cpus=2) == (), "growth is what is measured"
    assert len(evidence_diagnostics(grown, times[:1], cells, (), cpus=None)) == 1


def test_what_plan_and_host_alone_tell() -> None:
    numbers = named({"raw/writeback (warm)": np.ones(3), "raw/none": np.ones(3)})
    slow = replace(HOST, more={"governor": "powersave"}, kernel="6.5")
    other = replace(CAMPAIGN, host=slow)
    fits, governor, kernel = host_diagnostics([other, CAMPAIGN], numbers.cells)[:3]
    assert fits == FitsInMemory(1, 1 << 28, 8 << 30)
    assert governor == FrequencyGovernor("powersave")
    assert kernel == HostChanged("kernel", ("6.5", "6.1.0-30-amd64"))
    assert host_diagnostics([CAMPAIGN], [cell("raw/none")]) == ()


def test_a_memory_of_its_own_is_what_a_disk_fits_into() -> None:
    cells = named({"raw/writeback (cold)": np.ones(3)}).cells

    def said(bound: str) -> list[str]:
        campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, "cache_memory": bound})
        return [str(diagnostic) for diagnostic in host_diagnostics([campaign], cells)]

    assert said("25%") == []
    (sentence,) = said("1G")
    assert "fits into --cache-memory (1.0 GiB)" in sentence


def test_sustained_writes_do_not_show_memory() -> None:
    """They count the time until the bytes are on the disk; what a program saw does not."""
    lasting, burst = (
        FromPageCache(cell("raw/writeback"), "w", Direction.WRITE, 0.1, lasting=sustained)
        for sustained in (True, False)
    )
    numbers = {
        metric: MeasureKey("w", Direction.WRITE, metric)
        for metric in ("sustained", "bandwidth", "iops", "latency_p99")
    }
    assert [name for name, key in numbers.items() if not lasting.shows_memory(key)] == ["sustained"]
    assert not lasting.shows_memory(Score.OVERALL.key)
    assert lasting.shows_memory(Weighted.WRITE.key), "Salter's score counts bursts"
    assert all(map(burst.shows_memory, (*numbers.values(), Score.OVERALL.key)))


def test_which_writes_have_a_sustained_rate() -> None:
    rate, read = (
        MeasureKey("w", Direction.WRITE, "sustained"),
        MeasureKey("w", Direction.READ, "bandwidth"),
    )
    numbers = labelled(
        {
            **{("raw/writeback", round, key): 1.0 for round in (1, 2) for key in (rate, read)},
            **{("raw/unsafe", round, read): 1.0 for round in (1, 2)},
        }
    )
    found = [
        FromPageCache(cell(name), "w", direction, 0.1)
        for name in ("raw/writeback", "raw/unsafe")
        for direction in (Direction.READ, Direction.WRITE)
    ]
    marked = [finding.lasting for finding in with_lasting(found, numbers)]
    assert marked == [False, True, False, False]
    assert has_sustained(numbers)


def test_several_guests_and_an_open_load() -> None:
    cells = [cell("host"), cell("raw/none"), cell("raw/none/virtio:guests=4")]
    assert host_diagnostics([CAMPAIGN], cells) == (SeveralGuests((1, 4)),)
    assert host_diagnostics([CAMPAIGN], cells[:2]) == ()
    plan = {**CAMPAIGN.plan, "measurements": [{"name": "a", "settings": {"rate_iops": 40}}]}
    is_open = replace(CAMPAIGN, plan=plan)
    assert host_diagnostics([is_open], cells[:2]) == (OpenLoad(),)


@pytest.mark.parametrize(
    "diagnostic",
    [
        FromPageCache(cell("c"), "m", Direction.READ, 0.03),
        ColdInPart((cell("c"),), 0.7),
        Drift("m", "c", 5, -0.2, 0.01),
        SlowFirstRound("m", "c", 0.5),
        Bimodal(cell("c"), "m", 2.0, 0.4),
        FitsInMemory(3, 1 << 30, 8 << 30),
        GuestCeiling((cell("a"), cell("b")), "m", cell("null/default"), 0.9),
        DeviceCeiling((cell("a"),), "m", cell("host"), 0.99),
        ThinImage((cell("a"),), 1 << 20),
        ClockTrouble(cell("c"), "m", 11.0, 10.0),
        FrequencyGovernor("powersave"),
        NoisyNeighbour(3, 0.05, cell("c")),
        HostChanged("kernel", ("1", "2")),
    ],
)
def test_each_diagnostic_has_a_sentence(diagnostic: Diagnostic) -> None:
    text = str(diagnostic)
    assert text.endswith(".")
    assert "{" not in text
