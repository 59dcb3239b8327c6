"""Reads claims from TOML: one file for each article, or the user's own file.

    article = "debatty-2024"
    title = "Performance of virtual storage (part 2): QEMU"

    [[claim]]
    name = "default-is-writeback"
    sentence = "Without a cache mode, QEMU performs as with writeback."
    left = ["raw/default"]
    right = ["raw/writeback"]
    measures = ["seqread-1m-q1/read/bandwidth"]
    low = 0.9                   # the range of left/right that the claim states; one end may be
    high = 1.1                  # left out
    profile = "quick"           # what `claims --run` runs; quick when left out
    page_cache = "cold"         # or "warm": the state of cells that use the host's page cache
    absolute = true             # void under emulation; the default for guest against host
    of_value = true             # the range is of the value of `left`, in SI units; no `right` then

`left` and `right` are patterns with braces. Both expand to the same number of paths, which are
compared in order; or one side is a single path, which is compared with each path of the other. The
range is claimed for every pair, and in a pair for every measure. Only for a sentence about all of
them together, `each_measure = false` averages the measures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated

from pydantic import Field

from vdisklab.analysis.observations import MeasureKey
from vdisklab.errors import PlanError
from vdisklab.path.braces import expand_segments
from vdisklab.path.cell import Cell, PageCacheChoice, page_cache_states
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.rules import impossible
from vdisklab.plan.toml_file import TomlTable, builtin_texts, read_toml
from vdisklab.value import Value

CLAIMS_PROFILE = "quick"
"""What measures a claim, or an article's numbers, unless another profile is named."""


_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
_Number = Annotated[float | None, Field(description="a positive number, such as low = 0.9")]


class ClaimCache(StrEnum):
    """The page-cache state that a claim is about; paths that bypass the cache have only one."""

    COLD = "cold"
    WARM = "warm"


class ClaimedContrast(Value):
    """Two cells of a claim, and the measures whose ratios are averaged."""

    left: Cell
    right: Cell
    measures: tuple[MeasureKey, ...]


