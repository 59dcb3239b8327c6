"""How each number that is shown came about: one entry per kind, with its limits and its source.

Thresholds are taken from the code that uses them, so that what is said here is what is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.analysis import search
from vdisklab.analysis.compare import MOST_BLOCKS
from vdisklab.analysis.diagnostics import ceilings, stability, witness
from vdisklab.analysis.intervals import MIN_BLOCKS, ORDER_STATISTICS_FROM
from vdisklab.render.document import Json, document
from vdisklab.render.tables.layout import Column, Table, text


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a shown number is called in JSON and CSV (`keys`), and how it comes about."""

    title: str
    shown_by: tuple[str, ...]
    keys: tuple[str, ...]
    how: str
    source: str


_RANK, _COMPARE, _CLAIMS, _PUBLISHED = "rank", "compare", "claims", "compare --published"

_RECOMMEND, _AUDIT, _TABLE, _POWERCUT = "recommend", "audit", "table", "powercut"

_SHOWN: tuple[Explanation, ...] = (
    Explanation(
        "median",
        (_RANK, _COMPARE, _TABLE, _RECOMMEND),
        ("a_median", "b_median", "METRIC"),
        "The median over blocks of one run each. A run is one fresh attach of the disk; seconds "
        "within it are no repetitions. Failed runs do not count, and nothing is filled in.",
        "analysis/summary.py",
    ),
    Explanation(
        "95 % interval of a median",
        (_RANK, _COMPARE),
        ("a_low", "a_high", "b_low", "b_high", "METRIC_low", "METRIC_high"),
        f"From {ORDER_STATISTICS_FROM} blocks on the interpolated binomial interval, which "
        f"assumes nothing on the distribution; from {MIN_BLOCKS} on Student's t on logarithms, "
        "which assumes that values are log-normal. Fewer blocks have none.",
        "Hettmansperger & Sheather 1986",
    ),
    Explanation(
        "latency: mean, p50, p99, p99.9, max",
        (_RANK, _COMPARE),
        ("latency_mean", "latency_p50", "latency_p99", "latency_p99.9", "latency_max"),
        "Of one run, from the submission of a request to its completion (fio's lat), percentiles "
        "from fio's histogram, some 1.5 % wide. Not of completion alone (clat, fio's default), "
        "which hides what io_submit(2) waits for; imported reports mostly have that.",
        "workload/fio.py; fio HOWTO, lat_percentiles",
    ),
    Explanation(
        "ratio",
        (_RANK, _COMPARE, _CLAIMS, _PUBLISHED, _RECOMMEND, _AUDIT),
        (
            "ratio",
            "ratio_low",
            "ratio_high",
            "pairs",
            "gain",
            "gain_low",
            "gain_high",
            "over_default",
        ),
        "exp of the mean log ratio within blocks, so that drift cancels; its interval is "
        "Student's t on those. For a claim, pairs and measures are averaged in each block first.",
        "analysis/compare.py, analysis/claims.py",
    ),
    Explanation(
        "score: read, write, overall",
        (_RANK, _RECOMMEND, _AUDIT),
        ("weighted_read", "weighted_write", "weighted_overall", "score"),
        "Jim Salter's: the mean of sequential bandwidth and k times 4 KiB random bandwidth; k "
        "makes both equal on the baseline, in the same block. Overall is the mean of both.",
        "Salter 2013",
    ),
    Explanation(
        "rank",
        (_RANK, _AUDIT),
        ("rank", "rank_best", "rank_worst", "ranked_cells", "comparisons", "separated"),
        "Every pair of cells is tested on an additive model (cell + block) of the logarithms, at "
        "a family-wise error of 5 % (Holm). A rank runs from one after all that are shown to be "
        "better to before all that are shown to be worse; 1–3 is a tie.",
        "Holm 1979; Smyth 2004; Mohamad, Goeman & van Zwet 2019",
    ),
    Explanation(
        "p",
        (_COMPARE, _CLAIMS, _PUBLISHED),
        ("p", "p_adjusted"),
        "Of a paired t-test on log ratios; p_adjusted is corrected for all rows of the same "
        "answer (Holm), and decides. Against a claim it is twice the smaller of the one-sided p "
        "of `inside the range` and `outside of it`.",
        "Holm 1979; Schuirmann 1987",
    ),
    Explanation(
        "blocks that would tell",
        (_COMPARE, _CLAIMS),
        ("blocks_needed", "more_blocks"),
        "Blocks for 80 % power if what was seen is the truth: a hint, not a promise. None above "
        f"{MOST_BLOCKS}.",
        "Cohen 1988",
    ),
    Explanation(
        "verdict of a claim",
        (_CLAIMS,),
        ("status", "verdict", "stated_low", "stated_high", "blocks", "void"),
        f"holds or fails when the ratio is shown to lie inside or outside the stated range, from "
        f"{MIN_BLOCKS} blocks on; else inconclusive. A claim of guest against host is void under "
        "emulation and in a lab.",
        "analysis/claims.py",
    ),
    Explanation(
        "shape",
        (_PUBLISHED,),
        ("published", "published_ratio", "factor", "shape"),
        "A published number over its own baseline, as a fixed value, against our ratio to the "
        "same baseline. `differs` when the test says so after Holm's correction.",
        "analysis/published.py",
    ),
    Explanation(
        "RAM (from the page cache)",
        (_RANK, _COMPARE),
        ("from_page_cache",),
        f"Less than {witness.FROM_CACHE_BELOW:.0%} of the bytes that QEMU (on the host: the "
        "program) read or wrote reached the device meanwhile, over all blocks.",
        "analysis/diagnostics/witness.py",
    ),
    Explanation(
        "n",
        (_RANK, _CLAIMS),
        ("blocks",),
        "Blocks in which the cell has the measure; for a claim those that hold all of it.",
        "analysis/rank.py",
    ),
    Explanation(
        "drift",
        (_RANK,),
        ("change",),
        f"Kendall's test on what all cells of a block have in common, from {stability.TREND_FROM} "
        f"blocks on; the size is Theil's slope. Named from {stability.SMALLEST_TREND:.0%} on.",
        "Mann 1945; Kendall 1938; Theil 1950",
    ),
    Explanation(
        "slow first block",
        (_RANK,),
        ("factor",),
        "The first block lies below the 99 % prediction of the others, and is "
        f"{1 - stability.SLOW_FIRST_BELOW:.0%} worse or more.",
        "analysis/diagnostics/stability.py",
    ),
    Explanation(
        "two modes",
        (_RANK,),
        ("low", "high", "share_high"),
        "The distance of two groups' means over the spread within is beyond its 99.99 % quantile "
        f"under one normal mode, and the groups are ×{stability.SMALLEST_MODE_RATIO} apart; from "
        "8 blocks on.",
        "analysis/diagnostics/stability.py",
    ),
    Explanation(
        "ceilings",
        (_RANK,),
        ("share",),
        f"A cell reaches {ceilings.GUEST_CEILING_SHARE:.0%} of the null device on its bus (the "
        f"guest's CPU is the limit), or {ceilings.CEILING_SHARE:.0%} of the host on its stack (the "
        "device is).",
        "analysis/diagnostics/ceilings.py",
    ),
    Explanation(
        "noisy neighbour, clock, growing image",
        (_RANK,),
        ("bytes_grown", "counted_seconds", "host_seconds"),
        f"Steal time above {witness.STOLEN_ABOVE:.0%} of all CPUs; a program that counts "
        f"{witness.CLOCK_TOLERANCE - 1:.0%} more seconds than passed on the host; an image that "
        "occupies 1 MiB more after a measurement than before.",
        "analysis/diagnostics/witness.py",
    ),
    Explanation(
        "best (run --find best)",
        ("run",),
        ("gap",),
        "From the third block on a cell leaves when it is shown that it cannot be better than the "
        "leader by more than the margin, at a risk of 5 % over all blocks and cells. A block costs "
        f"at most {search.BLOCK_SHARE:.0%} of what is left of the budget; who was left out for "
        "that comes back when there is room.",
        "Kim & Nelson 2001; Maron & Moore 1994",
    ),
)

