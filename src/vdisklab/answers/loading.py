"""Loads the data for answers: the chosen campaigns, their numbers, and power-cut verdicts."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

from vdisklab.analysis.best import competitors
from vdisklab.analysis.diagnostics.baseline import MiddleBaseline, NoBaseline
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import (
    MeasureKey,
    Observations,
    cells_too_slow,
    from_numbers,
    narrowed,
    with_too_slow,
)
from vdisklab.analysis.score import middle_path
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.answers.elsewhere import directories_gone
from vdisklab.answers.joining import Joining, require_joined, separate, two_accelerators
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.host.facts import machine_id
from vdisklab.host.plan_locks import process_measuring
from vdisklab.host.safe_places import make_state_directory
from vdisklab.host.state_directory import state_directory
from vdisklab.path.bus_options import GUESTS, without_options
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.path.disk_path import PathSyntaxError, parse_path
from vdisklab.path.durability import (
    CrashStates,
    CrashVerdicts,
    FailureModel,
    HostDisk,
    PathCrashes,
    forgets_fua,
    promise_of_device,
    storage_name,
    verdict_name,
)
from vdisklab.path.power_cut_words import (
    AccessKind,
    ClientKind,
    DriverSetting,
    RunOutcome,
    StateOutcome,
)
from vdisklab.path.segments import HOST, PageCache
from vdisklab.results.database import default_url
from vdisklab.results.host_choice import by_host
from vdisklab.results.model import Campaign, Example, HostFacts, Origin, RunOutline
from vdisklab.results.power_cut import FAILING_REQUESTS, PowerCut, StorageFacts, failure_words
from vdisklab.results.store import Store, open_store
from vdisklab.value import Value, replace

MOST_JOINED = 8
"""Maximum number of campaigns that are joined without being named: each costs a database's time."""

_NEAR = 8
"""So many measures of names like a wrong one are shown, and no others then."""

_MAIN = ("bandwidth", "transactions", "freed_image", "boot_time")
_KEEPS_ALL = (FailureModel.POWER,)
"""What survives these models survives them on any disk."""

_LOSES_ALWAYS = (FailureModel.PLP, FailureModel.HOST_CRASH)
"""What these models lose is lost on any disk."""


def database_url(db: str | None, *, create: bool = False) -> str:
    """The value of `--db`, or the default database; with `create`, its directory is made.

    Raises DatabaseError for an empty value.
    """
    if db is None:
        if create:
            _make_state_directory()
        return default_url(state_directory())
    if not db.strip():
        raise DatabaseError("--db is empty", hint="leave it out for the default database")
    return db


def _make_state_directory() -> None:
    try:
        make_state_directory(state_directory())
    except OSError as error:
        raise DatabaseError(
            f"the directory {state_directory()} cannot be created: {error.strerror}",
            hint="set VDISKLAB_STATE to a directory that can be written",
        ) from error


@contextmanager
def open_results(db: str | None, *, read_only: bool = False) -> Iterator[Store]:
    """Opens an existing database for reading answers. Raises DatabaseError if there is none.

    If `read_only`, the database itself refuses to be changed, even to bring its schema up to date.
    """
    with open_store(database_url(db), create=False, read_only=read_only) as results:
        yield results


class Loaded(Value, eq=False, dict=True):
    """The numbers of some campaigns of one machine."""

    campaigns: tuple[Campaign, ...]
    outlines: tuple[RunOutline, ...]
    observations: Observations

    @property
    def ids(self) -> list[str]:
        """The campaigns' ids."""
        return [campaign.id for campaign in self.campaigns]

    @property
    def rounds(self) -> int:
        """Number of rounds in which at least one run succeeded."""
        return len({(run.campaign, run.round) for run in self.outlines if run.failure is None})

    @property
    def can_compare(self) -> bool:
        """True if two cells that a guest could use have enough rounds for a rank."""
        rounds = self.observations.rounds_of()
        places = competitors(self.observations.cells)
        return int((rounds[places] >= MIN_ROUNDS).sum()) > 1 if len(rounds) else False

    @cached_property
    def cells(self) -> dict[str, MeasuredCell]:
        """The cells by their fingerprints."""
        return {run.cell: run.measured_cell for run in self.outlines}

    @cached_property
    def on_targets(self) -> bool:
        """True if a path is on a target that the user named; the database is not read."""
        paths = (cell.path for cell in self.cells.values())
        return any(path is not None and path.target is not None for path in paths)

    @cached_property
    def caveats(self) -> Caveats:
        """The caveats that every answer from these numbers must state."""
        return replace(
            caveats_with_remedy(self.outlines, self.campaigns), measured_now=self.measured_now
        )

    @cached_property
    def measured_now(self) -> str | None:
        """`process 12 measures this campaign now: 3 of 30 runs are stored`; None if no process of
        this host measures one of these campaigns."""
        for campaign in self.campaigns:
            stored = {(r.round, r.cell) for r in self.outlines if r.campaign == campaign.id}
            if now := _measured_now(campaign, len(stored)):
                return now
        return None


