"""`method`: how each shown number is computed, with its limits and its source.

docs/method.md lists the main entries, generated from here. Thresholds come from the code that uses
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from vdisklab.analysis import race
from vdisklab.analysis.diagnostics import recorded, values
from vdisklab.analysis.intervals import MIN_ROUNDS, ORDER_STATISTICS_FROM
from vdisklab.analysis.paired_ratios import MOST_ROUNDS
from vdisklab.documents import Answer
from vdisklab.path.adjacent import RULE as SIMPLEST


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a kind of number is computed."""

    title: str
    shown_by: Annotated[tuple[str, ...], "verbs"]
    keys: Annotated[tuple[str, ...], "in JSON and CSV: keys, and metrics"]
    how: str
    source: str


@dataclass(frozen=True, slots=True)
class MethodAnswer(Answer):
    """`vdisklab method`: how each number is computed."""

    FORMAT = "vdisklab.method/2"

    numbers: tuple[Explanation, ...]


def explanations_about(word: str | None) -> MethodAnswer:
    """The entries with the word in their title, keys or verbs; all for None."""
    return MethodAnswer(
        tuple(
            entry
            for entry in EXPLANATIONS
            if word is None
            or any(
                word.lower() in name.lower() for name in (entry.title, *entry.keys, *entry.shown_by)
            )
        )
    )


def _entry(title: str, shown_by: str, keys: str, how: str, source: str) -> Explanation:
    """An entry; `shown_by` is separated by commas, `keys` by spaces."""
    verbs = tuple(verb.strip() for verb in shown_by.split(","))
    return Explanation(title, verbs, tuple(keys.split()), how, source)


