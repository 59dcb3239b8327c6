"""Hosts as replications: means, ranks, agreement, outliers and classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.unit.analysis.fleet.simulated import IOPS, P99, cell, drawn, fleet_of, host_name
from vdisklab.analysis.fleet.agreement import agreement
from vdisklab.analysis.fleet.host_apart import hosts_apart
from vdisklab.analysis.fleet.host_classes import better_paths, profiles_differ
from vdisklab.analysis.fleet.host_means import effects, host_means, units_of
from vdisklab.analysis.fleet.host_ranks import may_be_best, pair_tests_over_hosts, rank_over_hosts
from vdisklab.analysis.fleet.outlier_hosts import extreme, find_outliers, levels
from vdisklab.analysis.observations import Round
from vdisklab.value import replace
from vdisklab.views.hosts import agreement_sentence, outlier_sentences

RNG = np.random.default_rng


def test_a_host_mean_has_no_round_effects() -> None:
    truth = np.array([1.0, 2.0, 0.5])
    logs = truth[:, None] + np.array([0.0, 5.0, -3.0])
    logs[2, 1] = np.nan  # the missing value must not move the cell by its round
    assert effects(logs) - effects(logs)[0] == pytest.approx(truth - truth[0])


def test_a_cell_that_a_host_did_not_measure_has_no_mean() -> None:
    logs = np.full((2, 3), np.nan)
    logs[1] = 1.0
    assert np.isnan(effects(logs)[0])
    assert np.isnan(effects(np.full((2, 2), np.nan))).all()


def test_a_cell_that_is_too_slow_in_half_of_the_rounds_is_so_on_the_host() -> None:
    fleet = fleet_of(drawn(RNG(1), np.zeros(3), 4, rounds=2))
    slow = [(cell(0), Round("id-1", 0)), (cell(1), Round("id-2", 0)), (cell(1), Round("id-2", 1))]
    means = host_means(
        replace(fleet.observations, too_slow=tuple(slow)), fleet.host_of, fleet.means.measures
    )
    assert [(found, round.campaign) for found, round in means.too_slow] == [
        (cell(0), host_name(1)),
        (cell(1), host_name(2)),
    ]
    assert np.isnan(means.grid(IOPS)[0, 1])
    assert means.ranked_logs(IOPS)[0, 1] == np.nanmin(means.logs(IOPS)[:, 1])


def test_the_pair_tests_are_those_of_scipy() -> None:
    table = RNG(2).normal(0, 1, (4, 9))
    table[1, 3] = table[2, 0] = np.nan
    mean, p = pair_tests_over_hosts(table, np.zeros(4))
    for number in range(4):
        for other in range(number):
            both = np.isfinite(table[number] - table[other])
            expected = stats.ttest_rel(table[number, both], table[other, both])
            assert p[number, other] == pytest.approx(expected.pvalue)
            assert mean[number, other] == pytest.approx((table[number] - table[other])[both].mean())


def test_a_pair_with_two_common_hosts_is_not_tested() -> None:
    table = RNG(2).normal(0, 1, (2, 5))
    table[0, 2:] = np.nan
    mean, p = pair_tests_over_hosts(table, np.zeros(2))
    assert np.isnan(mean[0, 1])
    assert np.isnan(p[0, 1])


def test_the_best_of_many_hosts_is_ranked_first() -> None:
    fleet = fleet_of(drawn(RNG(3), np.array([0.0, 0.0, 0.2, -0.3]), 30))
    ranking = rank_over_hosts(fleet.means, IOPS)
    assert [(row.cell, row.best, row.worst) for row in ranking.rows[::3]] == [
        (cell(2), 1, 1),
        (cell(3), 4, 4),
    ]
    assert may_be_best(ranking) == (cell(2),)
    assert {row.rounds for row in ranking.rows} == {30}


def test_a_low_latency_ranks_first() -> None:
    fleet = fleet_of(drawn(RNG(3), np.array([0.0, 0.5]), 20), P99)
    assert [row.cell for row in rank_over_hosts(fleet.means, P99).rows] == [cell(0), cell(1)]


def test_two_hosts_rank_nothing() -> None:
    fleet = fleet_of(drawn(RNG(4), np.array([0.0, 5.0]), 2))
    ranking = rank_over_hosts(fleet.means, IOPS)
    assert not ranking.rows
    assert len(ranking.unranked) == 2


def test_agreement_names_the_hosts_that_disagree() -> None:
    logs = drawn(RNG(5), np.array([0.1, 0.0, 0.0]), 40, spread=0.0)
    logs[0, 7] -= 0.6
    pair = agreement(fleet_of(logs), IOPS, cell(0), cell(1))
    shown = [entry.host for entry in pair.disagreeing if entry.shown]
    assert pair.a_leads
    assert shown in ([], [host_name(7)])  # three rounds rarely show it after Holm over 40 hosts
    assert host_name(7) in [entry.host for entry in pair.disagreeing]
    assert pair.agreeing + len(pair.disagreeing) == 40
    assert pair.ratio.low is not None
    assert pair.ratio.low < np.exp(0.1 - 0.6 / 40) < (pair.ratio.high or 0)


def test_a_host_is_apart_where_all_others_agree() -> None:
    logs = drawn(RNG(5), np.array([0.0, -1.2, -1.3, -1.1]), 3, spread=0.0)
    logs[1, 2] -= 1.1
    cells = [cell(number) for number in range(4)]
    (apart,) = hosts_apart(fleet_of(logs).means, IOPS, cell(0), cells)
    assert (apart.cell, apart.host, apart.others) == (cell(1), host_name(2), 2)
    assert apart.ratio == pytest.approx(np.exp(-2.3), rel=0.2)
    assert 0.2 < apart.low <= apart.high < 0.4
    faster = logs.copy()
    faster[1, 2] += 2.2
    assert hosts_apart(fleet_of(faster).means, IOPS, cell(0), cells)[0].ratio > apart.high
    # The baseline, or the whole host, is apart there: no path is.
    whole = logs.copy()
    whole[2:, 2] -= 1.1
    assert not hosts_apart(fleet_of(whole).means, IOPS, cell(0), cells)
    # Hosts that differ this much have no such host.
    spread = logs.copy()
    spread[1, 1] -= 0.6
    assert not hosts_apart(fleet_of(spread).means, IOPS, cell(0), cells)
    assert not hosts_apart(fleet_of(logs[:, 1:]).means, IOPS, cell(0), cells)


def test_many_rounds_show_a_host_that_disagrees() -> None:
    logs = drawn(RNG(5), np.array([0.2, 0.0]), 10, rounds=12, spread=0.0)
    logs[0, 7] -= 0.6
    pair = agreement(fleet_of(logs), IOPS, cell(0), cell(1))
    assert [(entry.host, entry.shown) for entry in pair.disagreeing] == [(host_name(7), True)]


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_spread_between_hosts_is_told_from_noise(spread: float) -> None:
    logs = drawn(RNG(6), np.zeros(2), 200, rounds=5, spread=spread)
    pair = agreement(fleet_of(logs), IOPS, cell(0), cell(1))
    assert pair.between == pytest.approx(spread * np.sqrt(2), abs=0.02)


def test_one_round_per_host_gives_no_spread_of_its_own() -> None:
    pair = agreement(fleet_of(drawn(RNG(6), np.zeros(2), 9, rounds=1)), IOPS, cell(0), cell(1))
    assert pair.between is None
    assert pair.ratio.low is not None


def test_a_host_with_a_dying_disk_is_found() -> None:
    logs = drawn(RNG(7), np.zeros(5), 24)
    logs[:, 11] += np.log(0.6)
    fleet = fleet_of(logs)
    (outlier,) = find_outliers(fleet.means, [IOPS], [fleet.hosts]).outliers
    assert (outlier.host, outlier.peers) == (host_name(11), 23)
    assert outlier.ratio == pytest.approx(0.6, abs=0.07)


@pytest.mark.parametrize("slower", [None, 0.75])
def test_the_ends_of_heavy_tails_are_no_outliers(slower: float | None) -> None:
    logs = np.zeros((3, 60, 3)) + 0.02 * stats.t(3).ppf((np.arange(60) + 0.5) / 60)[:, None]
    if slower is not None:  # far beyond these tails, though not by 37 %
        logs[:, 30] += np.log(slower)
    search = find_outliers(
        fleet_of(logs).means, [IOPS], [[host_name(index) for index in range(60)]]
    )
    assert [found.host for found in search.outliers] == [host_name(30)] * (slower is not None)


@pytest.mark.parametrize("kind", ["heavy tails", "wear", "hidden kinds"])
def test_healthy_fleets_whose_hosts_differ_widely_have_no_alarm(kind: str) -> None:
    """200 hosts: the slowest are named, and at most 1 of 20 fleets has an alarm."""
    rng, alarms, named = RNG(21), 0, 0
    for _ in range(20):
        level = {
            "heavy tails": rng.standard_t(3, 200) * 0.1 / np.sqrt(3),
            "wear": -rng.exponential(0.1, 200),
            "hidden kinds": np.where(rng.random(200) < 0.1, np.log(0.7), rng.normal(0, 0.05, 200)),
        }[kind]
        fleet = fleet_of(drawn(rng, np.zeros(3), 200, rounds=2) + level[:, None])
        outliers = find_outliers(fleet.means, [IOPS], [fleet.hosts]).outliers
        alarms += any(outlier.alarm for outlier in outliers)
        named += bool(outliers)
    assert alarms <= 1
    assert named >= 5


def test_a_host_that_is_far_off_among_hosts_alike_is_an_alarm() -> None:
    logs = 0.1 * drawn(RNG(22), np.zeros(5), 60)
    logs[:, 11] += np.log(0.6)
    fleet = fleet_of(logs)
    search = find_outliers(fleet.means, [IOPS], [fleet.hosts])
    assert [(found.host, found.alarm) for found in search.outliers] == [(host_name(11), True)]
    first, last = outlier_sentences(search)
    assert first.endswith(": look at its disk.")
    assert last == "A healthy fleet has such an alarm in at most 5 % of cases."


def test_hosts_that_share_a_rack_count_as_one() -> None:
    """Racks treat cells differently by 10 %: hosts as replications show differences that are none.

    40 hosts in 4 racks, 60 fleets: intervals by racks hold the true ratio in about 95 %.
    """
    rng = RNG(23)
    by_hosts: list[bool] = []
    by_racks: list[bool] = []
    racks = {host_name(host): f"rack{host % 4}" for host in range(40)}
    for _ in range(60):
        of_rack = rng.normal(0, 0.1, (2, 4, 1))[:, np.arange(40) % 4]
        alone = fleet_of(drawn(rng, np.zeros(2), 40) + of_rack)
        together = replace(alone, units=units_of(alone.means, racks))
        for fleet, held in ((alone, by_hosts), (together, by_racks)):
            ratio = agreement(fleet, IOPS, cell(0), cell(1)).ratio
            assert len(together.units.rounds) == 4
            held.append((ratio.low or 0) <= 1 <= (ratio.high or np.inf))
    assert np.mean(by_hosts) < 0.75
    assert np.mean(by_racks) > 0.88


def test_a_host_that_is_slower_on_one_path_alone_says_which() -> None:
    """Not its disk is slow, which all paths use; all measures that show it take one sentence."""
    logs = 0.1 * drawn(RNG(22), np.zeros(5), 60)
    logs[3, 11] += np.log(0.2)
    found = find_outliers(fleet_of(logs).means, [IOPS], [fleet_of(logs).hosts])
    (outlier,) = found.outliers
    assert outlier.path is not None
    assert (outlier.path.cell, outlier.path.count) == (cell(3), 4)
    assert outlier.path.ratio == pytest.approx(0.2, rel=0.05)
    assert outlier.path.others == pytest.approx(1.0, abs=0.05)
    both = replace(found, outliers=(outlier, replace(outlier, measure=P99)))
    said = [each for each in outlier_sentences(both) if host_name(11) in each]
    assert len(said) == 1
    assert said[0].startswith(f"{cell(3)} on {host_name(11)} is ")
    assert "the mean of its 4 other paths differs by at most " in said[0]
    assert "look at its disk" not in said[0]
    logs[:, 11] += np.log(0.2)
    (outlier,) = find_outliers(fleet_of(logs).means, [IOPS], [fleet_of(logs).hosts]).outliers
    assert outlier.path is None


def test_one_host_that_decides_against_all_others_is_named() -> None:
    logs = 0.1 * drawn(RNG(5), np.array([0.2, 0.0]), 5)
    logs[0, 3] -= 3
    said = agreement_sentence(agreement(fleet_of(logs), IOPS, cell(0), cell(1)))
    assert f" on 1 of 5 hosts ({host_name(3)}, which decides the mean) in " in said
    assert (
        f"{cell(0)} is ahead on the 4 others" in said
        or f"{cell(1)} is ahead on the 4 others" in said
    )


def test_three_dying_disks_do_not_hide_each_other() -> None:
    logs = drawn(RNG(8), np.zeros(5), 20)
    logs[:, 1:4] += np.log(0.6)
    fleet = fleet_of(logs)
    outliers = find_outliers(fleet.means, [IOPS], [fleet.hosts]).outliers
    assert {outlier.host for outlier in outliers} == set(map(host_name, (1, 2, 3)))


def test_a_slower_kind_of_host_is_no_outlier() -> None:
    logs = drawn(RNG(9), np.zeros(5), 20)
    logs[:, :6] += np.log(0.3)
    fleet = fleet_of(logs)
    search = find_outliers(
        fleet.means, [IOPS], [fleet.hosts[:6], fleet.hosts[6:18], fleet.hosts[18:]]
    )
    assert search.outliers == ()
    assert search.unchecked == fleet.hosts[18:]


def test_a_slow_host_has_a_low_level_in_a_latency() -> None:
    logs = drawn(RNG(9), np.zeros(3), 6)
    logs[:, 2] += 1.0
    level = levels(fleet_of(logs, P99).means, P99)
    assert min(level, key=lambda host: level[host]) == host_name(2)


def test_grubbs_critical_value_decides_for_few_hosts() -> None:
    """Grubbs 1969, table 1: 7 values, two-sided 5 %: 2.020."""
    values = np.array([0.0, 0.1, -0.1, 0.05, -0.05, 0.02, 1.0])
    statistic = (values[6] - values.mean()) / values.std(ddof=1)
    assert statistic > 2.020
    assert extreme(values, 0.05) == [6]
    assert extreme(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0]), 0.05) == []


def test_equal_hosts_have_no_outlier() -> None:
    assert extreme(np.zeros(30), 0.05) == []


def test_classes_that_need_another_path_are_told() -> None:
    logs = drawn(RNG(10), np.array([0.1, 0.0, -0.2]), 30)
    logs[1, :10] += 0.3
    fleet = fleet_of(logs)
    cells = [cell(number) for number in range(3)]
    class_of = {host: "old" if host < host_name(10) else "new" for host in fleet.hosts}
    p = profiles_differ(fleet.means, IOPS, class_of, cells)
    assert p is not None
    assert p < 0.01
    better = better_paths(fleet.means, IOPS, class_of, cells, chosen=cell(0))
    assert [path.cell for path in better["old"]] == [cell(1)]
    assert better["new"] == ()


def test_classes_alike_need_none() -> None:
    fleet = fleet_of(drawn(RNG(11), np.array([0.1, 0.0, -0.2]), 30))
    cells = [cell(number) for number in range(3)]
    class_of = {host: host[-1] for host in fleet.hosts}
    p = profiles_differ(fleet.means, IOPS, class_of, cells)
    assert p is not None
    assert p > 0.01
    assert not any(better_paths(fleet.means, IOPS, class_of, cells, chosen=cell(0)).values())


def test_one_class_has_no_test() -> None:
    fleet = fleet_of(drawn(RNG(12), np.zeros(2), 4))
    cells = [cell(0), cell(1)]
    assert profiles_differ(fleet.means, IOPS, dict.fromkeys(fleet.hosts, "x"), cells) is None


@pytest.mark.parametrize(
    ("means", "apart", "verb", "said"),
    [
        ([9.0, 6.0], None, "beats", "faster; "),
        ([9.0, 6.0], True, "beats", "faster; "),
        ([9.0, 6.0], False, "is ahead of", " faster (95 %), if at all; "),
        ([9.0, 9.0], False, "is ahead of", "which shows no difference for the mean host; "),
        ([9.0, 9.0], True, "is ahead of", "the ranking of all paths does (`rank`)"),
    ],
)
def test_two_alone_and_among_all(
    means: list[float], apart: bool | None, verb: str, said: str
) -> None:
    pair = agreement(fleet_of(drawn(RNG(12), np.log(means), 8)), IOPS, cell(0), cell(1))
    sentence = agreement_sentence(pair, apart)
    assert f" {verb} " in sentence
    assert said in sentence


@pytest.mark.parametrize("apart", [None, True, False])
def test_above_a_table_with_the_ratio_no_size_is_said_again(apart: bool | None) -> None:
    """The table has A to B, and the sentence had B to A: two forms of one interval."""
    pair = agreement(fleet_of(drawn(RNG(12), np.log([6.0, 9.0]), 8)), IOPS, cell(0), cell(1))
    sentence = agreement_sentence(pair, apart, sized=False)
    assert "faster" not in sentence
    assert ("the ranking of all paths shows no difference" in sentence) is (apart is False)
    assert "%" not in sentence


def test_a_leader_is_said_with_the_interval_of_the_table() -> None:
    pair = agreement(fleet_of(drawn(RNG(12), np.log([9.0, 6.0]), 8)), IOPS, cell(0), cell(1))
    assert pair.ratio.low is not None
    assert pair.ratio.low > 1
    assert ": it is between " in agreement_sentence(pair, apart=True)
    said = agreement_sentence(pair, apart=False)
    assert ": at most " in said
    assert "between" not in said


def test_hosts_that_tell_nothing_are_no_rounds() -> None:
    """`it is not shown to be faster or slower: so few rounds tell nothing, which shows no
    difference for the mean host`"""
    logs = drawn(RNG(12), np.log([9.0, 8.0]), 3)
    logs[0, 0] += 2.0
    logs[0, 1] -= 2.0
    pair = agreement(fleet_of(logs), IOPS, cell(0), cell(1))
    sentence = agreement_sentence(pair)
    assert "rounds" not in sentence
    assert ", one at a time, which shows no difference for the mean host; " in sentence


def test_a_mean_of_two_hosts_has_no_size() -> None:
    """`qcow2/none is ahead of raw/none on 1 of 2 hosts: it is 66 % faster`"""
    pair = agreement(fleet_of(drawn(RNG(12), np.log([9.0, 3.0]), 2)), IOPS, cell(0), cell(1))
    assert pair.ratio.ratio is not None
    assert pair.ratio.low is None
    assert "faster" not in agreement_sentence(pair)


def test_a_rate_of_zero_stays_zero_over_hosts() -> None:
    """Not what an invented logarithm makes of it."""
    logs = drawn(RNG(5), np.log([9.0, 6.0]), 8)
    logs[1, 2, 0] = -np.inf
    logs[:, 3] = -np.inf
    fleet = fleet_of(logs)
    assert fleet.means.grid(IOPS)[1, 2] == 0.0
    pair = agreement(fleet, IOPS, cell(0), cell(1))
    assert pair.a_leads
    assert (pair.ratio.ratio, pair.ratio.low, pair.next_low, pair.between) == (None,) * 4
    assert host_name(2) in {host.host for host in pair.hosts if host.agrees}
    assert host_name(3) in {host.host for host in pair.disagreeing}
    assert "because a rate is zero on some hosts" in agreement_sentence(pair)
    other = agreement(fleet, IOPS, cell(1), cell(0))
    assert "×0" not in agreement_sentence(other)


def test_a_host_on_which_a_path_did_nothing_is_an_outlier_without_a_percentage() -> None:
    logs = drawn(RNG(16), np.zeros(4), 20)
    logs[0, 7] = -np.inf
    search = find_outliers(
        fleet_of(logs).means, [IOPS], [[host_name(index) for index in range(20)]]
    )
    (outlier,) = search.outliers
    assert (outlier.host, outlier.ratio) == (host_name(7), 0.0)
    assert "at zero on a path, unlike its 19 peers" in next(outlier_sentences(search))


def test_a_class_whose_fleet_path_does_nothing_gets_another_without_a_ratio() -> None:
    logs = drawn(RNG(7), np.zeros(3), 12)
    logs[0, :6] = -np.inf
    classes = {host_name(index): "ab"[index < 6] for index in range(12)}
    means = fleet_of(logs).means
    better = better_paths(means, IOPS, classes, list(map(cell, range(3))), chosen=cell(0))
    assert [path.ratio for path in better["b"]] == [None, None]
    assert better["a"] == ()
