"""Every path that a guest can have, for properties of exports and audits."""

from __future__ import annotations

from hypothesis import strategies as st

from vdisklab.path.disk_path import Attachment, DiskPath, Image, Layer, Options
from vdisklab.path.options import (
    BUS_OPTIONS,
    FORMAT_OPTIONS,
    LAYER_OPTIONS,
    Choice,
    Number,
    OptionType,
    OptionValue,
    Schema,
    Size,
    Switch,
)
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, LayerKind


def values_of(option: OptionType) -> st.SearchStrategy[OptionValue]:
    match option:
        case Choice():
            return st.sampled_from(option.choices)
        case Switch():
            return st.booleans()
        case Number():
            return st.integers(option.low, option.high)
        case Size():
            exponents = st.integers(option.low.bit_length() - 1, option.high.bit_length() - 1)
            return exponents.map(lambda exponent: 1 << exponent)
        case _:
            raise AssertionError(option)


def options_of(schema: Schema) -> st.SearchStrategy[Options]:
    # Which QEMU runs the guest is not in the guest's configuration.
    values = {name: values_of(option) for name, option in schema.items() if name != "qemu"}
    return st.fixed_dictionaries({}, optional=values).map(lambda found: tuple(found.items()))


def is_configurable(path: DiskPath) -> bool:
    null = path.image is not None and path.image.format is ImageFormat.NULL
    return not null and impossible(path) is None


layers = st.sampled_from(LayerKind).flatmap(
    lambda kind: st.builds(Layer, st.just(kind), options_of(LAYER_OPTIONS[kind]))
)
images = st.sampled_from([form for form in ImageFormat if form.is_file]).flatmap(
    lambda form: st.builds(Image, st.just(form), options_of(FORMAT_OPTIONS[form]))
)
attachments = st.sampled_from(Bus).flatmap(
    lambda bus: st.builds(Attachment, st.just(bus), options_of(BUS_OPTIONS[bus]))
)
configurable_paths = st.builds(
    DiskPath,
    st.lists(layers, max_size=2).map(tuple),
    st.none() | images,
    st.sampled_from(CacheMode),
    attachments,
).filter(is_configurable)