MAIN = (
    _entry(
        "median",
        "rank, compare, table, recommend",
        "median",
        "The median over rounds. Each round has one run, which is one fresh attach of the disk; "
        "seconds within a run are not repetitions. Failed runs do not count, and missing values "
        "are not filled in.",
        "analysis/summary.py",
    ),
    _entry(
        "95 % interval of a median",
        "rank, compare",
        "low high method",
        f"From {ORDER_STATISTICS_FROM} rounds: the interpolated binomial interval, which assumes "
        f"nothing about the distribution. From {MIN_ROUNDS} rounds: Student's t on logarithms, "
        "which assumes log-normal values. With fewer rounds there is none.",
        "Hettmansperger & Sheather 1986",
    ),
    _entry(
        "latency: mean, p50, p99, p99.9, max",
        "rank, compare",
        "latency_mean latency_p50 latency_p99 latency_p99.9 latency_max",
        "One run's, from a request's submission to its completion (fio's lat); percentiles "
        "from fio's histogram, with bins about 1.5 % wide. Completion latency alone (clat, fio's "
        "default) would hide the time spent in io_submit(2); imported reports mostly have that.",
        "workload/fio.py; fio HOWTO, lat_percentiles",
    ),
    _entry(
        "ratio",
        "rank, compare, claims, compare --published, recommend, audit",
        "ratio low high pairs gain over_default",
        "exp of the mean log ratio within rounds, so that drift cancels, with Student's t "
        "interval. A claim averages its measures first, and shows the pair that decides. If the "
        "data chose the path, the interval holds for all candidates (Dunnett); `rank` and "
        "`compare` show each pair alone.",
        "analysis/paired_ratios.py, analysis/claim_verdicts.py, analysis/candidates.py",
    ),
    _entry(
        "score: read, write, overall",
        "rank, recommend, audit",
        "weighted_read weighted_write weighted_overall score",
        "Jim Salter's: the mean of sequential bandwidth and k times 4 KiB random bandwidth; k "
        "makes both equal on the baseline, in the same round. Overall is the mean of both.",
        "Salter 2013",
    ),
    _entry(
        "rank",
        "rank, audit",
        "place best worst rank_best rank_worst effect alpha comparisons separated",
        "Every pair of cells is tested on an additive model (cell + round) of the logarithms, at "
        "a family-wise error of 5 % (Holm). The best rank follows all cells shown to be better, "
        "the worst precedes all cells shown to be worse; 1–3 is a tie.",
        "Holm 1979; Smyth 2004; Mohamad, Goeman & van Zwet 2019",
    ),
    _entry(
        "may be the best",
        "rank, recommend, report",
        "best cells beaten runner_up ties shared resolution unranked",
        "The paths that are not shown to be worse than another: with 95 % confidence one of "
        "them is the best (Dunnett's limits; from 5 rounds on, the leader has a test of its "
        "own). All share one noise, unless a path is noisier or paths are fast and slow in the "
        "same rounds. `unranked` paths have fewer than 2 rounds.",
        "Gupta 1965; Hsu 1984; Dunnett 1955; Gutmann & Maymin 1987; Bingham 1974",
    ),
    _entry(
        "leads that the rounds show",
        "rank",
        "noise apart pooled shows rounds_for_10_percent",
        "How far the best must be ahead to be named alone in about 80 % of simulated campaigns "
        "with rivals close behind (in 54 to 97 % if noise is unequal, shared or has heavy tails). "
        "The noise is that of the leader and the rival that is hardest to tell from it. A race "
        "needs fewer runs for a decision.",
        "analysis/best.py",
    ),
    _entry(
        "zero",
        "rank, compare, claims",
        "rounding",
        "A zero is a measured value. Values that can be zero (stalls, flushes, growth) are "
        "compared as value + step; half a step for each value widens intervals and lessens "
        "differences. A percentile of a latency may be 0.8 % off (fio has bins); other numbers "
        "count as exact. A rate of zero is the worst: its ratio to another rate is 0, and another "
        "rate's ratio to it is unknown.",
        "results/model.py",
    ),
    _entry(
        "p",
        "compare, claims, compare --published",
        "p p_adjusted",
        "From a paired t-test on log ratios. p_adjusted is corrected for all rows of the same "
        "answer (Holm), and decides. For a claim, p is twice the smaller of the one-sided p for "
        "`every pair is inside the range` (the largest of all pairs) and `one is outside` (the "
        "smallest, times their number).",
        "Holm 1979; Schuirmann 1987; Berger 1982",
    ),
    _entry(
        "verdict of a claim",
        "claims",
        "status verdict stated_low stated_high rounds void decides",
        "`holds` when every pair's ratio is shown to lie inside the stated range, `fails` when one "
        f"is shown to lie outside, from {MIN_ROUNDS} rounds; else `inconclusive`. A claim of guest "
        "against host is void under emulation and in a lab; under KVM in an emulated host every "
        "claim is.",
        "analysis/claim_verdicts.py",
    ),
    _entry(
        "n",
        "rank, claims",
        "rounds",
        "Rounds in which the cell has the measure; for a claim, rounds in which all its cells "
        "were measured.",
        "analysis/rank_intervals.py",
    ),
    _entry(
        "best (run without --rounds)",
        "run, recommend, report",
        "race raced left_out margin confidence behind most_rounds",
        f"A race: each round measures the paths that are left. From {race.LOOKS[0]} rounds on, at "
        "planned looks, a path is dropped if it cannot be better than the leader by more than the "
        f"margin; before round {race.BOTH_SEEN} each may be {100 * math.expm1(race.UNSEEN):.0f} % "
        "better than it looks. The answer is right with 95 % for the paths that race, however "
        "often one looks and wherever the race is interrupted. With --find best and more than 20 "
        "paths, a Gaussian process over the segments of paths first leaves out those that are "
        "hardly the best.",
        "Paulson 1964; Kim & Nelson 2001; Rasmussen & Williams 2006; Russo et al. 2018",
    ),
    _entry(
        "tie, and the path to take",
        "recommend, report, run, run --find, audit",
        "leader ties path close",
        "All paths that may be the best tie, and none of them is called the winner. Take the "
        "leader, by the mean of its logarithms, or the simplest path shown to be at most 10 % "
        "behind it (an error of 5 % for all paths together). Any other tied path may be far "
        f"behind. {SIMPLEST}",
        "path/adjacent.py, analysis/best.py",
    ),
    _entry(
        "price of a need",
        "recommend",
        "prices considered excluded compared",
        "The best path without that need, divided by the recommended one, within rounds. Nothing "
        "is shown if the recommended path may be the best without the need, too. Durable is a "
        "need unless you say --unsafe. Only guests' paths with a cold page cache are considered.",
        "analysis/candidates.py",
    ),
)
"""The numbers that a decision rests on: docs/method.md."""

