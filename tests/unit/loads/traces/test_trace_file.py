"""Traces of other programs: real lines of each, what they say, and lines that lie."""

from __future__ import annotations

import gzip
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.errors import LoadError
from vdisklab.loads.load import IoKind, RecordedBy, RecordedLoad
from vdisklab.loads.traces.trace_file import (
    FORMS,
    LONGEST_LINE,
    TraceWish,
    read_trace_file,
    trace_form,
)

DATA = Path(__file__).parents[3] / "data"

SAMPLES = {
    # The first lines of hm_1.csv, SNIA IOTTA trace set 388
    RecordedBy.MSR_CAMBRIDGE: """\
128166372003061629,hm,1,Read,383496192,32768,113736
128166372016382155,hm,1,Write,310983680,4096,5236
128166372026382245,hm,1,Read,383528960,32768,98321
""",
    # The form of README.md of Alibaba's block-traces
    RecordedBy.ALIBABA: """\
419,W,8792731648,16384,1577808144360767
419,R,11047002112,4096,1577808145360812
419,W,8792748032,16384,1577808146360912
""",
    # The form of the SNIA IOTTA trace set 27917
    RecordedBy.TENCENT: """\
1538323200,12910952128,128,0,1063
1538323201,6160447472,8,1,1063
1538323205,6160447480,8,1,1063
""",
    RecordedBy.FIO_IOLOG: """\
fio version 2 iolog
/dev/vda add
/dev/vda open
/dev/vda write 4096 4096
/dev/vda wait 1500
/dev/vda datasync 0 0
/dev/vda wait 500
/dev/vda read 8192 512
/dev/vda trim 0 1048576
/dev/vda close
""",
    RecordedBy.BLKTRACE: (DATA / "blkparse-1.2.0.txt").read_text(),
}


def imported(directory: Path, text: str | bytes, wish: TraceWish = TraceWish()) -> RecordedLoad:  # noqa: B008
    file = directory / "trace"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    form = trace_form(file)
    assert form is not None
    return read_trace_file(file, form, wish, "trace")


def kinds(made: RecordedLoad) -> dict[IoKind, int]:
    return dict(Counter(map(IoKind, made.kind.tolist())))


def test_msr_cambridge(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES[RecordedBy.MSR_CAMBRIDGE])
    assert made.source.name == "trace hm 1"
    assert made.source.recorded_at == datetime(2007, 2, 22, 17, 0, 0, 306162, tzinfo=UTC)
    assert made.due_us.tolist() == [0, 1_332_053, 2_332_062]
    assert made.offset.tolist() == [383496192, 310983680, 383528960]
    assert made.length.tolist() == [32768, 4096, 32768]
    assert made.service_us.tolist() == [11373, 523, 9832]
    assert kinds(made) == {IoKind.READ: 2, IoKind.WRITE: 1}


def test_alibaba(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES[RecordedBy.ALIBABA])
    assert made.source.name == "trace 419"
    assert made.due_us.tolist() == [0, 1_000_045, 2_000_145]
    assert made.offset.tolist() == [8792731648, 11047002112, 8792748032]
    assert kinds(made) == {IoKind.READ: 1, IoKind.WRITE: 2}
    assert not made.is_timed.any()


def test_tencent_counts_seconds_and_sectors(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES[RecordedBy.TENCENT])
    assert made.due_us.tolist() == [0, 1_000_000, 5_000_000]
    assert made.offset.tolist() == [12910952128 * 512, 6160447472 * 512, 6160447480 * 512]
    assert made.length.tolist() == [65536, 4096, 4096]
    assert made.source.resolution_us == 1_000_000
    assert "whole seconds" in made.source.notes[0]


def test_fio_s_second_version_has_waits(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES[RecordedBy.FIO_IOLOG])
    assert made.due_us.tolist() == [0, 1500, 2000, 2000]
    assert made.kind.tolist() == [IoKind.WRITE, IoKind.FLUSH, IoKind.READ, IoKind.DISCARD]
    assert made.length.tolist() == [4096, 0, 512, 1 << 20]


def test_fio_s_third_version_has_times_in_microseconds() -> None:
    """fio 3.33 wrote it: 1 MiB at random places within a tenth of a second."""
    file = DATA / "fio-3.33-iolog3.log"
    form = trace_form(file)
    assert form is not None
    made = read_trace_file(file, form, TraceWish(), "log")
    lines = file.read_text().splitlines()
    assert kinds(made)[IoKind.READ] == sum(" read " in line for line in lines)
    assert kinds(made)[IoKind.FLUSH] == sum("sync" in line for line in lines)
    assert 50_000 < made.source.span_us < 200_000
    assert int(made.length.sum()) == 1 << 20