def _measured_now(campaign: Campaign, stored: int) -> str | None:
    """Who measures a campaign now; how many runs a race needs is not known before its end."""
    if campaign.host.machine_id != machine_id():
        return None
    process = process_measuring(campaign.fingerprint)
    if process is None:
        return None
    plan = campaign.plan
    cells, rounds = plan.get("cells"), plan.get("rounds")
    total = ""
    if isinstance(cells, list) and isinstance(rounds, int) and "race" not in plan:
        total = f" of {len(cells) * rounds}"
    runs = "1 run is" if stored == 1 and not total else f"{stored}{total} runs are"
    return f"process {process} measures this campaign now: {runs} stored"


NOTHING = Loaded((), (), from_numbers({}))
"""The numbers of a database without campaigns: none."""


def load(results: Store, names: Sequence[str] | None) -> Loaded:
    """The numbers of the named campaigns, or of the newest.

    Raises PlanError if they cannot be joined.
    """
    return load_chosen(results, choose_campaigns(results, names))


def load_newest(results: Store) -> Loaded:
    """The numbers of the newest campaign; if it cannot compare two paths, with older ones.

    These are campaigns of the same settings on the same, unchanged host, the newest first, until
    two paths can be compared. If they never can, the newest campaign alone.
    """
    newest = load_chosen(results, choose_campaigns(results, None))
    (campaign,) = newest.campaigns
    if newest.can_compare or not newest.outlines or "until" in campaign.plan:
        return newest
    together, joining = [campaign], Joining(results, campaign)
    for other in results.campaigns(with_runs=True):
        if other.id == campaign.id or not _is_alike(campaign, other) or joining.add(other):
            continue
        together.append(other)
        with suppress(PlanError):  # a part ran under KVM, and a part under emulation
            joined = load_chosen(results, tuple(together))
            if joined.can_compare:
                return joined
        if len(together) == MOST_JOINED:
            break
    return newest


def older_answer(
    results: Store, campaign: Campaign, besides: Callable[[Campaign], bool]
) -> Campaign | None:
    """The newest other campaign of a host that compares paths on its own; None without one.

    `besides` is true of campaigns that measured no speed.
    """
    for other in results.campaigns(with_runs=True):
        if (
            other.id != campaign.id
            and other.host.machine_id == campaign.host.machine_id
            and "until" not in other.plan
            and not besides(other)
        ):
            with suppress(PlanError):
                if load_chosen(results, (other,)).can_compare:
                    return other
    return None


def _is_alike(campaign: Campaign, other: Campaign) -> bool:
    """True for another campaign on the same host, which has not changed, and of the same kind."""
    facts = ((host.kernel, host.cpu, host.cpus, host.qemu, host.fio, host.without_flushes)
             for host in (campaign.host, other.host))  # fmt: skip
    machine = campaign.host.machine_id
    first, second = facts
    return bool(machine) and other.host.machine_id == machine and first == second and (
        "until" not in other.plan
    )  # fmt: skip


def load_chosen(results: Store, campaigns: tuple[Campaign, ...]) -> Loaded:
    """The numbers of campaigns that `Joining` has found to be joinable.

    Raises PlanError if a part ran under KVM and a part under emulation.
    """
    ids = [campaign.id for campaign in campaigns]
    outlines = tuple(results.outlines(ids))
    ran_under = {run.ran_under for run in outlines if run.failure is None and run.ran_under}
    if len(ran_under) > 1:
        error = two_accelerators(campaigns, ran_under)
        raise error if len(campaigns) == 1 else separate(results, campaigns, str(error))
    observations = with_too_slow(results.observations(ids), cells_too_slow(outlines))
    return Loaded(campaigns, outlines, observations)


