"""Expands patterns of disk paths into cells, and lists the paths that cannot be measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from vdisklab.errors import HostError, LayersMissingError, PlanError
from vdisklab.operations.making import PACKED, TemplateForm, WayKind
from vdisklab.operations.registry import OPERATIONS, parse_operation
from vdisklab.operations.ways.registry import WAYS, parse_way
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.braces import MAX_WORDS, expand_segments
from vdisklab.path.bus_options import with_each, without_options
from vdisklab.path.cell import Cell, PageCacheChoice, own_cache, page_cache_states
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.named_target import NamedTarget, with_targets
from vdisklab.path.needs import Need, nearest_hint, unmet
from vdisklab.path.rules import Impossible, impossible, unnamed_target
from vdisklab.path.segments import GuestFsKind, ImageFormat, PageCache
from vdisklab.plan.campaign import Dropped
from vdisklab.plan.capabilities import Capabilities, infeasible
from vdisklab.plan.destination import Destination
from vdisklab.plan.making_here import MakingHere
from vdisklab.plan.profile import BOOT, Profile, load_file_bytes
from vdisklab.units import MIB, format_size
from vdisklab.value import Value, replace

Axes = Mapping[str, Sequence[str]]
"""Values of options of the bus, by option, that every path of a guest gets in turn."""

_NO_OPERATION = Impossible(
    "it names no operation, and other paths do", "write --during, which holds for all paths"
)
_NO_GUEST = Impossible("no guest runs there whose disk an operation could change", "leave it out")
NO_AXES: Axes = {}
_LEAST_SIZES: Mapping[str, int] = {GuestFsKind.XFS: 300 * MIB, GuestFsKind.BTRFS: 109 * MIB}
"""The least sizes that mkfs.xfs and mkfs.btrfs accept (xfsprogs 6.1, btrfs-progs 6.2)."""


class Matrix(Value):
    """The cells in the requested order, and the paths that are not measured."""

    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]


def expand_paths(
    patterns: Sequence[str], axes: Axes = NO_AXES, targets: Collection[NamedTarget] = ()
) -> tuple[DiskPath, ...]:
    """The distinct paths of the patterns, with each value of each axis, in order of first mention.

    A path may begin with the name of one of the `targets`.

    Two spellings of one path count once. Raises PathSyntaxError for a malformed path.
    """
    paths: dict[str, DiskPath] = {}
    for pattern in patterns:
        for text in expand_segments(pattern):
            path = parse_path(with_targets(text, targets))
            paths.setdefault(path.canonical, path)
        if len(paths) > MAX_WORDS:
            raise PlanError(
                f"the patterns expand to more than {MAX_WORDS} paths", hint="write fewer of them"
            )
    expanded = tuple(paths.values())
    for option, values in axes.items():
        expanded = tuple(
            path for path_so_far in expanded for path in with_each(path_so_far, option, values)
        )
    return tuple(dict.fromkeys(expanded))


def judge_paths(
    paths: Sequence[DiskPath],
    page_cache: PageCacheChoice,
    capabilities: Capabilities,
    backing: BackingDevices,
) -> Matrix:
    """The cells of all paths, and the paths that cannot exist or cannot be measured here.

    Raises PlanError when no cell is left on any host, HostError when none is left on this one.
    """
    cells: list[Cell] = []
    dropped: list[Dropped] = []
    for path in paths:
        verdict = (
            unnamed_target(path, backing)
            or impossible(path, backing)
            or infeasible(path, capabilities)
            or _without_state(path, page_cache, capabilities)
        )
        if verdict is None:
            path_cells = cells_of(path, page_cache, capabilities)
            cells += path_cells
            cache = own_cache(path)
            if (
                cache
                and path_cells[0].page_cache is PageCache.COLD
                and page_cache is PageCacheChoice.BOTH
            ):
                warm = Cell(path, PageCache.WARM).label
                why = _not_warm(path, cache)
                dropped.append(Dropped(warm, why, "its cold cell is measured", asked=False))
        else:
            dropped.append(Dropped(path.canonical, verdict.reason, verdict.instead))
    if not cells:
        raise _nothing_left(paths, dropped, backing, capabilities)
    return Matrix(tuple(cells), tuple(dropped))


def expand_matrix(
    patterns: Sequence[str],
    page_cache: PageCacheChoice = PageCacheChoice.BOTH,
    capabilities: Capabilities | None = None,
    backing: BackingDevices = WORK_DIRECTORY,
) -> Matrix:
    """The cells of the patterns: expands them by `expand_paths`, then calls `judge_paths`."""
    paths = expand_paths(patterns, targets=backing.targets)
    return judge_paths(paths, page_cache, capabilities or Capabilities(), backing)


def narrow_to_needs(
    matrix: Matrix,
    needs: Sequence[Need],
    verdicts: CrashVerdicts,
    refusal: Callable[[DiskPath], Impossible | None] | None = None,
) -> Matrix:
    """The matrix without the guests' paths that do not meet all needs; those are dropped.

    Paths on the host and the null device stay, as scores and ceilings relate to them. Raises
    PlanError if no guest's path is left; its hint names the nearest path without a `refusal`.
    """
    cells: list[Cell] = []
    dropped = dict.fromkeys(matrix.dropped)
    reasons: dict[DiskPath, str] = {}
    for cell in matrix.cells:
        lacks = unmet(cell.path, needs, verdicts) if cell.path.is_guest_storage else {}
        if not lacks:
            cells.append(cell)
            continue
        need, reason = next(iter(lacks.items()))
        reasons.setdefault(cell.path, reason)
        sentence = f"it does not meet --need {need}: {reason}"
        dropped[Dropped(str(cell.path), sentence, need.way_out, asked=False)] = None
    if needs and not any(cell.path.is_guest_storage for cell in cells):
        raise _no_path_meets(needs, reasons, verdicts, refusal)
    return Matrix(tuple(cells), tuple(dropped))


def _no_path_meets(
    needs: Sequence[Need],
    reasons: Mapping[DiskPath, str],
    verdicts: CrashVerdicts,
    refusal: Callable[[DiskPath], Impossible | None] | None,
) -> PlanError:
    """The error: why the first path fails, and the nearest path that meets all needs."""
    message = f"no path meets {', '.join(map(str, needs))}"
    if not reasons:
        return PlanError(message, hint="name a guest's path, such as raw/none")
    path, reason = next(iter(reasons.items()))
    return PlanError(
        f"{message}: {path}: {reason}", hint=nearest_hint(path, needs, verdicts, refusal)
    )


def _without_state(
    path: DiskPath, page_cache: PageCacheChoice, capabilities: Capabilities
) -> Impossible | None:
    if cells_of(path, page_cache, capabilities):
        return None
    cache = own_cache(path)
    if cache is not None:
        return Impossible(_not_warm(path, cache), "leave --page-cache out")
    # A profile asks for a cold page cache, too: to leave the option out would not help.
    where, instead = path.stack, "choose --page-cache warm"
    if not where:
        where, instead = (
            "a work directory in memory (tmpfs)",
            f"{instead}, or a --dir on a disk",
        )
    return Impossible(
        f"files on {where} are always in the page cache, so it cannot be {page_cache}", instead
    )


def _not_warm(path: DiskPath, cache: str) -> str:
    return (
        f"{path.layers[-1].kind} keeps files in {cache}, not in the page cache, so nothing shows "
        "that a file is warm"
    )


def cells_of(path: DiskPath, page_cache: PageCacheChoice, capabilities: Capabilities) -> list[Cell]:
    """The cells of one path: one for each state of the page cache that makes sense for it."""
    states = page_cache_states(path, on_tmpfs=capabilities.on_tmpfs)
    return [Cell(path, state) for state in states if page_cache.admits(state)]


def require_possible(
    path: DiskPath,
    capabilities: Capabilities,
    backing: BackingDevices = WORK_DIRECTORY,
    purpose: str = "measured",
) -> None:
    """Raises PlanError for a path that cannot exist, HostError for one that fails on this host.

    `purpose` is what it cannot be then, for the sentence.
    """
    verdict = unnamed_target(path, backing) or impossible(path, backing)
    if verdict is not None:
        raise PlanError(f"{path} {verdict.what}: {verdict.reason}", hint=verdict.instead)
    verdict = infeasible(path, capabilities)
    if verdict is not None:
        raise HostError(f"{path} cannot be {purpose}: {verdict.reason}", hint=verdict.instead)


def _nothing_left(
    paths: Sequence[DiskPath],
    dropped: Sequence[Dropped],
    backing: BackingDevices,
    capabilities: Capabilities,
) -> PlanError | HostError:
    if not paths:
        return PlanError(
            "no disk path is given",
            hint="write paths such as ext4/qcow2/none, or {ext4,xfs}/{raw,qcow2}/{none,writeback}",
        )
    first = dropped[0]
    all_impossible = all(
        unnamed_target(path, backing) or impossible(path, backing) for path in paths
    )
    if not all_impossible and (bare := _without_layers(paths, backing, capabilities)):
        several = f"none of the {len(paths)} paths can be measured; the first, "
        return LayersMissingError(
            f"{several}{first.path}: {first.reason}"
            if len(paths) > 1
            else f"{first.path} cannot be measured: {first.reason}",
            hint=first.instead,
            paths=bare,
        )
    kind, what = (
        (PlanError, "cannot exist") if all_impossible else (HostError, "cannot be measured")
    )
    if len(paths) == 1:
        verdict = unnamed_target(paths[0], backing) or impossible(paths[0], backing)
        what = what if verdict is None else verdict.what
        return kind(f"{first.path} {what}: {first.reason}", hint=first.instead)
    return kind(
        f"none of the {len(paths)} paths {what.replace('cannot', 'can')}; "
        f"the first, {first.path}: {first.reason}",
        hint=first.instead,
    )


def _without_layers(
    paths: Sequence[DiskPath], backing: BackingDevices, capabilities: Capabilities
) -> tuple[str, ...]:
    """The paths without their host layers, each once; empty if one has none, or is on a target, or
    cannot be measured so either."""
    bare = dict.fromkeys(replace(path, layers=()) for path in paths)
    if any(not path.layers or path.target is not None for path in paths):
        return ()
    if any(impossible(path, backing) or infeasible(path, capabilities) for path in bare):
        return ()
    return tuple(path.canonical for path in bare)


def drop(matrix: Matrix, verdict: Callable[[DiskPath], Impossible | None]) -> Matrix:
    """The matrix without the paths that have a verdict. Raises PlanError when none is left."""
    verdicts = {cell.path.canonical: verdict(cell.path) for cell in matrix.cells}
    gone = [
        Dropped(path, reason.reason, reason.instead) for path, reason in verdicts.items() if reason
    ]
    cells = tuple(cell for cell in matrix.cells if verdicts[cell.path.canonical] is None)
    if not cells:
        first = gone[0]
        raise PlanError(f"{first.path} cannot be measured: {first.reason}", hint=first.instead)
    return Matrix(cells, (*matrix.dropped, *gone))


def measured_once(matrix: Matrix) -> Matrix:
    """The matrix without `raw/default` beside `raw/writeback`, which is the same configuration."""
    paths = {cell.path for cell in matrix.cells}

    def equal(path: DiskPath) -> Impossible | None:
        twin = path.spelled_out
        if twin == path or twin not in paths:
            return None
        reason = f"it is {twin}, because writeback is QEMU's default, and is measured once"
        return Impossible(reason, "--keep-equal measures both")

    return drop(matrix, equal)


def uses_no_files(profile: Profile, path: DiskPath) -> Impossible | None:
    """Why a guest's file system or mount options have no effect; None if files are measured."""
    if path.on_host or any(measurement.filesystem for measurement in profile.measurements):
        return None
    reason = f"no measurement of profile {profile.name} uses files, so it changes nothing"
    for option in ("guest_mount", "guest_fs"):
        if path.attachment.option(option) is not None:
            return Impossible(f"{option}: {reason}", "choose another --profile")
    return None


