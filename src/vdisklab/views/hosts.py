"""The results of many hosts together, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.fleet.host_apart import HostApart
from vdisklab.analysis.fleet.outlier_hosts import MIN_PEERS, OutlierHost, OutlierSearch
from vdisklab.analysis.measure_words import measure_words
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.answers.choice import told_apart
from vdisklab.answers.hosts import MIN_CLASS, HostClass, OverHosts
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import OWN_FACTS
from vdisklab.units import counted, in_percent, named
from vdisklab.value import replace
from vdisklab.views.wording import above_is_better, at_most, difference, inverted

_SHOWN = 20
_CLASSES = 12
_APART = 3
_NO_SPREAD = 0.0005
"""A spread of hosts that would be shown as 0.0 %."""


def agreement_sentence(pair: Agreement, apart: bool | None = None, *, sized: bool = True) -> str:
    """`A beats B on 187 of 200 hosts: it is between 5 and 11 % faster; B is ahead on the 13 others,
    none beyond its own noise: …`.

    `apart` says whether the ranking of all paths tells the two apart, which decides whatever the
    two alone would show; None if it says nothing of them. It is not `sized` above a table that has
    the ratio.
    """
    first, second = (pair.a, pair.b) if pair.a_leads else (pair.b, pair.a)
    shown = pair.ratio.p is not None and pair.ratio.p <= 0.05
    beats = "beats" if shown and apart is not False else "is ahead of"
    text = (
        f"{first} {beats} {second} on {pair.agreeing} of {counted(len(pair.hosts), 'host')}"
        f"{_deciding(pair)} in "
        f"{measure_words(pair.measure)}{_size(pair, apart) if sized else ''}"
    )
    if pair.ratio.p is not None and pair.ratio.p > 0.05:
        text += ", which shows no difference for the mean host"
        if apart:
            text += " when these two are looked at alone; the ranking of all paths does (`rank`)"
    elif apart is False and not sized:
        text += "; the ranking of all paths shows no difference"
    return f"{text}{_disagreeing(pair, second)}."


def _size(pair: Agreement, apart: bool | None) -> str:
    """How much better the leading path is, with the interval that the table shows: one that holds 1
    if the ranking does not tell the two apart. Empty if it tells nothing."""
    ratio = above_is_better(pair.ratio, pair.measure)
    if ratio.ratio is None and ratio.pairs:
        return ": by how much is unknown, because a rate is zero on some hosts"
    if ratio.low is None or numbers.known_interval(ratio.low, ratio.high) is None:
        return ""  # the p-value or the table's row says it, of hosts and not of rounds
    leading = ratio if pair.a_leads else inverted(ratio)
    if apart is False and leading.low is not None and leading.high is not None:
        leading = replace(leading, low=min(leading.low, 1.0), high=max(leading.high, 1.0))
    most = at_most(leading)
    return f": it is {difference(leading)}" if most is None else f": {most} (95 %), if at all"


def _deciding(pair: Agreement) -> str:
    """The few hosts that decide which path leads on the mean host, against most of the others."""
    agree = [host.host for host in pair.hosts if host.agrees]
    if not 0 < len(agree) < len(pair.disagreeing):
        return ""
    return f" ({names(agree)}, which {'decides' if len(agree) == 1 else 'decide'} the mean)"


def _disagreeing(pair: Agreement, second: MeasuredCell) -> str:
    """On which hosts the `second` path is as good or better: of these two paths alone, whatever the
    ranking of all paths shows."""
    hosts = pair.disagreeing
    if not hosts:
        return f"; {second} is ahead on no host"
    shown = sum(host.shown for host in hosts)
    if len(hosts) == 1:
        sure = "beyond its own noise" if shown else "within its own noise"
        return f"; {second} is ahead on {hosts[0].host}, {sure}"
    sure = f"{shown} of them beyond their own noise" if shown else "none beyond its own noise"
    named_hosts = names(host.host for host in hosts)
    return f"; {second} is ahead on the {len(hosts)} others, {sure}: {named_hosts}"


def spread_sentences(pair: Agreement) -> Iterator[str]:
    """How the two compare on one more host, the leader first as in the sentence before, and how
    much hosts differ; nothing with fewer than three hosts."""
    low, high = pair.next_low, pair.next_high
    if low is None or high is None or numbers.known_interval(low, high) is None:
        return
    between = (
        "" if pair.between is None else f"; hosts differ by {numbers.percent(100 * pair.between)} %"
    )
    if pair.between is not None and pair.between < _NO_SPREAD:
        between = "; in this, hosts are not seen to differ beyond their noise"
    first, second = (pair.a, pair.b) if pair.a_leads else (pair.b, pair.a)
    ratio = above_is_better(Ratio(0, 1.0, low, high), pair.measure)
    size = difference(ratio if pair.a_leads else inverted(ratio))
    yield (
        f"On another host of this fleet, {first} would be {size}, compared with {second}{between}."
    )


def hosts_sentences(over: OverHosts) -> Iterator[str]:
    """Says which hosts were left out, are outliers, form classes or share hardware."""
    yield from left_out_sentences(over.left_out)
    if over.outliers is not None:
        yield from outlier_sentences(over.outliers)
    yield from class_sentences(over)
    yield _independence(over)


def apart_sentences(over: OverHosts, baseline: MeasuredCell) -> Iterator[str]:
    """The paths that one host alone shows otherwise, and the command that shows that host."""
    campaign_of = {host.name: host.campaigns[0] for host in over.hosts}
    for each in over.apart[:_APART]:
        range_of = numbers.ratio_interval(each.low, each.high)
        yield (
            f"{each.host} alone pulls the mean of {each.cell.label} {_pull(each)}: "
            f"{numbers.ratio(each.ratio)} there, but ×{range_of} on the {each.others} other hosts "
            f"({baseline} is 1). Look at {each.host} first: "
            f"`vdisklab rank --campaign {campaign_of[each.host]}` ranks its paths alone."
        )


def _pull(apart: HostApart) -> str:
    return "down" if apart.ratio < apart.low else "up"


def look_first(over: OverHosts | None) -> str:
    """The host to look at before more hosts are measured; empty if none is far from the others."""
    return over.apart[0].host if over is not None and over.apart else ""


def _independence(over: OverHosts) -> str:
    if over.groups < len(over.hosts):
        return (
            f"Hosts that share a rack or an array count as one: {over.groups} independent groups "
            f"of {len(over.hosts)} hosts."
        )
    return (
        "Hosts count as independent. If some share a rack or an array, write a line "
        f"`rack=NAME` or `array=NAME` into {OWN_FACTS} on each, and measure again."
    )


def first_lines(over: OverHosts, ranking: Ranking) -> Iterator[tuple[str, str]]:
    """How many hosts agree on the answer and the next path, and how much hosts differ.

    Each has its subject; `ranking` is that of all paths.
    """
    if over.first is not None:
        apart = told_apart(over.first.a, over.first.b, ranking)
        yield "The next best", agreement_sentence(over.first, apart)
        yield from (("Another host", said) for said in spread_sentences(over.first))


def left_out_sentences(left_out: Sequence[str]) -> Iterator[str]:
    """Which hosts were chosen but have other campaigns."""
    if left_out:
        shown = "; ".join(left_out[:3]) + ("; …" if len(left_out) > 3 else "")
        yield f"Left out: {counted(len(left_out), 'host')} ({shown})."


def outlier_sentences(search: OutlierSearch) -> Iterator[str]:
    """The hosts that differ from their peers, and those that have too few."""
    shown = search.outliers[:_SHOWN]
    by_path: dict[tuple[str, MeasuredCell, bool], list[OutlierHost]] = {}
    for each in shown:
        if each.path is not None:
            key = each.host, each.path.cell, each.path.ratio < 1
            by_path.setdefault(key, []).append(each)
    yield from (_of_one_path(same) for same in by_path.values())
    for outlier in [each for each in shown if each.path is None]:
        slower = outlier.ratio < 1
        change = 1 - outlier.ratio if slower else outlier.ratio - 1
        size = f"{numbers.percent(100 * change)} % {'slower' if slower else 'faster'} than"
        yield (
            f"{outlier.host} is {size if outlier.ratio else 'at zero on a path, unlike'} its "
            f"{outlier.peers} peers with the same facts in {measure_words(outlier.measure)}"
            f"{': look at its disk' if slower and outlier.alarm else ''}."
        )
    if len(search.outliers) > _SHOWN:
        yield f"… and {len(search.outliers) - _SHOWN} more like it."
    if any(outlier.alarm for outlier in search.outliers):
        yield f"A healthy fleet has such an alarm in at most {in_percent(search.alpha)} of cases."
    elif search.outliers:
        yield (
            "That is how fast they are, not an alarm: where hosts differ widely, a healthy fleet "
            "has such hosts, too."
        )
    if search.unchecked:
        yield (
            f"Not checked for outliers, because fewer than {MIN_PEERS} hosts have their facts: "
            f"{names(search.unchecked)}."
        )


def _of_one_path(same: Sequence[OutlierHost]) -> str:
    """`raw/none on node3 is between 64 and 66 % slower than on its 4 peers …`, in all measures in
    which that path makes most of the host's difference."""
    first = same[0]
    paths = [each.path for each in same if each.path is not None]
    here = [path.ratio for path in paths]
    size = difference(Ratio(1, here[0], min(here), max(here)))
    count = paths[0].count
    others = "its other path" if count == 1 else f"the mean of its {count} other paths"
    rest = [path.others for path in paths]
    left = numbers.percent(100 * max(abs(ratio - 1) for ratio in rest))
    look = ": look at what only this path uses there" if any(each.alarm for each in same) else ""
    return (
        f"{paths[0].cell} on {first.host} is {size} than on its {first.peers} peers with the same "
        f"facts ({named([measure_words(each.measure) for each in same])}); {others} "
        f"differs by at most {left} %{look}."
    )


