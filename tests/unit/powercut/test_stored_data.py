"""What users have stored stays readable and equal: fingerprints, settings and kept recordings."""

from __future__ import annotations

import json

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting, StateOutcome
from vdisklab.powercut.client import Write, trace_from_json, trace_to_json
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.results.power_cut import outcome_words

DEFAULTS = QuestionSettings()
OTHERS = QuestionSettings(
    writes=24, post_recovery_states=2, seed=7, depth=4, direct_io=False,
    driver=DriverSetting.QUEUE,
    sampling=Sampling(states=40, exhaustive_up_to=4, tear=512, seed=7),
)  # fmt: skip
EXHAUSTIVE = QuestionSettings(sampling=Sampling(None, 16))


@pytest.mark.parametrize(
    ("path", "client", "settings", "access", "fingerprint"),
    [
        ("ext4/raw/none", "flushes", DEFAULTS, "nbd", "e13a5c7fb26cdefc"),
        ("xfs/qcow2:preallocation=off/unsafe/nvme", "fua", OTHERS, "guest", "fedefbfaba29562a"),
        ("ext4/raw/writethrough/ide", "never", EXHAUSTIVE, "boot-sector", "a0925b59d9427976"),
    ],
)
def test_a_stored_verdict_still_answers_its_question(
    path: str, client: str, settings: QuestionSettings, access: str, fingerprint: str
) -> None:
    question = Question(parse_path(path), ClientKind(client), settings, AccessKind(access))
    assert question.fingerprint == fingerprint


def test_settings_keep_their_stored_keys() -> None:
    assert json.dumps(OTHERS.as_stored()) == (
        '{"size": 8388608, "writes": 24, "flush_every": 4, "depth": 4, "seed": 7, '
        '"direct_io": false, "afterlives": 2, "wanted": {"states": 40, "exhaustive_up_to": 4, '
        '"tear": 512, "seed": 7}, "logged_by": "fuse", "driver": "queue"}'
    )


def test_outcomes_keep_their_stored_names() -> None:
    assert [outcome.value for outcome in StateOutcome] == [
        "kept", "lost", "torn", "garbage", "image damaged", "database corrupt",
        "corrupt in the afterlife", "image unreadable", "file system unmountable",
    ]  # fmt: skip


def test_outcomes_are_shown_in_plain_words() -> None:
    assert outcome_words(StateOutcome.CORRUPT_LATER) == "corrupted by later writes"
    assert outcome_words(StateOutcome.KEPT) == "kept"


KEPT_TRACE = """{
 "path": "ext4/raw/unsafe",
 "client": "flushes",
 "access": "nbd",
 "filesystem": "ext4",
 "mount_options": [],
 "image": "disk.raw",
 "image_format": "raw",
 "image_size": 8388608,
 "disk_size": 67108864,
 "filled": true,
 "begin": 41,
 "end": 43,
 "writes": [
  {
   "version": 2,
   "first": 5296,
   "count": 8,
   "submitted": 41,
   "acked": 42,
   "promised": 43
  },
  {
   "version": 3,
   "first": 224,
   "count": 1,
   "submitted": 43,
   "acked": null,
   "promised": null
  }
 ],
 "seen": {
  "image.allocated": "8388608"
 },
 "flushes": [
  [
   42,
   43
  ]
 ]
}"""


def test_a_kept_recording_is_still_read_and_written_in_the_words_of_today() -> None:
    trace = trace_from_json(KEPT_TRACE)
    assert trace.writes == (Write(2, 5296, 8, 41, 42, 43), Write(3, 224, 1, 43))
    assert trace.flushes == ((42, 43),)
    later: dict[str, object] = {
        "backing": [], "data_file": None, "encrypted": False, "switch": None,
    }  # fmt: skip
    today = KEPT_TRACE.replace('"promised"', '"durable_at"').replace('"seen"', '"observed"')
    assert json.loads(trace_to_json(trace)) == json.loads(today) | later
    assert trace_from_json(trace_to_json(trace)) == trace