def not_together(ramp: float, path: DiskPath) -> Impossible | None:
    """Why several guests cannot be measured at once: they start within the ramp; else None."""
    if ramp > 0 or (path.attachment.guests or 1) < 2:
        return None
    return Impossible(
        f"guests={path.attachment.guests} start one after another in the ramp, and --ramp is 0",
        "leave out --ramp, or write --ramp 0.5",
    )


def too_small(profile: Profile, size: int, path: DiskPath) -> Impossible | None:
    """Why a disk of `size` bytes is too small for the measurements' file systems; else None."""
    if not path.gives_disk:
        return None
    for measurement in profile.measurements:
        if measurement.filesystem is None:
            continue
        kind = path.attachment.guest_fs or measurement.filesystem
        least = _LEAST_SIZES.get(kind, 0)
        if size < least:
            return Impossible(
                f"{kind} needs a disk of {format_size(least)}, and this one has "
                f"{format_size(size)}",
                f"write --size {format_size(least)} or more",
            )
    return None


def not_shared(profile: Profile, path: DiskPath) -> Impossible | None:
    """Why the profile cannot measure a shared directory: it works on a whole disk; else None."""
    on_disk = next((plan.name for plan in profile.measurements if plan.filesystem is None), None)
    if on_disk is None or not path.shares_directory:
        return None
    return Impossible(
        f"{path.attachment.bus} gives the guest files, not a disk, and {on_disk!r} of profile "
        f"{profile.name} works on a disk",
        "choose a --profile whose measurements use files, such as mail or bonnie",
    )