OTHERS = (
    _entry(
        "beaten in all (rank --pareto)",
        "rank --pareto, report",
        "standing by shares measures",
        "Another path is shown to be better in each measure, each at 5 %, corrected for the "
        "other paths. `cpu` is the host's CPU seconds per operation; a metric alone is the "
        "geometric mean of all measurements that have it. The shares allow for a best that was "
        "chosen by the same numbers.",
        "Berger 1982",
    ),
    _entry(
        "rounds that would decide",
        "compare, claims",
        "rounds_needed more_rounds",
        "Rounds for 80 % power if the observed difference is the true one: a hint, not a promise. "
        f"None above {MOST_ROUNDS}.",
        "Cohen 1988",
    ),
    _entry(
        "shape",
        "compare --published",
        "published value factor shape",
        "A published number over its own baseline, as a fixed value, against your ratio to the "
        "same baseline. `differs` when the test shows a difference after Holm's correction.",
        "analysis/published.py",
    ),
    _entry(
        "RAM (from the page cache)",
        "rank, compare",
        "from_page_cache",
        f"Less than {recorded.FROM_CACHE_BELOW:.0%} of the bytes that QEMU (on the host: the "
        "program) read or wrote reached the device at the same time, over all rounds.",
        "analysis/diagnostics/recorded.py",
    ),
    _entry(
        "drift",
        "rank",
        "change",
        "Kendall's test on what all cells of a round have in common, from "
        f"{values.TREND_FROM} rounds; the size is Theil's slope. Reported from "
        f"{values.SMALLEST_TREND:.0%}.",
        "Mann 1945; Kendall 1938; Theil 1950",
    ),
    _entry(
        "slow first round",
        "rank",
        "factor",
        "The first round lies below the 99 % prediction interval of the others, and is "
        f"{1 - values.SLOW_FIRST_BELOW:.0%} worse or more.",
        "analysis/diagnostics/values.py",
    ),
    _entry(
        "two modes",
        "rank",
        "low high share_high",
        "The distance between two groups' means, over the spread within them, is beyond its "
        "99.99 % quantile under one normal mode, and the groups are "
        f"×{values.SMALLEST_MODE_RATIO} apart; from 8 rounds.",
        "analysis/diagnostics/values.py",
    ),
    _entry(
        "ceilings",
        "rank",
        "share",
        f"A cell reaches {values.GUEST_CEILING_SHARE:.0%} of the null device on its bus (the "
        f"guest's CPU is the limit), or {values.CEILING_SHARE:.0%} of the host on its stack (the "
        "device is the limit).",
        "analysis/diagnostics/values.py",
    ),
    _entry(
        "noisy neighbour, clock, growing image",
        "rank",
        "bytes_grown counted_seconds host_seconds",
        f"Steal time above {recorded.STOLEN_ABOVE:.0%} of all CPUs; a program that counts "
        f"{recorded.CLOCK_TOLERANCE - 1:.0%} more seconds than passed on the host; an image that "
        "occupies 1 MiB more after a measurement than before.",
        "analysis/diagnostics/recorded.py",
    ),
    _entry(
        "numbers of the programs",
        "table, rank, compare",
        "bandwidth iops latency_mean latency_max latency_p50 latency_p95 latency_p99 "
        "latency_p99.9 latency_p99_9 sync_mean sync_p99 sync_max transactions duration",
        "The program's own report, in SI units. For fio: latency from the submission "
        "(lat), fsyncs apart from the writes; the seconds of --ramp do not count.",
        "docs/articles.md",
    ),
    _entry(
        "times of requests",
        "show",
        "read_seconds write_seconds flush_seconds guest qemu network",
        "The sum of the times of all reads, writes or flushes that a counter took, from a request "
        "to its answer; divided by their number, where the mean time was spent: seen in the guest, "
        "from QEMU's device on, in the host's device, or a round trip to the server.",
        "results/model.py",
    ),
    _entry(
        "worst second, longest stall",
        "table",
        "worst_second longest_stall",
        "The lowest bandwidth of any whole second (a shorter run's own bandwidth), and the longest "
        "time without a completion. They come from the program's log, else from QEMU's counters; "
        "on the host, from the kernel's counters of the program.",
        "docs/articles.md",
    ),
    _entry(
        "installations",
        "table",
        "seconds allocated mapped flushes to_again to_allocated to_raw",
        "How long the installation took; by how much the image grew on the host's file system "
        "(st_blocks) and in its format's own map; the flushes that QEMU received. Ratios are of "
        "the medians of these times, without an interval.",
        "answers/table.py",
    ),
    _entry(
        "boots",
        "table",
        "boot_time shutdown_time",
        "From the start of QEMU to the guest agent's first answer; from the shutdown command to "
        "the end of QEMU's process.",
        "docs/articles.md",
    ),
    _entry(
        "the score of a profile without the score's measurements",
        "rank, recommend, report, advise",
        "overall_ratio rates",
        "The geometric mean of ratios to the baseline in the same round. Each measurement and "
        "direction has one: of its bandwidth, else its transactions or IOPS, else the inverse of "
        "its duration. A rate of zero makes the mean 0; a rate that is zero at the baseline is "
        "left out.",
        "Fleming & Wallace 1986",
    ),
    _entry(
        "your own weights (recommend --weights)",
        "recommend",
        "weighted_mix",
        "The weighted geometric mean of the ratios to the baseline in the same round, with the "
        "inverse ratio for a latency. The order depends neither on units nor on which path is the "
        "baseline.",
        "Fleming & Wallace 1986",
    ),
    _entry(
        "CPU per operation, flushes per thousand, share at the device",
        "recommend, report",
        "cpu_per_operation flushes_per_1000 device_flushes_per_1000 device_share",
        "Sums over all rounds and measurements of a cell: QEMU's CPU seconds and flushes over its "
        "reads and writes, the device's bytes over the requested bytes.",
        "analysis/sums.py",
    ),
    _entry(
        "power cut",
        "rank, audit, powercut, recommend",
        "power_cut flushed unflushed judged lost states losses acknowledged possible "
        "post_recovery_states leaked_states repaired_states wall_seconds",
        "States of the disk that a cut may leave: all possible ones, or a sample. A state is "
        "lost if an acknowledged write is. A test without a broken state is not a proof: after "
        "n states at most 3/n of all may lose data (95 %), and fewer than 20 give no verdict.",
        "docs/powercut.md",
    ),
    _entry(
        "how many guests a path carries",
        "density, recommend",
        "guests low high load reached served worst p99 fairness cpu_for_each",
        "The largest number of guests that passes more often than it fails, with a 95 % "
        "interval. A curve is fitted to passes and failures: it falls over up to a dozen guests "
        "and may differ between rounds. The worst guest must meet the limit and complete 99 % "
        "of the requests that were due. Fairness is Jain's index.",
        "docs/density.md",
    ),
    _entry(
        "what a noisy neighbour does",
        "density",
        "alone beside ratio pairs",
        "The victim's p99 beside the neighbour over its p99 alone, in the same round; medians of "
        "both over the rounds. The ratio's interval is as in compare.",
        "docs/density.md",
    ),
    _entry(
        "change over campaigns",
        "trend",
        "allowed newest change spread earlier exceeds levels together shifts",
        "The newest campaign's mean logarithm against the earlier ones since the last shift, by "
        "Student's t for one more value; Holm over the paths. From 10 campaigns on shifts are "
        "looked for by the largest CUSUM, with permutations; both share the 5 %.",
        "Worsley 1979; Antoch & Hušková 2001",
    ),
    _entry(
        "over hosts (--hosts)",
        "rank --hosts, compare --hosts, recommend --hosts",
        "hosts next_low next_high between a_better_on best_on peers",
        "A host takes the place of a round: the ratio is that of the mean host. `next_low` and "
        "`next_high` are the 95 % interval for another host of the fleet, `between` is the "
        "standard deviation of hosts' log ratios that rounds do not explain. A host is compared "
        "with its `peers`, which have the same facts.",
        "docs/fleet.md",
    ),
    _entry(
        "duration and space",
        "plan",
        "seconds_at_least seconds_usually seconds_estimated runs bytes_needed builds build_seconds "
        "guests guest_bytes",
        "The configured run times, plus measured costs of a measurement, a run, a boot and a "
        "build: a forecast, not a measurement. Most simulated races with a noise of 12 % end "
        "sooner than `usually`. Guests that exist at a time need their memory and about 96 MiB "
        "each for QEMU itself.",
        "campaign/schedule.py",
    ),
)
"""The other numbers, which docs/method.md leaves to the command."""

EXPLANATIONS = (*MAIN, *OTHERS)