def class_sentences(over: OverHosts) -> Iterator[str]:
    """Whether hosts with other facts need other paths, and the path of each class."""
    for test in over.facts:
        if test.p is None:
            yield f"Too few hosts differ in {test.fact} to test whether it matters."
        elif test.p <= 0.05:
            yield (
                f"The ratios between paths depend on {test.fact} "
                f"(p = {numbers.probability(test.p)})."
            )
        else:
            yield (
                f"The ratios between paths are not shown to depend on {test.fact} "
                f"(p = {numbers.probability(test.p)})."
            )
    yield from map(_class_sentence, over.classes[:_CLASSES])
    if len(over.classes) > _CLASSES:
        yield f"… and {len(over.classes) - _CLASSES} more classes; --format json has them."


def _class_sentence(group: HostClass) -> str:
    hosts = counted(len(group.hosts), "host")
    if group.cell is None:
        why = f"too few for an answer of their own ({MIN_CLASS} needed)"
        return f"{group.name} ({hosts}): {why if len(group.hosts) < MIN_CLASS else 'no answer'}."
    if group.better:
        best = group.better[0]
        size = "better" if best.ratio is None else difference(Ratio(0, best.ratio))
        return (
            f"{group.name} ({hosts}): use {group.cell}; compared with the fleet's path, "
            f"{best.cell} is {size} there (p = {numbers.probability(best.p)})."
        )
    others = counted(len(group.ties) - 1, "other")
    also = f" or {others} that may be as good" if group.ties else ""
    return (
        f"{group.name} ({hosts}): {group.cell}{also}; no path is shown to beat the fleet's there."
    )


def names(hosts: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    return named(list(hosts), _SHOWN)