def require_only_boots(profile: Profile) -> None:
    """Raises PlanError for a profile that has boots and other measurements, which would overwrite
    the system on the disk."""
    other = [
        measurement.name for measurement in profile.measurements if measurement.program != BOOT
    ]
    if profile.boots and other:
        raise PlanError(
            f"profile {profile.name!r} boots guests from the disk, and {other[0]!r} would "
            "overwrite the boot disk",
            hint="put it into a separate profile",
        )


def not_during(
    profile: Profile,
    ordered: bool,
    to: Destination | None,
    backing: BackingDevices,
    path: DiskPath,
) -> Impossible | None:
    """Why an operation that the path names cannot be done on its disk, not beside the profile's
    load, or not with a copy there; None if it can. With operations `ordered`, a path on the host
    has nothing to do.

    Raises PlanError for an operation that does not exist.
    """
    if path.attachment.during is None:
        without = _NO_GUEST if path.on_host else _NO_OPERATION
        return without if ordered else None
    operation = parse_operation(path.attachment.during)
    if profile.replays and operation.kind.filesystem is not None:
        return Impossible(
            f"a recorded load works on the disk itself, and {operation.kind.name} needs a file "
            "system on it",
            "leave out --profile",
        )
    refused = operation.refusal(without_options(path, ("during",)))
    if refused is not None or to is None or not operation.kind.copies:
        return refused
    device = backing.device_below(path.layers)
    if device is not None and device == backing.device_below(to.path.layers):
        return Impossible(
            "its disk and the copy would both need the whole device", "write --to a directory"
        )
    image = to.image(ImageFormat.QCOW2)
    if operation.compresses and (image is None or image.format is not ImageFormat.QCOW2):
        return Impossible("only a qcow2 copy is compressed", "write qcow2 at the end of --to")
    return None