def choose_campaigns(results: Store, names: Sequence[str] | None) -> tuple[Campaign, ...]:
    """The named campaigns without repetition, or the newest one that has runs.

    A campaign without runs has just begun or was killed before its first cell, so the newest one
    with runs is used. Raises PlanError if the named ones cannot be joined.
    """
    if names:
        campaigns = tuple(
            {campaign.id: campaign for campaign in map(results.campaign, names)}.values()
        )
        require_joined(results, campaigns)
        return campaigns
    newest = results.campaigns(with_runs=True)[:1] or results.campaigns()[:1]
    if not newest:
        raise DatabaseError(
            "the database holds no campaign", hint="measure something: `vdisklab run PATHS…`"
        )
    return tuple(newest)


def place_options(campaign: Campaign) -> str:
    """The options of `run` that name a campaign's place; empty if it does not say its place, and if
    its directory is not on this machine now: the command runs in the current one."""
    return "" if directories_gone([campaign]) else stored_place(campaign)


def stored_place(campaign: Campaign) -> str:
    """The options of `run` that name a campaign's place, whether it is here or not."""
    devices, directory = campaign.plan.get("devices") or (), campaign.plan.get("directory")
    options = [word for device in devices for word in ("--on", str(device))]
    return shlex.join(options or (["--dir", str(directory)] if directory else []))


def newest_campaign(store: Store, holds: Callable[[Campaign], bool]) -> Campaign | None:
    """The newest campaign with runs of which `holds` is true; None without one."""
    return next(filter(holds, store.campaigns(with_runs=True)), None)


def in_guests(loaded: Loaded, number: int | None) -> Loaded:
    """The same with only the numbers of so many guests at once (None: all), and those without a
    guest.

    Raises PlanError if nothing was measured in so many.
    """
    cells = loaded.observations.cells
    if number is None:
        return loaded
    measured = numbers_of_guests(cells)
    if number not in measured:
        were = f"measured were {', '.join(map(str, measured))}" if measured else "leave it out"
        raise PlanError(f"no path was measured with --guests {number}", hint=were)
    kept = [cell for cell in cells if numbers_of_guests([cell]) in ((), (number,))]
    return replace(loaded, observations=narrowed(loaded.observations, kept))


def disks_at_once(loaded: Loaded) -> tuple[int, ...]:
    """How many disks were made from a template at once, the fewest first; empty unless several
    numbers were measured."""
    cells = [
        cell
        for cell in loaded.observations.cells
        if cell.path is not None and cell.path.attachment.made is not None
    ]
    numbers = numbers_of_guests(cells)
    return numbers if len(numbers) > 1 else ()


def require_numbers(loaded: Loaded) -> None:
    """Raises PlanError if nothing was measured in these campaigns."""
    if not len(loaded.observations.value) and loaded.measured_now is not None:
        raise PlanError(
            f"this campaign has no numbers yet: {loaded.measured_now}",
            hint="ask again when its first round is stored; `vdisklab watch` shows it meanwhile",
        )
    if not len(loaded.observations.value):
        raise PlanError(
            "this campaign has no numbers: every run failed, or none was started",
            hint=f"see why: `vdisklab runs {loaded.campaigns[0].id}`",
        )


