"""What is counted outside of a program that cannot know it."""

from __future__ import annotations

from vdisklab.campaign.measured_evidence import observed_samples
from vdisklab.results.model import Direction, Evidence, IoCounters

EVIDENCE = Evidence(
    qemu=IoCounters(0, 9, 0, 3, 7), allocated_before=4096, allocated_after=12288
)  # fmt: skip
EVERY = ("allocated", "mapped", "flushes")


def values(evidence: Evidence, mapped: int | None) -> dict[str, float]:
    return {each.metric: each.value for each in observed_samples(EVERY, evidence, mapped)}


def test_what_was_counted() -> None:
    assert values(EVIDENCE, 65536) == {"allocated": 8192, "mapped": 65536, "flushes": 7}


def test_what_nobody_counted_is_missing_and_no_zero() -> None:
    assert values(Evidence(), None) == {}
    assert values(Evidence(qemu=IoCounters(0, 9, 0, 3)), None) == {}


def test_what_an_image_gave_back_is_zero_if_it_grew_and_missing_if_nobody_counted() -> None:
    freed = ("freed_image", "freed_device")
    shrunk = Evidence(allocated_before=12288, allocated_after=4096)
    assert [each.value for each in observed_samples(freed, shrunk, None, 512)] == [8192, 512]
    (grown,) = observed_samples(freed, EVIDENCE, None)
    assert (grown.metric, grown.value, grown.direction) == ("freed_image", 0, Direction.TRIM)
    assert observed_samples(freed, Evidence(), None) == ()


def test_flushes_are_counted_at_each_place() -> None:
    evidence = Evidence(
        guest=IoCounters(0, 9, 0, 512), qemu=IoCounters(0, 9, 0, 514, 7),
        device=IoCounters(0, 9, 0, 600, 1024),
    )  # fmt: skip
    observe = ("writes", "flushes", "host_syncs", "device_flushes")
    found = observed_samples(observe, evidence, None, syncs=519)
    assert [(each.metric, each.value) for each in found] == [
        ("writes", 512), ("flushes", 7), ("host_syncs", 519), ("device_flushes", 1024),
    ]  # fmt: skip
    assert observed_samples(observe, Evidence(), None) == ()


def test_nothing_is_told_that_was_not_asked_for() -> None:
    assert observed_samples((), EVIDENCE, 65536) == ()