def too_small_for_operation(size: int, path: DiskPath) -> Impossible | None:
    """Why a path's operation has no room on a disk of `size` bytes; None if it has."""
    if path.attachment.during is None:
        return None
    operation = parse_operation(path.attachment.during)
    return operation.kind.too_large(operation, size, load_file_bytes(size))


def require_destination(
    to: Destination, during: Collection[str], capabilities: Capabilities, backing: BackingDevices
) -> None:
    """Raises PlanError if the path of `--to` cannot exist or no operation makes a copy, HostError
    if the path cannot be built on this host."""
    if not any(parse_operation(order).kind.copies for order in during):
        kinds = ", ".join(row.name for row in OPERATIONS if row.copies)
        raise PlanError(
            "--to says where a copy goes, and no operation makes one",
            hint=f"leave out --to, or add one of {kinds} to --during",
        )
    if not to.path.is_guest_storage or (to.path.image is not None and to.path.image.backing):
        raise PlanError(
            f"--to {to.path} is no disk to copy to",
            hint="write --to ext4/qcow2, --to /mnt/backup, or --target nas=nbd://10.0.0.5/disk "
            "--to nas/raw",
        )
    require_possible(to.path, capabilities, backing, "copied to")


def not_made(
    profile: Profile, template: Path | None, here: MakingHere, path: DiskPath
) -> Impossible | None:
    """Why a path's disk cannot be made as the path says, or lacks what the profile needs.

    Raises PlanError for a way that does not exist.
    """
    if path.attachment.made is None:
        if not profile.makes_disks:
            return None
        return Impossible(
            "it is measured on the host, and a disk that is made is a guest's", "leave it out"
        )
    if not profile.makes_disks:
        return Impossible(
            f"made={path.attachment.made} says how a disk is made, and profile {profile.name} "
            "measures settled disks",
            "choose --profile life",
        )
    way = parse_way(path.attachment.made)
    return _refused(way.kind, template, here, without_options(path, ("made",)))


