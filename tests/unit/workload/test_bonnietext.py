"""bonnie++'s own text and CSV, as users published them and cut off."""

from __future__ import annotations

import pytest

from tests.unit.workload.recorded import recorded
from tests.unit.workload.test_importing import NONE, READ, WRITE, samples_of
from vdisklab.errors import WorkloadError
from vdisklab.units import KIB, MIB
from vdisklab.workload.importing import recognise

_SMALL_FILES = """\
Version  1.96       ------Sequential Create------ --------Random Create--------
box                 -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--
files:max:min        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
           60:32:32  1702  14  2025  12  1332   4  1873  16  2047  13  1266   3
Latency              3874ms    6645ms    8659ms     505ms    7257ms    9627ms
"""


def test_the_wikis_bonnie_table() -> None:
    reports = recognise(recorded("foreign/bonnie-1.03e.txt"))
    assert [report.label for report in reports] == [
        "qcow2 IDE", "qcow2 virtio", "raw IDE", "raw virtio", "qcow2 old IDE",
    ]  # fmt: skip
    found = {(s.metric, s.direction): s.value for s in reports[1].results[0].outcome.samples}
    assert found["bandwidth", READ] == 46813 * 1024
    assert found["seeks", NONE] == 110.9
    assert found["seq_create", NONE] == 303
    assert found["bandwidth_cpu", READ] == 0.07
    assert ("seq_stat", NONE) not in found


def test_bonnies_text_with_tests_left_out() -> None:
    (report,) = recognise(recorded("foreign/bonnie-2.00a.txt"))
    found = {(s.metric, s.direction): s.value for s in report.results[0].outcome.samples}
    assert found == {
        ("bandwidth", WRITE): 640 * MIB, ("bandwidth_cpu", WRITE): 0.31,
        ("seq_create", NONE): 7297, ("seq_create_cpu", NONE): 0.91,
    }  # fmt: skip


def test_bonnies_text_with_tests_left_out_and_rates_of_six_digits() -> None:
    text = [
        *recorded("foreign/bonnie-2.00a.txt").splitlines()[:2],
        "Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP",
        "longhost-02     63G           364656  24 119264  12           306391  14 439.5  17",
        "Latency                       18055us     184ms             57565us   83422us",
    ]
    (report,) = recognise("\n".join(text))
    assert report.label == "longhost-02"
    assert samples_of(report) == {
        ("bandwidth", WRITE): 364656 * KIB, ("bandwidth_cpu", WRITE): 0.24,
        ("rewrite", WRITE): 119264 * KIB, ("rewrite_cpu", WRITE): 0.12,
        ("bandwidth", READ): 306391 * KIB, ("bandwidth_cpu", READ): 0.14,
        ("seeks", NONE): 439.5, ("seeks_cpu", NONE): 0.17,
    }  # fmt: skip
    shifted = [*text[:3], text[3].replace("           364656", "       364656")]
    with pytest.raises(WorkloadError, match=r"line 4: .* are not rates"):
        recognise("\n".join(shifted))


def test_bonnies_text_of_small_files_alone() -> None:
    (report,) = recognise(_SMALL_FILES)
    assert (report.label, report.version) == ("box", "1.96")
    assert samples_of(report)["random_stat", NONE] == 2047


def test_bonnie_2_00s_own_text_shows_the_number_of_files_for_their_rate() -> None:
    """Its CSV said 877 and 614 for the two 1024; what is wrong is left unknown."""
    text = recorded("foreign/bonnie-2.00a-whole.txt")
    (report,) = recognise(text)
    assert samples_of(report)["seq_create", NONE] == 877, "the CSV below counts"
    (above, _) = text.split("1.98,2.00a", 1)
    with pytest.raises(WorkloadError, match="shows the number of files in place of their rate"):
        recognise(above)
    (report,) = recognise(above.replace("host            16M           +++++ +++",
                                        "host            16M           51.5m  14"))  # fmt: skip
    assert samples_of(report) == {
        ("bandwidth", WRITE): 51.5 * MIB, ("bandwidth_cpu", WRITE): 0.14,
    }  # fmt: skip


@pytest.mark.parametrize("cut", [20, 60, 75])
def test_bonnies_second_table_that_was_cut_off_is_no_half_of_a_result(cut: int) -> None:
    text = recorded("foreign/bonnie-1.03e.txt")
    row = "raw virtio       16   344"
    with pytest.raises(WorkloadError):
        recognise(text[: text.index(row) + cut])