class Claim(Value):
    """A contrast, and the range that the claim states for it."""

    article: str
    name: str
    sentence: str
    pairs: tuple[tuple[Cell, Cell], ...]
    """The cells to compare."""
    measures: tuple[MeasureKey, ...]
    low: float
    """The least left/right of each measure; 0 for an open end."""
    high: float
    """The largest; infinite for an open end."""
    profile: str
    page_cache: PageCacheChoice
    absolute: bool
    """True for claims that compare a guest with its host."""
    each_measure: bool = True
    """True if the range is claimed for every measure, not for their mean."""
    of_value: bool = False
    """True for claims about a value of `left` itself, such as a latency in seconds; their pairs
    repeat it.
    """

    @property
    def unit(self) -> str | None:
        """The unit of the claimed range; None for a ratio."""
        return self.measures[0].quantity.unit if self.of_value else None

    @property
    def contrasts(self) -> tuple[ClaimedContrast, ...]:
        """The contrasts that must lie in the range: each pair, over all measures or measure by
        measure.
        """
        groups = [(key,) for key in self.measures] if self.each_measure else [self.measures]
        return tuple(ClaimedContrast(*pair, measures) for pair in self.pairs for measures in groups)

    @property
    def stated(self) -> str:
        """The claimed range, such as `0.9–1.1`."""
        if self.low == 0:
            return f"< {self.high:g}"
        return f"> {self.low:g}" if math.isinf(self.high) else f"{self.low:g}–{self.high:g}"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell that the claim needs, once."""
        return tuple(dict.fromkeys(cell for pair in self.pairs for cell in pair))


class ClaimFile(Value):
    """The claims of one article."""

    article: str
    title: str
    author: str
    claims: tuple[Claim, ...]


class _ClaimTable(TomlTable):
    name: _Name = Field(description='name = "default-is-writeback", unique within the file')
    sentence: str = Field(min_length=1, description="the claim in one sentence")
    left: list[str] = Field(min_length=1, description='left = ["{ext4,xfs}/qcow2/none"]')
    right: list[str] = Field([], description='right = ["{ext4,xfs}/raw/none"]')
    measures: list[str] = Field(
        min_length=1, description='measures = ["randread-4k-q1/read/iops"], one or more'
    )
    low: _Number = None
    high: _Number = None
    profile: str = Field(CLAIMS_PROFILE, min_length=1, description="the name of a profile")
    page_cache: Annotated[ClaimCache, Field(strict=False)] = ClaimCache.COLD
    absolute: Annotated[bool | None, Field(description="true or false")] = None
    each_measure: Annotated[bool, Field(description="true or false")] = True
    of_value: Annotated[bool, Field(description="true or false")] = False


class _ClaimsTable(TomlTable):
    article: _Name = Field(description='article = "salter-2013"')
    title: str = Field(min_length=1, description='title = "the article, or what is tested"')
    author: str = ""
    claim: list[_ClaimTable] = Field(
        min_length=1,
        description="a table [[claim]] with name, sentence, left, right … for each claim",
    )


def parse_claims(text: str, origin: str) -> ClaimFile:
    """The claims in a TOML text.

    Raises PlanError naming `origin`, the claim and the key: for invalid TOML, for paths and
    metrics that do not exist, for an empty range, and for claims that contradict one another.
    """
    table = read_toml(text, origin, _ClaimsTable)
    names = Counter(claim.name for claim in table.claim)
    for name, count in names.items():
        if count > 1:
            raise PlanError(
                f"{origin} has {count} claims named {name!r} (key 'name')",
                hint="give each claim a different name",
            )
    claims = tuple(_claim(table.article, claim, origin) for claim in table.claim)
    _refuse_contradictions(claims, origin)
    return ClaimFile(table.article, table.title, table.author, claims)


@cache
def builtin_claims() -> tuple[ClaimFile, ...]:
    """The claims of the articles that come with vdisklab, by the name of their files."""
    return tuple(parse_claims(text, name) for name, text in builtin_texts("analysis/claims_data"))


def _claim(article: str, table: _ClaimTable, origin: str) -> Claim:
    where = f"claim {table.name!r} of {origin}"
    low, high = _range(table, where)
    choice = PageCacheChoice(table.page_cache.value)
    left = _cells(table.left, choice, f"key 'left' of {where}")
    measures = _measures(table.measures, f"key 'measures' of {where}")
    if table.of_value:
        if table.right or len({key.quantity.unit for key in measures}) > 1:
            raise PlanError(
                f"{where} is about a value (key 'of_value')",
                hint="leave out right, and name measures of one unit",
            )
        pairs = tuple((cell, cell) for cell in left)
    else:
        pairs = _pairs(left, _cells(table.right, choice, f"key 'right' of {where}"), where)
    # Without the key, an emulated guest would "prove" that guests are slower than the host.
    beside_host = any(first.path.on_host != second.path.on_host for first, second in pairs)
    return Claim(
        article=article,
        name=table.name,
        sentence=table.sentence,
        pairs=pairs,
        measures=measures,
        low=low,
        high=high,
        profile=table.profile,
        page_cache=choice,
        absolute=beside_host or table.of_value if table.absolute is None else table.absolute,
        each_measure=table.each_measure,
        of_value=table.of_value,
    )


def _range(table: _ClaimTable, where: str) -> tuple[float, float]:
    if table.low is None and table.high is None:
        raise PlanError(
            f"{where} has no range (keys 'low' and 'high')",
            hint="write low = 0.9, high = 1.1, or one of them",
        )
    for key, value in (("low", table.low), ("high", table.high)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise PlanError(
                f"key {key!r} of {where} is {value:g}",
                hint="a ratio is a positive number; leave the key out for an open end",
            )
    low = 0.0 if table.low is None else table.low
    high = math.inf if table.high is None else table.high
    if low >= high:
        raise PlanError(
            f"{where} has an empty range: low = {low:g}, high = {high:g}",
            hint="low must be less than high",
        )
    return low, high


def _cells(patterns: Sequence[str], choice: PageCacheChoice, where: str) -> tuple[Cell, ...]:
    paths: dict[str, DiskPath] = {}
    try:
        for pattern in patterns:
            for text in expand_segments(pattern):
                path = parse_path(text)
                paths.setdefault(path.canonical, path)
    except PlanError as error:
        raise PlanError(f"{where}: {error}", hint=error.hint) from error
    for path in paths.values():
        verdict = impossible(path, guest=None)  # guests of another architecture measured it
        if verdict is not None:
            what = f"{path} {verdict.what}: {verdict.reason}"
            raise PlanError(f"{where}: {what}", hint=verdict.instead)
    if not paths:
        raise PlanError(f"{where} expands to no path", hint='write left = ["raw/none"]')
    return tuple(
        Cell(path, next(state for state in page_cache_states(path) if choice.admits(state)))
        for path in paths.values()
    )


def _pairs(
    left: tuple[Cell, ...], right: tuple[Cell, ...], where: str
) -> tuple[tuple[Cell, Cell], ...]:
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        raise PlanError(
            f"{where} compares {len(left)} paths (key 'left') with {len(right)} (key 'right')",
            hint="give both sides the same number of paths, or one side a single path",
        )
    many = max(len(left), len(right))
    pairs = tuple(zip(left * (many // len(left)), right * (many // len(right)), strict=True))
    for first, second in pairs:
        if first == second:
            raise PlanError(
                f"{where} compares {first.label} with itself", hint="name two different paths"
            )
    return pairs


def _measures(texts: Sequence[str], where: str) -> tuple[MeasureKey, ...]:
    try:
        keys = [MeasureKey.parse(text) for text in texts]
        for key in keys:
            _ = key.quantity  # raises for a metric that does not exist
    except PlanError as error:
        raise PlanError(f"{where}: {error}", hint=error.hint) from error
    return tuple(dict.fromkeys(keys))


@dataclass(slots=True)
class _Room:
    """The range that satisfies all claims about one contrast, and the claims that set its ends."""

    low: float = 0.0
    low_by: str = ""
    high: float = math.inf
    high_by: str = ""


def _refuse_contradictions(claims: Sequence[Claim], origin: str) -> None:
    """Raises PlanError if claims of one file about the same contrast cannot all hold."""
    rooms: dict[tuple[frozenset[tuple[Cell, Cell]], frozenset[MeasureKey]], _Room] = {}
    for claim in claims:
        measures = frozenset(claim.measures)
        turned = frozenset((b, a) for a, b in claim.pairs)
        inverse = (1 / claim.high, 1 / claim.low if claim.low else math.inf)
        room = rooms.get((turned, measures))
        low, high = (claim.low, claim.high) if room is None else inverse
        if room is None:
            room = rooms.setdefault((frozenset(claim.pairs), measures), _Room())
        if low > room.high or high < room.low:
            other = room.high_by if low > room.high else room.low_by
            raise PlanError(
                f"claims {other!r} and {claim.name!r} of {origin} contradict each "
                "other: no ratio lies in both ranges (keys 'low' and 'high')",
                hint="correct one of them, or move it to another file",
            )
        if low > room.low:
            room.low, room.low_by = low, claim.name
        if high < room.high:
            room.high, room.high_by = high, claim.name