_OF_PROGRAMS: tuple[Explanation, ...] = (
    Explanation(
        "numbers of the programs",
        (_TABLE, _RANK, _COMPARE),
        (
            "bandwidth",
            "iops",
            "latency_mean",
            "latency_max",
            "latency_p50",
            "latency_p95",
            "latency_p99",
            "latency_p99.9",
            "latency_p99_9",
            "sync_mean",
            "sync_p99",
            "sync_max",
            "transactions",
            "duration",
        ),
        "What the program itself reports, in SI units. Of fio: latency from the submission on "
        "(lat), fsyncs apart from the writes; the seconds of --ramp do not count.",
        "docs/articles.md",
    ),
    Explanation(
        "worst second, longest stall",
        (_TABLE,),
        ("worst_second", "longest_stall"),
        "The smallest bandwidth of a whole second of the run, of a shorter one all of it, and the "
        "longest time without a completion: from what the program logs, else from QEMU's counters, "
        "on the host from the kernel's of the program.",
        "docs/articles.md",
    ),
    Explanation(
        "installations",
        (_TABLE,),
        ("seconds", "allocated", "mapped", "flushes", "to_again", "to_allocated", "to_raw"),
        "How long it took; by how much the image grew on the host's file system (st_blocks) and in "
        "its format's own map; the flushes that QEMU was asked for. Ratios are of the medians of "
        "these times, without an interval.",
        "report/systems.py",
    ),
    Explanation(
        "boots",
        (_TABLE,),
        ("boot_time", "shutdown_time"),
        "From the start of QEMU to the guest agent's first answer; from the order to shut down to "
        "the end of QEMU's process.",
        "docs/articles.md",
    ),
    Explanation(
        "weights of one's own (recommend --weights)",
        (_RECOMMEND,),
        ("weighted_mix",),
        "The weighted geometric mean of the ratios to the baseline in the same block; a latency's "
        "is turned over. Its order does not hang on units, nor on which path is the baseline.",
        "Fleming & Wallace 1986",
    ),
    Explanation(
        "price of a need",
        (_RECOMMEND,),
        ("prices", "considered", "excluded"),
        "The ratio, within blocks, of the best path without that need to the one that is "
        "recommended; where its interval holds 1 no difference is shown. Considered are guests' "
        "paths; a warm page cache stands for none.",
        "analysis/recommend.py",
    ),
    Explanation(
        "CPU per operation, flushes per thousand, share at the device",
        (_RECOMMEND, "report"),
        ("cpu_per_operation", "flushes_per_1000", "device_flushes_per_1000", "device_share"),
        "Sums over all blocks and measurements of a cell: QEMU's CPU seconds and flushes over its "
        "reads and writes, the device's bytes over those that were asked for.",
        "analysis/evidence.py",
    ),
    Explanation(
        "power cut",
        (_RANK, _AUDIT, _POWERCUT, _RECOMMEND),
        (
            "power_cut_states",
            "power_cut_broken",
            "flushed_states",
            "flushed_broken",
            "unflushed_states",
            "unflushed_broken",
            "states",
            "losses",
            "promises",
            "possible",
            "afterlives",
            "leaked_states",
            "repaired_states",
            "wall_seconds",
        ),
        "States of the disk that a cut may leave, of those that are possible all or a sample; "
        "broken are those in which anything is lost that was promised. None broken is no proof: "
        "of n states at most 3/n of all may lose (95 %), and fewer than 20 are no verdict.",
        "docs/powercut.md",
    ),
    Explanation(
        "how long, how much room",
        ("plan",),
        ("seconds_estimated", "bytes_needed", "builds", "build_seconds"),
        "What the programs are told to run, and what a measurement, a run, a boot and a build cost "
        "beside it where that was measured: a forecast, no measurement.",
        "campaign/estimate.py",
    ),
)