def test_blkparse_s_letters(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES[RecordedBy.BLKTRACE])
    write, flush = IoKind.WRITE, IoKind.FLUSH
    # R, WS, WFS, FWS without a place, FWFS (a flush and a forced write), D, FN, WSM
    assert made.kind.tolist() == [
        IoKind.READ, write, write, flush, flush, write, IoKind.DISCARD, flush, write,
    ]  # fmt: skip
    assert made.forced.tolist() == [False, False, True, False, False, True, False, False, False]
    assert made.service_us[made.length > 0].tolist() == [100] * 6
    assert made.service_us[made.kind == flush].tolist() == [100, -1, 100]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.recorded_by.value)
def test_each_form_is_known_by_its_first_lines(form: object, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    for recorded_by, text in SAMPLES.items():
        file.write_text(text)
        found = trace_form(file)
        assert found is not None
        assert found.recorded_by is recorded_by


def test_a_trace_may_be_packed_and_end_lines_as_windows_does(tmp_path: Path) -> None:
    text = SAMPLES[RecordedBy.ALIBABA].replace("\n", "\r\n").encode()
    assert len(imported(tmp_path, gzip.compress(text))) == 3
    with pytest.raises(LoadError, match="cannot be unpacked"):
        imported(tmp_path, gzip.compress(text * 90_000)[:-200])


def test_a_bomb_is_read_in_pieces(tmp_path: Path) -> None:
    bomb = gzip.compress(SAMPLES[RecordedBy.ALIBABA].encode() + bytes(50_000_000))
    with pytest.raises(LoadError, match=f"a line of more than {LONGEST_LINE} bytes"):
        imported(tmp_path, bomb)


def test_one_disk_of_several_is_named(tmp_path: Path) -> None:
    text = SAMPLES[RecordedBy.ALIBABA] + "7,R,0,4096,1577808146360912\n"
    with pytest.raises(LoadError) as refused:
        imported(tmp_path, text)
    assert refused.value.message.endswith("has 2 disks, the busiest are 419, 7")
    assert refused.value.hint == "name one: --disk '419'"
    assert len(imported(tmp_path, text, TraceWish("7"))) == 1
    with pytest.raises(LoadError, match="has no disk 8") as unknown:
        imported(tmp_path, text, TraceWish("8"))
    assert unknown.value.hint == "its disks are 419, 7"


def test_a_part_of_the_time_is_taken(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES[RecordedBy.ALIBABA], TraceWish(most_us=1_500_000))
    assert made.due_us.tolist() == [0, 1_000_045]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["419,W,0,4096,1577808146000000", "419,W,0,4096,1577808000000000"],
            "run back by 2 min 26",
        ),
        (["419,W,0,4096,1577808146000000", "419,W,0,4096,1587808146000000"], "spans 116 days"),
        (["419,W,9223372036854775807,4096,1577808146000000"], "lies beyond any disk"),
        (["419,W,0,4096,9999999999999999999"], "a time beyond any clock"),
        (["fio version 3 iolog", "0 /dev/vda write 9223372036854775808 4096"], "beyond any disk"),
        (["fio version 2 iolog", "a wait 9999999999999999999", "a read 0 512"], "beyond any clock"),
        (["419,W,0,4096,1577808146000000"] + ["nonsense"] * 9, "9 of 11 lines of .* are none of"),
        (["419,W,0,0,1577808146000000"], "has no requests"),
    ],
)
def test_a_trace_that_lies_is_a_sentence(lines: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=said) as refused:
        imported(tmp_path, "\n".join(lines) + "\n")
    assert "\n" not in refused.value.message


def test_small_disorder_is_sorted_and_told(tmp_path: Path) -> None:
    text = "9,R,0,512,1577808146000900\n9,R,512,512,1577808146000000\n"
    made = imported(tmp_path, text)
    assert made.due_us.tolist() == [0, 900]
    assert made.offset.tolist() == [512, 0]
    assert made.source.notes[-1] == "1 requests were out of order, and were sorted by time"


def test_what_is_no_trace_is_none(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"a,b,c,d,e\n", b"\x1f\x8b junk", b"1,2\n" * 9):
        (tmp_path / "x").write_bytes(content)
        assert trace_form(tmp_path / "x") is None


@pytest.mark.parametrize("recorded_by", SAMPLES)
@given(data=st.data())
@settings(max_examples=40)
def test_mutilated_traces_end_with_a_load_or_one_sentence(
    recorded_by: RecordedBy, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(SAMPLES[recorded_by].encode())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    file = tmp_path_factory.getbasetemp() / "mutilated"
    file.write_bytes(content)
    form = next(each for each in FORMS if each.recorded_by is recorded_by)
    try:
        made = read_trace_file(file, form, TraceWish(), "x")
    except LoadError as error:
        said = error.message
    else:
        said = f"{len(made)} requests"
    assert "\n" not in said
