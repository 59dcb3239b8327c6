"""Which states are judged: all of them where that is claimed, the sensitive ones first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.errors import PowercutError
from vdisklab.powercut.crash_states import (
    CrashState,
    Sampling,
    epoch_of,
    epochs_between,
    parse_crash_state,
    select_prefixes,
    select_states_of_epochs,
    torn_parts,
)
from vdisklab.storage.write_log import Flag, LogEntry

WRITE = LogEntry(4096, 4096, Flag(0), 0)
LONG = LogEntry(8192, 16384, Flag(0), 0)
FUA = LogEntry(0, 4096, Flag.FUA, 0)
FLUSH = LogEntry(0, 0, Flag.FLUSH, 0)
MARK = LogEntry(0, 0, Flag.MARK, 0)

LOGS = st.lists(st.sampled_from([WRITE, LONG, FUA, FLUSH, MARK]), max_size=24)


def states_of_a_disk(log: list[LogEntry], begin: int, end: int) -> set[frozenset[int]]:
    """Every set of changes that a cut between two positions may leave, straight from the model."""
    found: set[frozenset[int]] = set()
    for position in range(begin, end + 1):
        flushed = max((index for index in range(position) if log[index].flushes), default=0)
        durable = {
            index for index in range(position) if log[index].changes_disk and index < flushed
        }
        loose = [index for index in range(flushed, position) if log[index].changes_disk]
        durable |= {place for place in loose if Flag.FUA in log[place].flags}
        loose = [place for place in loose if place not in durable]
        for bits in range(1 << len(loose)):
            found.add(
                frozenset(durable | {index for n, index in enumerate(loose) if bits >> n & 1})
            )
    return found


@given(st.lists(st.sampled_from([WRITE, FUA, FLUSH, MARK]), max_size=8), st.data())
def test_exhaustive_means_every_state_that_the_model_allows_at_the_latest_position(
    log: list[LogEntry], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(log)))
    epochs = epochs_between(log, begin, len(log))
    selection = select_states_of_epochs(epochs, log, Sampling(states=None, tear=0))
    assert selection.exhaustive
    assert len(selection.cuts) == len(set(selection.cuts)) == selection.possible
    judged = set()
    for cut in selection.cuts:
        epoch = epochs[cut.epoch]
        kept = {index for bit, index in enumerate(epoch.changes) if cut.kept >> bit & 1}
        durable = {index for index in range(epoch.base) if log[index].changes_disk}
        judged.add(frozenset(durable | kept))
    assert judged == states_of_a_disk(log, begin, len(log))


@given(st.lists(st.sampled_from([WRITE, FUA, FLUSH, MARK]), max_size=8), st.data())
def test_every_state_that_is_possible_at_a_stop_is_judged_there(
    log: list[LogEntry], data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, len(log)))
    epochs = epochs_between(log, 0, len(log), (stop,))
    judged = set()
    for cut in select_states_of_epochs(epochs, log, Sampling(states=None, tear=0)).cuts:
        epoch = epochs[cut.epoch]
        if epoch.end == stop:
            kept = {index for bit, index in enumerate(epoch.changes) if cut.kept >> bit & 1}
            judged.add(
                frozenset({index for index in range(epoch.base) if log[index].changes_disk} | kept)
            )
    assert judged == states_of_a_disk(log, stop, stop)


@given(LOGS, st.integers(1, 40))
def test_epoch_ends_come_first_and_a_budget_is_kept(log: list[LogEntry], states: int) -> None:
    epochs = epochs_between(log, 0, len(log))
    sampling = Sampling(states=states, exhaustive_up_to=3)
    selection = select_states_of_epochs(epochs, log, sampling)
    assert len(selection.cuts) <= selection.possible
    assert len(selection.cuts) <= states
    ends = [CrashState(epoch.number, epoch.durable) for epoch in epochs]
    first = selection.cuts[: len(ends)]
    assert set(first) <= set(ends) if states < len(ends) else list(first) == ends
    assert selection == select_states_of_epochs(epochs, log, sampling), (
        "the same seed chooses the same"
    )
    for cut in selection.cuts:
        durable = epochs[cut.epoch].durable
        assert cut.kept & durable == durable, "what had FUA is never lost"
        assert not cut.kept & cut.torn
    rest = [cut.epoch for cut in selection.cuts[len(first) :]]
    assert rest == sorted(rest), "the durable part only grows"


def test_a_sample_is_not_called_exhaustive() -> None:
    log = [WRITE] * 12
    epochs = epochs_between(log, 0, 12)
    assert not select_states_of_epochs(epochs, log, Sampling()).exhaustive
    assert select_states_of_epochs(
        epochs, log, Sampling(states=None, exhaustive_up_to=12)
    ).exhaustive
    few = select_states_of_epochs(epochs, log, Sampling(states=100, exhaustive_up_to=12))
    assert not few.exhaustive
    assert few.possible == 4096
    assert select_states_of_epochs(epochs, log, Sampling(states=4096, tear=0)).exhaustive


@given(
    st.builds(
        CrashState, st.integers(0, 999), st.integers(0, 2**90), st.integers(1, 2**90),
        st.sampled_from([512, 4096]), st.integers(0, 2**32),
    )
    | st.builds(CrashState, st.integers(0, 999), st.integers(0, 2**90))
    | st.builds(CrashState, st.integers(0, 999), prefix=st.just(True))
    | st.builds(
        CrashState, st.integers(0, 999), torn=st.just(1), unit=st.sampled_from([512, 4096]),
        seed=st.integers(0, 2**32), prefix=st.just(True),
    )
)  # fmt: skip
def test_a_case_is_read_back(cut: CrashState) -> None:
    assert parse_crash_state(str(cut)) == cut


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1",
        "1-",
        "1-g",
        "1-f-1",
        "1-f-1-512",
        "1-f-1-0-3",
        "-1-f",
        "@",
        "@x",
        "@-1",
        "@1-512",
        "@1-0-3",
        "@1-f-1-512-3",
    ],
)
def test_what_names_no_case_is_refused(text: str) -> None:
    with pytest.raises(PowercutError, match="is not a case"):
        parse_crash_state(text)


@given(st.integers(2, 40), st.integers(0, 2**32), st.sampled_from([512, 4096]))
def test_a_torn_write_is_there_in_part(units: int, seed: int, unit: int) -> None:
    length = units * unit - 512 * (unit > 512)
    parts = torn_parts(CrashState(0, 0, 1, unit, seed), 3, length)
    assert 0 < sum(size for _, size in parts) < length
    assert all(place % unit == 0 and place + size <= length for place, size in parts)


def test_a_log_that_is_too_short_is_refused() -> None:
    with pytest.raises(PowercutError, match="the log has 1 entries"):
        epochs_between([FLUSH], 0, 2)


@given(LOGS, st.data())
def test_a_disk_that_keeps_what_it_completed_leaves_every_prefix_with_the_most_acknowledged(
    log: list[LogEntry], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(begin, len(log)))
    latest: dict[frozenset[int], int] = {}
    for position in range(begin, end + 1):
        latest[frozenset(index for index in range(position) if log[index].changes_disk)] = position
    selection = select_prefixes(log, begin, end, Sampling(), torn=False)
    assert selection.exhaustive
    assert selection.possible == len(selection.cuts) == len(latest)
    for cut in selection.cuts:
        epoch = epoch_of(cut, (), log, end)
        assert epoch is not None
        assert epoch.changes == ()
        completed = frozenset(index for index in range(epoch.base) if log[index].changes_disk)
        assert latest.pop(completed) == epoch.end


@given(LOGS, st.integers(1, 9))
def test_only_the_write_in_flight_is_torn_and_a_budget_is_kept(
    log: list[LogEntry], states: int
) -> None:
    whole = select_prefixes(log, 0, len(log), Sampling(), torn=True)
    torn = [cut for cut in whole.cuts if cut.torn]
    assert [cut.epoch for cut in torn] == [
        index for index, entry in enumerate(log) if entry is LONG
    ]
    for cut in torn:
        epoch = epoch_of(cut, (), log, len(log))
        assert epoch is not None
        assert (epoch.end, epoch.changes) == (cut.epoch, (cut.epoch,))
    few = select_prefixes(log, 0, len(log), Sampling(states=states), torn=True)
    assert set(few.cuts) <= set(whole.cuts)
    assert len(few.cuts) == min(states, len(whole.cuts))
    assert few.exhaustive == (len(whole.cuts) <= states)
    assert few.possible == whole.possible


@pytest.mark.parametrize(
    "cut",
    [
        CrashState(3, prefix=True),
        CrashState(0, torn=1, unit=4096, seed=1, prefix=True),  # a short write
        CrashState(1, torn=1, unit=512, seed=1, prefix=True),  # a flush
        CrashState(2, torn=1, unit=512, seed=1, prefix=True),  # behind the end
        CrashState(7),
        CrashState(0, 2),
    ],
)
def test_a_cut_that_the_log_does_not_have(cut: CrashState) -> None:
    log = [WRITE, FLUSH]
    assert epoch_of(cut, epochs_between(log, 0, 2), log, 2) is None


@pytest.mark.parametrize("states", [4, 8, 16])
def test_as_many_states_are_drawn_within_the_windows_as_outside(states: int) -> None:
    log = [WRITE, WRITE, FLUSH] * 40
    epochs, windows = epochs_between(log, 0, len(log)), [(30, 44)]
    sampling = Sampling(states=states, tear=0)
    cuts = select_states_of_epochs(epochs, log, sampling, windows).cuts
    assert len(set(cuts)) == states
    within = sum(30 <= epochs[cut.epoch].end <= 44 for cut in cuts)
    assert within == states // 2
    assert sum(cut.kept == 0 for cut in cuts) >= states // 2 - 1
    prefixes = select_prefixes(log, 0, len(log), sampling, torn=False, around=windows).cuts
    assert len(prefixes) == states
    assert sum(30 <= cut.epoch <= 44 for cut in prefixes) == states // 2


def test_windows_change_nothing_if_every_state_is_judged() -> None:
    log = [WRITE, WRITE, FLUSH] * 4
    epochs = epochs_between(log, 0, len(log))
    everything = select_states_of_epochs(epochs, log, Sampling(states=None, tear=0))
    assert select_states_of_epochs(epochs, log, Sampling(None, tear=0), [(0, 3)]) == everything
    assert everything.exhaustive
