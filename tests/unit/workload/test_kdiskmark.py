"""KDiskMark's report: its MB/s are 1,000 KiB/s, so bandwidth comes from operations and size."""

from __future__ import annotations

import pytest

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction
from vdisklab.workload.importing import recognise

REPORT = """\
                        KDiskMark (3.1.4): https://github.com/JonMagon/KDiskMark
                    Flexible I/O Tester (fio-3.35): https://github.com/axboe/fio
--------------------------------------------------------------------------------
* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]
* KB = 1000 bytes, KiB = 1024 bytes

[Read]
Sequential   1 MiB (Q=  8, T= 1):   204.800 MB/s [    200.0 IOPS] < 39000.00 us>
    Random   4 KiB (Q=  1, T= 1):    40.000 MB/s [  10000.0 IOPS] <    99.50 us>

[Write]
Sequential   1 MiB (Q=  8, T= 1):   102.400 MB/s [    100.0 IOPS] < 78000.00 us>
    Random   4 KiB (Q=  1, T= 1):     0.000 MB/s [      0.0 IOPS] <     0.00 us>

[Mix] Read 70%/Write 30%
    Random   4 KiB (Q=  1, T= 1):    20.000 MB/s [   5000.0 IOPS] <   199.00 us>

Profile: Default
   Test: 1 GiB (x5) [Measure: 5 sec / Interval: 5 sec]
   Date: 2025-10-09 10:00:00
     OS: debian 12 [linux 6.1.0]
"""


def test_bandwidth_is_operations_times_their_size() -> None:
    (report,) = recognise(REPORT)
    found = {
        (result.name, sample.metric, sample.direction): sample.value
        for result in report.results
        for sample in result.outcome.samples
    }
    assert (report.program, report.version) == ("kdiskmark", "3.1.4")
    assert found["seq1m-q8t1-read", "bandwidth", Direction.READ] == 200 * (1 << 20)
    assert found["rnd4k-q1t1-read", "latency_mean", Direction.READ] == pytest.approx(99.5e-6)
    assert found["seq1m-q8t1-write", "iops", Direction.WRITE] == 100
    assert found["rnd4k-q1t1-mix70", "bandwidth", Direction.NONE] == 5000 * 4096
    assert not any(name == "rnd4k-q1t1-write" for name, _, _ in found)  # it was not run


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REPORT + REPORT, "2 reports of KDiskMark"),
        (REPORT.replace("[Read]", "").replace("[Write]", "", 1), "below no"),
        (REPORT.replace("200.0 IOPS", "many IOPS"), "is not a result of KDiskMark"),
        (REPORT.replace("[Write]", "[Read]"), "a second result of"),
        (REPORT.partition("[Read]")[0], "no test of KDiskMark has a result"),
    ],
)
def test_a_mutilated_report_is_refused(text: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        recognise(text)