EXPLANATIONS: tuple[Explanation, ...] = (*_SHOWN, *_OF_PROGRAMS)

_COLUMNS = (
    Column("number", "number", folds=True),
    Column("how", "how it comes about", folds=True),
    Column("source", "source", folds=True, only_wide=True),
    Column("shown_by", "", only_data=True),
    Column("keys", "", only_data=True),
)


def explanations_about(word: str | None) -> tuple[Explanation, ...]:
    """Those with the word in their title, their keys or the verbs that show them; all for None."""
    if word is None:
        return EXPLANATIONS
    asked = word.lower()
    return tuple(
        each
        for each in EXPLANATIONS
        if any(asked in name.lower() for name in (each.title, *each.keys, *each.shown_by))
    )


def method_table(found: tuple[Explanation, ...]) -> Table:
    """One row per kind of number."""
    return Table(
        "How the numbers come about",
        _COLUMNS,
        tuple(
            (
                text(each.title),
                text(each.how),
                text(each.source),
                text(", ".join(each.shown_by)),
                text(", ".join(each.keys)),
            )
            for each in found
        ),
        (
            "Each block measures every cell once, in random order; differences are taken within "
            "blocks. docs/method.md has simulated coverage, error rates, power, and literature.",
        ),
    )


def method_document(found: tuple[Explanation, ...]) -> Json:
    """The JSON form."""
    return document(
        "method",
        1,
        numbers=[
            {
                "title": each.title,
                "shown_by": list(each.shown_by),
                "keys": list(each.keys),
                "how": each.how,
                "source": each.source,
            }
            for each in found
        ],
    )