def joinable_campaigns(
    results: Store, names: Sequence[str] | None, first: Sequence[Campaign] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of the named campaigns, or of the `first` ones (else the newest) and all that join them.

    Also returns which other campaigns were left out, each with the reason. Raises DatabaseError if
    there is none.
    """
    if names:
        return tuple(campaign.id for campaign in choose_campaigns(results, names)), ()
    wanted = {campaign.id: campaign for campaign in first or choose_campaigns(results, None)}
    wanted |= {other.id: other for other in results.campaigns(with_runs=True)}
    reference = next(iter(wanted.values()))
    joining, joined, left_out = Joining(results, reference), list[str](), list[str]()
    host_of = {
        campaign.id: host
        for host, group in by_host(list(wanted.values())).items()
        for campaign in group
    }
    for other in wanted.values():
        if other.host.machine_id != reference.host.machine_id:
            left_out.append(f"{other.id} (measured on another machine, {host_of[other.id]})")
        elif error := joining.add(other):
            left_out.append(f"{other.id} ({error})")
        else:
            joined.append(other.id)
    return tuple(joined), tuple(left_out)


def baseline_of(
    loaded: Loaded, requested: str | None = None, *, middle: bool = True
) -> tuple[MeasuredCell, tuple[NoBaseline | MiddleBaseline, ...]]:
    """The requested baseline or the plan's. If the plan's was not measured, the path in the middle
    if `middle`, with a diagnostic.

    Imported numbers share no rounds, so that none can be a reference. Raises PlanError if a
    requested baseline was not measured.
    """
    if requested is not None:
        return find_cells(loaded.observations, requested)[0], ()
    planned = str(loaded.campaigns[0].plan.get("baseline", HOST))
    try:
        return find_cells(loaded.observations, planned)[0], ()
    except PlanError:
        baseline = MeasuredCell(planned)
        if (alike := _in_these_guests(baseline, loaded.observations.cells)) is not None:
            return alike, ()
        imported = all(run.origin is Origin.IMPORTED for run in loaded.outlines)
        numbers = loaded.observations.used
        cells = loaded.observations.cells
        usable = tuple(cells[row] for row in competitors(cells))
        chosen = middle_path(loaded.observations, usable) if middle and not imported else None
        if chosen is not None:
            return chosen, (MiddleBaseline(baseline, chosen),)
        instead = first_measure(loaded.observations) if imported and numbers else None
        return baseline, (NoBaseline(baseline, instead),)


def _in_these_guests(
    baseline: MeasuredCell, cells: Collection[MeasuredCell]
) -> MeasuredCell | None:
    """The baseline in the only number of guests that is looked at; None without such a cell."""
    if baseline.path is None or len(numbers_of_guests(cells)) != 1:
        return None
    bare = without_options(baseline.path, (GUESTS,))
    alike = (
        cell
        for cell in cells
        if cell.path is not None
        and without_options(cell.path, (GUESTS,)) == bare
        and baseline.page_cache in (PageCache.BYPASSED, cell.page_cache)
    )
    return next(alike, None)


def find_cells(observations: Observations, name: str) -> tuple[MeasuredCell, ...]:
    """The measured cells that a disk path (all page-cache states) or a label names.

    The path may begin with the name that the user gave a target. Raises PlanError if none was
    measured.
    """
    wanted = MeasuredCell.parse(_with_stored_target(name, observations.cells))
    if wanted in observations.place:
        return (wanted,)
    try:
        path = parse_path(wanted.name)
    except PlanError as error:
        raise PlanError(
            f"{name!r} was not measured, and is not a path: {error}", hint=error.hint
        ) from None
    cells: list[MeasuredCell] = []
    for same in (path.canonical, path.spelled_out.canonical):
        cells = cells or [
            cell
            for cell in observations.cells
            if cell.name == same and wanted.page_cache in (PageCache.BYPASSED, cell.page_cache)
        ]
    if not cells:
        labels = [cell.label for cell in observations.cells]
        near = difflib.get_close_matches(name, labels, n=3, cutoff=0.3)
        raise PlanError(
            f"{name!r} was not measured in this campaign",
            hint=f"measured were {', '.join(near)} …"
            if near
            else "`vdisklab table` shows what was",
        )
    order = (PageCache.BYPASSED, PageCache.COLD, PageCache.WARM)
    return tuple(sorted(cells, key=lambda cell: order.index(cell.page_cache)))


def _with_stored_target(name: str, cells: Iterable[MeasuredCell]) -> str:
    """`shelf/raw/none` as it is stored, `nbd:at=shelf/raw/none`, if a cell is on that target."""
    first, slash, rest = name.partition("/")
    for cell in cells:
        layers = () if cell.path is None else cell.path.layers
        if layers and layers[0].option("at") == first:
            return f"{layers[0]}{slash}{rest}"
    return name


def first_measure(observations: Observations) -> MeasureKey:
    """The first measure that a program is run for, else the first that has numbers: an example."""
    return min(observations.used, key=lambda key: (key.metric not in _MAIN, key))


def find_measure(observations: Observations, name: str) -> MeasureKey:
    """The measure of that name, or the only one that contains it. Raises PlanError."""
    by_name = {str(measure): measure for measure in sorted(observations.measures)}
    with suppress(PlanError):
        measure = observations.stored_as(MeasureKey.parse(name))
        if measure in observations.measures:
            return measure
    containing = [text for text in by_name if name in text]
    if len(containing) == 1:
        return by_name[containing[0]]
    close = containing or difflib.get_close_matches(name, by_name, n=_NEAR, cutoff=0.6)
    problem = "matches several measures" if containing else "was not measured"
    if close and len(close) <= _NEAR:
        raise PlanError(f"{name!r} {problem}", hint=f"write one of {', '.join(close)}")
    raise PlanError(f"{name!r} {problem}", hint=f"measured were {_all_of(by_name.values())}")


def _all_of(measures: Iterable[MeasureKey]) -> str:
    """All measures, as `NAME/read and NAME/write with /iops, /latency_p99`: those of equal metrics
    together."""
    metrics: dict[str, list[str]] = {}
    for measure in measures:
        start, _, metric = str(measure).rpartition("/")
        metrics.setdefault(start, []).append(f"/{metric}")
    alike: dict[tuple[str, ...], list[str]] = {}
    for start, ends in metrics.items():
        alike.setdefault(tuple(ends), []).append(start)
    return "; ".join(
        f"{', '.join(starts)} with {', '.join(ends)}" for ends, starts in alike.items()
    )


def stored_verdicts(results: Store, host: HostFacts, disk: HostDisk | None = None) -> CrashVerdicts:
    """The power-cut verdicts of a machine with its current kernel and QEMU, above a disk.

    A verdict with another kernel or QEMU does not apply: it is for a different path.
    """
    cuts = results.power_cuts(host.machine_id)
    return _applicable(cuts, (host,), disk, lambda cut: cut.applies_to(host))


def _applicable(
    cuts: Iterable[PowerCut],
    hosts: Collection[HostFacts],
    disk: HostDisk | None,
    applies: Callable[[PowerCut], bool],
) -> CrashVerdicts:
    """The verdicts of the cuts that apply on these hosts, which may be one machine with several
    kernels; of the others only the versions that count."""
    disk = disk or HostDisk.VOLATILE
    counted_here, others = list[PowerCut](), list[PowerCut]()
    for cut in cuts:
        (counted_here if applies(cut) else others).append(cut)
    versions = dict.fromkeys(
        f"kernel {host.kernel} and {f'QEMU {host.qemu}' if host.qemu else 'no QEMU'}"
        for host in hosts
    )
    return replace(
        verdicts_of(counted_here, disk, hosts),
        other_versions=dict.fromkeys(verdicts_of(others, disk).by_path, " or ".join(versions)),
    )


def verdicts_of_loaded(
    results: Store, loaded: Loaded, disk: HostDisk | None = None
) -> CrashVerdicts:
    """The same of the host of loaded numbers, with what their servers said of flushes.

    Of several campaigns, a verdict counts for a path if it has the kernel and QEMU of one that
    measured the path.
    """
    first = loaded.campaigns[0].host
    hosts = {(first.kernel, first.qemu): first}
    for campaign in loaded.campaigns:
        hosts.setdefault((campaign.host.kernel, campaign.host.qemu), campaign.host)
    if len(hosts) == 1:
        return with_stored_servers(stored_verdicts(results, first, disk), results, loaded)
    measured = {
        campaign.id: {
            name
            for cell in campaign.cells
            if cell.path is not None
            for name in CrashVerdicts(below=campaign.host.file_system).names(cell.path)
        }
        for campaign in loaded.campaigns
    }

    def applies(cut: PowerCut) -> bool:
        name = verdict_name(parse_path(cut.path))
        return any(
            cut.applies_to(campaign.host) and name in measured[campaign.id]
            for campaign in loaded.campaigns
        )

    cuts = results.power_cuts(first.machine_id)
    verdicts = _applicable(cuts, tuple(hosts.values()), disk, applies)
    return with_stored_servers(verdicts, results, loaded)


def with_stored_servers(verdicts: CrashVerdicts, results: Store, loaded: Loaded) -> CrashVerdicts:
    """`with_servers` of all loaded campaigns: what one host's server drops counts for all."""
    if not loaded.on_targets:
        return verdicts
    examples = (example for id in loaded.ids for example in results.examples([id]))
    return with_servers(verdicts, examples, loaded.cells)


def verdicts_of(
    power_cuts: Iterable[PowerCut],
    disk: HostDisk = HostDisk.VOLATILE,
    hosts: Collection[HostFacts] = (),
    during: str | None = None,
) -> CrashVerdicts:
    """The verdicts by path, separate for clients that flush and for the one that never does: of
    cuts in the middle of the operation `during`, or of those without any.

    A path that kept everything above the strictest disk does so above any; what a dead host lost
    above a disk that keeps its cache may be lost above any.
    """
    verdicts: dict[str, PathCrashes] = {}
    cuts = tuple(power_cuts)
    for cut in cuts:
        if cut.failure is not None or cut.survives is None:
            continue
        decides_for_all = _KEEPS_ALL if cut.survives else _LOSES_ALWAYS
        if cut.model != disk.model and cut.model not in decides_for_all:
            continue
        if cut.during != during:
            continue  # a verdict on an operation
        if cut.client == ClientKind.SQLITE_DELETE:
            continue  # SQLite does not sync its commit, so a loss says nothing about the path
        if cut.settings.get("driver", DriverSetting.AS_FOUND) != DriverSetting.AS_FOUND:
            continue  # a verdict on a changed write cache
        if judged_without_its_device(cut):
            continue
        path = verdict_name(parse_path(cut.path))
        crashes = verdicts.get(path, PathCrashes(path))
        counts = _counts(cut)
        verdicts[path] = (
            replace(crashes, unflushed=crashes.unflushed + counts)
            if cut.client == ClientKind.NEVER
            else replace(crashes, flushed=crashes.flushed + counts)
        )
    unsafe = next(filter(None, (host.without_flushes for host in hosts)), None)
    below = {host.file_system for host in hosts}
    return CrashVerdicts(
        verdicts,
        disk,
        any(host.has_zfs_fuse for host in hosts),
        unsafe,
        below=below.pop() if len(below) == 1 else None,
        storage=_worst_on_failing_storage(cuts),
    )


def _worst_on_failing_storage(
    cuts: Iterable[PowerCut],
) -> dict[tuple[str, FailureModel], RunOutcome]:
    """What became of a path's guests when their storage failed: the newest verdict of each client
    and length of the failure, and of these the worst.

    A guest of which no request failed shows nothing, and that it stands a few failed requests does
    not show that it stands them all. No `--failing-seconds` is shorter than a full or broken
    storage usually fails.
    """
    newest: dict[tuple[str, FailureModel], dict[tuple[str, str], RunOutcome]] = {}
    for cut in cuts:
        facts = StorageFacts.of(cut)
        if facts is None or not facts.failed or cut.model not in set(FailureModel):
            continue
        if facts.worst in set(RunOutcome) and cut.client != ClientKind.SQLITE_DELETE:
            worst = RunOutcome(facts.worst)
            if worst.is_harmless and cut.settings.get(FAILING_REQUESTS) is not None:
                continue
            model = FailureModel(cut.model)
            # Whatever the path says, the image lay on storage that answers at once.
            image = replace(parse_path(cut.path), layers=())
            key = storage_name(image, model), model
            asked = cut.client, failure_words(cut.model, cut.settings)
            newest.setdefault(key, {})[asked] = worst
    order = tuple(RunOutcome)
    return {key: max(of_it.values(), key=order.index) for key, of_it in newest.items()}


def with_servers(
    verdicts: CrashVerdicts, examples: Iterable[Example], cells: Mapping[str, MeasuredCell]
) -> CrashVerdicts:
    """The verdicts with the servers that offer no flush, as they said when they were measured, and
    with the devices that are on servers."""
    flushless, served = set[str](), set[str]()
    for example in examples:
        path = cells[example.cell].path
        if path is None or not path.layers:
            continue
        seen = {name: value for name, _, value in example.checks}
        if seen.get("host.nbd.can_flush") == "off":
            flushless.add(str(path.layers[0]))
        if promise_of_device(seen) is not None:
            served.add(str(path.layers[0]))
    return replace(verdicts, flushless=frozenset(flushless), served=frozenset(served))


def judged_without_its_device(cut: PowerCut) -> bool:
    """True for a verdict through NBD on a path whose virtual device drops FUA.

    QEMU's block layer without the device keeps data that a guest would lose.
    """
    return cut.access == AccessKind.NBD and forgets_fua(parse_path(cut.path))


def _counts(cut: PowerCut) -> CrashStates:
    unknown = set(cut.outcomes) - set(StateOutcome)
    if unknown:
        raise DatabaseError(
            f"the power-cut verdict {cut.id} has the unknown outcome {min(unknown)[:40]!r}",
            hint="update vdisklab, or restore a copy of the database",
        )
    broken = sum(count for outcome, count in cut.outcomes.items() if StateOutcome(outcome).is_loss)
    # A lost write counts even if no state has an outcome that is a loss.
    return CrashStates(cut.states, max(broken, int(not cut.survives)), cut.exhaustive)


def free_name(error: PathSyntaxError, db: str | None) -> PlanError | None:
    """The error for a free name that stands where a path is expected; None if nothing stored has
    that name."""
    try:
        with open_results(db) as results:
            is_path = results.holds_path(error.text)
    except DatabaseError:
        return None
    if not is_path:
        return None
    return PlanError(
        f"{error.text!r} is a free name of an import, which has numbers but no configuration",
        hint="name a disk path such as ext4/raw/none; to give the import one, import the file "
        "again with --as PATH",
    )
