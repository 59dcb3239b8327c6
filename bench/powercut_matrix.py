"""Condenses verdicts of `vdisklab powercut --format json` into a record, and records into tables.

    vdisklab powercut PATHS... --format json > verdicts.json
    python bench/powercut_matrix.py keep guest verdicts.json...
    python bench/powercut_matrix.py add guest verdicts.json...
    python bench/powercut_matrix.py again guest --dir DIR > new
    python bench/powercut_matrix.py show guest rows=bus,client where=client:never

All records are in bench/results/powercut.json.gz, by their names; without words, `show` lists them.
`again` asks all questions of a record on this machine, with the QEMU in PATH. Killed, the same
command continues, since it keeps its answers in a database in DIR. If several answers have the same
question, the last one counts. `add` adds answers to an older record of the same machine.

A table has a column for each cache mode (with `columns=model`: for each failure model; with
`columns=cache,model`: for each pair), and a sentence about its data. In a cell, `ok 40` means that
all acknowledged writes were there in 40 judged states, `ok all 17` that there are no other states,
and `LOSS 3 of 40` that 3 states lost some; an outcome other than a lost sector is named. With
`cells=sums` a cell may have several verdicts, and counts them. The record `caches` of
`bench/caches.py` has its own kind of table. bench/pages.py writes tables into a page.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pages import keep_record, record_of
from powercut_again import ask_again
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.segments import CacheMode, WriteCache
from vdisklab.results.power_cut import DURING, MODEL

Record = dict[str, Any]
Verdict = Mapping[str, Any]

_COUNTS = ("sampling", "post_recovery_states")
"""Settings that only say how many states are judged, so that the question stays the same."""

NAME = "powercut.json.gz"

_KEPT = ("path", "client", "access", "survives", "states", "possible", "exhaustive", "acknowledged",
         "flushes", "post_recovery_states", "outcomes", "failure")  # fmt: skip
_OBSERVED = ("guest.queue.write_cache", "guest.queue.fua", "guest.cache_type", "qemu.write_cache",
         "guest.ata.write_cache", "guest.sqlite", "flushes.unrequested")  # fmt: skip


def compact(documents: Iterable[Mapping[str, Any]]) -> Record:
    """The verdicts, with the settings that they share stated once."""
    documents = list(documents)
    answers = {_question(each): each for found in documents for each in found["verdicts"]}
    verdicts = list(answers.values())
    hosts = [{**each["host"], "machine_id": None} for each in verdicts]
    if len({(each["kernel"], each["qemu"]) for each in hosts}) > 1:
        raise SystemExit("these verdicts were made under different kernels or QEMUs")
    settings = [_flat(each["settings"]) for each in verdicts]
    shared = _shared(settings)
    return {
        "host": {key: value for key, value in hosts[0].items() if key != "machine_id"},
        "accelerator": verdicts[0]["observed"].get("guest.accelerator"),
        "settings": shared,
        "controls": _controls(documents),
        "verdicts": [
            {key: verdict[key] for key in _KEPT}
            | {"seconds": round(verdict["wall_seconds"], 1)}
            | {"settings": _without(shared, of)}
            | {
                "observed": {
                    key: verdict["observed"][key] for key in _OBSERVED if key in verdict["observed"]
                }
            }
            | _example(verdict)
            for verdict, of in zip(verdicts, settings, strict=True)
        ],
    }


def joined(earlier: Record, later: Record) -> Record:
    """Two records as one; the later answer to a question counts.

    Raises SystemExit when they are of different kernels, QEMUs or accelerators.
    """
    if _machine(earlier) != _machine(later):
        raise SystemExit("these records were made under different kernels, QEMUs or accelerators")
    answers: dict[tuple[str, ...], tuple[Verdict, Record]] = {}
    for record in (earlier, later):
        for verdict in record["verdicts"]:
            settings = record["settings"] | verdict["settings"]
            asked = json.dumps(
                {name: value for name, value in settings.items() if not name.startswith(_COUNTS)},
                sort_keys=True,  # what is shared stands first, and differs between records
            )
            question = (verdict["path"], verdict["client"], verdict["access"], asked)
            answers[question] = (verdict, settings)
    shared = _shared([settings for _, settings in answers.values()])
    verdicts = [
        {**verdict, "settings": _without(shared, settings)}
        for verdict, settings in answers.values()
    ]
    return earlier | {
        "settings": shared,
        "controls": _added(earlier["controls"], later["controls"]),
        "verdicts": _by_row(verdicts),
    }


def _machine(record: Record) -> tuple[str, ...]:
    host = record["host"]
    return (host["kernel"], host["qemu"], record["accelerator"])


def _shared(settings: Sequence[Record]) -> Record:
    """The settings that all verdicts share; the driver's setting is kept in each verdict."""
    return {
        name: value
        for name, value in settings[0].items()
        if name not in ("driver", MODEL, DURING)
        and all(each.get(name) == value for each in settings)
    }


