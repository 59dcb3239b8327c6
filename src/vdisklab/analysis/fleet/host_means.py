"""One number for each cell, host and measure: the input of a fleet's analysis.

The model of the logarithms has a term for each level:

    log value = cell + host + (cell on that host) + round of that host + noise

A host's rounds are reduced first to one mean for each cell, free of the round effects (the additive
model of `analysis.additive`). These means become observations whose rounds are the hosts. So a
difference of two cells is taken within hosts. Its error comes from how much hosts differ, which
includes "cell on that host" and the remaining noise. With equally many rounds this is the mixed
model's own test (a two-stage analysis; Gelman & Hill 2007, section 12); with unequally many it
stays valid, and all hosts count alike.

Hosts that share a rack or an array also share an effect on each cell ("cell in that rack"). Such a
group takes the place of the host: its hosts are reduced to one mean in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import round_effects
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, Round
from vdisklab.path.cell import MeasuredCell
from vdisklab.value import Value, replace


class FleetNumbers(Value, eq=False):
    """The numbers of all rounds, the host of each campaign, and their `host_means`.

    `units` are the independent replications: the means of groups of hosts that share something;
    `means` itself if none do.
    """

    observations: Observations
    host_of: Mapping[str, str]
    means: Observations
    units: Observations

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts with numbers, by name."""
        return tuple(round.campaign for round in self.means.rounds)

    def of_hosts(self, hosts: Collection[str], unit_of: Mapping[str, str]) -> FleetNumbers:
        """The numbers with means of some hosts only; `unit_of` has the group of each host."""
        means = of_hosts(self.means, hosts)
        return replace(self, means=means, units=units_of(means, unit_of))


def of_hosts(means: Observations, hosts: Collection[str]) -> Observations:
    """The `host_means` of some hosts only. The others stay in the vocabulary, without values."""
    inside = np.array([round.campaign in hosts for round in means.rounds], dtype=bool)
    rows = inside[means.round]
    return replace(
        means,
        cell=means.cell[rows],
        round=means.round[rows],
        measure=means.measure[rows],
        value=means.value[rows],
        too_slow=tuple(pair for pair in means.too_slow if pair[1].campaign in hosts),
    )


def fleet_numbers(
    observations: Observations,
    host_of: Mapping[str, str],
    measures: Collection[MeasureKey],
    unit_of: Mapping[str, str] | None = None,
) -> FleetNumbers:
    """The observations with the means of these measures; `unit_of` has the group of each host."""
    means = host_means(observations, host_of, measures)
    return FleetNumbers(observations, host_of, means, units_of(means, unit_of or {}))


def units_of(means: Observations, unit_of: Mapping[str, str]) -> Observations:
    """The means of groups of hosts; a host without a group stands alone."""
    groups = {round.campaign: unit_of.get(round.campaign, round.campaign) for round in means.rounds}
    if len(set(groups.values())) == len(groups):
        return means
    return host_means(means, groups, means.measures)


def host_means(
    observations: Observations, host_of: Mapping[str, str], measures: Collection[MeasureKey]
) -> Observations:
    """The observations with one round for each host; `host_of` has the host of each campaign.

    A cell counts as too slow on a host if it did not end in time in at least half of the host's
    rounds. The (geometric) mean of a rate with a zero is zero.
    """
    columns = rounds_by_host(observations, host_of)
    hosts = sorted(columns)
    slow = _too_slow(observations, host_of)
    rows: list[npt.NDArray[np.intp]] = []
    places: list[npt.NDArray[np.intp]] = []
    codes: list[npt.NDArray[np.int32]] = []
    values: list[Floats] = []
    for code, measure in enumerate(measures):
        logs = observations.logs(measure)
        given = given_rows(measure, logs)
        table = np.column_stack([effects(logs[:, columns[host]], given) for host in hosts])
        for cell, host in slow:
            table[observations.place[cell], hosts.index(host)] = np.nan
        row, place = np.nonzero(np.isfinite(table))
        numbers = np.exp(table[row, place])
        step = measure.quantity.step
        if step is None:
            zero = observations.grid(measure) == 0
            zeros = np.column_stack([zero[:, columns[host]].any(axis=1) for host in hosts])
            numbers[zeros[row, place]] = 0.0
        rows.append(row)
        places.append(place)
        codes.append(np.full(len(row), code, np.int32))
        values.append(numbers if step is None else np.maximum(numbers - step, 0.0))
    return replace(
        observations,
        cell=np.concatenate([*rows, np.array([], np.intp)]).astype(np.int32),
        round=np.concatenate([*places, np.array([], np.intp)]).astype(np.int32),
        measure=np.concatenate([*codes, np.array([], np.int32)]),
        value=np.concatenate([*values, np.array([])]),
        rounds=tuple(Round(host, 1) for host in hosts),
        measures=tuple(measures),
        too_slow=tuple((cell, Round(host, 1)) for cell, host in slow),
        parts={},
    )


def rounds_by_host(
    observations: Observations, host_of: Mapping[str, str]
) -> dict[str, npt.NDArray[np.intp]]:
    """The columns of each host's rounds."""
    columns: dict[str, list[int]] = {}
    for column, round in enumerate(observations.rounds):
        columns.setdefault(host_of[round.campaign], []).append(column)
    return {host: np.array(places, np.intp) for host, places in columns.items()}


def given_rows(measure: MeasureKey, logs: Floats) -> npt.NDArray[np.bool_]:
    """True for the baseline of a score: 1 in each round, it says nothing about its rounds."""
    is_one: npt.NDArray[np.bool_] = (np.isnan(logs) | (logs == 0.0)).all(axis=1)
    return is_one if measure.name == "score" else np.zeros_like(is_one)


def effects(logs: Floats, given: npt.NDArray[np.bool_] | None = None) -> Floats:
    """The mean logarithm of each cell over one host's rounds, without the round effects.

    NaN for a cell that was not measured there. Those that are `given` (see `given_rows`) have their
    own mean, and no part in the round effects.
    """
    measured = np.isfinite(logs)
    answer = np.full(len(logs), np.nan)
    fitted = measured
    if given is not None:
        fitted = measured & ~given[:, None]
        answer[given & measured.any(axis=1)] = 0.0
    rows, columns = fitted.any(axis=1), fitted.any(axis=0)
    if not rows.any():
        return answer
    inner = np.ix_(rows, columns)
    table, observed = logs[inner], measured[inner]
    round = 0.0 if observed.all() else round_effects(table, observed)
    answer[rows] = np.where(observed, table - round, 0.0).sum(axis=1) / observed.sum(axis=1)
    return answer


def _too_slow(
    observations: Observations, host_of: Mapping[str, str]
) -> list[tuple[MeasuredCell, str]]:
    """The cells that did not end in time in half of a host's rounds or more, with the host."""
    rounds = Counter(host_of[round.campaign] for round in observations.rounds)
    times = Counter((cell, host_of[round.campaign]) for cell, round in observations.too_slow)
    return sorted(pair for pair, count in times.items() if 2 * count >= rounds[pair[1]])