def test_bonnies_old_and_middle_csv() -> None:
    tests = "655,99,281567,32,138431,19,2133,99,484093,32,405.9,17"
    small = "16,{}301,10,+++++,+++,302,10,303,10,+++++,+++,304,10"
    (old,) = recognise(f"host,1G,{tests},{small.format('')}\n")
    (new,) = recognise(
        f"1.97,1.97,host,1,1428486489,16G,,{tests},{small.format(',,,,')}{',1us' * 12}\n"
    )
    assert [each.version for each in (old, new)] == ["1.03", "1.97"]
    assert old.results == new.results
    assert len(old.results[0].outcome.samples) == 2 * 10


@pytest.mark.parametrize("version", ["1.93c", "1.96", "1.97"])
def test_bonnies_csv_of_48_fields_as_users_published_it(version: str) -> None:
    """The layout of lines that users published of these versions, with other numbers."""
    line = (
        f"{version},{version},nas,1,1466388940,64G,,55,99,354143,98,204539,78,204,97,797654,91,"
        "107.7,6,16,,,,,3866,96,+++++,+++,4139,54,3598,95,+++++,+++,10061,75,148ms,7928us,295ms,"
        "51515us,117ms,386ms,55941us,494us,758ms,99456us,53us,192ms"
    )
    (report,) = recognise(line)
    found = samples_of(report)
    assert (report.label, report.version, len(found)) == ("nas", version, 2 * 10)
    assert found["per_char", WRITE] == 55 * KIB
    assert found["bandwidth", READ] == 797654 * KIB
    assert (found["seeks", NONE], found["seeks_cpu", NONE]) == (107.7, 0.06)
    assert (found["seq_create", NONE], found["random_delete", NONE]) == (3866, 10061)


def test_bonnies_csv_before_1_98_without_the_large_file_has_one_field_less() -> None:
    line = (
        "1.96,1.96,box,1,1374655110,,,,,,,,,,,,,,60,32,32,,,1702,14,2025,12,1332,4,1873,16,2047,"
        "13,1266,3,,,,,,,3874ms,6645ms,8659ms,505ms,7257ms,9627ms"
    )
    (report,) = recognise(line)
    found = samples_of(report)
    assert len(found) == 2 * 6
    assert (found["seq_create", NONE], found["seq_create_cpu", NONE]) == (1702, 0.14)
    assert (found["random_delete", NONE], found["random_delete_cpu", NONE]) == (1266, 0.03)
    for length in range(len(line)):
        with pytest.raises(WorkloadError):
            recognise(line[:length])


def test_the_heading_that_bonnie_writes_for_several_runs() -> None:
    reports = recognise(recorded("foreign/bonnie-2.00a-x2.csv"))
    assert [report.label for report in reports] == ["x", "x"]
    assert samples_of(reports[0])["per_char", WRITE] == 559 * KIB
    old = "name,file_size,putc,putc_cpu" + ",more" * 23
    tests = "655,99,281567,32,138431,19,2133,99,484093,32,405.9,17"
    (report,) = recognise(f"{old}\nbox,1G,{tests},16{',301,10' * 6}\n")
    assert (report.label, report.version) == ("box", "1.03")


def test_bonnies_heading_alone_is_no_result() -> None:
    (heading, *_) = recorded("foreign/bonnie-2.00a-x2.csv").splitlines()
    with pytest.raises(WorkloadError, match="no line of bonnie"):
        recognise(heading)


@pytest.mark.parametrize("name", ["bonnie-2.00a-short.csv", "bonnie-2.00a-fast.csv"])
def test_bonnies_csv_that_was_cut_off_anywhere_is_refused(name: str) -> None:
    (line,) = recorded(name).splitlines()
    for length in range(len(line)):
        with pytest.raises(WorkloadError):
            recognise(line[:length])


@pytest.mark.parametrize("version", ["Version  @version@ ", "Version ? ", ""])
def test_a_table_without_a_version_is_read_row_by_row(version: str) -> None:
    text = f"""{version:20}------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP
one            2500M  5000  70  8000   5  4000   4  5000  70 10000   4  20.0   0
two            2500M  5000  70 16000   5  4000   4  5000  70 20000   4  40.0   0
"""
    first, second = recognise(text)
    assert [(run.label, run.version) for run in (first, second)] == [("one", None), ("two", None)]
    named = recognise(text.replace(f"{version:20}", "Version  1.03       "))
    assert [run.results for run in named] == [first.results, second.results]


def test_bonnie_without_plus_signs_is_another_program() -> None:
    text = """              -------Sequential Output-------- ---Sequential Input-- --Random--
              -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --Seeks---
Machine    MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU  /sec %CPU
          100  3000 90.0  9000 40.0  3000 20.0  3000 90.0  9000 20.0 100.0  5.0
"""
    with pytest.raises(WorkloadError, match="no known program"):
        recognise(text)
