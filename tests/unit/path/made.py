"""Hypothesis strategies for disk paths: any that can be written, and any that a guest can have."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from vdisklab.path.bus_options import GUESTS, IN_THE_GUEST
from vdisklab.path.disk_path import Attachment, DiskPath, Image, Layer, Options
from vdisklab.path.options import (
    NAME,
    Choice,
    MountOptions,
    Name,
    Number,
    OptionType,
    OptionValue,
    Order,
    Percent,
    Schema,
    Size,
    Switch,
)
from vdisklab.path.rules import impossible
from vdisklab.path.segments import (
    BUS_OPTIONS,
    FORMAT_OPTIONS,
    Bus,
    CacheMode,
    ImageFormat,
    LayerKind,
)


def values_of(option: OptionType) -> st.SearchStrategy[OptionValue]:  # noqa: PLR0911 - one case per type
    """Any value that an option can have."""
    match option:
        case Choice():
            return st.sampled_from(option.choices)
        case Switch():
            return st.booleans()
        case Number(power_of_two=False) | Size(power_of_two=False):
            return st.integers(option.low, option.high)
        case Percent():
            return st.integers(1, 100)
        case Number() | Size():
            exponents = st.integers(option.low.bit_length() - 1, option.high.bit_length() - 1)
            return exponents.map(lambda exponent: 1 << exponent)
        case Name():
            return st.from_regex(NAME, fullmatch=True)
        case MountOptions():
            return st.sampled_from(["noatime", "noatime+commit=60"])
        case Order():
            return st.sampled_from(["snapshot", "backup+workers=1"])
        case _:
            raise AssertionError(option)


def options_of(schema: Schema) -> st.SearchStrategy[Options]:
    """Any set of options, in any order, defaults among them."""
    all_values = {name: values_of(option) for name, option in schema.items()}
    chosen: st.SearchStrategy[Mapping[str, OptionValue]] = st.fixed_dictionaries(
        {}, optional=all_values
    )
    return chosen.flatmap(lambda options: st.permutations(list(options.items()))).map(tuple)


# Strategies are made once, not for each example: making them takes longer than drawing from them.
layers = st.one_of([st.builds(Layer, st.just(kind), options_of(kind.facts.options))
                    for kind in LayerKind])  # fmt: skip
images = st.one_of([st.builds(Image, st.just(form), options_of(FORMAT_OPTIONS[form]))
                    for form in ImageFormat])  # fmt: skip
attachments = st.one_of([st.builds(Attachment, st.just(bus), options_of(BUS_OPTIONS[bus]))
                         for bus in Bus])  # fmt: skip
stacks = st.lists(layers, max_size=3).map(tuple)
guest_paths = st.builds(
    DiskPath, stacks, st.none() | images, st.sampled_from(CacheMode), attachments
)
host_paths = st.builds(DiskPath, stacks, on_host=st.just(True))
disk_paths = guest_paths | host_paths


def is_configurable(path: DiskPath) -> bool:
    """True for a guest's disk that can exist; which QEMU runs it is not in its configuration."""
    return path.is_guest_storage and path.attachment.qemu is None and impossible(path) is None


NOT_CONFIGURED = ("qemu", GUESTS, "during", "made", "cgroup_iops", "cgroup_bps", *IN_THE_GUEST)
plain_attachments = st.one_of([st.builds(Attachment, st.just(bus), options_of(
    {name: option for name, option in BUS_OPTIONS[bus].items() if name not in NOT_CONFIGURED}))
    for bus in Bus if not bus.is_served and not bus.shares_directory])  # fmt: skip
configurable_paths = st.builds(
    DiskPath,
    st.lists(layers, max_size=2).map(tuple),
    st.none() | images,
    st.sampled_from(CacheMode),
    plain_attachments,
).filter(is_configurable)


def place_for(path: DiskPath, file: str) -> str | None:
    """The file, for a path that the host's kernel opens; None leaves a server's disk to its
    example.
    """
    return None if path.opened_by_qemu else file