def _without(shared: Record, settings: Record) -> Record:
    return {name: value for name, value in settings.items() if name not in shared}


def _added(earlier: Sequence[Record], later: Sequence[Record]) -> list[Record]:
    """The controls of both records; a campaign runs those of its models and operations."""
    controls = {each["name"]: each for each in earlier}
    for each in later:
        before = controls.get(each["name"], {**each, "losses_of_states": []})
        losses = before["losses_of_states"] + each["losses_of_states"]
        controls[each["name"]] = {**before, "losses_of_states": losses}
    return list(controls.values())


def _by_row(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts grouped by stack and bus in order of first appearance, then in order of declaration.

    So verdicts that were added later come next to those of the same bus.
    """

    def first_observed(axis: str) -> dict[str, int]:
        values = dict.fromkeys(_AXES[axis](parse_path(v["path"]), v) for v in verdicts)
        return {value: number for number, value in enumerate(values)}

    stacks, buses = first_observed("stack"), first_observed("bus")
    caches, clients = list(WriteCache), list(ClientKind)

    def place(verdict: Verdict) -> tuple[int, ...]:
        path = parse_path(verdict["path"])
        return (
            stacks[_AXES["stack"](path, verdict)],
            buses[_AXES["bus"](path, verdict)],
            caches.index(path.attachment.write_cache),
            clients.index(ClientKind(verdict["client"])),
        )

    return sorted(verdicts, key=place)


def _question(verdict: Verdict) -> tuple[str, ...]:
    settings = {**verdict["settings"]} | dict.fromkeys(_COUNTS)
    return (verdict["path"], verdict["client"], verdict["access"], json.dumps(settings))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {f"sampling.{name}": value for name, value in settings["sampling"].items()}
    return {name: value for name, value in settings.items() if name != "sampling"} | sampling


def _example(verdict: Verdict) -> dict[str, Any]:
    bad = verdict["counterexample"]
    return {} if bad is None else {"found": bad["detail"]}


def _controls(documents: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Each control with its pairs of losses and states, one pair for each run."""
    found: dict[str, Record] = {}
    for each in (control for document in documents for control in document["controls"]):
        new = {"name": each["name"], "must_lose": each["must_lose"], "losses_of_states": []}
        control = found.setdefault(each["name"], new)
        control["losses_of_states"].append([each["losses"], each["states"]])
    return list(found.values())


def cell(verdict: Verdict) -> str:
    """The text of a verdict's cell."""
    if verdict["failure"] is not None:
        return f"failed: {verdict['failure']}"
    if verdict["survives"] is None:
        return "no writes"
    states = f"all {verdict['states']}" if verdict["exhaustive"] else str(verdict["states"])
    if verdict["survives"]:
        return f"ok {states}"
    bad = {kind: count for kind, count in verdict["outcomes"].items() if kind != "kept"}
    kinds = "" if set(bad) == {"lost"} else f" ({', '.join(sorted(bad))})"
    return f"**LOSS** {sum(bad.values())} of {states}{kinds}"


def _write_cache(path: DiskPath, _verdict: Verdict) -> str:
    return path.attachment.write_cache.value


def _setting(name: str) -> Callable[[DiskPath, Verdict], str]:
    def value(_path: DiskPath, verdict: Verdict) -> str:
        return str(verdict["settings"].get(name, ""))

    return value


def _observed(name: str) -> Callable[[DiskPath, Verdict], str]:
    def value(_path: DiskPath, verdict: Verdict) -> str:
        return str(verdict["observed"].get(name, ""))

    return value


def _grows(path: DiskPath, _verdict: Verdict) -> str:
    """Whether new blocks need a new place: in a thin image, in a chain, above a snapshot."""
    image = path.image
    return (
        "yes" if image and (image.is_thin or image.backing or image.option("snapshots")) else "no"
    )


_AXES: Mapping[str, Callable[[DiskPath, Verdict], str]] = {
    "host": lambda path, _verdict: str(path.stack),
    "image": lambda path, _verdict: str(path.image),
    "format": lambda path, _verdict: "" if path.image is None else path.image.format.value,
    "grows": _grows,
    "stack": lambda path, _verdict: f"{path.stack}/{path.image}",
    "bus": lambda path, _verdict: path.attachment.bus.value,
    "device": lambda path, _verdict: str(path.attachment),
    "access": lambda _path, verdict: str(verdict["access"]),
    "write_cache": _write_cache,
    "client": lambda _path, verdict: str(verdict["client"]),
    "driver": _setting("driver"),
    "cache": lambda path, _verdict: path.cache.value,
    "model": lambda _path, verdict: str(verdict["settings"].get(MODEL, FailureModel.POWER)),
    "during": _setting(DURING),
    "guest_queue": _observed("guest.queue.write_cache"),
    "guest_drive": _observed("guest.ata.write_cache"),
    "qemu": _observed("qemu.write_cache"),
}


_ORDERS: Mapping[str, type[StrEnum]] = {"cache": CacheMode, "model": FailureModel}
"""The axes that can be columns, with the order of their values."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A table in a page: its record, its axes, and a filter of verdicts."""

    record: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    where: Mapping[str, str]
    sums: bool = False

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Wish:
        """Reads `NAME rows=A,B [columns=D,E] [where=C:VALUE,...] [cells=sums]`."""
        record, *options = arguments
        given = dict(option.split("=", 1) for option in options)
        return cls(
            record,
            tuple(given["rows"].split(",")),
            tuple(given.get("columns", "cache").split(",")),
            dict(each.split(":", 1) for each in given.get("where", "").split(",") if each),
            given.get("cells") == "sums",
        )

    def takes(self, verdict: Verdict) -> bool:
        """Whether the table shows a verdict; the filter separates alternatives by `|`."""
        path = parse_path(verdict["path"])
        return all(
            _AXES[axis](path, verdict) in values.split("|") for axis, values in self.where.items()
        )


def table(verdicts: Sequence[Verdict], wish: Wish) -> str:
    """A Markdown table: rows in the order of the verdicts, columns in that of modes or models.

    Raises SystemExit when two verdicts belong in one cell.
    """
    rows: dict[tuple[str, ...], dict[tuple[str, ...], list[Verdict]]] = {}
    columns: set[tuple[str, ...]] = set()
    for verdict in verdicts:
        path = parse_path(verdict["path"])
        row = tuple(_AXES[axis](path, verdict) for axis in wish.rows)
        column = tuple(_AXES[axis](path, verdict) for axis in wish.columns)
        columns.add(column)
        together = rows.setdefault(row, {}).setdefault(column, [])
        if together and not wish.sums:
            raise SystemExit(f"{wish.record} has two verdicts for {row}, {column}")
        together.append(verdict)
    head = [axis.replace("_", " ") for axis in wish.rows]
    possible = itertools.product(*(_ORDERS[axis] for axis in wish.columns))
    shown = [each for each in possible if each in columns]
    head += [", ".join(each) for each in shown]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row, cells in rows.items():
        texts = [
            summed(cells.get(name, ())) if wish.sums else "".join(map(cell, cells.get(name, ())))
            for name in shown
        ]
        lines.append(f"| {' | '.join([*row, *texts])} |")
    return "\n".join(lines)


def summed(verdicts: Sequence[Verdict]) -> str:
    """The text of a cell with several verdicts; empty without any."""
    if not verdicts:
        return ""
    kept = sum(verdict["survives"] is True for verdict in verdicts)
    states = sum(verdict["states"] for verdict in verdicts)
    return f"{kept} of {len(verdicts)} kept, {states:,} states"


_ARTICLE: Mapping[str, str] = {
    "none": "write cache, no page cache",
    "writeback": "write cache, page cache",
    "writethrough": "no write cache, page cache",
    "unsafe": "both, transfers ignored",
}
"""The caches that each mode uses according to table 1 of the article (seed 003)."""


def cache_table(record: Record) -> str:
    """Where writes were, by cache mode, and what the article says."""
    head = ["cache", "an acknowledged write is in", "a flushed write is in",
            "image in the page cache", "guest is told", "the article"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for mode, found in record["modes"].items():
        pages = max(found[key]["image_in_page_cache"] for key in ("acknowledged", "flushed"))
        cells = [
            mode,
            *(_places(found[key]["writes"]) for key in ("acknowledged", "flushed")),
            f"yes, {pages:.1%}" if pages else "no",
            found["guest_sees"],
            _ARTICLE.get(mode, "–"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _places(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{place} ({count})" for place, count in counts.items())


def basis(record: Record, verdicts: Sequence[Verdict]) -> str:
    """The data of a table, as a sentence."""
    states = sum(each["states"] for each in verdicts)
    later = sum(each["post_recovery_states"] for each in verdicts)
    seconds = sum(each["seconds"] for each in verdicts)
    took = f"{seconds / 60:.0f} minutes" if seconds > 100 else f"{seconds:.0f} seconds"
    return (
        f"{len(verdicts)} questions, {states:,} states ({later:,} with post-recovery writes) "
        f"in {took}; {_passed(record['controls'])}."
    )


def _passed(controls: Sequence[Record]) -> str:
    if not controls:
        return "the controls passed first, as always, and are not in this record"
    runs = min(len(each["losses_of_states"]) for each in controls)
    times = "once" if runs == 1 else f"{runs} times"
    return f"the {len(controls)} controls passed first, {times}"


_BLOCK = (
    "models modes matrix hosts every-state killed-hosts block qemu10 qemu10-chains qemu10-modes"
)
_DEAD = "model:plp|host-crash"
_RULES: Sequence[tuple[str, str, str]] = (
    (
        "A guest that flushes loses nothing, on ext4, XFS and btrfs, in any mode but `unsafe`",
        _BLOCK,
        "client:flushes,host:ext4|xfs|btrfs,cache:none|writeback|writethrough|directsync",
    ),
    (
        "`unsafe` loses what was flushed, if the host dies",
        _BLOCK,
        "client:flushes,cache:unsafe,model:power|plp|host-crash",
    ),
    (
        "`unsafe` keeps what was flushed, if only QEMU or the guest dies",
        _BLOCK,
        "client:flushes,cache:unsafe,model:qemu-killed|guest-reset",
    ),
    (
        "Never flushed: `writethrough` and `directsync` keep it, on ext4, XFS and btrfs",
        _BLOCK,
        "client:never,host:ext4|xfs|btrfs,cache:writethrough|directsync",
    ),
    (
        "Never flushed: `none` and `writeback` lose it above a disk with a volatile cache",
        _BLOCK,
        "client:never,cache:none|writeback,model:power",
    ),
    (
        "Never flushed: `none` keeps it above a disk with power-loss protection, and if the kernel "
        "crashes, in a full image on ext4 or XFS",
        _BLOCK,
        f"client:never,cache:none,grows:no,host:ext4|xfs,{_DEAD}",
    ),
    (
        "… and loses it there in a thin image, a chain, or above a snapshot",
        _BLOCK,
        f"client:never,cache:none,grows:yes,host:ext4|xfs,{_DEAD}",
    ),
    (
        "… and on btrfs and ZFS in any image",
        _BLOCK + " zfs-models",
        f"client:never,cache:none,host:btrfs|zfs,{_DEAD}",
    ),
    (
        "Never flushed: `writeback` loses it, if the host dies",
        _BLOCK,
        "client:never,cache:writeback,model:power|plp|host-crash",
    ),
    (
        "A killed QEMU costs a raw or a full image nothing",
        _BLOCK,
        "client:never,cache:none|writeback|unsafe,grows:no,model:qemu-killed",
    ),
    (
        "A killed QEMU costs a thin qcow2 image or a chain what was not flushed",
        _BLOCK,
        "client:never,cache:none|writeback|unsafe,grows:yes,format:qcow2,model:qemu-killed",
    ),
    ("A reset of the guest costs nothing", _BLOCK + " models-guest", "model:guest-reset"),
    (
        "A snapshot, commit, mirror or resize meanwhile costs a guest that flushes nothing",
        "during",
        "client:flushes",
    ),
    (
        "Mount options: with `barrier=off` flushed writes are lost",
        "options",
        "client:flushes,host:ext4:barrier=off|btrfs:barrier=off",
    ),
    ("vmdk and vdi lose flushed writes, later", "formats", "client:flushes,format:vmdk|vdi"),
    (
        "QEMU's NVMe device with a write cache loses forced writes (FUA)",
        "guest",
        "client:fua,bus:nvme,write_cache:on",
    ),
    (
        "A guest that was told to send no flushes (`--driver queue`) loses what it syncs",
        "drivers",
        "client:flushes,driver:queue",
    ),
    (
        "SQLite with `synchronous=EXTRA` keeps every COMMIT, in a directory, too",
        "sqlite shares",
        "client:sqlite-extra,host:ext4|xfs|btrfs,bus:virtio|virtiofs|9p",
    ),
)
"""What the records show: a sentence, the records, and which of their verdicts it is about."""


def rules(records: Mapping[str, Record]) -> str:
    """Each rule, and on how many of the questions it is about everything was kept."""
    lines = ["| what | kept on | states judged |", "|---|---|---|"]
    for sentence, names, where in _RULES:
        verdicts = chosen(records, names.split(), Wish.parse(["", "rows=host", f"where={where}"]))
        kept = sum(each["survives"] is True for each in verdicts)
        states = sum(each["states"] for each in verdicts)
        lines.append(f"| {sentence} | {kept:,} of {len(verdicts):,} questions | {states:,} |")
    return "\n".join(lines)


def chosen(records: Mapping[str, Record], names: Sequence[str], wish: Wish) -> list[Verdict]:
    """The verdicts that a filter takes, with their whole settings."""
    whole = (
        {**each, "settings": records[name]["settings"] | each["settings"]}
        for name in names
        for each in records[name]["verdicts"]
        if each["failure"] is None and each["survives"] is not None
    )
    return [each for each in whole if wish.takes(each)]


def shown(arguments: Sequence[str]) -> str:
    """The table of a record with these axes and this filter, and a sentence about its data."""
    if arguments[0] == "rules":
        return rules(record_of(NAME))
    record = record_of(NAME)[arguments[0]]
    if "modes" in record:
        return cache_table(record)
    wish = Wish.parse(arguments)
    verdicts = [each for each in record["verdicts"] if wish.takes(each)]
    if not verdicts:
        raise SystemExit(f"no verdict fits `{' '.join(arguments)}`")
    return f"{table(verdicts, wish)}\n\n{basis(record, verdicts)}"


def overview(records: Mapping[str, Record]) -> str:
    """A line for each record: its name and its size."""
    return "\n".join(
        f"{name}: {len(record.get('verdicts', ()))} questions, "
        f"QEMU {record['host']['qemu'].split()[0]}"
        for name, record in sorted(records.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("verb", choices=["keep", "add", "again", "show"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("words", nargs="*", help="files of verdicts, or the words of a table")
    parser.add_argument("--dir", type=Path, default=Path(), help="for again: place to work in")
    given = parser.parse_args()
    records: dict[str, Record] = record_of(NAME)
    match given.verb:
        case "show" if given.name is None:
            print(overview(records))
        case "show":
            print(shown([given.name, *given.words]))
        case "again":
            work = given.dir.absolute()
            database = f"sqlite:///{work / 'powercut-again.db'}"
            print(json.dumps(compact([ask_again(records[given.name], work, database)]), indent=1))
        case _:
            record = compact(json.loads(Path(file).read_text()) for file in given.words)
            if given.verb == "add":
                record = joined(records[given.name], record)
            keep_record(NAME, dict(sorted({**records, given.name: record}.items())))


if __name__ == "__main__":
    main()