def _refused(
    way: WayKind, template: Path | None, here: MakingHere, path: DiskPath
) -> Impossible | None:
    """Why a way cannot make a path's disk; None if it can."""
    packed = template is not None and template.suffix == PACKED
    if way.template is TemplateForm.XZ and not packed:
        return Impossible("the template is not packed by xz", f"name one: --from IMAGE.raw{PACKED}")
    refused = way.refusal(path)
    if refused is None and way.shares_blocks:
        return here.unshared.get(path.stack)
    return refused


def possible_ways(template: Path | None, here: MakingHere, path: DiskPath) -> tuple[str, ...]:
    """The ways that make a path's disk, as values of its option; all if none does."""
    fit = tuple(row.name for row in WAYS if _refused(row, template, here, path) is None)
    return fit or tuple(row.name for row in WAYS)


def with_other_ways(matrix: Matrix) -> Matrix:
    """The matrix, where nobody asked by name for a way that cannot make a path's disk if another
    way of --made can: the ways apply to all paths alike."""
    made = {
        without_options(cell.path, ("made",)).canonical
        for cell in matrix.cells
        if cell.path.attachment.made is not None
    }
    dropped = (
        replace(each, asked=False)
        if "made=" in each.path
        and without_options(parse_path(each.path), ("made",)).canonical in made
        else each
        for each in matrix.dropped
    )
    return replace(matrix, dropped=tuple(dropped))


def not_trimmed(profile: Profile, path: DiskPath) -> Impossible | None:
    """Why nothing is trimmed on a path; None if it can be, or if the profile trims nothing."""
    if not profile.trims:
        return None
    if path.on_host:
        return Impossible(
            "fstrim on the host would trim more than the measured disk", "leave it out"
        )
    if path.shares_directory:
        bus = path.attachment.bus
        return Impossible(f"{bus} gives the guest files: what it deletes is free", "leave it out")
    return None


def not_booted(profile: Profile, path: DiskPath) -> Impossible | None:
    """Why no guest boots from a path; None if one can, or if the profile boots none."""
    if not profile.boots:
        return None
    if path.on_host:
        reason = "a boot needs a guest"
    elif path.shares_directory:
        reason = f"{path.attachment.bus} gives the guest files, not a disk to boot from"
    elif path.attachment.bus.is_served:
        reason = "no guest is booted from a disk that a daemon serves"
    elif path.has_storage:
        return None
    else:
        reason = "there is no disk to boot from"
    return Impossible(reason, "leave it out")
