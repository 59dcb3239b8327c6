"""A worker that answers nonsense costs its own host; the others' words are kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.results.values import HOST, a_campaign, a_run
from vdisklab.fleet import coordinator
from vdisklab.fleet.answer import WorkerCheck
from vdisklab.fleet.coordinator import HostResult, members, result_of
from vdisklab.fleet.host_campaign import LAST_LINES
from vdisklab.fleet.quiet_settings import read_json, version_difference
from vdisklab.fleet.verb import _without_results
from vdisklab.results.store import open_store
from vdisklab.value import replace

NONSENSE = (
    "NaN", "[" * 100_000, '{"a":' * 100_000, "", "null", "[]", '{"status": NaN, "lines": []}',
    '{"status": 1e999, "lines": ["x"]}', '{"status": true, "lines": ["x"]}', '{"status": "0"}',
    '{"status": 0}', '{"status": 0, "lines": 7}', '{"status": 0, "lines": {"a": 1}}',
    '{"status": ' + "9" * 5000 + "}", "\ud800", "\0",
)  # fmt: skip


@pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
def test_an_answer_that_is_none_is_a_failure_of_its_host(answer: str) -> None:
    result = result_of("kvm1", read_json(answer))
    assert result.status not in (0, None)
    assert "its worker's answer is not one" in result.sentence


def test_done_without_a_word_is_not_done() -> None:
    result = result_of("kvm1", {"status": 0, "lines": []})
    assert (result.status, "has no line" in result.sentence) == (1, True)
    good = result_of("kvm2", {"status": 0, "lines": ["90 runs are stored"]})
    assert good == HostResult("kvm2", 0, ("90 runs are stored",))


def test_done_with_nothing_stored_is_not_done_whoever_measured_before(tmp_path: Path) -> None:
    database = tmp_path / "fleet.sqlite"
    with open_store(str(database)) as store:
        for name in ("earlier1", "earlier2", "earlier3", "bbbb", "cccc"):
            host = replace(HOST, machine_id=name, hostname=name)
            store.add_campaign(a_campaign(id=name, host=host))
            if name != "cccc":
                store.add_run(a_run(a_campaign(id=name)))
    results = (
        HostResult("kvm1", 0, ("done",), ("bbbb",)),
        HostResult("kvm1-too", 0, ("every run of this plan is already measured",), ("bbbb",)),
        HostResult("kvm2", 0, ("done",), ("cccc",)),
        HostResult("kvm3", 0, ("done",)),
        HostResult("kvm4", 0, ("done",), ("bbbb", "dddd")),
        HostResult("kvm5", 3, ("error: no room",)),
    )
    assert _without_results(str(database), results) == ("kvm2", "kvm3", "kvm4")


@pytest.mark.parametrize("named", [7, None, {"a": 1}, [None, [], "[" * 100_000], "bbbb"])
def test_campaigns_of_any_kind_are_text(named: object) -> None:
    result = result_of("kvm1", {"status": 0, "lines": ["done"], "campaigns": named})
    assert all(len(name) <= 1000 for name in result.campaigns)


def test_lines_of_any_kind_are_text() -> None:
    result = result_of("kvm1", {"status": 3, "lines": [None, {"a": 1}, "x" * 10_000_000] * 3})
    assert all(len(line) <= 1000 for line in result.lines)
    assert len(result.lines) == LAST_LINES


@pytest.mark.parametrize("hello", [*NONSENSE, '{"versions": [], "facts": 7, "until": {}}', None])
@pytest.mark.parametrize("since", ["NaN", "1e999", '"x"', "true", "9" * 400, "[" * 9000])
def test_a_member_that_says_nonsense_hides_no_other(hello: str | None, since: str) -> None:
    workers: dict[str, dict[str, Any]] = {
        "tls://a": {"name": "a", "hello": hello, "metrics": {"campaign": f'{{"since": {since}}}'}},
        "tls://b": {"name": "b", "metrics": 7, "last_seen": float("nan")},
        "tls://c": {"name": "c", "hello": json.dumps({"facts": {"cpu": "Xeon"}})},
    }
    scheduler = SimpleNamespace(identity=lambda **_: {"workers": workers})
    client = SimpleNamespace(scheduler=scheduler, sync=lambda ask, **options: ask(**options))
    found = members(cast("Any", client))
    assert [member.name for member in found] == ["a", "b", "c"]
    assert found[0].campaign.get("since") is None
    assert found[2].facts == {"cpu": "Xeon"}
    assert version_difference("a", found[0].versions) is not None


@pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
def test_a_check_that_is_none_is_a_database_that_cannot_be_used(answer: str) -> None:
    workers = {"tls://a": {"name": "a"}, "tls://b": {"name": "b"}}
    scheduler = SimpleNamespace(identity=lambda **_: {"workers": workers})
    good = json.dumps({"database": "", "leftovers": 0})
    client = SimpleNamespace(
        scheduler=scheduler,
        sync=lambda ask, **options: ask(**options),
        run=lambda *_, **__: {"tls://a": answer, "tls://b": good},
    )
    bad, well = (
        WorkerCheck(**each) for each in coordinator.check_hosts(cast("Any", client), "postgresql:")
    )
    assert (bad.is_ready, well.database, well.leftovers) == (False, "", 0)
