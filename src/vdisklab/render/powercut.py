"""Verdicts of power cuts as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.render.document import Json, document, host_json
from vdisklab.render.tables import Column, Table, Value, text
from vdisklab.results.powercut import PowerCut

_COLUMNS = (
    Column("path", "path", folds=True),
    Column("client", "client"),
    Column("access", "through"),
    Column("survives", "verdict"),
    Column("states", "states", right=True),
    Column("exhaustive", "of all"),
    Column("promises", "promises", right=True),
    Column("flushes", "flushes", right=True, only_wide=True),
    Column("case", "case"),
    Column("detail", "what was found", folds=True),
)


def verdict_word(found: PowerCut) -> str:
    """The verdict in one word or two."""
    if found.failure is not None:
        return "failed"
    if found.survives is None:
        return "no promise"
    return "survives" if found.survives else "LOSS"


def power_cut_table(found: Sequence[PowerCut], notes: Sequence[str] = ()) -> Table:
    """One row per verdict, in the order given; `notes` say how it was judged."""
    rows = tuple(
        (
            text(each.path),
            text(each.client),
            text(_through(each)),
            Value(each.survives, verdict_word(each)),
            Value(each.states, str(each.states)),
            Value(each.exhaustive, _share(each)),
            Value(each.promises, str(each.promises)),
            Value(each.flushes, str(each.flushes)),
            _case(each),
            text(_detail(each)),
        )
        for each in found
    )
    title = "Power cuts" if rows else "No power cut has been judged yet: `vdisklab powercut PATHS…`"
    return Table(title, _COLUMNS, rows, tuple(notes))


def power_cut_document(found: Sequence[PowerCut], controls: Sequence[Json]) -> Json:
    """The JSON form: every verdict with all that is known of it, and the controls before them."""
    return document(
        "powercut", 1, controls=list(controls), verdicts=[_verdict(each) for each in found]
    )


def _through(found: PowerCut) -> str:
    """The access, and the setting of the guest's driver when there is one."""
    driver = str(found.settings.get("driver", "as-found"))
    return found.access if driver == "as-found" else f"{found.access}, {driver}"


def _share(found: PowerCut) -> str:
    if found.failure is not None:
        return ""
    return "all" if found.exhaustive else f"{found.possible:.3g}"


def _case(found: PowerCut) -> Value:
    bad = found.counterexample
    return Value(None, "") if bad is None else text(bad.case)


def _detail(found: PowerCut) -> str:
    if found.failure is not None:
        return found.failure
    if found.counterexample is not None:
        return found.counterexample.detail
    return found.claim if found.survives is None else ""


def _verdict(found: PowerCut) -> Json:
    bad = found.counterexample
    return {
        "id": found.id,
        "path": found.path,
        "client": found.client,
        "access": found.access,
        "started": found.started.isoformat(),
        "wall_seconds": found.wall_seconds,
        "survives": found.survives,
        "claim": found.claim,
        "states": found.states,
        "possible": found.possible,
        "exhaustive": found.exhaustive,
        "promises": found.promises,
        "flushes": found.flushes,
        "leaked_states": found.leaked_states,
        "repaired_states": found.repaired_states,
        "afterlives": found.afterlives,
        "outcomes": dict(found.outcomes),
        "settings": dict(found.settings),
        "seen": dict(found.seen),
        "counterexample": (
            None
            if bad is None
            else {"case": bad.case, "outcome": bad.outcome, "detail": bad.detail}
        ),
        "failure": found.failure,
        "host": host_json(found.host),
    }
