"""Patterns of disk paths become cells; what cannot be measured is listed with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vdisklab.errors import HostError, PlanError
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.braces import MAX_WORDS, expand_segments
from vdisklab.path.cell import Cell, PageCacheChoice, page_cache_states
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import Verdicts
from vdisklab.path.needs import Need, unmet
from vdisklab.path.rules import Impossible, impossible
from vdisklab.plan.campaign import Dropped
from vdisklab.plan.capabilities import Capabilities, infeasible
from vdisklab.plan.qemu import with_each


@dataclass(frozen=True, slots=True)
class Matrix:
    """The cells in the order asked for, and the paths that are not among them."""

    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]


def expand_matrix(
    patterns: Sequence[str],
    page_cache: PageCacheChoice = PageCacheChoice.BOTH,
    capabilities: Capabilities | None = None,
    backing: BackingDevices = WORK_DIRECTORY,
    qemus: Sequence[str] = (),
) -> Matrix:
    """All cells that the patterns stand for, each once with each QEMU, and what was dropped.

    Raises PathSyntaxError for a path that cannot be read. Raises PlanError when no cell is left
    because of what was asked, HostError when none is left because of this host.
    """
    capabilities = capabilities or Capabilities()
    cells: list[Cell] = []
    dropped: list[Dropped] = []
    paths = [each for path in _distinct_paths(patterns) for each in with_each(path, qemus)]
    for path in paths:
        verdict = (
            impossible(path, backing)
            or infeasible(path, capabilities)
            or _without_state(path, page_cache, capabilities)
        )
        if verdict is None:
            cells += cells_of(path, page_cache, capabilities)
        else:
            dropped.append(Dropped(path.canonical, verdict.reason, verdict.instead))
    if not cells:
        raise _nothing_left(paths, dropped, backing)
    return Matrix(tuple(cells), tuple(dropped))


def narrow_to_needs(matrix: Matrix, needs: Sequence[Need], verdicts: Verdicts) -> Matrix:
    """The matrix without the guests' paths that do not meet all needs; those are dropped.

    Paths on the host stay, as scores relate to them. Raises PlanError when no guest is left.
    """
    cells: list[Cell] = []
    dropped = dict.fromkeys(matrix.dropped)
    for cell in matrix.cells:
        lacks = {} if cell.path.on_host else unmet(cell.path, needs, verdicts)
        if not lacks:
            cells.append(cell)
            continue
        need, reason = next(iter(lacks.items()))
        sentence = f"it does not meet --need {need}: {reason}"
        dropped[Dropped(str(cell.path), sentence, "leave the need out")] = None
    if needs and all(cell.path.on_host for cell in cells):
        raise PlanError(
            f"no path meets {', '.join(map(str, needs))}",
            hint="leave a need out, or name more paths",
        )
    return Matrix(tuple(cells), tuple(dropped))


def _without_state(
    path: DiskPath, page_cache: PageCacheChoice, capabilities: Capabilities
) -> Impossible | None:
    if cells_of(path, page_cache, capabilities):
        return None
    where, instead = path.stack, "leave --page-cache out"
    if not where:
        where, instead = (
            "a work directory in memory (tmpfs)",
            f"{instead}, or choose a --dir on a disk",
        )
    return Impossible(
        f"files on {where} are never out of the page cache, and it was asked to be {page_cache}",
        instead,
    )


def cells_of(path: DiskPath, page_cache: PageCacheChoice, capabilities: Capabilities) -> list[Cell]:
    """The cells of one path: one for each state of the page cache that makes sense for it."""
    states = page_cache_states(path, on_tmpfs=capabilities.on_tmpfs)
    return [Cell(path, state) for state in states if page_cache.admits(state)]


def require_possible(
    path: DiskPath, capabilities: Capabilities, backing: BackingDevices = WORK_DIRECTORY
) -> None:
    """Raises PlanError for a path that cannot exist, HostError for one not to be had here."""
    verdict = impossible(path, backing)
    if verdict is not None:
        raise PlanError(_sentence(path, "cannot exist", verdict), hint=verdict.instead)
    verdict = infeasible(path, capabilities)
    if verdict is not None:
        raise HostError(_sentence(path, "cannot be measured", verdict), hint=verdict.instead)


def _sentence(path: DiskPath, what: str, verdict: Impossible) -> str:
    return f"{path} {what}: {verdict.reason}"


def _distinct_paths(patterns: Sequence[str]) -> list[DiskPath]:
    """The paths in the order of their first mention; two spellings of one path are one."""
    found: dict[str, DiskPath] = {}
    for pattern in patterns:
        # An empty argument is a mistake (an unset shell variable), not an empty alternative.
        for text in expand_segments(pattern) if pattern else [pattern]:
            path = parse_path(text)
            found.setdefault(path.canonical, path)
        if len(found) > MAX_WORDS:
            raise PlanError(
                f"the patterns stand for more than {MAX_WORDS} paths", hint="write fewer of them"
            )
    return list(found.values())


def _nothing_left(
    paths: Sequence[DiskPath], dropped: Sequence[Dropped], backing: BackingDevices
) -> PlanError | HostError:
    if not paths:
        return PlanError(
            "no disk path was asked for",
            hint="write paths such as ext4/qcow2/none, or {ext4,xfs}/{raw,qcow2}/{none,writeback}",
        )
    first = dropped[0]
    here = all(impossible(path, backing) is not None for path in paths)
    kind, what = (PlanError, "cannot exist") if here else (HostError, "cannot be measured")
    if len(paths) == 1:
        return kind(f"{first.path} {what}: {first.reason}", hint=first.instead)
    return kind(
        f"none of the {len(paths)} paths {what.replace('cannot', 'can')}; "
        f"the first, {first.path}: {first.reason}",
        hint=first.instead,
    )
